//! Legal holds against short lives, on every backend: what is held stays, and goes when it is let go.

use std::time::Duration;

use wane::services::pull_stream::{Client, HoldState, Policy};
use wane::store::{Timestamp, Ttl};

use super::stage::{Stage, batch, fresh_ispb, ids, many, on_every_backend};

/// How long messages live: long enough to be held on servers that have other things to do.
const RETENTION: Duration = Duration::from_secs(15);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_outlives_its_retention_and_goes_when_it_is_let_go() {
    on_every_backend(held_rows_stay).await;
}

async fn held_rows_stay(it: &Stage) {
    let (ispb, [one, other]) = (fresh_ispb(), it.two());
    let who = Client::new("operator").expect("within the limits");
    let policy =
        Policy { retention: Ttl::from_secs(RETENTION.as_secs()).expect("legal"), max_readers: 6 };
    it.insist(async || one.set_policy(ispb, policy, &who).await).await;
    let mut held = Vec::new();
    for number in 0..4 {
        held.extend(it.insist(async || one.ingest(ispb, batch(number..number + 1)).await).await);
    }
    // By the clocks of both nodes, which are one here, and to the millisecond.
    it.clock.sleep(Duration::from_millis(20)).await;
    let times = Timestamp::from_unix_millis(0)..it.clock.now();
    let hold = it.insist(async || other.hold(ispb, times.clone(), "case 17", &who).await).await;
    assert_eq!((hold.rows, hold.state), (4, HoldState::Placing), "{}", it.backend);
    for number in 4..8 {
        it.insist(async || other.ingest(ispb, batch(number..number + 1)).await).await;
    }
    it.clock.sleep(RETENTION + it.max_skew + Duration::from_secs(1)).await;

    let pulled = it.insist(async || other.start(ispb, &many()).await).await;
    assert_eq!(ids(&pulled), held, "{}: the others are gone", it.backend);
    let holds = it.insist(async || one.holds(ispb).await).await;
    assert_eq!(holds.len(), 1, "{}", it.backend);
    it.insist(async || one.release(&hold.id, &who).await).await;
    assert_eq!(it.insist(async || other.holds(ispb).await).await, [], "{}", it.backend);
    let again = it.insist(async || other.hold(ispb, times.clone(), "case 18", &who).await).await;
    assert_eq!(again.rows, 0, "{}: what was let go is gone", it.backend);
}
