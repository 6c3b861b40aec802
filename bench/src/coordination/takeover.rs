//! Takeovers: how long nobody leads after a leader resigned, and after one crashed.

use std::time::Duration;

use tokio::runtime::Runtime;
use wane::clock::{SharedClock, SystemClock};
use wane::services::elections::{Campaigned, Lease};
use wane_server::client::Elections;

use crate::BoxError;
use crate::http::Server;
use crate::report::{Report, Row};
use crate::timing::{self, millis};

const NAME: &str = "takeover";

/// The lease of a leader that crashes.
const BRIEF: Duration = Duration::from_secs(1);

/// A resigned election must be in other hands by then.
const AFTER_RESIGN: Duration = Duration::from_millis(50);

/// A crashed leader's, so long after the end of its lease.
const AFTER_END: Duration = Duration::from_secs(1);

pub(super) fn run(
    server: &Server,
    client: &Runtime,
    quick: bool,
    report: &mut Report,
) -> Result<(), BoxError> {
    let (resigned, crashed) = if quick { (20, 3) } else { (100, 10) };
    let kind = server.kind.name();
    timing::stage(&format!("coordination: takeovers on {kind}"));
    let clock = SystemClock::shared();
    let (first, second) = (server.elections(&clock)?, server.elections(&clock)?);
    let mut times = Vec::new();
    for _ in 0..resigned {
        times.push(client.block_on(after_resign(&first, &second))?);
    }
    tell(report, kind, "after a resignation", &mut times, AFTER_RESIGN);
    let mut times = Vec::new();
    for _ in 0..crashed {
        times.push(client.block_on(after_crash(&first, &second, &clock))?);
    }
    tell(report, kind, "after a crash, leases of 1 s", &mut times, BRIEF + AFTER_END);
    Ok(())
}

fn tell(report: &mut Report, kind: &str, setting: &str, times: &mut [Duration], most: Duration) {
    times.sort();
    let longest = times.last().copied().map(millis);
    report.row(Row {
        table: "coordination: takeover, heard by a watch over HTTP".into(),
        subject: kind.into(),
        setting: setting.into(),
        measures: vec![
            ("p50 ms".into(), times.get(times.len() / 2).copied().map(millis)),
            ("longest ms".into(), longest),
        ],
        note: None,
    });
    let name = format!("coordination {kind}, takeover {setting}: {most:?} / longest");
    report.bar(name, (Some(millis(most)), longest), 1.0);
}

async fn won(elections: &Elections, holder: &str, ttl: Duration) -> Result<Lease, BoxError> {
    match elections.campaign(NAME, holder, ttl).await? {
        Campaigned::Won(lease) => Ok(lease),
        Campaigned::Held(by) => Err(format!("held: {by:?}").into()),
    }
}

/// From the sending of the resignation until the follower has won.
async fn after_resign(first: &Elections, second: &Elections) -> Result<Duration, BoxError> {
    let lease = won(first, "first", Duration::from_secs(60)).await?;
    let mut watch = second.watch(NAME).await?;
    while watch.changed().await?.holder.is_none() {}
    let begin = timing::now();
    let follow = async {
        while watch.changed().await?.holder.is_some() {}
        won(second, "second", Duration::from_secs(60)).await
    };
    let (resigned, followed) = tokio::join!(first.resign(NAME, lease.id, lease.token), follow);
    let (took, successor) = (begin.elapsed(), followed?);
    resigned?;
    second.resign(NAME, successor.id, successor.token).await?;
    Ok(took)
}

/// From the last sign of life until the follower has won.
async fn after_crash(
    first: &Elections,
    second: &Elections,
    clock: &SharedClock,
) -> Result<Duration, BoxError> {
    let begin = timing::now();
    won(first, "crashed", BRIEF).await?;
    let mut watch = second.watch(NAME).await?;
    let successor = loop {
        while watch.changed().await?.holder.is_some() {}
        match second.campaign(NAME, "second", Duration::from_secs(60)).await? {
            Campaigned::Won(lease) => break lease,
            Campaigned::Held(_) => clock.sleep(Duration::from_millis(1)).await,
        }
    };
    let took = begin.elapsed();
    second.resign(NAME, successor.id, successor.token).await?;
    Ok(took)
}
