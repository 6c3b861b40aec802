//! The tier in Redis, where one was started: how long it takes to look a token up that is shown there.
//!
//! Tokens of many institutions are issued by the library, which shows them; then callers on one thread
//! look them up, each one after the other.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use wane::clock::SystemClock;
use wane::services::pull_stream::{
    Ispb, PullStream, PullStreamSettings, Reader, StaticKeys, TokenKey, TokenKeys,
};
use wane::store::MemoryStore;
use wane_backends::redis::pull_stream::RedisTier;

use super::{Bench, pause};
use crate::backends::address_of;
use crate::report::{Report, Row};
use crate::{BoxError, timing};

/// What a look may take, in milliseconds.
const LOOK: f64 = 3.0;

/// Institutions, each with one token that is shown.
const INSTITUTIONS: usize = 200;

/// Callers that look tokens up side by side.
const CALLERS: usize = 16;

/// How long the tier may take to show everything.
const SHOWN_WITHIN: Duration = Duration::from_secs(10);

pub(super) fn run(bench: &Bench, report: &mut Report) -> Result<(), BoxError> {
    let Some(url) = address_of("redis", "WANE_REDIS_URL") else {
        report.note("stream: Redis was not started, so its tier was not measured: scripts/servers start redis");
        return Ok(());
    };
    timing::stage("stream: tokens are looked up in the tier");
    let mut times = bench.runtime.block_on(looked_up(&url, bench.slice))?;
    times.sort_by(f64::total_cmp);
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied();
    report.row(Row {
        table: format!("stream: tokens of {INSTITUTIONS} ISPBs in the tier in Redis"),
        subject: "tier".into(),
        setting: format!("{CALLERS} callers"),
        measures: vec![
            ("looks/s".into(), Some(times.len() as f64 / bench.slice.as_secs_f64())),
            ("p50 ms".into(), at(0.5)),
            ("p99 ms".into(), at(0.99)),
            ("p99.9 ms".into(), at(0.999)),
        ],
        note: None,
    });
    report.bar(
        "stream tier in Redis: 3 ms / 99th percentile of a look",
        (Some(LOOK), at(0.99)),
        1.0,
    );
    Ok(())
}

/// Milliseconds of each look that found its token.
async fn looked_up(url: &str, slice: Duration) -> Result<Vec<f64>, BoxError> {
    let clock = SystemClock::shared();
    let tier = RedisTier::new(url, Arc::clone(&clock))?;
    let tokens = Arc::new(shown(&tier).await?);
    let end = timing::now() + slice;
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (tier, tokens) = (tier.clone(), Arc::clone(&tokens));
        callers.spawn(async move {
            let mut times = Vec::new();
            for token in tokens.iter().cycle().skip(caller * 7) {
                let begin = timing::now();
                if begin >= end {
                    break;
                }
                tier.lookup(token).await?.ok_or("a token that was shown is gone")?;
                times.push(begin.elapsed().as_secs_f64() * 1e3);
            }
            Ok::<_, BoxError>(times)
        });
    }
    let mut times = Vec::new();
    while let Some(caller) = callers.join_next().await {
        times.append(&mut caller??);
    }
    Ok(times)
}

/// Issues a token for each institution, and returns them once all are shown.
async fn shown(tier: &RedisTier) -> Result<Vec<String>, BoxError> {
    let clock = SystemClock::shared();
    let keys = TokenKeys::new(TokenKey::new("bench", &[7; 64])?, None)?;
    let settings = PullStreamSettings {
        hold: Duration::ZERO,
        view: Some(Arc::new(tier.clone())),
        ..PullStreamSettings::default()
    };
    let store = MemoryStore::new(Arc::clone(&clock))?;
    let streams = PullStream::new(store, clock, Arc::new(StaticKeys::new(keys)), settings)?;
    let mut tokens = Vec::with_capacity(INSTITUTIONS);
    for number in 1..=INSTITUTIONS {
        let ispb: Ispb = format!("{number:08}").parse()?;
        tokens.push(streams.start(ispb, &Reader::default()).await?.next);
    }
    let until = timing::now() + SHOWN_WITHIN;
    for token in &tokens {
        while tier.lookup(token).await?.is_none() {
            if timing::now() > until {
                return Err("the tier does not show what it was told".into());
            }
            pause(Duration::from_millis(5)).await;
        }
    }
    Ok(tokens)
}
