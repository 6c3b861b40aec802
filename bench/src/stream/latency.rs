//! Latency: from when a batch was stored until a reader has it, at half of the load of the ingest bar.
//!
//! Posts are due at even intervals, whether or not those before are answered, to institutions drawn
//! by chance; all readers wait. A batch counts as stored with its 201. The time from when a post was
//! due, which includes the storing and what a server that stalls makes wait, is told beside it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::message::{BATCH, number_of};
use super::producers::{PRODUCERS, Producer, Supply};
use super::readers::{Form, Reader};
use super::server::{Institution, Wane};
use super::{Bench, INSTITUTIONS, READERS, pause};
use crate::report::{Report, Row};
use crate::workload::Chance;
use crate::{BoxError, timing};

/// Posts a second: half of 10,000 messages.
const POSTS: u64 = 500;

/// What half of the batches, and 99 of 100, may take.
const P50: f64 = 20.0;
const P99: f64 = 200.0;

/// How long the last batches may take until they count as lost.
const STRAGGLERS: Duration = Duration::from_secs(10);

/// When each post was answered and delivered, in microseconds since the first was due; 0 for never.
#[derive(Debug)]
struct Journey {
    /// When the first post is due; set once all readers wait.
    begin: OnceLock<Instant>,
    institutions: Vec<Institution>,
    stored: Vec<AtomicU64>,
    delivered: Vec<AtomicU64>,
    messages: AtomicU64,
}

impl Journey {
    fn due(post: u64) -> Duration {
        Duration::from_secs(1) * post as u32 / POSTS as u32
    }

    fn now(&self) -> u64 {
        timing::now().saturating_duration_since(self.begin()).as_micros() as u64
    }

    fn begin(&self) -> Instant {
        *self.begin.get_or_init(timing::now)
    }

    /// Microseconds from when posts were due, and from when they were stored, to their delivery.
    fn told(&self) -> Result<(Histogram<u64>, Histogram<u64>), BoxError> {
        let (mut of_due, mut of_stored) = (Histogram::new(3)?, Histogram::new(3)?);
        for (post, (stored, delivered)) in self.stored.iter().zip(&self.delivered).enumerate() {
            let (stored, delivered) =
                (stored.load(Ordering::Relaxed), delivered.load(Ordering::Relaxed));
            let due = Self::due(post as u64).as_micros() as u64;
            of_due.record(delivered.saturating_sub(due))?;
            // A reader may have it before its producer has the answer.
            of_stored.record(delivered.saturating_sub(stored))?;
        }
        Ok((of_due, of_stored))
    }
}

pub(super) fn run(bench: &Bench, report: &mut Report) -> Result<(), BoxError> {
    let data = bench.directory()?;
    let server = Wane::start(data.path(), &bench.cores, &[])?;
    timing::stage("stream: latency at half of the ingest load");
    let posts = bench.slice.as_secs() * POSTS;
    let (journey, cpu) = bench.runtime.block_on(travel(&server, 1, posts))?;
    let (of_due, of_stored) = journey.told()?;
    let millis =
        |times: &Histogram<u64>, quantile| Some(times.value_at_quantile(quantile) as f64 / 1e3);
    report.row(Row {
        table: format!(
            "stream: latency, {} messages a second, {INSTITUTIONS} ISPBs x {READERS} readers",
            POSTS * BATCH as u64
        ),
        subject: "wane file".into(),
        setting: format!("{posts} batches of ten"),
        measures: vec![
            ("sent to delivered p50 ms".into(), millis(&of_due, 0.5)),
            ("p99 ms".into(), millis(&of_due, 0.99)),
            ("p99.9 ms".into(), millis(&of_due, 0.999)),
            ("stored to delivered p50 ms".into(), millis(&of_stored, 0.5)),
            ("then p99 ms".into(), millis(&of_stored, 0.99)),
            ("core %".into(), Some(cpu * 100.0)),
        ],
        note: None,
    });
    let name = "stream latency, stored to delivered at half load: 20 ms / median";
    report.bar(name, (Some(P50), millis(&of_stored, 0.5)), 1.0);
    let name = "stream latency, stored to delivered at half load: 200 ms / 99th percentile";
    report.bar(name, (Some(P99), millis(&of_stored, 0.99)), 1.0);
    let name = "stream latency, sent to delivered at half load: 200 ms / 99th percentile";
    report.ratio(name, (Some(P99), millis(&of_due, 0.99)));
    Ok(())
}

/// Times of such posts to institutions whose numbers begin at `first`: from due to delivered.
pub(super) async fn times(
    server: &Wane,
    first: usize,
    duration: Duration,
) -> Result<Histogram<u64>, BoxError> {
    let (journey, _) = travel(server, first, duration.as_secs() * POSTS).await?;
    Ok(journey.told()?.0)
}

/// Sends all posts, each when it is due, until all are delivered. Returns the share of a core, too.
async fn travel(server: &Wane, first: usize, posts: u64) -> Result<(Arc<Journey>, f64), BoxError> {
    let supply = Supply::of(server).await?;
    let institutions = server.institutions(first, INSTITUTIONS).await?;
    let many = || (0..posts).map(|_| AtomicU64::new(0)).collect();
    let journey = Arc::new(Journey {
        begin: OnceLock::new(),
        institutions,
        stored: many(),
        delivered: many(),
        messages: AtomicU64::new(0),
    });
    let mut readers = Vec::new();
    for institution in &journey.institutions {
        for _ in 0..READERS {
            let reader = Reader::connected(server.http, institution, Form::Batch).await?;
            readers.push(tokio::spawn(receive(reader, Arc::clone(&journey))));
        }
    }
    server.all_parked(readers.len()).await?;
    let mut producers = Vec::new();
    for _ in 0..PRODUCERS {
        producers.push(supply.producer().await?);
    }
    let (begin, cpu) = (journey.begin(), server.cpu_seconds());
    let sending =
        |(first, producer)| tokio::spawn(send(producer, first as u64, posts, Arc::clone(&journey)));
    let producers: Vec<_> = producers.into_iter().enumerate().map(sending).collect();
    for producer in producers {
        producer.await??;
    }
    let share = (server.cpu_seconds() - cpu) / begin.elapsed().as_secs_f64();
    let arrived = all_arrived(&journey, posts).await;
    for reader in readers {
        if reader.is_finished() {
            reader.await??;
        } else {
            reader.abort();
        }
    }
    arrived.map(|()| (journey, share))
}

async fn all_arrived(journey: &Journey, posts: u64) -> Result<(), BoxError> {
    let (sent, begin) = (posts * BATCH as u64, timing::now());
    loop {
        let arrived = journey.messages.load(Ordering::Relaxed);
        if arrived == sent {
            return Ok(());
        }
        if begin.elapsed() > STRAGGLERS || arrived > sent {
            return Err(format!("{sent} messages were sent, {arrived} delivered").into());
        }
        pause(Duration::from_millis(5)).await;
    }
}

async fn send(
    mut producer: Producer,
    first: u64,
    posts: u64,
    journey: Arc<Journey>,
) -> Result<(), BoxError> {
    for post in (first..posts).step_by(PRODUCERS) {
        let due = journey.begin() + Journey::due(post);
        pause(due.saturating_duration_since(timing::now())).await;
        let place = Chance::seeded(post).below(journey.institutions.len() as u64);
        producer.post(&journey.institutions[place as usize].ispb, post).await?.expect(201)?;
        journey.stored[post as usize].store(journey.now(), Ordering::Relaxed);
    }
    Ok(())
}

async fn receive(mut reader: Reader, journey: Arc<Journey>) -> Result<(), BoxError> {
    loop {
        let pulled = reader.pull().await?;
        let now = journey.now();
        for (_, message) in pulled.messages()? {
            let post = number_of(message)? / BATCH as u64;
            let delivered = journey.delivered.get(post as usize).ok_or("a message of nobody")?;
            delivered.store(now, Ordering::Relaxed);
            journey.messages.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posts_are_due_at_even_intervals() {
        assert_eq!(Journey::due(0), Duration::ZERO);
        assert_eq!(Journey::due(1), Duration::from_millis(2));
        assert_eq!(Journey::due(10 * POSTS), Duration::from_secs(10));
    }

    #[test]
    fn time_counts_from_when_a_post_was_due_and_from_when_it_was_stored() {
        let at = |micros: &[u64]| micros.iter().map(|at| AtomicU64::new(*at)).collect();
        let journey = Journey {
            begin: OnceLock::new(),
            institutions: Vec::new(),
            stored: at(&[1_000, 5_000]),
            delivered: at(&[900, 8_000]),
            messages: AtomicU64::new(0),
        };
        let (of_due, of_stored) = journey.told().unwrap();
        assert_eq!((of_due.min(), of_due.max()), (900, 6_003), "the second was due at 2 ms");
        assert_eq!((of_stored.min(), of_stored.max()), (0, 3_001));
    }
}
