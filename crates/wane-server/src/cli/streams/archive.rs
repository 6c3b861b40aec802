//! `wane stream archive`: copies messages to the archive of the server, lists it, and checks it.
//!
//! The server is asked for one segment at a time, so that what is shown is what was done. Ended in
//! the middle, the same command goes on where it was: nothing is copied twice.

use clap::Args;
use serde_json::{Map, Value};
use wane::clock::SharedClock;
use wane::services::pull_stream::{ArchiveReport, Ispb};
use wane::store::Timestamp;

use super::StreamCommandError;
use crate::cli::failure::Failure;
use crate::cli::output::{Output, Table};
use crate::cli::progress::Meter;
use crate::client::{Admin, ArchivedSegment, ClientError, Verified};

/// Segments that one call writes.
const AT_A_TIME: u64 = 1;

#[derive(Debug, Args)]
pub(super) struct ArchiveArguments {
    #[command(flatten)]
    who: super::IspbFlag,

    /// Messages that came in from then on, in Unix milliseconds [default: all]
    #[arg(long, value_name = "MILLIS")]
    from: Option<u64>,

    /// Messages that came in before, in Unix milliseconds [default: now]
    #[arg(long, value_name = "MILLIS")]
    to: Option<u64>,

    /// Write nothing: read every segment of the institution and check it
    #[arg(long, conflicts_with_all = ["from", "to", "list"])]
    verify: bool,

    /// Write nothing: list the segments of the institution
    #[arg(long, conflicts_with_all = ["from", "to"])]
    list: bool,
}

pub(super) async fn run(
    arguments: &ArchiveArguments,
    admin: &Admin,
    clock: &SharedClock,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let ispb = arguments.who.ispb;
    if arguments.verify {
        return verify(ispb, admin, output).await;
    }
    if arguments.list {
        return list(ispb, admin, output).await;
    }
    // What comes in within this millisecond is of now too.
    let now = clock.now().as_unix_millis() + 1;
    let (from, to) = (arguments.from.unwrap_or(0), arguments.to.unwrap_or(now));
    let all = archive(ispb, from, to, admin).await?;
    let told = [
        ("segments", all.segments),
        ("rows", all.rows),
        ("messages", all.messages),
        ("bytes", all.bytes),
        ("damaged", all.damaged),
    ];
    // What is not there need not be told.
    let told = if all.damaged > 0 { &told[..] } else { &told[..4] };
    tell(ispb, told, output)
}

/// Archives a time, segment by segment.
async fn archive(ispb: Ispb, from: u64, to: u64, admin: &Admin) -> Result<ArchiveReport, Failure> {
    let moment = Timestamp::from_unix_millis;
    let (mut all, mut began, mut meter) = (ArchiveReport::default(), from, None);
    loop {
        let times = moment(from)..moment(to);
        let report = admin.archive(ispb, times, AT_A_TIME).await.map_err(told)?;
        all.segments += report.segments;
        all.rows += report.rows;
        all.messages += report.messages;
        all.bytes += report.bytes;
        all.damaged += report.damaged;
        if report.is_done {
            return Ok(all);
        }
        if let Some(reached) = report.reached.map(Timestamp::as_unix_millis) {
            // Without a beginning that somebody gave, it is where the first messages are.
            if meter.is_none() && from == 0 {
                began = reached;
            }
            let length = to.saturating_sub(began);
            let meter = meter.get_or_insert_with(|| Meter::of_time("archiving", length));
            let done = format!("{} messages, {} segments", all.messages, all.segments);
            meter.tell(reached.saturating_sub(began), done);
        }
    }
}

async fn verify(ispb: Ispb, admin: &Admin, output: &mut Output<'_>) -> Result<(), Failure> {
    let (mut all, mut next, meter) = (Verified::default(), Some(0), Meter::of_things("checking"));
    while let Some(row) = next {
        let page = admin.archives(ispb, row, true).await.map_err(told)?;
        let checked = page.verified.unwrap_or_default();
        all.segments += checked.segments;
        all.rows += checked.rows;
        all.bytes += checked.bytes;
        meter.tell(all.segments, format!("{} segments, {} rows", all.segments, all.rows));
        next = page.next;
    }
    drop(meter);
    let told = [("segments", all.segments), ("rows", all.rows), ("bytes", all.bytes)];
    tell(ispb, &told, output)
}

async fn list(ispb: Ispb, admin: &Admin, output: &mut Output<'_>) -> Result<(), Failure> {
    let (mut segments, mut next) = (Vec::new(), Some(0));
    while let Some(row) = next {
        let page = admin.archives(ispb, row, false).await.map_err(told)?;
        segments.extend(page.items);
        next = page.next;
    }
    if output.is_json {
        for segment in segments {
            output.json(members(&segment))?;
        }
        return Ok(());
    }
    let mut table = Table::default();
    table.push(["name", "rows", "from", "to"].map(Into::into).to_vec());
    for segment in segments {
        let numbers = [segment.rows, segment.from, segment.to].map(|number| number.to_string());
        table.push([vec![segment.name], numbers.to_vec()].concat());
    }
    Ok(output.table(&table)?)
}

/// Nothing else is absent here than the archive.
fn told(error: ClientError) -> Failure {
    if matches!(error, ClientError::Absent) {
        return StreamCommandError::NoArchive.into();
    }
    error.into()
}

fn members(segment: &ArchivedSegment) -> Map<String, Value> {
    Map::from_iter([
        ("name".to_owned(), segment.name.clone().into()),
        ("firstRow".to_owned(), segment.first_row.into()),
        ("endRow".to_owned(), segment.end_row.into()),
        ("rows".to_owned(), segment.rows.into()),
        ("from".to_owned(), segment.from.into()),
        ("to".to_owned(), segment.to.into()),
    ])
}

fn tell(ispb: Ispb, told: &[(&str, u64)], output: &mut Output<'_>) -> Result<(), Failure> {
    if output.is_json {
        let numbers = told.iter().map(|(name, number)| ((*name).to_owned(), (*number).into()));
        let ispb = [("ispb".to_owned(), Value::from(ispb.as_str()))];
        return Ok(output.json(Map::from_iter(ispb.into_iter().chain(numbers)))?);
    }
    let mut table = Table::default();
    table.push(vec!["ispb".into(), ispb.to_string()]);
    for (name, number) in told {
        table.push(vec![(*name).into(), number.to_string()]);
    }
    Ok(output.table(&table)?)
}
