//! What operators watch of snapshots: how many were taken, how many failed, how old the last one is.

use std::sync::atomic::{AtomicU64, Ordering};

use wane::store::Timestamp;

/// Counts since the server started.
#[derive(Debug, Default)]
pub(crate) struct SnapshotCounts {
    done: AtomicU64,
    failed: AtomicU64,
    /// Unix seconds; zero where there was none.
    last_done: AtomicU64,
    last_bytes: AtomicU64,
}

impl SnapshotCounts {
    pub(super) fn done(&self, now: Timestamp, bytes: u64) {
        self.done.fetch_add(1, Ordering::Relaxed);
        self.last_done.store(now.as_unix_millis() / 1_000, Ordering::Relaxed);
        self.last_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// As Prometheus reads it.
    pub(crate) fn prometheus_text(&self) -> String {
        let of = |count: &AtomicU64| count.load(Ordering::Relaxed);
        format!(
            "# HELP wane_snapshots_total Snapshots that were due, by what became of them.\n\
             # TYPE wane_snapshots_total counter\n\
             wane_snapshots_total{{outcome=\"done\"}} {}\n\
             wane_snapshots_total{{outcome=\"failed\"}} {}\n\
             # HELP wane_snapshot_last_done_timestamp_seconds When this node took its last snapshot.\n\
             # TYPE wane_snapshot_last_done_timestamp_seconds gauge\n\
             wane_snapshot_last_done_timestamp_seconds {}\n\
             # HELP wane_snapshot_last_bytes How long it is.\n\
             # TYPE wane_snapshot_last_bytes gauge\n\
             wane_snapshot_last_bytes {}\n",
            of(&self.done),
            of(&self.failed),
            of(&self.last_done),
            of(&self.last_bytes)
        )
    }
}
