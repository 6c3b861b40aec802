//! Traps that real clients and servers fell into, each by its name.

use wane::services::device_auth::{Asking, Decided, Polled};

use super::*;

#[track_caller]
fn slowed(polled: &Polled) -> Duration {
    let Polled::SlowDown { interval } = polled else { panic!("{polled:?}") };
    *interval
}

fn is_pending(polled: &Polled) -> bool {
    matches!(polled, Polled::Pending)
}

/// The `oauth2` crate and Octokit poll at once.
#[tokio::test]
async fn the_first_poll_is_never_throttled() {
    let setup = setup().await;
    let started = setup.started().await;
    assert!(is_pending(&setup.poll(&started).await));
    setup.clock.advance(SECOND * 5);
    assert!(is_pending(&setup.poll(&started).await));
}

/// Go's x/oauth2 sends each failing poll twice within a second.
#[tokio::test]
async fn a_poll_sent_twice_within_a_second_is_one_poll_with_one_answer() {
    let setup = setup().await;
    let started = setup.started().await;
    for _ in 0..20 {
        assert!(is_pending(&setup.poll(&started).await));
        setup.clock.advance(Duration::from_millis(900));
        assert!(is_pending(&setup.poll(&started).await), "the same poll");
        setup.clock.advance(Duration::from_millis(4_100));
    }
    setup.clock.advance(SECOND);
    assert!(is_pending(&setup.poll(&started).await));
    setup.clock.advance(SECOND * 2);
    assert_eq!(slowed(&setup.poll(&started).await), SECOND * 10);
    setup.clock.advance(Duration::from_millis(500));
    assert_eq!(slowed(&setup.poll(&started).await), SECOND * 10, "no second penalty");
}

/// Coalescing is no way around the interval.
#[tokio::test]
async fn who_polls_ten_times_a_second_is_told_to_slow_down() {
    let setup = setup().await;
    let started = setup.started().await;
    let mut longest = Duration::ZERO;
    for _ in 0..200 {
        if let Polled::SlowDown { interval } = setup.poll(&started).await {
            longest = longest.max(interval);
        }
        setup.clock.advance(Duration::from_millis(100));
    }
    assert_eq!(longest, SECOND * 60);
}

/// `gh` gives up at the second `slow_down`; clocks of devices run fast.
#[tokio::test]
async fn a_device_whose_clock_is_a_fifth_fast_is_never_told_to_slow_down() {
    let setup = setup().await;
    let started = setup.started().await;
    for _ in 0..50 {
        assert!(is_pending(&setup.poll(&started).await));
        setup.clock.advance(SECOND * 4);
    }
    assert!(is_pending(&setup.poll(&started).await));
    setup.clock.advance(Duration::from_millis(3_999));
    slowed(&setup.poll(&started).await);
}

/// D6: the interval grows by 5 s for this and all later polls, and by no more than to 60 s.
#[tokio::test]
async fn the_interval_grows_by_five_seconds_up_to_sixty() {
    let setup = setup().await;
    let started = setup.started().await;
    setup.poll(&started).await;
    for expected in [10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 60, 60] {
        setup.clock.advance(SECOND);
        assert_eq!(slowed(&setup.poll(&started).await), SECOND * expected);
    }
    setup.clock.advance(SECOND * 60);
    assert!(is_pending(&setup.poll(&started).await));
    setup.clock.advance(SECOND * 47);
    assert_eq!(slowed(&setup.poll(&started).await), SECOND * 60, "it has not shrunk");
}

/// A server that counts the interval from refused polls never accepts a steady poller again.
#[tokio::test]
async fn slow_down_does_not_starve_a_steady_poller() {
    let setup = setup().await;
    let started = setup.started().await;
    let mut accepted = 0;
    for _ in 0..100 {
        accepted += u32::from(is_pending(&setup.poll(&started).await));
        setup.clock.advance(SECOND * 3);
    }
    assert!(accepted >= 6, "{accepted} in 300 s");
}

#[tokio::test]
async fn an_approved_grant_is_never_withheld_by_slow_down() {
    let setup = setup().await;
    let started = setup.started().await;
    for _ in 0..5 {
        setup.poll(&started).await;
        setup.clock.advance(SECOND);
    }
    slowed(&setup.poll(&started).await);
    assert_done(setup.approve(&started, "alice").await);
    issued(setup.poll(&started).await);
}

/// A pending poll that wrote could write over an approval.
#[tokio::test]
async fn a_pending_poll_writes_nothing() {
    let setup = setup().await;
    let started = setup.started().await;
    let before = setup.rows().await;
    setup.below.inner.set(probed::Probe::Nothing);
    for _ in 0..20 {
        setup.poll(&started).await;
        setup.clock.advance(SECOND);
    }
    assert_eq!(setup.below.inner.writes(), 0);
    assert_eq!(setup.rows().await, before);
}

/// oauthlib raises if the scope differs from the one asked.
#[tokio::test]
async fn the_granted_scope_is_exactly_the_one_asked_in_its_order() {
    let setup = setup().await;
    let asked = "write read";
    let started = setup.app.start(&setup.client, Some(asked), &Asking::default()).await.unwrap();
    assert_done(setup.approve(&started, "alice").await);
    assert_eq!(issued(setup.poll(&started).await).scope.join(" "), asked);
}

/// The client has `admin` too, and did not ask for it. A poll has no say in it.
#[tokio::test]
async fn the_scope_cannot_widen_at_the_token_call() {
    let setup = setup().await;
    let (started, issued) = setup.linked("alice").await;
    assert_eq!((&*started.scope, &*issued.scope), (&["read".into()][..], &["read".into()][..]));
    let active = setup.app.introspect(issued.token.reveal()).await.unwrap().unwrap();
    assert_eq!(active.scope, ["read"]);
}

#[tokio::test]
async fn without_a_scope_somebody_must_approve_all_the_same() {
    let setup = setup().await;
    let plain = NewClient { scopes: Vec::new(), ..television("plain") };
    let client = register(&setup.app, plain).await;
    let started = setup.app.start(&client, None, &Asking::default()).await.unwrap();
    let code = started.device_code.reveal();
    assert!(is_pending(&setup.app.poll(&client, &code).await.unwrap()));
    assert_done(setup.approve(&started, "alice").await);
    let issued = issued(setup.app.poll(&client, &code).await.unwrap());
    assert!(issued.scope.is_empty());
}

#[tokio::test]
async fn a_late_approval_does_not_revive_a_redeemed_code() {
    let setup = setup().await;
    let (started, issued) = setup.linked("alice").await;
    assert_eq!(setup.approve(&started, "mallory").await, Decided::AlreadyDecided);
    assert_eq!(setup.deny(&started).await, Decided::AlreadyDecided);
    setup.clock.advance(SECOND * 10);
    assert!(matches!(setup.poll(&started).await, Polled::Invalid));
    assert_eq!(setup.approve(&started, "mallory").await, Decided::AlreadyDecided);
    assert!(matches!(setup.poll(&started).await, Polled::Invalid));
    let active = setup.app.introspect(issued.token.reveal()).await.unwrap().unwrap();
    assert_eq!(active.subject, "alice");
}

/// The repeat is for a lost answer: it is the same token, for ten seconds.
#[tokio::test]
async fn a_repeated_poll_gets_the_same_token_for_ten_seconds() {
    let setup = setup().await;
    let (started, first) = setup.linked("alice").await;
    setup.clock.advance(Duration::from_millis(9_999));
    let again = issued(setup.poll(&started).await);
    assert_eq!((&again.token, again.device), (&first.token, first.device));
    setup.clock.advance(Duration::from_millis(1));
    assert!(matches!(setup.poll(&started).await, Polled::Invalid));
    assert!(setup.is_good(&first).await);
}

/// A node with another key derives another token, which would be good for nothing.
#[tokio::test]
async fn a_node_with_another_key_tells_no_token_that_is_not_good() {
    let setup = setup().await;
    let (started, _) = setup.linked("alice").await;
    let key = DeviceKey::from_bytes([8; 32]);
    let other = DeviceAuth::new(setup.below.clone(), setup.shared_clock(), key, unpaced()).of(APP);
    let polled = other.poll(&setup.client, &started.device_code.reveal()).await.unwrap();
    assert!(matches!(polled, Polled::Invalid), "{polled:?}");
}

#[tokio::test]
async fn a_code_is_bound_to_its_client() {
    let setup = setup().await;
    let other = register(&setup.app, television("other")).await;
    let started = setup.started().await;
    let code = started.device_code.reveal();
    let stolen = async || setup.app.poll(&other, &code).await.unwrap();
    assert!(matches!(stolen().await, Polled::Invalid), "pending");
    assert_done(setup.approve(&started, "alice").await);
    assert!(matches!(stolen().await, Polled::Invalid), "approved");
    issued(setup.poll(&started).await);
    assert!(matches!(stolen().await, Polled::Invalid), "within the window");
}

#[tokio::test]
async fn denied_and_expired_are_not_mixed_up() {
    let setup = setup().await;
    let (denied, forgotten) = (setup.started().await, setup.started().await);
    assert_done(setup.deny(&denied).await);
    for _ in 0..3 {
        assert!(matches!(setup.poll(&denied).await, Polled::Denied), "as often as it is asked");
        assert!(is_pending(&setup.poll(&forgotten).await));
    }
    setup.clock.advance(CODE_LIFE);
    assert!(matches!(setup.poll(&forgotten).await, Polled::Expired));
    assert!(matches!(setup.poll(&denied).await, Polled::Expired), "the expiry comes first");
}

#[tokio::test]
async fn a_reload_of_the_page_spends_no_attempts() {
    let setup = setup().await;
    let typed = setup.started().await.user_code.reveal();
    for _ in 0..50 {
        let found = setup.service.look_up(&typed, Source::of(address(1))).await.unwrap();
        assert!(found.is_some());
        let wrong = setup.service.look_up(&wrong_code(1), Source::of(address(1))).await.unwrap();
        assert!(wrong.is_none(), "the same wrong code again is the same attempt");
    }
    for miss in 2..6 {
        let wrong = setup.app.look_up(&wrong_code(miss), person(1)).await;
        assert!(wrong.unwrap().is_none(), "{miss}");
    }
    assert_limited(setup.app.look_up(&wrong_code(6), person(1)).await);
}

#[tokio::test]
async fn a_success_does_not_clear_the_failures() {
    let setup = setup().await;
    for miss in 0..5 {
        let own = setup.started().await;
        assert!(setup.app.look_up(&wrong_code(miss), person(1)).await.unwrap().is_none());
        // The attacker has a code of its own to succeed with.
        if miss < 4 {
            let own = own.user_code.reveal();
            let decided = setup.app.approve(&own, &approval("mallory"), person(1)).await.unwrap();
            assert_done(decided);
        }
    }
    assert_limited(setup.app.look_up(&wrong_code(7), person(1)).await);
}

#[tokio::test]
async fn variants_of_case_and_dashes_do_not_evade_the_limiter() {
    let setup = setup().await;
    for miss in 0..5 {
        assert!(setup.app.look_up(&wrong_code(miss), person(1)).await.unwrap().is_none());
    }
    let typed = setup.started().await.user_code.reveal();
    let bare = typed.replace('-', "");
    let spaced = format!(" {} ", bare.to_lowercase());
    let dashed: String = bare.chars().flat_map(|c| [c, '-']).collect();
    for variant in [&typed, &bare, &spaced, &dashed] {
        assert_limited(setup.app.look_up(variant, person(1)).await);
        let found = setup.app.look_up(variant, person(2)).await.unwrap();
        assert!(found.is_some(), "another address may: {variant}");
    }
}

/// Manual entry worked and the link did not, or the reverse: both are one lookup.
#[tokio::test]
async fn every_way_of_writing_a_code_finds_it() {
    let setup = setup().await;
    for way in 0..4 {
        let started = setup.started().await;
        let shown = started.user_code.reveal();
        let typed = match way {
            0 => shown,
            1 => shown.replace('-', ""),
            2 => shown.to_lowercase().replace('-', " "),
            _ => format!("\u{a0}{}\r\n", shown.replace('-', "\u{2013}")),
        };
        let decided = setup.app.approve(&typed, &approval("alice"), person(1)).await.unwrap();
        assert_done(decided);
        issued(setup.poll(&started).await);
    }
}

#[tokio::test]
async fn a_wrong_code_is_answered_as_one() {
    let setup = setup().await;
    let long = "B".repeat(100_000);
    for typed in ["", "AEIOU-AEIOU", "<b>BCDFG</b>", &long, &wrong_code(1)] {
        let decided = setup.app.approve(typed, &approval("alice"), person(1)).await.unwrap();
        assert_eq!(decided, Decided::NoSuchCode, "{typed:.20}");
        assert_eq!(setup.app.deny(typed, person(1)).await.unwrap(), Decided::NoSuchCode);
    }
    for code in ["", "x", &long, "%00", &"A".repeat(43)] {
        let polled = setup.app.poll(&setup.client, code).await.unwrap();
        assert!(matches!(polled, Polled::Invalid), "{code:.20}");
    }
}
