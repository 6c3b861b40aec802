//! Leases kept alive: how many, and what that costs.

use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::runtime::Runtime;
use wane::clock::{SharedClock, SystemClock};
use wane::services::elections::{Campaigned, Lease, Renewed};
use wane_server::client::Elections;

use crate::http::Server;
use crate::machine::{self, Counters};
use crate::report::{Report, Row};
use crate::{BoxError, timing};

const TTL: Duration = Duration::from_secs(10);

/// As the leader's handle does it: four times in a lease.
const RHYTHM: Duration = Duration::from_millis(2_500);

/// Callers that share the leases, each with a connection of its own.
const CALLERS: usize = 64;

/// What one caller found.
struct Kept {
    renewals: u64,
    lost: u64,
    micros: Histogram<u64>,
}

/// Wins leases, keeps them for a while, and says what the server used for it.
pub(super) fn run(
    server: &Server,
    client: &Runtime,
    quick: bool,
    report: &mut Report,
) -> Result<(), BoxError> {
    let (leases, lasting) = if quick { (2_000, 6) } else { (10_000, 30) };
    let lasting = Duration::from_secs(lasting);
    timing::stage(&format!("coordination: win {leases} leases"));
    let clock = SystemClock::shared();
    let elections = server.elections(&clock)?;
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let names = (caller..leases).step_by(CALLERS).map(|number| format!("lease-{number}"));
            let names: Vec<_> = names.collect();
            client.spawn(win(elections.clone(), names))
        })
        .collect();
    let mut held = Vec::new();
    for caller in callers {
        held.push(client.block_on(caller)??);
    }
    timing::stage(&format!("coordination: keep {leases} leases for {lasting:?}"));
    let (counters, used) = (Counters::read(), server.cpu_seconds());
    let begin = timing::now();
    let callers: Vec<_> = held
        .into_iter()
        .map(|leases| client.spawn(keep(elections.clone(), leases, lasting, Arc::clone(&clock))))
        .collect();
    let mut all = Kept { renewals: 0, lost: 0, micros: Histogram::new(3)? };
    for caller in callers {
        let kept = client.block_on(caller)??;
        all.renewals += kept.renewals;
        all.lost += kept.lost;
        all.micros.add(kept.micros)?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let cores = (server.cpu_seconds() - used) / seconds;
    let usage = counters.since();
    tell(report, leases, &all, seconds, cores);
    let left = 1.0 - usage.own - usage.others;
    report.bar(
        "coordination: leases kept / leases held",
        (Some((leases as u64 - all.lost) as f64), Some(leases as f64)),
        1.0,
    );
    report.bar(
        "coordination: share of the machine left over, client included",
        (Some(left), Some(1.0)),
        0.05,
    );
    Ok(())
}

fn tell(report: &mut Report, leases: usize, all: &Kept, seconds: f64, cores: f64) {
    let quantile = |at| Some(all.micros.value_at_quantile(at) as f64 / 1e3);
    report.row(Row {
        table: "coordination: leases of 10 s, renewed each 2.5 s over HTTP".into(),
        subject: "wane file".into(),
        setting: format!("{leases} leases, {} cores", machine::cores()),
        measures: vec![
            ("renewals/s".into(), Some(all.renewals as f64 / seconds)),
            ("p50 ms".into(), quantile(0.5)),
            ("p99 ms".into(), quantile(0.99)),
            ("lost".into(), Some(all.lost as f64)),
            ("server cores used".into(), Some(cores)),
        ],
        note: None,
    });
}

async fn win(elections: Elections, names: Vec<String>) -> Result<Vec<(String, Lease)>, BoxError> {
    let mut leases = Vec::new();
    for name in names {
        match elections.campaign(&name, "bench", TTL).await? {
            Campaigned::Won(lease) => leases.push((name, lease)),
            Campaigned::Held(by) => return Err(format!("{name} is held: {by:?}").into()),
        }
    }
    Ok(leases)
}

/// Renews each lease once in a rhythm, evenly spread.
async fn keep(
    elections: Elections,
    leases: Vec<(String, Lease)>,
    lasting: Duration,
    clock: SharedClock,
) -> Result<Kept, BoxError> {
    let mut kept = Kept { renewals: 0, lost: 0, micros: Histogram::new(3)? };
    let (begin, step) = (timing::now(), RHYTHM / leases.len() as u32);
    let mut turn = 0_u32;
    while begin.elapsed() < lasting {
        clock.sleep((step * turn).saturating_sub(begin.elapsed())).await;
        let (name, lease) = &leases[turn as usize % leases.len()];
        let sent = timing::now();
        match elections.renew(name, lease).await? {
            Renewed::Renewed(_) => kept.renewals += 1,
            Renewed::Lost(_) => kept.lost += 1,
        }
        kept.micros.record(sent.elapsed().as_micros() as u64)?;
        turn += 1;
    }
    Ok(kept)
}
