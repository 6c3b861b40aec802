//! Throughput: messages in, full batches out, the same by replays, and single messages out.
//!
//! What is delivered was put in before, as much as readers can take in the time: producers beside
//! them would share the server's core, and it would be unclear whose limit was met. Readers are those
//! of the bars, six for each of 200 institutions, and each asks again as soon as it is answered.
//! An answer counts that is full; with the first one that is not, the time is over.

use std::time::Duration;

use super::producers::{Posted, Supply};
use super::readers::{self, Form};
use super::server::{Institution, Wane};
use super::{Bench, INSTITUTIONS, NO_HOLD, READERS};
use crate::report::{Report, Row};
use crate::{BoxError, timing};

/// What must be delivered a second, in full batches, and what must be taken in, in messages.
const BATCHES: f64 = 2_500.0;
const INGESTED: f64 = 10_000.0;

/// What replays deliver at least of what the stream does.
const REPLAYED: f64 = 0.5;

/// The seed's requests a minute.
const REQUESTS_A_MINUTE: f64 = 1_000_000.0;

/// Answers a second that there are messages for.
const SUPPLIED: Supplied = Supplied { batches: 9_000.0, singles: 18_000.0 };

struct Supplied {
    batches: f64,
    singles: f64,
}

pub(super) fn run(bench: &Bench, report: &mut Report) -> Result<(), BoxError> {
    let data = bench.directory()?;
    let server = Wane::start(data.path(), &bench.cores, &NO_HOLD)?;
    bench.runtime.block_on(async {
        let supply = Supply::of(&server).await?;
        let first = server.institutions(1, INSTITUTIONS).await?;
        let second = server.institutions(1 + INSTITUTIONS, INSTITUTIONS).await?;
        let posted = ingest(&server, &supply, &first, bench.slice, report).await?;
        let seconds = bench.slice.as_secs_f64();
        timing::stage("stream: batches for the readers");
        let wanted = (seconds * SUPPLIED.batches) as u64;
        supply.fill(&first, wanted.saturating_sub(posted.posts)).await?;
        let live = batches(&server, &first, bench.slice, report).await?;
        replayed(&server, &first, bench.slice, live, report).await?;
        timing::stage("stream: messages for the readers");
        supply.fill(&second, (seconds * SUPPLIED.singles) as u64 / 10).await?;
        singles(&server, &second, bench.slice, report).await
    })
}

async fn ingest(
    server: &Wane,
    supply: &Supply,
    institutions: &[Institution],
    slice: Duration,
    report: &mut Report,
) -> Result<Posted, BoxError> {
    timing::stage("stream: ingest, batches of ten");
    let (before, cpu) = (server.counted().await?, server.cpu_seconds());
    let posted = supply.pour_for(institutions, slice).await?;
    let (cpu, after) = (server.cpu_seconds() - cpu, server.counted().await?);
    let posts = posted.posts as f64;
    let millis = |quantile| Some(posted.micros.value_at_quantile(quantile) as f64 / 1e3);
    report.row(Row {
        table: "stream: ingest, ten messages of 3,000 bytes a request".into(),
        subject: "wane file".into(),
        setting: format!("{} producers, {INSTITUTIONS} ISPBs", super::producers::PRODUCERS),
        measures: vec![
            ("messages/s".into(), Some(posted.rate())),
            ("p50 ms".into(), millis(0.5)),
            ("p99 ms".into(), millis(0.99)),
            ("CPU us/request".into(), Some(cpu * 1e6 / posts)),
            ("core %".into(), Some(cpu / posted.seconds * 100.0)),
            ("writes/request".into(), Some((after.writes - before.writes) / posts)),
        ],
        note: None,
    });
    let name = "stream ingest in batches of ten: messages a second / 10,000";
    report.bar(name, (Some(posted.rate()), Some(INGESTED)), 1.0);
    Ok(posted)
}

async fn batches(
    server: &Wane,
    institutions: &[Institution],
    slice: Duration,
    report: &mut Report,
) -> Result<f64, BoxError> {
    timing::stage("stream: full batches delivered and acknowledged");
    let readers = readers::started(server, institutions, Form::Batch).await?;
    let pulls = readers::pull_for(server, readers, slice).await?;
    pulled_row(report, "full batches", pulls.columns());
    let name =
        "stream full batches, 200 ISPBs x 6 readers: delivered and acknowledged a second / 2,500";
    report.bar(name, (Some(pulls.rate()), Some(BATCHES)), 1.0);
    Ok(pulls.rate())
}

/// The same messages once more, by as many readers, each of a replay of its own.
async fn replayed(
    server: &Wane,
    institutions: &[Institution],
    slice: Duration,
    live: f64,
    report: &mut Report,
) -> Result<(), BoxError> {
    timing::stage("stream: full batches of replays");
    let readers = readers::replaying(server, institutions, Form::Batch).await?;
    let pulls = readers::pull_for(server, readers, slice).await?;
    pulled_row(report, "full batches of replays", pulls.columns());
    let name = "stream replay reads: full batches a second / those of the stream";
    report.bar(name, (Some(pulls.rate()), Some(live)), REPLAYED);
    Ok(())
}

async fn singles(
    server: &Wane,
    institutions: &[Institution],
    slice: Duration,
    report: &mut Report,
) -> Result<(), BoxError> {
    timing::stage("stream: single messages delivered and acknowledged");
    let readers = readers::started(server, institutions, Form::Single).await?;
    let pulls = readers::pull_for(server, readers, slice).await?;
    pulled_row(report, "one message", pulls.columns());
    let a_minute = pulls.rate() * 60.0;
    let name = "stream one message a request: requests a minute / 1,000,000 of the seed";
    report.ratio(name, (Some(a_minute), Some(REQUESTS_A_MINUTE)));
    Ok(())
}

fn pulled_row(report: &mut Report, what: &str, measures: Vec<(String, Option<f64>)>) {
    report.row(Row {
        table: format!(
            "stream: delivered and acknowledged, {INSTITUTIONS} ISPBs x {READERS} readers"
        ),
        subject: "wane file".into(),
        setting: what.into(),
        measures,
        note: None,
    });
}
