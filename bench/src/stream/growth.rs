//! Growth: more institutions, and more messages that are kept.

use std::path::Path;
use std::time::Duration;

use super::message::BATCH;
use super::producers::Supply;
use super::readers::{self, Form};
use super::server::{Institution, MOST_INSTITUTIONS, Wane};
use super::{Bench, NO_HOLD};
use crate::report::{Report, Row};
use crate::{BoxError, timing};

/// Batches a second that there are messages for; of one institution fewer, as its rows are inserted
/// one after the other.
const SUPPLIED: f64 = 9_000.0;
const SUPPLIED_TO_ONE: f64 = 2_500.0;

/// Institutions of those whose messages are kept.
const KEEPING: usize = 100;

const INSTITUTIONS_TABLE: &str = "stream: growth with institutions, six readers each, full batches";
const KEPT_TABLE: &str = "stream: growth with messages kept, 100 ISPBs x 6 readers, full batches";

pub(super) fn run(bench: &Bench, report: &mut Report) -> Result<(), BoxError> {
    let counts: &[usize] =
        if bench.quick { &[1, 10, 100] } else { &[1, 10, 100, MOST_INSTITUTIONS] };
    for count in counts {
        institutions(bench, *count, report)?;
    }
    kept(bench, report)
}

/// What a short stretch is: enough to tell orders of magnitude apart.
fn slice(bench: &Bench) -> Duration {
    if bench.quick { Duration::from_millis(1_500) } else { Duration::from_secs(5) }
}

fn institutions(bench: &Bench, count: usize, report: &mut Report) -> Result<(), BoxError> {
    timing::stage(&format!("stream: {count} institutions"));
    let slice = slice(bench);
    let supplied = if count == 1 { SUPPLIED_TO_ONE } else { SUPPLIED };
    let posts = (supplied * slice.as_secs_f64()) as u64;
    let data = bench.directory()?;
    let server = Wane::start(data.path(), &bench.cores, &NO_HOLD)?;
    let (posted, pulls) = bench.runtime.block_on(async {
        let supply = Supply::of(&server).await?;
        let institutions = server.institutions(1, count).await?;
        let posted = supply.fill(&institutions, posts).await?;
        let readers = readers::started(&server, &institutions, Form::Batch).await?;
        Ok::<_, BoxError>((posted, readers::pull_for(&server, readers, slice).await?))
    })?;
    let mut measures = vec![("ingest messages/s".into(), Some(posted.rate()))];
    measures.extend(pulls.columns());
    measures.push(("resident MB".into(), Some(server.resident()? / 1e6)));
    report.row(Row {
        table: INSTITUTIONS_TABLE.into(),
        subject: "wane file".into(),
        setting: format!("{count} ISPBs"),
        measures,
        note: None,
    });
    Ok(())
}

/// One server that is given more and more, and is looked at on the way.
fn kept(bench: &Bench, report: &mut Report) -> Result<(), BoxError> {
    let sizes: &[u64] = match (bench.quick, bench.soak) {
        (true, _) => &[10_000, 100_000],
        (false, false) => &[10_000, 1_000_000],
        (false, true) => &[10_000, 1_000_000, 10_000_000],
    };
    let data = bench.directory()?;
    let data = data.path();
    let server = Wane::start(data, &bench.cores, &NO_HOLD)?;
    bench.runtime.block_on(async {
        let supply = Supply::of(&server).await?;
        let institutions = server.institutions(1, KEEPING).await?;
        let keeping = Keeping { server: &server, supply, institutions, data };
        for size in sizes {
            timing::stage(&format!("stream: {size} messages kept"));
            report.row(keeping.row(*size, slice(bench)).await?);
        }
        Ok::<_, BoxError>(())
    })?;
    drop(server);
    let (opened, took) = timing::timed(|| Wane::start(data, &bench.cores, &NO_HOLD));
    drop(opened?);
    report.note(format!(
        "stream: killed with {} messages, the server answered again after {:.1} s: it verifies \
         the whole file first.",
        sizes.last().copied().unwrap_or_default(),
        took.as_secs_f64()
    ));
    Ok(())
}

/// A server that keeps more and more.
struct Keeping<'a> {
    server: &'a Wane,
    supply: Supply,
    institutions: Vec<Institution>,
    data: &'a Path,
}

impl Keeping<'_> {
    /// Fills up to so many messages, and measures what it does then.
    async fn row(&self, size: u64, slice: Duration) -> Result<Row, BoxError> {
        let posts = size.saturating_sub(self.supply.messages()) / BATCH as u64;
        let posted = self.supply.fill(&self.institutions, posts).await?;
        let readers = readers::started(self.server, &self.institutions, Form::Batch).await?;
        let mut pulls = readers::pull_for(self.server, readers, slice).await?;
        readers::end_all(std::mem::take(&mut pulls.readers)).await?;
        let mut measures = vec![("ingest messages/s".into(), Some(posted.rate()))];
        measures.extend(pulls.columns());
        measures.push(("resident MB".into(), Some(self.server.resident()? / 1e6)));
        measures.push(("disk MB".into(), Some(bytes_in(self.data)? as f64 / 1e6)));
        Ok(Row {
            table: KEPT_TABLE.into(),
            subject: "wane file".into(),
            setting: format!("{size} messages"),
            measures,
            note: None,
        })
    }
}

/// Bytes of all files below a directory.
fn bytes_in(directory: &Path) -> Result<u64, BoxError> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { bytes_in(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}
