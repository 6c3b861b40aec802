//! Quotas: how many BLOBs an application holds, and how many bytes.
//!
//! A ledger is counted from the index of the application when it is first needed, and kept from
//! then on: commits and removals are booked under the id of their BLOB, and expiries by the clock.
//! So booking twice is booking once. Uploads under way reserve what they have been sent, and so are
//! refused while they stream, not after.
//!
//! On a store that other nodes write to as well the ledger is counted anew once in a while; the
//! excess is bounded by what all nodes take in between. What a crash left of an upload is in no
//! index: it is not counted, and expires. Costs about 150 bytes for each BLOB held.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Mutex as AsyncMutex;

use super::place::{index_of, indexed};
use super::{BlobLimits, BlobsError, Suuid};
use crate::clock::SharedClock;
use crate::services::ClusterAppId;
use crate::store::{ClusteringRange, PageLimit, Store, StoreError, Timestamp};

/// How much an application holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// BLOBs, uploads under way included.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// The ledgers of all applications.
#[derive(Debug, Default)]
pub(super) struct Ledgers {
    ledgers: Mutex<HashMap<ClusterAppId, Arc<Ledger>>>,
}

impl Ledgers {
    pub(super) fn of(&self, app: ClusterAppId) -> Arc<Ledger> {
        Arc::clone(self.ledgers.lock().entry(app).or_default())
    }
}

/// What one application holds.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    books: Mutex<Books>,
    /// Held by the one who counts.
    counting: AsyncMutex<()>,
}

#[derive(Debug, Default)]
struct Books {
    counted_at: Option<Duration>,
    blobs: HashMap<Suuid, (u64, Timestamp)>,
    due: BTreeSet<(Timestamp, Suuid)>,
    bytes: u64,
    reserved: Usage,
    /// What was booked since a count began, to be booked again after it.
    since: Option<Vec<Booking>>,
}

/// A BLOB that came, with its size and its expiry, or that went.
type Booking = (Suuid, Option<(u64, Timestamp)>);

impl Books {
    fn usage(&mut self, now: Timestamp) -> Usage {
        while let Some((_, id)) = self.due.first().copied().filter(|(expiry, _)| *expiry <= now) {
            self.take_out(id);
        }
        Usage {
            blobs: self.blobs.len() as u64 + self.reserved.blobs,
            bytes: self.bytes + self.reserved.bytes,
        }
    }

    fn book(&mut self, booking: Booking) {
        if let Some(since) = &mut self.since {
            since.push(booking);
        }
        let (id, held) = booking;
        self.take_out(id);
        if let Some((size, expires_at)) = held {
            self.blobs.insert(id, (size, expires_at));
            self.due.insert((expires_at, id));
            self.bytes += size;
        }
    }

    fn take_out(&mut self, id: Suuid) {
        if let Some((size, expires_at)) = self.blobs.remove(&id) {
            self.due.remove(&(expires_at, id));
            self.bytes -= size;
        }
    }

    /// Takes over what was counted, and what was booked meanwhile.
    fn replace(&mut self, counted: Vec<Booking>, began: Duration) {
        let since = self.since.take().unwrap_or_default();
        self.blobs.clear();
        self.due.clear();
        self.bytes = 0;
        counted.into_iter().chain(since).for_each(|booking| self.book(booking));
        self.counted_at = Some(began);
    }
}

impl Ledger {
    /// Counts the application's index unless that was done lately.
    pub(super) async fn count<S: Store>(
        &self,
        store: &S,
        clock: &SharedClock,
        app: ClusterAppId,
        recount: Option<Duration>,
    ) -> Result<(), StoreError> {
        let is_fresh = || {
            let counted_at = self.books.lock().counted_at;
            counted_at.is_some_and(|at| {
                recount.is_none_or(|interval| clock.monotonic().saturating_sub(at) < interval)
            })
        };
        if is_fresh() {
            return Ok(());
        }
        let _alone = self.counting.lock().await;
        if is_fresh() {
            return Ok(());
        }
        let began = clock.monotonic();
        self.books.lock().since = Some(Vec::new());
        let mut counted = Vec::new();
        for partition in index_of(app) {
            let (partition, mut rest) = (partition?, Some(ClusteringRange::ALL));
            while let Some(range) = rest {
                let page = store.read(&partition, &range, PageLimit::MAX).await?;
                counted.extend(page.rows.iter().filter_map(|row| {
                    let size = <[u8; 8]>::try_from(&*row.record.value).ok()?;
                    let held = (u64::from_be_bytes(size), row.record.expires_at?);
                    Some((indexed(&row.key)?, Some(held)))
                }));
                rest = page.rest;
            }
        }
        self.books.lock().replace(counted, began);
        Ok(())
    }

    pub(super) fn usage(&self, now: Timestamp) -> Usage {
        self.books.lock().usage(now)
    }

    /// Sets a BLOB of so many bytes aside, if the limits allow it.
    pub(super) fn reserve(
        self: &Arc<Self>,
        limits: &BlobLimits,
        bytes: u64,
        now: Timestamp,
    ) -> Result<Reservation, BlobsError> {
        let mut books = self.books.lock();
        let held = books.usage(now);
        check("blobs", held.blobs, 1, limits.max_blobs)?;
        check("bytes", held.bytes, bytes, limits.max_total_bytes)?;
        books.reserved.blobs += 1;
        books.reserved.bytes += bytes;
        drop(books);
        Ok(Reservation { ledger: Arc::clone(self), limit: limits.max_total_bytes, bytes })
    }

    /// Books that a BLOB has gone.
    pub(super) fn remove(&self, id: Suuid) {
        self.books.lock().book((id, None));
    }
}

fn check(what: &'static str, held: u64, more: u64, limit: u64) -> Result<(), BlobsError> {
    if held.saturating_add(more) > limit {
        return Err(BlobsError::OverQuota { what, held, limit });
    }
    Ok(())
}

/// What is set aside for an upload under way. Dropped, it is given back.
#[derive(Debug)]
pub(super) struct Reservation {
    ledger: Arc<Ledger>,
    limit: u64,
    bytes: u64,
}

impl Reservation {
    /// Sets more aside, up to `bytes` in all, if the limits allow it.
    pub(super) fn grow_to(&mut self, bytes: u64, now: Timestamp) -> Result<(), BlobsError> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        let mut books = self.ledger.books.lock();
        check("bytes", books.usage(now).bytes, more, self.limit)?;
        books.reserved.bytes += more;
        self.bytes = bytes;
        Ok(())
    }

    /// Books the BLOB that came of it.
    pub(super) fn book(self, id: Suuid, size: u64, expires_at: Timestamp) {
        self.ledger.books.lock().book((id, Some((size, expires_at))));
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut books = self.ledger.books.lock();
        books.reserved.blobs -= 1;
        books.reserved.bytes -= self.bytes;
    }
}
