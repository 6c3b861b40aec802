//! A storm: six readers of one institution, as fast as they can, until nothing is left.
//!
//! Twelve ask to start, and six are let in. Every id that was acknowledged is kept and compared with
//! those that producers were told: each must be there once.

use std::collections::HashMap;
use std::time::Instant;

use super::producers::{Id, Supply, id_of};
use super::readers::{Form, Reader};
use super::server::{Institution, Wane};
use super::{Bench, READERS};
use crate::report::{Report, Row};
use crate::{BoxError, timing};

/// Who asks to start.
const ASKING: usize = 12;

/// What became of messages.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    stored: usize,
    /// Acknowledged once, as they must be.
    once: usize,
    lost: usize,
    /// Acknowledged more than once.
    doubled: usize,
    /// Acknowledged, and never stored.
    foreign: usize,
}

impl Tally {
    fn of(stored: &[Id], acknowledged: &[Id]) -> Self {
        let mut counts: HashMap<&Id, usize> = HashMap::new();
        for id in acknowledged {
            *counts.entry(id).or_default() += 1;
        }
        let mut tally = Self { stored: stored.len(), ..Self::default() };
        for id in stored {
            match counts.remove(id) {
                None => tally.lost += 1,
                Some(1) => tally.once += 1,
                Some(_) => tally.doubled += 1,
            }
        }
        tally.foreign = counts.len();
        tally
    }
}

pub(super) fn run(bench: &Bench, report: &mut Report) -> Result<(), BoxError> {
    let batches = if bench.quick { 2_000 } else { 20_000 };
    let data = bench.directory()?;
    let server = Wane::start(data.path(), &bench.cores, &[])?;
    timing::stage(&format!("stream: six readers storm one ISPB, {batches} batches"));
    let (tally, rate, ingested) = bench.runtime.block_on(storm(&server, batches))?;
    report.row(Row {
        table: "stream: six readers of one ISPB".into(),
        subject: "wane file".into(),
        setting: format!("{batches} batches of ten"),
        measures: vec![
            ("batches/s".into(), Some(rate)),
            ("ingest messages/s".into(), Some(ingested)),
            ("stored".into(), Some(tally.stored as f64)),
            ("lost".into(), Some(tally.lost as f64)),
            ("doubled".into(), Some(tally.doubled as f64)),
            ("foreign".into(), Some(tally.foreign as f64)),
        ],
        note: None,
    });
    let all = (tally.stored + tally.doubled + tally.foreign) as f64;
    let name = "stream storm of six readers: acknowledged once / stored, doubled and foreign";
    report.bar(name, (Some(tally.once as f64), Some(all)), 1.0);
    Ok(())
}

/// What became of the messages, batches a second out, and messages a second in.
async fn storm(server: &Wane, batches: u64) -> Result<(Tally, f64, f64), BoxError> {
    let supply = Supply::of(server).await?;
    let institutions = server.institutions(1, 1).await?;
    let posted = supply.fill_named(&institutions, batches).await?;
    let begin = timing::now();
    let mut asking = Vec::new();
    for _ in 0..ASKING {
        asking.push(tokio::spawn(drain(server.http, institutions[0].clone())));
    }
    let (mut acknowledged, mut last, mut let_in) = (Vec::new(), begin, 0);
    for reader in asking {
        let Some((ids, at)) = reader.await?? else { continue };
        acknowledged.extend(ids);
        last = last.max(at);
        let_in += 1;
    }
    if let_in != READERS {
        return Err(format!("{let_in} of {ASKING} readers were let in").into());
    }
    let rate = batches as f64 / (last - begin).as_secs_f64();
    Ok((Tally::of(&posted.ids, &acknowledged), rate, posted.rate()))
}

/// Pulls until nothing comes. Returns what was acknowledged, and when the last of it came; `None`
/// where there was no slot.
async fn drain(
    server: std::net::SocketAddr,
    institution: Institution,
) -> Result<Option<(Vec<Id>, Instant)>, BoxError> {
    let mut reader = Reader::connected(server, &institution, Form::Batch).await?;
    let Some(first) = reader.start().await? else { return Ok(None) };
    let mut held = ids_of(&first.messages()?)?;
    let (mut acknowledged, mut last) = (Vec::new(), timing::now());
    loop {
        let ids = ids_of(&reader.pull().await?.messages()?)?;
        acknowledged.append(&mut held);
        if ids.is_empty() {
            reader.end().await?;
            return Ok(Some((acknowledged, last)));
        }
        (held, last) = (ids, timing::now());
    }
}

fn ids_of(messages: &[(&str, &[u8])]) -> Result<Vec<Id>, BoxError> {
    messages.iter().map(|(id, _)| id_of(id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(letters: &str) -> Vec<Id> {
        letters.bytes().map(|letter| [letter; 32]).collect()
    }

    #[test]
    fn what_is_lost_doubled_or_foreign_is_noticed() {
        let all_well = Tally { stored: 3, once: 3, ..Tally::default() };
        assert_eq!(Tally::of(&ids("abc"), &ids("cab")), all_well);
        let bad = Tally { stored: 3, once: 1, lost: 1, doubled: 1, foreign: 1 };
        assert_eq!(Tally::of(&ids("abc"), &ids("abbx")), bad);
    }
}
