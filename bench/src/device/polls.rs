//! Polls of codes that nobody has decided about.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;

use super::{CONNECTIONS, Counted, Line, Start, started, starts};
use crate::http::{Kind, Load, Server};
use crate::measured::Measured;
use crate::report::{Report, Row};
use crate::{BoxError, timing};

/// Codes that are polled.
const CODES: usize = 200;

/// What every poll must be told: anything else would be another benchmark.
const UNDECIDED: &[&str] = &["\"authorization_pending\"", "\"slow_down\""];

pub(super) fn run(
    scratch: &Path,
    client: &Runtime,
    quick: bool,
    report: &mut Report,
) -> Result<(), BoxError> {
    let (rounds, slice) = if quick { (3, 500) } else { (5, 3_000) };
    let slice = Duration::from_millis(slice);
    let empty = started(Kind::Empty, scratch, client)?;
    let mut contestants = vec![(&empty, nothing(&empty, slice))];
    let (mem, file) = (started(Kind::Mem, scratch, client)?, started(Kind::File, scratch, client)?);
    for server in [&mem, &file] {
        timing::stage(&format!("device: start {CODES} codes, {}", server.kind.name()));
        contestants.push((server, polls(server, client, slice)?));
    }
    timing::stage(&format!("device: polls, {CONNECTIONS} connections"));
    let before = Counted::now(&file, client)?;
    let mut measured = vec![Vec::new(); contestants.len()];
    for _ in 0..rounds {
        for ((_, load), measured) in contestants.iter().zip(&mut measured) {
            measured.push(load.run(client)?);
        }
    }
    let counted = Counted::now(&file, client)?.since(before);
    for ((server, _), rounds) in contestants.iter().zip(&measured) {
        let median = Measured::median(rounds);
        report.row(Row {
            table: "device: polls of undecided codes, a second, over loopback".into(),
            subject: server.kind.name().into(),
            setting: setting(),
            measures: median.map_or_else(Measured::missing, Measured::columns),
            note: None,
        });
    }
    bars(report, counted);
    Ok(())
}

fn setting() -> String {
    format!("poll, {CONNECTIONS} connections, {CODES} codes")
}

fn bars(report: &mut Report, counted: Counted) {
    let rate = |report: &Report, kind: Kind| report.find(kind.name(), &setting(), "ops/s");
    for (kind, bar) in [(Kind::Mem, None), (Kind::File, Some(0.5))] {
        let pair = (rate(report, kind), rate(report, Kind::Empty));
        let name = format!("device poll: {} / empty handler", kind.name());
        match bar {
            Some(bar) => report.bar(name, pair, bar),
            None => report.ratio(name, pair),
        }
    }
    report.note(format!(
        "device: while {} was polled, its store counted {} reads and {} writes.",
        Kind::File.name(),
        counted.reads,
        counted.writes
    ));
    report.bar(
        "device poll: reads of the store / reads and writes",
        (Some(counted.reads), Some(counted.reads + counted.writes)),
        1.0,
    );
}

fn nothing(server: &Server, slice: Duration) -> Load {
    let requests = server.clone_for_requests();
    let request = Arc::new(move |_, _| requests.get_request(0));
    Load { server: server.http, connections: CONNECTIONS, slice, request, status: 200, says: &[] }
}

/// Polls of this server, each of another code than the one before.
fn polls(server: &Server, client: &Runtime, slice: Duration) -> Result<Load, BoxError> {
    let starts = starts(server, client, CODES)?;
    let requests: Arc<Vec<Vec<u8>>> = Arc::new(client.block_on(poll_requests(server, &starts))?);
    let request = move |connection: usize, sent: u64| {
        requests[(connection + sent as usize * CONNECTIONS) % requests.len()].clone()
    };
    let request = Arc::new(request);
    let says = UNDECIDED;
    Ok(Load { server: server.http, connections: CONNECTIONS, slice, request, status: 400, says })
}

async fn poll_requests(server: &Server, starts: &[Start]) -> Result<Vec<Vec<u8>>, BoxError> {
    let mut line = Line::to(server.http).await?;
    let mut requests = Vec::new();
    for start in starts {
        let codes = line.ask(&start.request(), 200).await?;
        let device_code = codes["device_code"].as_str().ok_or("no device code")?;
        requests.push(start.poll_request(device_code));
    }
    Ok(requests)
}
