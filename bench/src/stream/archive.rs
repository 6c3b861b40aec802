//! Archiving beside the stream: latencies at half of the load, first alone, then while a million
//! messages are archived to a directory and every segment is read back.
//!
//! The messages lie in the logs of other institutions than those whose batches are timed. Both runs
//! are as long as archiving takes at the pace that the server keeps.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value as Json, json};

use super::message::BATCH;
use super::producers::Supply;
use super::server::{Institution, Wane};
use super::{Bench, INSTITUTIONS, latency};
use crate::report::{Report, Row};
use crate::{BoxError, timing};

/// Messages that are archived, and with `--quick`.
const MESSAGES: u64 = 1_000_000;
const QUICK_MESSAGES: u64 = 50_000;

/// Institutions that they lie in.
const ARCHIVED: usize = 20;

/// Messages that the server archives a second, by its own pace: 16 MiB of 3,000 bytes and more.
const PACE: u64 = 5_000;

/// How many times the 99th percentile may become.
const MOST: f64 = 1.5;

/// What was archived and read back.
#[derive(Debug, Default)]
struct Archived {
    messages: u64,
    segments: u64,
    bytes: u64,
    archiving: Duration,
    reading: Duration,
}

pub(super) fn run(bench: &Bench, report: &mut Report) -> Result<(), BoxError> {
    let (data, archive) = (bench.directory()?, bench.directory()?);
    let place = format!("dir:{}", archive.path().display());
    let server = Wane::start(data.path(), &bench.cores, &[("stream-archive", &place)])?;
    let messages = if bench.quick { QUICK_MESSAGES } else { MESSAGES };
    let duration = Duration::from_secs((messages / PACE).max(bench.slice.as_secs()));
    bench.runtime.block_on(async {
        timing::stage("stream: messages for the archive");
        let institutions = server.institutions(1 + 2 * INSTITUTIONS, ARCHIVED).await?;
        Supply::of(&server).await?.fill(&institutions, messages / BATCH as u64).await?;
        timing::stage("stream: latency without archiving");
        let without = latency::times(&server, 1, duration).await?;
        timing::stage("stream: latency while messages are archived and read back");
        let (with, archived) = tokio::join!(
            latency::times(&server, 1 + INSTITUTIONS, duration),
            archive_all(&server, &institutions)
        );
        let (with, archived) = (with?, archived?);
        if archived.messages != messages {
            return Err(format!("{} of {messages} were archived", archived.messages).into());
        }
        tell(report, [&without, &with], &archived, duration);
        Ok(())
    })
}

/// Archives everything, and has all of it read and checked.
async fn archive_all(server: &Wane, institutions: &[Institution]) -> Result<Archived, BoxError> {
    let mut line = server.operator().await?;
    let mut all = Archived::default();
    let count = |answer: &Json, name: &str| answer[name].as_u64().ok_or("a number is missing");
    let begin = timing::now();
    for institution in institutions {
        // A segment at a time, as `wane stream archive` asks for.
        let wanted = json!({
            "ispb": institution.ispb, "from": 0, "to": u64::MAX >> 11, "segments": 1
        });
        loop {
            let body = wanted.to_string();
            let told = server.administer(&mut line, "POST", "archives", &body).await?;
            all.messages += count(&told, "messages")?;
            all.segments += count(&told, "segments")?;
            all.bytes += count(&told, "bytes")?;
            if told["done"] == true {
                break;
            }
        }
    }
    all.archiving = begin.elapsed();
    let begin = timing::now();
    for institution in institutions {
        let mut next = Some(0);
        while let Some(row) = next {
            let path = format!("archives?ispb={}&verify=true&fromRow={row}", institution.ispb);
            next = server.administer(&mut line, "GET", &path, "").await?["next"].as_u64();
        }
    }
    all.reading = begin.elapsed();
    Ok(all)
}

fn tell(
    report: &mut Report,
    [without, with]: [&Histogram<u64>; 2],
    archived: &Archived,
    duration: Duration,
) {
    let millis =
        |times: &Histogram<u64>, quantile| Some(times.value_at_quantile(quantile) as f64 / 1e3);
    for (setting, times) in [("alone", without), ("beside the archiver", with)] {
        report.row(Row {
            table: format!("stream: latency at half load for {} s", duration.as_secs()),
            subject: "wane file".into(),
            setting: setting.into(),
            measures: vec![
                ("sent to delivered p50 ms".into(), millis(times, 0.5)),
                ("p99 ms".into(), millis(times, 0.99)),
                ("p99.9 ms".into(), millis(times, 0.999)),
            ],
            note: None,
        });
    }
    let a_second = |duration: Duration| Some(archived.messages as f64 / duration.as_secs_f64());
    report.row(Row {
        table: "stream: archive in a directory".into(),
        subject: "wane file".into(),
        setting: format!("{} messages, {} segments", archived.messages, archived.segments),
        measures: vec![
            ("archived/s".into(), a_second(archived.archiving)),
            ("read back/s".into(), a_second(archived.reading)),
            ("bytes/message".into(), Some(archived.bytes as f64 / archived.messages as f64)),
        ],
        note: None,
    });
    let name = "stream archiving: 1.5 x 99th percentile alone / beside the archiver";
    report.bar(name, (millis(without, 0.99).map(|p99| p99 * MOST), millis(with, 0.99)), 1.0);
}
