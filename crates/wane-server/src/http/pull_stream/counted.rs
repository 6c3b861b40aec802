//! What is counted of pull streams, for Prometheus.
//!
//! Calls, tokens, batches and latencies are counted as they happen. How far behind an institution is
//! and how many read its stream are looked up when somebody asks, for those institutions that this
//! node has served: a stream that nobody reads has a lag as well.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use futures_util::stream::{StreamExt, iter};
use parking_lot::Mutex;
use wane::services::pull_stream::{
    Ispb, MAX_BATCH, PullStreamError, Pulled, Refusal, ReplayStarted, ResourceId, StreamStatus,
};
use wane::store::Timestamp;

use crate::wiring::Services;

/// Upper bounds of the buckets from taken in to delivered, in seconds.
const LATENCIES: [f64; 11] = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0, 30.0, 300.0];

/// Institutions whose standing is looked up; those beyond are not shown.
const MOST_SHOWN: usize = 2_000;

/// How long a standing is shown before it is looked up again.
const FRESH: Duration = Duration::from_secs(5);

/// Lookups at a time.
const AT_ONCE: usize = 16;

/// What a reader or a producer calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Call {
    Ingest,
    Start,
    Next,
    End,
    Replay,
    ReplayNext,
}

impl Call {
    fn name(self) -> &'static str {
        match self {
            Self::Ingest => "ingest",
            Self::Start => "start",
            Self::Next => "next",
            Self::End => "end",
            Self::Replay => "replay",
            Self::ReplayNext => "replay_next",
        }
    }
}

/// What was counted.
#[derive(Debug, Default)]
pub(crate) struct StreamMetrics {
    counts: Mutex<Counts>,
    standings: Mutex<BTreeMap<Ispb, Option<Standing>>>,
}

#[derive(Debug, Default)]
struct Counts {
    calls: BTreeMap<(Call, &'static str), u64>,
    invalid_tokens: BTreeMap<&'static str, u64>,
    taken_in: u64,
    delivered: u64,
    replayed: u64,
    /// Batches by how many messages they had.
    batches: [u64; MAX_BATCH],
    latencies: [u64; LATENCIES.len()],
    latency_seconds: f64,
}

#[derive(Debug, Clone)]
struct Standing {
    looked_at: Duration,
    live_readers: usize,
    lag: Duration,
}

impl StreamMetrics {
    pub(super) fn took_in(
        &self,
        ispb: Ispb,
        messages: usize,
        ids: &Result<Vec<ResourceId>, PullStreamError>,
    ) {
        let mut counts = self.counts.lock();
        let outcome = ids.as_ref().map_or_else(outcome_of, |_| "done");
        *counts.calls.entry((Call::Ingest, outcome)).or_default() += 1;
        if ids.is_ok() {
            counts.taken_in += messages as u64;
        }
        drop(counts);
        self.serves(ispb);
    }

    pub(super) fn pulled(
        &self,
        call: Call,
        ispb: Ispb,
        pulled: &Result<Pulled, PullStreamError>,
        now: Timestamp,
    ) {
        let mut counts = self.counts.lock();
        let batch = pulled.as_ref().ok().and_then(|pulled| pulled.batch.as_ref());
        let outcome = match pulled {
            Ok(_) if batch.is_some() => "delivered",
            Ok(_) => "empty",
            Err(error) => counts.refused(error),
        };
        *counts.calls.entry((call, outcome)).or_default() += 1;
        for message in batch.iter().flat_map(|batch| batch.messages()) {
            counts.delivered(message.id.at().until(now));
        }
        if let Some(slot) =
            batch.and_then(|batch| counts.batches.get_mut(batch.messages().len() - 1))
        {
            *slot += 1;
        }
        drop(counts);
        self.serves(ispb);
    }

    pub(super) fn ended(&self, ispb: Ispb, ended: &Result<(), PullStreamError>) {
        let mut counts = self.counts.lock();
        let outcome = match ended {
            Ok(()) => "done",
            Err(error) => counts.refused(error),
        };
        *counts.calls.entry((Call::End, outcome)).or_default() += 1;
        drop(counts);
        self.serves(ispb);
    }

    pub(super) fn replay_ordered(&self, started: &Result<ReplayStarted, PullStreamError>) {
        let outcome = started.as_ref().map_or_else(outcome_of, |_| "done");
        *self.counts.lock().calls.entry((Call::Replay, outcome)).or_default() += 1;
    }

    /// Old messages, so that they count neither as latency nor as batches of the stream.
    pub(super) fn replayed(&self, pulled: &Result<Pulled, PullStreamError>) {
        let mut counts = self.counts.lock();
        let outcome = match pulled {
            Ok(Pulled { batch: Some(batch), .. }) => {
                counts.replayed += batch.messages().len() as u64;
                "delivered"
            }
            Ok(Pulled { batch: None, .. }) => "empty",
            Err(error) => counts.refused(error),
        };
        *counts.calls.entry((Call::ReplayNext, outcome)).or_default() += 1;
    }

    /// Remembers that this node serves the institution.
    fn serves(&self, ispb: Ispb) {
        let mut standings = self.standings.lock();
        if standings.len() < MOST_SHOWN {
            standings.entry(ispb).or_default();
        }
    }

    /// The counters as Prometheus reads them, with the standings of now.
    pub(crate) async fn prometheus_text(&self, services: &Services) -> String {
        self.look_up(services).await;
        let mut text = self.counts.lock().text();
        let standings = self.standings.lock();
        let known = || standings.iter().filter_map(|(ispb, at)| Some((ispb, at.as_ref()?)));
        text += "# HELP wane_stream_lag_seconds Age of the oldest message never delivered.\n\
                 # TYPE wane_stream_lag_seconds gauge\n";
        for (ispb, standing) in known() {
            let lag = standing.lag.as_secs_f64();
            let _written = writeln!(text, "wane_stream_lag_seconds{{ispb=\"{ispb}\"}} {lag}");
        }
        text += "# HELP wane_stream_live_slots Readers that hold a lease.\n\
                 # TYPE wane_stream_live_slots gauge\n";
        for (ispb, Standing { live_readers, .. }) in known() {
            let _written =
                writeln!(text, "wane_stream_live_slots{{ispb=\"{ispb}\"}} {live_readers}");
        }
        let _written = write!(
            text,
            "# HELP wane_stream_parked_readers Readers that wait here for a message.\n\
             # TYPE wane_stream_parked_readers gauge\n\
             wane_stream_parked_readers {}\n\
             # HELP wane_stream_audit_lost_total Rejections that the audit could not take.\n\
             # TYPE wane_stream_audit_lost_total counter\n\
             wane_stream_audit_lost_total {}\n",
            services.pull_stream.parked(),
            services.pull_stream.remarks_lost()
        );
        text
    }

    /// Looks up standings that are not fresh. One that cannot be had is left out.
    async fn look_up(&self, services: &Services) {
        let now = services.clock.monotonic();
        let is_fresh = |at: &Standing| now.saturating_sub(at.looked_at) < FRESH;
        let stale: Vec<Ispb> = {
            let standings = self.standings.lock();
            let stale = standings.iter().filter(|(_, at)| !at.as_ref().is_some_and(is_fresh));
            stale.map(|(ispb, _)| *ispb).collect()
        };
        let looks = stale
            .into_iter()
            .map(|ispb| async move { (ispb, services.pull_stream.status(ispb).await) });
        let mut looks = iter(looks).buffer_unordered(AT_ONCE);
        while let Some((ispb, status)) = looks.next().await {
            let standing = status.ok().map(|status| Standing::new(&status, now));
            self.standings.lock().insert(ispb, standing);
        }
    }
}

impl Standing {
    fn new(status: &StreamStatus, looked_at: Duration) -> Self {
        Self { looked_at, live_readers: status.live_readers, lag: status.lag }
    }
}

impl Counts {
    /// Counts why a token was not taken, and names the outcome.
    fn refused(&mut self, error: &PullStreamError) -> &'static str {
        if let PullStreamError::Refused(refusal) = error
            && let Some(reason) = about_token(*refusal)
        {
            *self.invalid_tokens.entry(reason).or_default() += 1;
        }
        outcome_of(error)
    }

    fn delivered(&mut self, latency: Duration) {
        let seconds = latency.as_secs_f64();
        for (bucket, bound) in self.latencies.iter_mut().zip(LATENCIES) {
            *bucket += u64::from(seconds <= bound);
        }
        self.delivered += 1;
        self.latency_seconds += seconds;
    }

    fn text(&self) -> String {
        let mut text = String::from(
            "# HELP wane_stream_requests_total Calls of producers and readers.\n\
             # TYPE wane_stream_requests_total counter\n",
        );
        for ((call, outcome), count) in &self.calls {
            let labels = format!("call=\"{}\",outcome=\"{outcome}\"", call.name());
            let _written = writeln!(text, "wane_stream_requests_total{{{labels}}} {count}");
        }
        text += "# HELP wane_stream_invalid_tokens_total Tokens that were not taken.\n\
                 # TYPE wane_stream_invalid_tokens_total counter\n";
        for reason in ["tampered", "expired", "foreign", "out_of_order", "ahead"] {
            let count = self.invalid_tokens.get(reason).copied().unwrap_or_default();
            let _written =
                writeln!(text, "wane_stream_invalid_tokens_total{{reason=\"{reason}\"}} {count}");
        }
        let _written = write!(
            text,
            "# HELP wane_stream_messages_total Messages taken in, delivered and replayed.\n\
             # TYPE wane_stream_messages_total counter\n\
             wane_stream_messages_total{{direction=\"in\"}} {}\n\
             wane_stream_messages_total{{direction=\"out\"}} {}\n\
             wane_stream_messages_total{{direction=\"replayed\"}} {}\n",
            self.taken_in, self.delivered, self.replayed
        );
        self.write_histograms(&mut text);
        text
    }

    fn write_histograms(&self, text: &mut String) {
        let name = "wane_stream_delivery_seconds";
        *text += &format!(
            "# HELP {name} Time from taken in to delivered, of each message and delivery.\n\
             # TYPE {name} histogram\n"
        );
        for (count, bound) in self.latencies.iter().zip(LATENCIES) {
            let _written = writeln!(text, "{name}_bucket{{le=\"{bound}\"}} {count}");
        }
        let (count, sum) = (self.delivered, self.latency_seconds);
        let _written = writeln!(
            text,
            "{name}_bucket{{le=\"+Inf\"}} {count}\n{name}_sum {sum}\n{name}_count {count}"
        );
        let name = "wane_stream_batch_messages";
        *text +=
            &format!("# HELP {name} Messages of a delivered batch.\n# TYPE {name} histogram\n");
        let (mut below, mut messages) = (0, 0);
        for (size, count) in (1..).zip(self.batches) {
            below += count;
            messages += size * count;
            let _written = writeln!(text, "{name}_bucket{{le=\"{size}\"}} {below}");
        }
        let _written = writeln!(
            text,
            "{name}_bucket{{le=\"+Inf\"}} {below}\n{name}_sum {messages}\n{name}_count {below}"
        );
    }
}

/// What is wrong with the token, if it is the token.
fn about_token(refusal: Refusal) -> Option<&'static str> {
    match refusal {
        Refusal::Tampered => Some("tampered"),
        Refusal::Expired => Some("expired"),
        Refusal::Foreign => Some("foreign"),
        Refusal::OutOfOrder => Some("out_of_order"),
        Refusal::Ahead => Some("ahead"),
        Refusal::TooManyReaders { .. } | Refusal::Gone | _ => None,
    }
}

/// An error as the counters name it.
fn outcome_of(error: &PullStreamError) -> &'static str {
    match error {
        PullStreamError::Invalid { .. } => "invalid",
        PullStreamError::Absent { .. } => "absent",
        PullStreamError::Refused(Refusal::TooManyReaders { .. }) => "too_many_readers",
        PullStreamError::Refused(Refusal::Gone) => "gone",
        PullStreamError::Refused(_) => "refused",
        PullStreamError::Busy
        | PullStreamError::Contended
        | PullStreamError::BrokenChain { .. }
        | PullStreamError::Store(_)
        | _ => "failed",
    }
}
