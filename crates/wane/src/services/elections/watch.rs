//! Watches: who holds an election, told when it changes hands.
//!
//! Where this process sees every write, a watch wakes by them; on a shared store it looks four
//! times a second. A lease that runs out makes no write, so a watch also wakes at its end.
//! Renewals are not told: nothing changed hands.

use std::time::Duration;

use super::record::Stored;
use super::{AppElections, ElectionsError, Standing, Token};
use crate::store::{ClusteringRange, Key, Partition, Store, Watch};

/// Lets a lease that ran out by one clock run out by others too, and candidates not all at once.
const JITTER: Duration = Duration::from_millis(50);

/// How often a watch looks that nothing wakes: a write that nobody confirmed may arrive unseen, and
/// timers stand still while a machine sleeps.
const LOOK: Duration = Duration::from_secs(5);

/// A watch over one election. Dropping it ends it.
#[derive(Debug)]
pub struct ElectionWatch<S> {
    elections: AppElections<S>,
    key: Key,
    /// `None` where others write too, and only looking tells.
    changes: Option<Watch>,
    seen: Option<Stored>,
    /// Whether something may have changed that was not seen: a look failed, or was given up.
    is_stale: bool,
    /// The newest token and whether anybody held it, as the caller knows.
    told: Option<(Token, bool)>,
}

impl<S: Store> AppElections<S> {
    /// Watches an election, also one that nobody has campaigned in yet.
    pub async fn watch(&self, name: &str) -> Result<ElectionWatch<S>, ElectionsError> {
        let key = self.key(name)?;
        let changes = match self.shared.rules.poll {
            Some(_) => None,
            None => {
                let partition = Partition::new(key.partition().to_vec())?;
                let row = ClusteringRange::only(name.to_owned())?;
                Some(self.shared.store.watch(&partition, row).await?)
            }
        };
        let mut watch = ElectionWatch {
            elections: self.clone(),
            key,
            changes,
            seen: None,
            is_stale: true,
            told: None,
        };
        watch.look().await?;
        Ok(watch)
    }
}

impl<S: Store> ElectionWatch<S> {
    /// Waits until the election is in other hands than the caller was told, and returns where it
    /// stands: at first that is now, if anybody ever campaigned.
    ///
    /// After an error of the store the watch can be used on, and misses nothing. Dropping the future
    /// loses nothing either.
    pub async fn changed(&mut self) -> Result<Standing, ElectionsError> {
        loop {
            if self.is_stale {
                self.look().await?;
            }
            let now = self.elections.shared.clock.now();
            if let Some(stored) = &self.seen {
                let hands = Some((stored.token, stored.is_held(now)));
                if self.told != hands {
                    self.told = hands;
                    return Ok(stored.standing(now));
                }
            }
            self.wait().await?;
        }
    }

    /// Waits until nobody holds the election, a little longer where a lease ran out. Looks first.
    pub async fn vacant(&mut self) -> Result<(), ElectionsError> {
        self.look().await?;
        while let Some(stored) = &self.seen {
            if !stored.is_held(self.elections.shared.clock.now()) {
                if stored.end().as_unix_millis() > 0 {
                    self.dither().await;
                }
                break;
            }
            self.wait().await?;
        }
        Ok(())
    }

    async fn dither(&self) {
        let clock = &self.elections.shared.clock;
        let share = (clock.random_u64() % 1_000) as u32;
        clock.sleep(JITTER * share / 1_000).await;
    }

    /// Waits for a change, the end of the lease or the time to look, whichever comes first.
    async fn wait(&mut self) -> Result<(), ElectionsError> {
        let shared = &self.elections.shared;
        let now = shared.clock.now();
        let held = self.seen.as_ref().filter(|stored| stored.is_held(now));
        let end = held.map(|stored| now.until(stored.end()));
        let look = shared.rules.poll.unwrap_or(LOOK);
        let pause = shared.clock.sleep(end.map_or(look, |end| end.min(look)));
        let change = async {
            match &mut self.changes {
                Some(changes) => changes.next().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            notice = change => drop(notice.ok_or(ElectionsError::Closed)?),
            () = pause => {}
        }
        self.look().await
    }

    async fn look(&mut self) -> Result<(), ElectionsError> {
        self.is_stale = true;
        self.seen = self.elections.read(&self.key).await?.map(|(_, stored)| stored);
        self.is_stale = false;
        Ok(())
    }
}
