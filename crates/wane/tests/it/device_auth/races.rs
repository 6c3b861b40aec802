//! Races: whatever the order, one decision and one token.

use futures_util::future::join_all;
use wane::services::device_auth::{Decided, DeviceAuthError, Polled};

use super::probed::Probe;
use super::*;
use crate::gated::Gate;

/// The answers of racers that give way to each other in every call.
async fn race<T>(setup: &Setup, racers: Vec<impl Future<Output = T>>) -> Vec<T> {
    setup.below.set(Gate::GiveWay);
    let answers = join_all(racers).await;
    setup.below.set(Gate::Open);
    answers
}

fn winners(answers: &[Decided]) -> usize {
    answers.iter().filter(|decided| matches!(decided, Decided::Done(_))).count()
}

/// D2.
#[tokio::test]
async fn many_polls_of_one_approved_code_get_one_token() {
    for racers in [2, 3, 8, 64] {
        let setup = setup().await;
        let started = setup.started().await;
        assert_done(setup.approve(&started, "alice").await);
        let polls = race(&setup, (0..racers).map(|_| setup.poll(&started)).collect()).await;
        let tokens: Vec<_> = polls.into_iter().map(issued).collect();
        assert!(tokens.iter().all(|one| one.token == tokens[0].token), "{racers}");
        let page = setup.app.list(None, None, PageLimit::MAX).await.unwrap();
        assert_eq!(page.devices.len(), 1, "one device");
        assert!(setup.app.revoke(tokens[0].device).await.unwrap());
        assert!(!setup.is_good(&tokens[0]).await, "and one revocation ends it");
    }
}

/// The same on threads that really run at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_polls_on_many_threads_get_one_token() {
    for _ in 0..50 {
        let setup = setup().await;
        let started = setup.started().await;
        assert_done(setup.approve(&started, "alice").await);
        let polls: Vec<_> = (0..8)
            .map(|_| {
                let (app, client) = (setup.app.clone(), setup.client.clone());
                let code = started.device_code.reveal();
                tokio::spawn(async move { app.poll(&client, &code).await })
            })
            .collect();
        let answers = join_all(polls).await;
        let answers = answers.into_iter().map(|answer| answer.unwrap().unwrap());
        let tokens: Vec<_> = answers.map(issued).collect();
        assert!(tokens.iter().all(|one| one.token == tokens[0].token));
    }
}

/// D1: of two clicks one wins, and the device hears of that one.
async fn approve_against_deny(setup: &Setup) -> Result<(), String> {
    let started = setup.started().await;
    let click = async |number: usize| {
        if number.is_multiple_of(2) {
            setup.approve(&started, "alice").await
        } else {
            setup.deny(&started).await
        }
    };
    let answers = race(setup, (0..6).map(click).collect()).await;
    let winner = answers.iter().position(|answer| matches!(answer, Decided::Done(_)));
    let Some(winner) = winner.filter(|_| winners(&answers) == 1) else {
        return Err(format!("{answers:?}"));
    };
    let approved = winner.is_multiple_of(2);
    match (approved, setup.poll(&started).await) {
        (true, Polled::Issued(_)) | (false, Polled::Denied) => Ok(()),
        (_, polled) => Err(format!("approved: {approved}, and {polled:?}")),
    }
}

#[tokio::test]
async fn of_approving_and_denying_one_wins() {
    let setup = setup().await;
    for _ in 0..50 {
        approve_against_deny(&setup).await.unwrap();
    }
}

/// The control: over a store that swaps without care the check goes red.
#[tokio::test]
async fn over_careless_swaps_both_win_and_it_is_noticed() {
    let setup = setup().await;
    setup.below.inner.set(Probe::CarelessSwap(Duration::ZERO));
    assert!(approve_against_deny(&setup).await.is_err());
}

#[tokio::test]
async fn of_two_approvals_one_wins_and_its_subject_is_linked() {
    for _ in 0..50 {
        let setup = setup().await;
        let started = setup.started().await;
        let names = ["alice", "bob", "carol"];
        let clicks = names.iter().map(|name| setup.approve(&started, name)).collect();
        let answers = race(&setup, clicks).await;
        assert_eq!(winners(&answers), 1, "{answers:?}");
        let winner = answers.iter().position(|a| matches!(a, Decided::Done(_))).unwrap();
        let issued = issued(setup.poll(&started).await);
        let active = setup.app.introspect(issued.token.reveal()).await.unwrap().unwrap();
        assert_eq!(active.subject, names[winner]);
        for name in names {
            let page = setup.app.list(Some(name), None, PageLimit::MAX).await.unwrap();
            assert_eq!(page.devices.len(), usize::from(name == names[winner]));
        }
    }
}

/// D3: the swap was asked for in time and lands when the code is over.
#[tokio::test]
async fn an_approval_that_lands_after_the_expiry_links_nothing() {
    let setup = setup().await;
    let started = setup.started().await;
    setup.clock.advance(CODE_LIFE - Duration::from_millis(1));
    setup.below.set(Gate::HoldBefore);
    let (decided, ()) = tokio::join!(setup.approve(&started, "alice"), async {
        tokio::task::yield_now().await;
        setup.clock.advance(SECOND);
        setup.below.set(Gate::Open);
    });
    assert_eq!(decided, Decided::NoSuchCode, "nobody is told that it worked");
    assert!(matches!(setup.poll(&started).await, Polled::Expired));
    assert!(setup.app.list(None, None, PageLimit::MAX).await.unwrap().devices.is_empty());
}

/// The swap lands in time, the device asks in time, and only the answer comes late.
#[tokio::test]
async fn an_approval_that_the_device_used_in_time_is_told_as_done() {
    let setup = setup().await;
    let started = setup.started().await;
    let fast = service_on(&setup.below.inner, setup.shared_clock(), unpaced()).of(APP);
    setup.clock.advance(CODE_LIFE - Duration::from_millis(1));
    setup.below.set(Gate::HoldAfter);
    let (decided, issued) = tokio::join!(setup.approve(&started, "alice"), async {
        tokio::task::yield_now().await;
        let code = started.device_code.reveal();
        let issued = issued(fast.poll(&setup.client, &code).await.unwrap());
        setup.clock.advance(SECOND);
        setup.below.set(Gate::Open);
        issued
    });
    assert_eq!(assert_done(decided), issued.device, "the device is linked, and so it is told");
    assert!(setup.is_good(&issued).await);
}

/// D3: the device asked in time, and the store took until after the expiry.
#[tokio::test]
async fn a_redemption_that_the_store_holds_up_beyond_the_expiry_links_nothing() {
    let setup = setup().await;
    let started = setup.started().await;
    assert_done(setup.approve(&started, "alice").await);
    setup.clock.advance(CODE_LIFE - Duration::from_millis(1));
    setup.below.set(Gate::HoldBefore);
    let (polled, ()) = tokio::join!(setup.poll(&started), async {
        tokio::task::yield_now().await;
        setup.clock.advance(Duration::from_millis(1));
        setup.below.set(Gate::Open);
    });
    assert!(matches!(polled, Polled::Expired), "{polled:?}");
    assert!(matches!(setup.poll(&started).await, Polled::Expired));
    assert!(setup.app.list(None, None, PageLimit::MAX).await.unwrap().devices.is_empty());
}

/// Counted from when the poll began, it would be over before the token was told.
#[tokio::test]
async fn the_window_of_a_repeat_begins_when_the_token_is_issued() {
    let setup = setup().await;
    let started = setup.started().await;
    assert_done(setup.approve(&started, "alice").await);
    setup.below.set(Gate::HoldBefore);
    let (polled, ()) = tokio::join!(setup.poll(&started), async {
        tokio::task::yield_now().await;
        setup.clock.advance(SECOND * 11);
        setup.below.set(Gate::Open);
    });
    let first = issued(polled);
    assert_eq!(issued(setup.poll(&started).await).token, first.token);
}

/// The poll read the grant as approved; meanwhile another redeemed it, and it was revoked.
#[tokio::test]
async fn a_poll_that_lands_after_the_revocation_revives_nothing() {
    let setup = setup().await;
    let started = setup.started().await;
    assert_done(setup.approve(&started, "alice").await);
    let fast = service_on(&setup.below.inner, setup.shared_clock(), unpaced()).of(APP);
    setup.below.set(Gate::HoldBefore);
    let (slow, fast) = tokio::join!(setup.poll(&started), async {
        tokio::task::yield_now().await;
        let code = started.device_code.reveal();
        let issued = issued(fast.poll(&setup.client, &code).await.unwrap());
        assert!(fast.revoke(issued.device).await.unwrap());
        setup.below.set(Gate::Open);
        issued
    });
    assert!(matches!(slow, Polled::Invalid), "{slow:?}");
    assert!(!setup.is_good(&fast).await);
    let page = setup.app.list(None, None, PageLimit::MAX).await.unwrap();
    assert!(page.devices.is_empty(), "{page:?}");
}

/// The revocation read the grant as approved, and a poll redeemed it first.
#[tokio::test]
async fn of_a_poll_and_a_revocation_the_revocation_has_the_last_word() {
    let mut redeemed = 0;
    for round in 0..24 {
        let setup = setup().await;
        let started = setup.started().await;
        let device = assert_done(setup.approve(&started, "alice").await);
        setup.below.set(Gate::GiveWay);
        let (polled, revoked) = tokio::join!(setup.poll(&started), async {
            for _ in 0..round {
                tokio::task::yield_now().await;
            }
            setup.app.revoke(device).await.unwrap()
        });
        setup.below.set(Gate::Open);
        assert!(revoked);
        if let Polled::Issued(issued) = polled {
            redeemed += 1;
            assert!(!setup.is_good(&issued).await);
        }
        assert!(matches!(setup.poll(&started).await, Polled::Invalid));
    }
    assert!((1..24).contains(&redeemed), "both orders are seen: {redeemed}");
}

/// The poll read the grant as pending; the approval in between must stay.
#[tokio::test]
async fn a_poll_does_not_erase_an_approval() {
    let setup = setup().await;
    let started = setup.started().await;
    let fast = service_on(&setup.below.inner, setup.shared_clock(), unpaced()).of(APP);
    setup.below.set(Gate::HoldReads);
    let (slow, ()) = tokio::join!(setup.poll(&started), async {
        tokio::task::yield_now().await;
        let typed = started.user_code.reveal();
        assert_done(fast.approve(&typed, &approval("alice"), Guesser::App).await.unwrap());
        setup.below.set(Gate::Open);
    });
    assert!(matches!(slow, Polled::Pending));
    issued(setup.poll(&started).await);
}

#[tokio::test]
async fn lost_answers_are_recognised() {
    let setup = setup().await;
    setup.below.set(Gate::LoseAnswer);
    let started = setup.app.start(&setup.client, None, &Default::default()).await;
    let started = started.expect("both codes are found");
    assert_done(setup.approve(&started, "alice").await);
    // The rows before the swap are put without looking: an error, and the next poll goes on.
    let polled = setup.app.poll(&setup.client, &started.device_code.reveal()).await;
    assert!(matches!(polled, Err(DeviceAuthError::Store(_))), "{polled:?}");
    setup.below.set(Gate::Open);
    let issued = issued(setup.poll(&started).await);
    setup.below.set(Gate::LoseAnswer);
    assert!(setup.app.revoke(issued.device).await.unwrap());
    setup.below.set(Gate::Open);
    assert!(!setup.is_good(&issued).await);
}

#[tokio::test]
async fn lost_requests_are_never_called_done() {
    let setup = setup().await;
    let started = setup.started().await;
    let typed = started.user_code.reveal();
    setup.below.set(Gate::LoseRequest);
    let lost = setup.app.approve(&typed, &approval("alice"), Guesser::App).await;
    assert!(matches!(lost, Err(DeviceAuthError::Store(_))), "{lost:?}");
    let lost = setup.app.start(&setup.client, None, &Default::default()).await;
    assert!(matches!(lost, Err(DeviceAuthError::Store(_))), "{lost:?}");
    setup.below.set(Gate::Open);
    assert!(matches!(setup.poll(&started).await, Polled::Pending));
    assert_done(setup.approve(&started, "alice").await);
}
