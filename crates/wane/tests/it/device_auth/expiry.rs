//! Nothing after expiry (D3), exact to the millisecond, on a clock that only goes forward.

use wane::services::device_auth::{Decided, Polled};

use super::*;

const MILLI: Duration = Duration::from_millis(1);

#[tokio::test]
async fn a_code_lives_until_the_millisecond_of_its_expiry() {
    let setup = setup().await;
    let (one, two) = (setup.started().await, setup.started().await);
    setup.clock.advance(CODE_LIFE - MILLI);
    assert!(matches!(setup.poll(&one).await, Polled::Pending));
    assert_done(setup.approve(&one, "alice").await);
    setup.clock.advance(MILLI);
    assert_eq!(setup.approve(&two, "alice").await, Decided::NoSuchCode);
    assert_eq!(setup.deny(&two).await, Decided::NoSuchCode);
    assert!(matches!(setup.poll(&two).await, Polled::Expired));
    assert!(
        matches!(setup.poll(&one).await, Polled::Expired),
        "approved, and not asked for in time"
    );
}

#[tokio::test]
async fn an_expired_code_is_told_from_none_for_a_grace() {
    let setup = setup().await;
    let started = setup.started().await;
    setup.clock.advance(CODE_LIFE + SECOND * 600 - MILLI);
    assert!(matches!(setup.poll(&started).await, Polled::Expired));
    setup.clock.advance(MILLI);
    assert!(matches!(setup.poll(&started).await, Polled::Invalid));
}

/// D5: who has no device code learns nothing of codes that were.
#[tokio::test]
async fn unknown_and_expired_look_alike_to_a_stranger() {
    let setup = setup().await;
    let stranger = register(&setup.app, television("stranger")).await;
    let started = setup.started().await;
    let (typed, code) = (started.user_code.reveal(), started.device_code.reveal());
    setup.clock.advance(CODE_LIFE);
    let unknown = wrong_code(1);
    for code in [&typed, &unknown] {
        assert!(setup.app.look_up(code, person(1)).await.unwrap().is_none());
        let decided = setup.app.approve(code, &approval("alice"), person(2)).await.unwrap();
        assert_eq!(decided, Decided::NoSuchCode);
    }
    assert!(matches!(setup.app.poll(&stranger, &code).await.unwrap(), Polled::Invalid));
}

/// Misses are counted alike, or the limiter would tell what the answer does not.
#[tokio::test]
async fn an_expired_code_costs_what_an_unknown_one_costs() {
    let setup = setup().await;
    let codes = [setup.started().await, setup.started().await, setup.started().await];
    setup.clock.advance(CODE_LIFE);
    for started in &codes {
        let typed = started.user_code.reveal();
        assert!(setup.app.look_up(&typed, person(1)).await.unwrap().is_none());
    }
    for miss in 0..2 {
        assert!(setup.app.look_up(&wrong_code(miss), person(1)).await.unwrap().is_none());
    }
    assert_limited(setup.app.look_up(&wrong_code(2), person(1)).await);
}

#[tokio::test]
async fn a_clock_that_is_set_back_revives_nothing() {
    let setup = setup().await;
    let (waiting, (used, token)) = (setup.started().await, setup.linked("alice").await);
    setup.clock.advance(SECOND * 10);
    assert!(matches!(setup.poll(&used).await, Polled::Invalid), "its window is over");
    setup.clock.advance(CODE_LIFE - SECOND * 10);
    assert!(matches!(setup.poll(&waiting).await, Polled::Expired));
    setup.clock.set_back(SECOND * 3_600);
    for _ in 0..10 {
        setup.clock.advance(SECOND);
        assert!(matches!(setup.poll(&waiting).await, Polled::Expired));
        assert_eq!(setup.approve(&waiting, "alice").await, Decided::NoSuchCode);
        assert!(matches!(setup.poll(&used).await, Polled::Invalid));
    }
    assert!(setup.is_good(&token).await);
}

/// The clock of the machine is set back between the polls: their pace is measured by another.
#[tokio::test]
async fn a_clock_that_is_set_back_throttles_nobody() {
    let setup = setup().await;
    let started = setup.started().await;
    for _ in 0..10 {
        assert!(matches!(setup.poll(&started).await, Polled::Pending));
        setup.clock.set_back(SECOND * 60);
        setup.clock.advance(SECOND * 5);
    }
}

/// A device that redeemed in the last second asks again in the next: it was told its token before.
#[tokio::test]
async fn the_window_of_a_repeat_may_reach_beyond_the_expiry_of_the_code() {
    let setup = setup().await;
    let started = setup.started().await;
    assert_done(setup.approve(&started, "alice").await);
    setup.clock.advance(CODE_LIFE - SECOND);
    let first = issued(setup.poll(&started).await);
    setup.clock.advance(SECOND * 2);
    assert_eq!(issued(setup.poll(&started).await).token, first.token);
    setup.clock.advance(SECOND * 8);
    assert!(matches!(setup.poll(&started).await, Polled::Invalid), "used, not expired");
}

#[tokio::test]
async fn everything_leaves_by_itself() {
    let setup = setup().await;
    for subject in ["alice", "bob"] {
        setup.linked(subject).await;
        let denied = setup.started().await;
        assert_done(setup.deny(&denied).await);
    }
    setup.clock.advance(CODE_LIFE + SECOND * 600);
    assert_eq!(setup.rows().await.len(), CLIENT + 2 * 3, "and three rows of each device");
    setup.clock.advance(SECOND * 365 * 86_400);
    assert_eq!(setup.rows().await.len(), CLIENT);
}
