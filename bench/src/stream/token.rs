//! Tokens: how long it takes to check one, by what is refused.
//!
//! A token that is good, but another institution's, is checked to the end and then refused. A text of
//! the same length that is no token at all is refused before any of that. Both are hashed and noted
//! in the audit alike, in memory; what one takes longer than the other is the checking.

use std::sync::Arc;

use tokio::runtime::Runtime;
use wane::clock::SystemClock;
use wane::services::pull_stream::{
    Ispb, PullStream, PullStreamError, PullStreamSettings, Reader, Refusal, StaticKeys, TokenKey,
    TokenKeys,
};
use wane::store::{MemoryStore, Store};

use super::Bench;
use crate::report::{Report, Row};
use crate::{BoxError, timing};

/// What a check may take, in microseconds.
const CHECK: f64 = 20.0;

/// Refusals of one kind that are timed together.
const TOGETHER: u32 = 500;

pub(super) fn run(bench: &Bench, report: &mut Report) -> Result<(), BoxError> {
    timing::stage("stream: tokens are checked");
    let rounds = if bench.quick { 9 } else { 41 };
    let (foreign, no_token) = refusals(&bench.runtime, rounds)?;
    let check = (foreign - no_token).max(0.01);
    report.row(Row {
        table: "stream: refusals by the library, in memory, with their audit".into(),
        subject: "pull stream".into(),
        setting: format!("medians of {rounds} x {TOGETHER}"),
        measures: vec![
            ("good token of another us".into(), Some(foreign)),
            ("no token us".into(), Some(no_token)),
            ("check of a token us".into(), Some(check)),
        ],
        note: None,
    });
    report.bar("stream token: 20 us / check of a token", (Some(CHECK), Some(check)), 1.0);
    Ok(())
}

/// What it takes in microseconds to refuse a good token of another, and what is none.
fn refusals(runtime: &Runtime, rounds: usize) -> Result<(f64, f64), BoxError> {
    let clock = SystemClock::shared();
    let keys = TokenKeys::new(TokenKey::new("bench", &[7; 64])?, None)?;
    let settings =
        PullStreamSettings { hold: std::time::Duration::ZERO, ..PullStreamSettings::default() };
    let store = MemoryStore::new(Arc::clone(&clock))?;
    let streams = PullStream::new(store, clock, Arc::new(StaticKeys::new(keys)), settings)?;
    let (own, other): (Ispb, Ispb) = ("00000001".parse()?, "00000002".parse()?);
    runtime.block_on(async {
        let token = streams.start(own, &Reader::default()).await?.next;
        let text = "A".repeat(token.len());
        let (mut foreign, mut no_token) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            foreign.push(refused(&streams, other, &token, Refusal::Foreign).await?);
            no_token.push(refused(&streams, other, &text, Refusal::Tampered).await?);
        }
        Ok((median(&mut foreign)?, median(&mut no_token)?))
    })
}

/// Microseconds for one refusal.
async fn refused<S: Store>(
    streams: &PullStream<S>,
    ispb: Ispb,
    token: &str,
    refusal: Refusal,
) -> Result<f64, BoxError> {
    let reader = Reader::default();
    let begin = timing::now();
    for _ in 0..TOGETHER {
        match streams.next(ispb, token, &reader).await {
            Err(PullStreamError::Refused(told)) if told == refusal => {}
            other => return Err(format!("expected {refusal:?}, got {other:?}").into()),
        }
    }
    Ok(begin.elapsed().as_secs_f64() * 1e6 / f64::from(TOGETHER))
}

fn median(times: &mut [f64]) -> Result<f64, BoxError> {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().ok_or_else(|| "nothing was timed".into())
}
