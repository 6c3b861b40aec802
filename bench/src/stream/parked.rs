//! Parked readers: what 5,000 that wait for a message cost in memory and of a core.
//!
//! Their connections are made and used first, and looked at before anybody waits: what a connection
//! takes is told apart from what waiting takes.

use std::time::Duration;

use super::readers::{Form, Reader};
use super::server::Wane;
use super::{Bench, READERS, pause};
use crate::report::{Report, Row};
use crate::{BoxError, timing};

/// Readers that wait.
const PARKED: usize = 5_000;

/// What they may take: bytes of memory, and a share of a core.
const MEMORY: f64 = 60e6;
const SHARE: f64 = 0.05;

/// A hold of a minute, and a lease and a token life that are longer, as they must be.
const SETTINGS: [(&str, &str); 3] =
    [("stream-hold-ms", "60000"), ("stream-lease-ms", "150000"), ("stream-token-ms", "300000")];

/// How long they are left alone before they are looked at.
const SETTLED: Duration = Duration::from_secs(2);

/// What was seen.
#[derive(Debug, Clone, Copy)]
struct Seen {
    idle: f64,
    /// Above idle, before anybody waited.
    connected: f64,
    above: f64,
    share: f64,
}

pub(super) fn run(bench: &Bench, report: &mut Report) -> Result<(), BoxError> {
    let watched = if bench.quick { Duration::from_secs(5) } else { Duration::from_secs(40) };
    let data = bench.directory()?;
    let server = Wane::start(data.path(), &bench.cores, &SETTINGS)?;
    timing::stage(&format!("stream: {PARKED} parked readers"));
    let seen = bench.runtime.block_on(watch(&server, watched))?;
    report.row(Row {
        table: format!("stream: {PARKED} parked readers, hold 60 s"),
        subject: "wane file".into(),
        setting: format!("{:.0} s", watched.as_secs_f64()),
        measures: vec![
            ("idle MB".into(), Some(seen.idle / 1e6)),
            ("connections MB".into(), Some(seen.connected / 1e6)),
            ("above idle MB".into(), Some(seen.above / 1e6)),
            ("bytes a reader".into(), Some(seen.above / PARKED as f64)),
            ("core %".into(), Some(seen.share * 100.0)),
        ],
        note: None,
    });
    let name = "stream 5,000 parked readers: 60 MB / resident above idle";
    report.bar(name, (Some(MEMORY), Some(seen.above.max(1.0))), 1.0);
    let name = "stream 5,000 parked readers: 5 % of a core / used";
    // Ticks are hundredths of a second: less than one is none.
    report.bar(name, (Some(SHARE), Some(seen.share.max(1e-4))), 1.0);
    Ok(())
}

async fn watch(server: &Wane, watched: Duration) -> Result<Seen, BoxError> {
    let institutions = server.institutions(1, PARKED.div_ceil(READERS)).await?;
    let idle = server.resident()?;
    let mut readers = Vec::new();
    for number in 0..PARKED {
        let institution = &institutions[number / READERS];
        let mut reader = Reader::connected(server.http, institution, Form::Batch).await?;
        reader.knock().await?;
        readers.push(reader);
    }
    let connected = server.resident()? - idle;
    for reader in &mut readers {
        reader.park().await?;
    }
    server.all_parked(PARKED).await?;
    pause(SETTLED).await;
    let (cpu, begin) = (server.cpu_seconds(), timing::now());
    pause(watched).await;
    let share = (server.cpu_seconds() - cpu) / begin.elapsed().as_secs_f64();
    let above = server.resident()? - idle;
    server.all_parked(PARKED).await?;
    drop(readers);
    Ok(Seen { idle, connected, above, share })
}
