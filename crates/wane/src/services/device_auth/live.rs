//! Live user codes: how many there are, of an application and in all.
//!
//! The more codes are live, the likelier a guess hits one, so their number is bounded. They are
//! counted from the index when first needed, and kept from then on: each start adds its own, each
//! expiry takes it away. On a store that other nodes write to as well they are counted anew once in
//! a while; the excess is bounded by what all nodes start in between.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use super::place::{Reference, user_codes};
use super::secret::Hash;
use super::{DeviceAuthError, Shared};
use crate::services::ClusterAppId;
use crate::store::{PageLimit, Store, StoreError, Timestamp};

/// The live codes of all applications.
#[derive(Debug, Default)]
pub(super) struct LiveCodes {
    books: Mutex<Books>,
    /// Held by the one who counts.
    counting: AsyncMutex<()>,
}

#[derive(Debug, Default)]
struct Books {
    counted_at: Option<Duration>,
    codes: HashMap<Hash, (ClusterAppId, Timestamp)>,
    due: BTreeSet<(Timestamp, Hash)>,
    of_apps: HashMap<ClusterAppId, usize>,
}

impl Books {
    fn add(&mut self, code: Hash, app: ClusterAppId, expires_at: Timestamp) {
        self.remove(&code);
        self.codes.insert(code, (app, expires_at));
        self.due.insert((expires_at, code));
        *self.of_apps.entry(app).or_default() += 1;
    }

    fn remove(&mut self, code: &Hash) {
        let Some((app, expires_at)) = self.codes.remove(code) else { return };
        self.due.remove(&(expires_at, *code));
        if let Some(count) = self.of_apps.get_mut(&app) {
            *count -= 1;
            if *count == 0 {
                self.of_apps.remove(&app);
            }
        }
    }

    fn forget_expired(&mut self, now: Timestamp) {
        while let Some((_, code)) = self.due.first().copied().filter(|(due, _)| *due <= now) {
            self.remove(&code);
        }
    }
}

impl LiveCodes {
    fn is_fresh(&self, now: Duration, recount: Option<Duration>) -> bool {
        let counted_at = self.books.lock().counted_at;
        counted_at.is_some_and(|at| recount.is_none_or(|every| now.saturating_sub(at) < every))
    }

    /// Takes a place for a code, if there is one; `false` where the code itself is known to live.
    pub(super) fn reserve(
        &self,
        code: Hash,
        app: ClusterAppId,
        expires_at: Timestamp,
        (now, per_app, in_all): (Timestamp, usize, usize),
    ) -> Result<bool, DeviceAuthError> {
        let mut books = self.books.lock();
        books.forget_expired(now);
        if books.codes.contains_key(&code) {
            return Ok(false);
        }
        let of_app = books.of_apps.get(&app).copied().unwrap_or_default();
        if of_app >= per_app || books.codes.len() >= in_all {
            let until_next = books.due.first().map_or(Duration::ZERO, |(due, _)| now.until(*due));
            let bounds = (Duration::from_secs(1), Duration::from_secs(60));
            let retry_after = until_next.clamp(bounds.0, bounds.1);
            return Err(DeviceAuthError::Limited { what: "codes are waiting", retry_after });
        }
        books.add(code, app, expires_at);
        Ok(true)
    }

    /// Gives a place back whose code was not written.
    pub(super) fn release(&self, code: &Hash) {
        self.books.lock().remove(code);
    }
}

impl<S: Store> Shared<S> {
    /// Counts the live codes unless that was done lately.
    pub(super) async fn count_live(&self) -> Result<(), StoreError> {
        let is_fresh = || self.live.is_fresh(self.clock.monotonic(), self.settings.recount);
        if is_fresh() {
            return Ok(());
        }
        let _alone = self.live.counting.lock().await;
        if is_fresh() {
            return Ok(());
        }
        let began = self.clock.monotonic();
        let (partition, range) = user_codes()?;
        let mut rest = Some(range);
        while let Some(range) = rest {
            let page = self.store.read(&partition, &range, PageLimit::MAX).await?;
            let mut books = self.live.books.lock();
            for row in &page.rows {
                let code = row.key.clustering().last_chunk::<32>();
                let reference = Reference::read(&row.record.value);
                if let (Some(code), Some(to), Some(due)) = (code, reference, row.record.expires_at)
                {
                    books.add(*code, to.app, due);
                }
            }
            drop(books);
            rest = page.rest;
        }
        self.live.books.lock().counted_at = Some(began);
        Ok(())
    }
}
