//! Calls that are dropped in every call of the store, before it takes effect and after: what was
//! begun can be repeated or expires, and nobody is stranded.

use wane::services::device_auth::{Decided, Polled};

use super::probed::{Probe, as_far_as_it_goes};
use super::*;

/// How many calls of the store `work` makes on a fresh setup.
async fn calls_of(work: impl AsyncFn(&Setup, &Started)) -> usize {
    let (setup, started) = approved_setup(false).await;
    setup.below.inner.set(Probe::Nothing);
    work(&setup, &started).await;
    setup.below.inner.calls()
}

async fn approved_setup(approve: bool) -> (Setup, Started) {
    let setup = setup().await;
    let started = setup.started().await;
    if approve {
        assert_done(setup.approve(&started, "alice").await);
    }
    (setup, started)
}

#[tokio::test(start_paused = true)]
async fn a_start_that_is_dropped_in_any_call_leaves_what_expires() {
    let calls = calls_of(async |setup, _| drop(setup.started().await)).await;
    assert!(calls >= 2, "a user code and a grant");
    for after in [false, true] {
        for at in 0..calls {
            let setup = setup().await;
            let started = setup.started().await;
            setup.below.inner.set(Probe::Hang { at, after });
            assert!(as_far_as_it_goes(setup.started()).await.is_none(), "call {at} hangs");
            setup.below.inner.set(Probe::Nothing);
            assert_done(setup.approve(&started, "alice").await);
            setup.clock.advance(CODE_LIFE + SECOND * 600);
            let left = setup.rows().await;
            assert_eq!(left.len(), CLIENT, "dropped in {at}, after: {after}");
            setup.started().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_approval_that_is_dropped_in_any_call_is_whole_or_can_be_made_again() {
    let calls = calls_of(async |setup, started| {
        assert_done(setup.approve(started, "alice").await);
    });
    let calls = calls.await;
    assert_eq!(calls, 3, "the code, the grant, the swap");
    for after in [false, true] {
        for at in 0..calls {
            let (setup, started) = approved_setup(false).await;
            setup.below.inner.set(Probe::Hang { at, after });
            let dropped = as_far_as_it_goes(setup.approve(&started, "alice")).await;
            assert!(dropped.is_none(), "call {at} hangs");
            setup.below.inner.set(Probe::Nothing);
            let again = setup.approve(&started, "alice").await;
            let was_applied = after && at == 2;
            assert_eq!(again == Decided::AlreadyDecided, was_applied, "{at} {after}: {again:?}");
            issued(setup.poll(&started).await);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_redemption_that_is_dropped_in_any_call_strands_nobody() {
    let (setup, started) = approved_setup(true).await;
    setup.below.inner.set(Probe::Nothing);
    issued(setup.poll(&started).await);
    let calls = setup.below.inner.calls();
    assert_eq!(calls, 3, "the grant, what leads to it, the swap");
    for after in [false, true] {
        for at in 0..calls {
            let (setup, started) = approved_setup(true).await;
            setup.below.inner.set(Probe::Hang { at, after });
            assert!(as_far_as_it_goes(setup.poll(&started)).await.is_none(), "call {at} hangs");
            setup.below.inner.set(Probe::Nothing);
            // The device asks again as soon as its own patience is over.
            setup.clock.advance(SECOND * 5);
            let first = issued(setup.poll(&started).await);
            let again = issued(setup.poll(&started).await);
            assert_eq!(first.token, again.token, "dropped in {at}, after: {after}");
            assert!(setup.is_good(&first).await);
        }
    }
}

/// The row of the token is there before the grant is issued, and means nothing until then.
#[tokio::test(start_paused = true)]
async fn a_token_is_not_good_before_its_grant_is_issued() {
    let (setup, started) = approved_setup(true).await;
    setup.below.inner.set(Probe::Hang { at: 2, after: false });
    assert!(as_far_as_it_goes(setup.poll(&started)).await.is_none());
    setup.below.inner.set(Probe::Nothing);
    assert_eq!(setup.app.list(None, None, PageLimit::MAX).await.unwrap().devices, []);
    // Nobody was told the token; another setup with the same key and codes derives it.
    let (twin, same) = approved_setup(true).await;
    assert_eq!(same.device_code.reveal(), started.device_code.reveal(), "the same chance");
    let token = issued(twin.poll(&same).await);
    assert!(!setup.is_good(&token).await);
    assert_eq!(issued(setup.poll(&started).await).token, token.token);
    assert!(setup.is_good(&token).await);
}

/// What was approved and put and never issued is over with its code.
#[tokio::test(start_paused = true)]
async fn a_redemption_that_is_dropped_and_never_repeated_links_nothing() {
    let (setup, started) = approved_setup(true).await;
    setup.below.inner.set(Probe::Hang { at: 2, after: false });
    assert!(as_far_as_it_goes(setup.poll(&started)).await.is_none());
    setup.below.inner.set(Probe::Nothing);
    setup.clock.advance(CODE_LIFE);
    assert!(matches!(setup.poll(&started).await, Polled::Expired));
    assert_eq!(setup.app.list(None, None, PageLimit::MAX).await.unwrap().devices, []);
    setup.clock.advance(SECOND * 366 * 86_400);
    assert_eq!(setup.rows().await.len(), CLIENT);
}

#[tokio::test(start_paused = true)]
async fn a_revocation_that_is_dropped_in_any_call_is_whole_or_can_be_made_again() {
    let fresh = setup().await;
    let (_, issued) = fresh.linked("alice").await;
    fresh.below.inner.set(Probe::Nothing);
    assert!(fresh.app.revoke(issued.device).await.unwrap());
    let calls = fresh.below.inner.calls();
    for after in [false, true] {
        for at in 0..calls {
            let setup = setup().await;
            let (_, issued) = setup.linked("alice").await;
            setup.below.inner.set(Probe::Hang { at, after });
            let dropped = as_far_as_it_goes(setup.app.revoke(issued.device)).await;
            assert!(dropped.is_none(), "call {at} hangs");
            setup.below.inner.set(Probe::Nothing);
            let is_whole = at > 1 || (at == 1 && after);
            assert_eq!(setup.is_good(&issued).await, !is_whole, "{at} {after}");
            assert_eq!(setup.app.revoke(issued.device).await.unwrap(), !is_whole);
            assert!(!setup.is_good(&issued).await);
        }
    }
}
