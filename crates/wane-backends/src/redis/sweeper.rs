//! Sweeping: expired records leave by themselves, a bounded step at a time.
//!
//! Each bucket has a list of its partitions, filed under the time at which something in them
//! expires. Every node asks once in a while for those that are due and runs a script over each, which
//! removes what expired and files the partition anew. Scripts are one step on the server, so any
//! number of nodes may do this at once; a record that was renewed is decided by its own expiry.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use redis::{Pipeline, ServerError, cmd};

use super::layout::{BUCKETS, slot_of};
use super::link::{Fault, Link, strange};
use super::reply::{array, bytes, time};
use super::{Inner, scripts};

/// The pause between two rounds that leave nothing due.
const PERIOD: Duration = Duration::from_millis(500);

/// Due partitions of one bucket that a round takes on.
const PARTITIONS: usize = 32;

/// Partitions that are swept at once.
const SIDE_BY_SIDE: usize = 4;

/// Rows and bytes that one script looks at: half a millisecond of the server or so.
const STEP_ROWS: usize = 100;
const STEP_BYTES: usize = 1 << 20;

/// Scripts that run over one partition before others have their turn.
const STEPS: usize = 50;

/// How long a partition that cannot be swept is left alone.
const BROKEN: Duration = Duration::from_secs(60);

/// Sweeps until the last handle is gone.
pub(super) async fn keep_sweeping(store: Weak<Inner>) {
    while let Some(clock) = store.upgrade().map(|inner| Arc::clone(&inner.clock)) {
        match round(&store).await {
            Ok(true) => continue,
            Ok(false) => {}
            Err(fault) => tracing::debug!(backend = "redis", %fault, "not swept"),
        }
        clock.sleep(PERIOD).await;
    }
}

/// Sweeps what is due on every server, and says whether more may be.
async fn round(store: &Weak<Inner>) -> Result<bool, Fault> {
    let Some(masters) = store.upgrade().map(|inner| inner.servers.masters()) else {
        return Ok(false);
    };
    let (mut more, mut failure) = (false, None);
    for master in masters {
        // One that does not answer must not keep the others from being swept.
        match sweep_on(store, &master).await {
            Ok(left) => more |= left,
            Err(fault) => failure = Some(fault),
        }
    }
    failure.map_or(Ok(more), Err)
}

/// Sweeps what is due on one server, and says whether more may be.
async fn sweep_on(store: &Weak<Inner>, master: &Arc<Link>) -> Result<bool, Fault> {
    let Some(inner) = store.upgrade() else { return Ok(false) };
    let (due, mut more) = inner.due_on(master).await?;
    drop(inner);
    for partitions in due.chunks(SIDE_BY_SIDE) {
        let sweeping = partitions.iter().map(|partition| sweep_partition(store, partition));
        for left in join_all(sweeping).await {
            more |= left?;
        }
    }
    Ok(more)
}

/// Sweeps one partition for a while, and says whether more is due there.
async fn sweep_partition(store: &Weak<Inner>, partition: &[u8]) -> Result<bool, Fault> {
    for _ in 0..STEPS {
        // Not held in between: the last handle ends the sweeping.
        let Some(inner) = store.upgrade() else { return Ok(false) };
        match inner.sweep(partition).await {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(Fault::Answered(error)) => {
                inner.put_off(partition, &error).await?;
                return Ok(false);
            }
            Err(fault) => return Err(fault),
        }
    }
    Ok(true)
}

impl Inner {
    /// The partitions whose time has come, of all buckets that `master` has, and whether there are
    /// more.
    async fn due_on(&self, master: &Arc<Link>) -> Result<(Vec<Vec<u8>>, bool), Fault> {
        let reply = master.request(&cmd("TIME")).await?;
        let now = time(reply).ok_or_else(|| Fault::Unclear(strange()))?;
        let mut asked = Pipeline::with_capacity(BUCKETS.into());
        for bucket in 0..BUCKETS {
            let (due, slot) = self.layout.due(bucket);
            if self.servers.holder(slot).is_some_and(|holder| Arc::ptr_eq(&holder, master)) {
                let mut ask = cmd("ZRANGEBYSCORE");
                ask.arg(due).arg("-inf").arg(now).arg("LIMIT").arg(0).arg(PARTITIONS);
                asked.add_command(ask);
            }
        }
        if asked.is_empty() {
            return Ok((Vec::new(), false));
        }
        let mut due = Vec::new();
        let (mut more, mut moved) = (false, false);
        for reply in master.requests(&asked).await? {
            match array(reply) {
                Some(partitions) => {
                    more |= partitions.len() == PARTITIONS;
                    due.extend(partitions.into_iter().filter_map(bytes));
                }
                None => moved = true,
            }
        }
        if moved {
            self.servers.look_again().await?;
        }
        Ok((due, more))
    }

    /// Removes rows of a partition that are due, and says whether more are.
    async fn sweep(&self, partition: &[u8]) -> Result<bool, Fault> {
        let place = self.layout.place(partition);
        let reply = self.run(&scripts::SWEEP, &place, 4, |call| {
            call.arg(partition).arg(STEP_ROWS).arg(STEP_BYTES);
        });
        let (_, more): (u64, u64) =
            redis::from_redis_value(reply.await?).map_err(|_| Fault::Unclear(strange()))?;
        Ok(more != 0)
    }

    /// Leaves a partition alone that the server will not sweep, so that others have their turn.
    async fn put_off(&self, partition: &[u8], error: &ServerError) -> Result<(), Fault> {
        let [records, _, _, due] = self.layout.place(partition).keys;
        tracing::warn!(backend = "redis", key = records, %error, "cannot be swept");
        let slot = slot_of(due.as_bytes());
        let later = self.clock.now().as_unix_millis() + BROKEN.as_millis() as u64;
        let mut file = cmd("ZADD");
        file.arg(due).arg("XX").arg(later).arg(partition);
        self.servers.request(slot, &file).await.map(drop)
    }
}
