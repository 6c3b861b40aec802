//! What a reader does: it takes the time, then what is young and what lies below, all at one instant.

use std::sync::Arc;

use wane::store::{StoreError, Timestamp};

use super::{Group, Shared, View, Visible};
use crate::file::engine::ReadError;
use crate::file::young::Generation;

/// What a reader finds when it looks.
enum Look<A> {
    /// A group that it must wait for.
    Wait(Arc<Group>),
    /// What it came for.
    See(View, A),
}

impl Shared {
    /// Runs `read` on what is there, after the group in flight where that `concerns` it. What it
    /// needs of the active generation is what `copy` takes from it.
    pub(in crate::file) async fn read<A, T>(
        &self,
        concerns: impl Fn(&Group) -> bool,
        copy: impl Fn(&Generation, Timestamp) -> A,
        read: impl Fn(&View, &A) -> Result<T, ReadError>,
    ) -> Result<T, StoreError> {
        let now = self.clock.now();
        loop {
            let (view, active) = match self.look(now, &concerns, &copy)? {
                Look::Wait(group) => {
                    group.landing().await;
                    continue;
                }
                Look::See(view, active) => (view, active),
            };
            match read(&view, &active) {
                Err(ReadError::Engine(error)) if !self.is_replaced(view.generation()).await => {
                    return Err(self.refused(ReadError::Engine(error)));
                }
                Err(ReadError::Engine(_)) => {}
                Err(ReadError::Record(error)) => return Err(error),
                Ok(found) => return Ok(found),
            }
        }
    }

    /// Takes what a reader needs, all at one instant.
    fn look<A>(
        &self,
        now: Timestamp,
        concerns: impl Fn(&Group) -> bool,
        copy: impl Fn(&Generation, Timestamp) -> A,
    ) -> Result<Look<A>, StoreError> {
        self.check()?;
        let visible = self.visible.read();
        let now = now.max(visible.as_of);
        if let Some(group) = visible.undecided(now).filter(|group| concerns(group)) {
            return Ok(Look::Wait(Arc::clone(group)));
        }
        let below = visible.below.clone().ok_or_else(|| self.failure())?;
        Ok(Look::See(View { now, below }, copy(&visible.active, now)))
    }

    /// A view for longer than a moment: it depends neither on a group in flight nor on the active
    /// generation.
    pub(in crate::file) async fn settled_view(&self) -> Result<View, StoreError> {
        let now = self.clock.now();
        loop {
            match self.settle(now)? {
                Look::Wait(group) => group.landing().await,
                Look::See(view, ()) => return Ok(view),
            }
        }
    }

    /// Seals what is active, unless there is a group to wait for.
    fn settle(&self, now: Timestamp) -> Result<Look<()>, StoreError> {
        self.check()?;
        let mut visible = self.visible.write();
        let now = now.max(visible.as_of);
        if let Some(group) = visible.undecided(now) {
            return Ok(Look::Wait(Arc::clone(group)));
        }
        self.seal_visible(&mut visible);
        let below = visible.below.clone().ok_or_else(|| self.failure())?;
        Ok(Look::See(View { now, below }, ()))
    }

    /// What the caller is told about a read that failed. An unreadable file fails the store.
    pub(in crate::file) fn refused(&self, error: ReadError) -> StoreError {
        match error {
            ReadError::Record(error) => error,
            ReadError::Engine(error) => {
                self.fail(&error.to_string());
                self.failure()
            }
        }
    }

    /// Whether another engine has taken the place of the one with this number. An engine that ran
    /// out of room reads no more either, and is replaced before its commit is over.
    pub(in crate::file) async fn is_replaced(&self, generation: u64) -> bool {
        self.busy.over().await;
        let visible = self.visible.read();
        let current = visible.below.as_ref().map(|below| below.tree.generation);
        current.is_some_and(|current| current != generation)
    }
}

impl Visible {
    /// The group in flight, where it was decided before `now`: of what it changes nobody knows what is
    /// there at that time.
    fn undecided(&self, now: Timestamp) -> Option<&Arc<Group>> {
        self.in_flight.as_ref().filter(|group| group.decided < now)
    }
}
