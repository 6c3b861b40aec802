//! The archiver of `wane serve`: every now and then, what is due of all institutions is archived.
//!
//! One institution after the other and some segments at a time, so that a busy one does not keep the
//! others waiting, at the pace that the service keeps. Whatever fails is told and tried again at the
//! next round; ended in the middle, the next round or another node goes on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use wane::services::pull_stream::{ArchiveReport, Ispb, PullStreamError};

use crate::wiring::Services;

/// Segments of one institution before it is another's turn.
const IN_A_TURN: u64 = 8;

/// What was archived by this process.
#[derive(Debug, Default)]
pub(crate) struct ArchiveMetrics {
    segments: AtomicU64,
    rows: AtomicU64,
    bytes: AtomicU64,
    failures: AtomicU64,
    gone: AtomicU64,
    damaged: AtomicU64,
    /// Of the institution that is furthest behind, in milliseconds.
    lag: AtomicU64,
}

impl ArchiveMetrics {
    /// Counts what was archived, on its own or because somebody asked.
    pub(crate) fn archived(&self, ispb: Ispb, report: &ArchiveReport) {
        self.segments.fetch_add(report.segments, Ordering::Relaxed);
        self.rows.fetch_add(report.rows, Ordering::Relaxed);
        self.bytes.fetch_add(report.bytes, Ordering::Relaxed);
        self.gone.fetch_add(report.gone, Ordering::Relaxed);
        self.damaged.fetch_add(report.damaged, Ordering::Relaxed);
        if let Some(row) = report.first_damaged {
            tracing::error!(
                %ispb,
                row,
                rows = report.damaged,
                "rows of the log cannot be read and are not archived"
            );
        }
        if report.gone > 0 {
            tracing::warn!(
                %ispb,
                rows = report.gone,
                "messages expired before they were archived; archive earlier \
                 (stream_archive_before_hours) or see why the archiver was late"
            );
        }
    }

    fn failed(&self, ispb: Option<Ispb>, error: &PullStreamError) {
        self.failures.fetch_add(1, Ordering::Relaxed);
        match ispb {
            Some(ispb) => tracing::error!(%ispb, %error, "archiving failed; it is tried again"),
            None => tracing::error!(%error, "archiving failed; it is tried again"),
        }
    }

    /// The counters as Prometheus reads them.
    pub(crate) fn prometheus_text(&self) -> String {
        let counter = |name: &str, help: &str, count: &AtomicU64| {
            let count = count.load(Ordering::Relaxed);
            format!("# HELP {name} {help}\n# TYPE {name} counter\n{name} {count}\n")
        };
        let lag = Duration::from_millis(self.lag.load(Ordering::Relaxed)).as_secs_f64();
        let name = "wane_stream_archive_lag_seconds";
        let help = "How long the oldest messages that are due have not been archived.";
        [
            format!("# HELP {name} {help}\n# TYPE {name} gauge\n{name} {lag}\n"),
            counter(
                "wane_stream_archive_segments_total",
                "Segments that were written.",
                &self.segments,
            ),
            counter("wane_stream_archive_rows_total", "Rows that were archived.", &self.rows),
            counter("wane_stream_archive_bytes_total", "Bytes of those segments.", &self.bytes),
            counter(
                "wane_stream_archive_failures_total",
                "Institutions that could not be archived, and rounds that could not begin.",
                &self.failures,
            ),
            counter(
                "wane_stream_archive_missed_rows_total",
                "Rows that expired before they were archived.",
                &self.gone,
            ),
            counter(
                "wane_stream_archive_damaged_rows_total",
                "Rows that could not be read, and were not archived.",
                &self.damaged,
            ),
        ]
        .concat()
    }
}

/// Archives what is due, round after round, until the server stops.
pub(crate) async fn run(services: Services, every: Duration) {
    let rounds = async {
        loop {
            if round(&services).await {
                services.clock.sleep(every).await;
            }
        }
    };
    tokio::select! {
        () = services.closing.wait() => {}
        () = rounds => {}
    }
}

/// One turn for each institution; false where one of them has more to archive.
async fn round(services: &Services) -> bool {
    let institutions = match services.pull_stream.institutions().await {
        Ok(institutions) => institutions,
        Err(error) => {
            services.archive_metrics.failed(None, &error);
            return true;
        }
    };
    let (mut is_done, mut lag) = (true, Duration::ZERO);
    for ispb in institutions {
        match services.pull_stream.archive_due(ispb, IN_A_TURN).await {
            Ok(report) => {
                services.archive_metrics.archived(ispb, &report);
                is_done &= report.is_done || report.segments == 0;
            }
            Err(error) => services.archive_metrics.failed(Some(ispb), &error),
        }
        match services.pull_stream.archive_status(ispb).await {
            Ok(status) => lag = lag.max(status.lag),
            Err(error) => services.archive_metrics.failed(Some(ispb), &error),
        }
    }
    services.archive_metrics.lag.store(lag.as_millis() as u64, Ordering::Relaxed);
    is_done
}
