//! The same on one node of Cassandra, where one was started: what a request costs there, of the
//! server's core and of Cassandra's, for the arithmetic of larger clusters.
//!
//! Cassandra shares the cores with both ends, so that rates say little; processor time says more.

use std::time::Duration;

use super::producers::{Posted, Supply};
use super::readers::{self, Form, Pulls};
use super::server::Wane;
use super::{Bench, NO_HOLD};
use crate::backends::{address_of, pids_of};
use crate::report::{Report, Row};
use crate::{BoxError, machine, timing};

/// Institutions, each with six readers: with 50 of them a node that has half a core of its own does not
/// answer within five seconds.
const INSTITUTIONS: usize = 10;

/// Batches a second that there are messages for.
const SUPPLIED: f64 = 300.0;

/// Processor time of Cassandra, and writes of the server's store.
#[derive(Debug, Clone, Copy)]
struct Spent {
    cpu_seconds: f64,
    writes: f64,
}

pub(super) fn run(bench: &Bench, report: &mut Report) -> Result<(), BoxError> {
    let Some(hosts) = address_of("cas1", "WANE_CASSANDRA_HOSTS") else {
        report.note("stream: Cassandra was not started: scripts/servers start cas1");
        return Ok(());
    };
    timing::stage("stream: on one node of Cassandra");
    let slice = Duration::from_secs(if bench.quick { 3 } else { 20 });
    let keyspace = format!("bench_stream_{}", std::process::id());
    let settings = [
        ("storage", "cas1"),
        ("cassandra-hosts", hosts.as_str()),
        ("cassandra-keyspace", keyspace.as_str()),
        NO_HOLD[0],
    ];
    let data = bench.directory()?;
    let server = Wane::start(data.path(), &bench.cores, &settings)?;
    let node = pids_of("cas1").first().copied().ok_or("the node of Cassandra is not known")?;
    let (ingest, posted, deliver, pulls) =
        bench.runtime.block_on(in_and_out(&server, node, slice))?;
    let ingested = vec![("requests/s".into(), Some(posted.rate() / 10.0))];
    row(report, "ingest, batches of ten", ingested, ingest, posted.posts as f64);
    row(report, "full batches out", pulls.columns(), deliver, pulls.answers as f64);
    Ok(())
}

fn row(
    report: &mut Report,
    setting: &str,
    mut measures: Vec<(String, Option<f64>)>,
    spent: Spent,
    requests: f64,
) {
    measures.retain(|(name, _)| name != "writes/request");
    let micros = spent.cpu_seconds * 1e6;
    measures.push(("writes/request".into(), Some(spent.writes / requests)));
    measures.push(("Cassandra CPU us/request".into(), Some(micros / requests)));
    measures.push(("CPU us/write".into(), Some(micros / spent.writes)));
    report.row(Row {
        table: format!("stream: one node of Cassandra, {INSTITUTIONS} ISPBs x 6 readers"),
        subject: "wane cas1".into(),
        setting: setting.into(),
        measures,
        note: None,
    });
}

async fn in_and_out(
    server: &Wane,
    node: u32,
    slice: Duration,
) -> Result<(Spent, Posted, Spent, Pulls), BoxError> {
    let now = async || -> Result<Spent, BoxError> {
        let writes = server.counted().await?.writes;
        Ok(Spent { cpu_seconds: machine::cpu_seconds(node), writes })
    };
    let since = |before: Spent, after: Spent| Spent {
        cpu_seconds: after.cpu_seconds - before.cpu_seconds,
        writes: after.writes - before.writes,
    };
    let supply = Supply::of(server).await?;
    let institutions = server.institutions(1, INSTITUTIONS).await?;
    let before = now().await?;
    let posted = supply.fill(&institutions, (slice.as_secs_f64() * SUPPLIED) as u64).await?;
    let ingest = since(before, now().await?);
    let readers = readers::started(server, &institutions, Form::Batch).await?;
    let before = now().await?;
    let pulls = readers::pull_for(server, readers, slice).await?;
    let deliver = since(before, now().await?);
    Ok((ingest, posted, deliver, pulls))
}
