//! Limits: guesses, starts, and live codes.

use wane::services::device_auth::{Asking, DeviceAuthSettings, GuessSettings};

use super::probed::Probe;
use super::*;
use crate::gated::Gate;

fn from(number: u8) -> Asking {
    Asking { address: Some(address(number)), agent: String::new() }
}

#[tokio::test]
async fn starts_are_limited_per_source_and_per_client() {
    let one_in_ten = Pace { burst: 3, every: SECOND * 10 };
    let one_in_two = Pace { burst: 5, every: SECOND * 2 };
    let settings = DeviceAuthSettings {
        starts_per_source: one_in_ten,
        starts_per_client: one_in_two,
        ..DeviceAuthSettings::default()
    };
    let setup = setup_with(settings).await;
    let start = async |asking: Asking| setup.app.start(&setup.client, None, &asking).await;
    for _ in 0..3 {
        start(from(1)).await.unwrap();
    }
    assert_eq!(assert_limited(start(from(1)).await), SECOND * 10);
    start(from(2)).await.unwrap();
    start(Asking::default()).await.unwrap();
    assert_eq!(assert_limited(start(from(3)).await), SECOND * 2, "the client's own limit");
    let other = register(&setup.app, television("other")).await;
    setup.app.start(&other, None, &from(4)).await.unwrap();
    setup.clock.advance(SECOND * 10);
    start(from(1)).await.unwrap();
}

#[tokio::test]
async fn live_codes_are_capped_per_application_and_in_all() {
    let settings = DeviceAuthSettings { codes_per_app: 3, codes_in_all: 5, ..unpaced() };
    let setup = setup_with(settings).await;
    let other = setup.service.of(OTHER_APP);
    let theirs = register(&other, television("theirs")).await;
    let start = async || setup.app.start(&setup.client, None, &Asking::default()).await;
    let start_theirs = async || other.start(&theirs, None, &Asking::default()).await;
    for _ in 0..3 {
        start().await.unwrap();
    }
    assert_eq!(assert_limited(start().await), SECOND * 60, "no longer than a minute");
    start_theirs().await.unwrap();
    setup.clock.advance(SECOND);
    start_theirs().await.unwrap();
    assert_limited(start_theirs().await);
    setup.clock.advance(CODE_LIFE - SECOND * 2);
    assert_eq!(assert_limited(start().await), SECOND);
    setup.clock.advance(SECOND);
    for _ in 0..3 {
        start().await.unwrap();
    }
    start_theirs().await.unwrap();
    assert_limited(start_theirs().await);
}

/// A restart, or another node, does not begin at none.
#[tokio::test]
async fn live_codes_are_counted_from_the_store() {
    let settings = DeviceAuthSettings { codes_per_app: 3, ..unpaced() };
    let setup = setup_with(settings).await;
    for _ in 0..2 {
        setup.started().await;
    }
    let shared = DeviceAuthSettings { recount: Some(SECOND * 30), ..settings };
    let second = service_on(&setup.below, setup.shared_clock(), shared).of(APP);
    second.start(&setup.client, None, &Asking::default()).await.unwrap();
    assert_limited(second.start(&setup.client, None, &Asking::default()).await);
    let third = service_on(&setup.below, setup.shared_clock(), shared).of(APP);
    assert_limited(third.start(&setup.client, None, &Asking::default()).await);
    assert!(
        setup.app.start(&setup.client, None, &Asking::default()).await.is_ok(),
        "its own count"
    );
}

#[tokio::test]
async fn what_a_start_could_not_write_is_not_counted() {
    let settings = DeviceAuthSettings { codes_per_app: 1, ..unpaced() };
    let setup = setup_with(settings).await;
    let refused = setup.app.start(&setup.client, Some("root"), &Asking::default()).await;
    assert!(refused.is_err());
    setup.started().await;
}

/// An outage in the middle of many starts would otherwise close the application for a life.
#[tokio::test]
async fn a_start_whose_grant_could_not_be_written_gives_its_place_back() {
    let settings = DeviceAuthSettings { codes_per_app: 1, ..unpaced() };
    let setup = setup_with(settings).await;
    setup.below.inner.set(Probe::NoGrants);
    for _ in 0..3 {
        let failed = setup.app.start(&setup.client, None, &Asking::default()).await;
        assert!(matches!(failed, Err(DeviceAuthError::Store(_))), "{failed:?}");
    }
    assert_eq!(setup.rows().await.len(), CLIENT, "no code that nobody was told");
    setup.below.inner.set(Probe::Nothing);
    setup.started().await;
}

/// One subscriber may have 65,536 networks of IPv6 that are a source each.
#[tokio::test]
async fn starts_from_many_sources_of_one_ipv6_network_are_limited_together() {
    let one_in_ten = Pace { burst: 3, every: SECOND * 10 };
    let settings = DeviceAuthSettings { starts_per_source: one_in_ten, ..unpaced() };
    let setup = setup_with(settings).await;
    let start = async |address: String| {
        let asking = Asking { address: address.parse().ok(), agent: String::new() };
        setup.app.start(&setup.client, None, &asking).await
    };
    for source in 0..30 {
        start(format!("2001:db8:1:{source:x}::1")).await.unwrap();
    }
    assert_eq!(assert_limited(start("2001:db8:1:ffff::1".into()).await), SECOND);
    start("2001:db8:2::1".into()).await.unwrap();
}

/// D4 at the service: misses are charged whatever asks, hits are not.
#[tokio::test]
async fn five_misses_from_an_address_close_every_door_to_it() {
    let setup = setup().await;
    let other = setup.service.of(OTHER_APP);
    let typed = setup.started().await.user_code.reveal();
    let second = setup.started().await.user_code.reveal();
    assert!(setup.service.look_up(&wrong_code(0), Source::of(address(1))).await.unwrap().is_none());
    assert!(setup.app.look_up(&wrong_code(1), person(1)).await.unwrap().is_none());
    setup.app.approve(&wrong_code(2), &approval("alice"), person(1)).await.unwrap();
    setup.app.deny(&wrong_code(3), person(1)).await.unwrap();
    assert!(other.look_up(&second, person(1)).await.unwrap().is_none(), "another app's is a miss");
    assert_limited(setup.service.look_up(&typed, Source::of(address(1))).await);
    assert_limited(setup.app.approve(&typed, &approval("alice"), person(1)).await);
    assert_limited(setup.app.deny(&typed, person(1)).await);
    assert_done(setup.app.approve(&typed, &approval("alice"), person(2)).await.unwrap());
}

#[tokio::test]
async fn the_budget_of_all_makes_everybody_wait() {
    let guesses = GuessSettings { budget: 10, ..GuessSettings::default() };
    let setup = setup_with(DeviceAuthSettings { guesses, ..unpaced() }).await;
    let typed = setup.started().await.user_code.reveal();
    for miss in 0..10 {
        let by = person(miss as u8);
        assert!(setup.app.look_up(&wrong_code(miss), by).await.unwrap().is_none());
    }
    assert_eq!(assert_limited(setup.app.look_up(&typed, person(99)).await), SECOND * 60);
    setup.clock.advance(SECOND * 60);
    assert!(setup.app.look_up(&typed, person(99)).await.unwrap().is_some());
}

/// A store that does not answer costs nobody an attempt.
#[tokio::test]
async fn only_misses_are_charged() {
    let setup = setup().await;
    let nonsense = ["", "no code at all", "AAAAA-AAAAA"];
    for _ in 0..10 {
        for typed in nonsense {
            assert!(setup.app.look_up(typed, person(1)).await.unwrap().is_none());
        }
        let typed = setup.started().await.user_code.reveal();
        setup.below.set(Gate::LoseRequest);
        let lost = setup.app.approve(&typed, &approval("alice"), person(1)).await;
        assert!(lost.is_err());
        setup.below.set(Gate::Open);
        assert!(setup.app.look_up(&typed, person(1)).await.unwrap().is_some());
    }
}
