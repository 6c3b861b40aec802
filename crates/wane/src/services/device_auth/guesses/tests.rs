//! The guess budget by its numbers: what is tried, what it costs, and what an attacker gets for it.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::clock::{Clock as _, ManualClock, SystemClock};

const APP: ClusterAppId = ClusterAppId(1);
const SECOND: Duration = Duration::from_secs(1);

/// Ten letters out of twenty.
const CODES: f64 = 1.024e13;
const LIVE: f64 = 10_000.0;

fn limiter(settings: GuessSettings) -> (GuessLimiter, Arc<ManualClock>) {
    let clock = ManualClock::seeded(1);
    (GuessLimiter::new(settings, clock.clone()), clock)
}

fn address(number: u32) -> Guesser {
    Guesser::Address(Source::of(IpAddr::V4(Ipv4Addr::from(number))))
}

fn code(number: u64) -> Hash {
    let mut hash = [0; 32];
    hash[..8].copy_from_slice(&number.to_be_bytes());
    hash
}

/// Tries as many codes as the limiter lets through for so many lives, each address in its turn
/// until it is used up; the most in any one life.
fn most_in_a_life(limiter: &GuessLimiter, clock: &ManualClock, from: u32, lives: u32) -> usize {
    let (mut tried, mut most, mut next) = (VecDeque::new(), 0, 0_u64);
    let (began, life) = (clock.monotonic(), limiter.settings.life);
    while clock.monotonic() < began + life * lives {
        let attacker = |next: u64| address((next / 5 % u64::from(from)) as u32);
        while limiter.admit(attacker(next), APP, code(next)).is_ok() {
            next += 1;
            tried.push_back(clock.monotonic());
        }
        while tried.front().is_some_and(|at| *at + life <= clock.monotonic()) {
            tried.pop_front();
        }
        most = most.max(tried.len());
        clock.advance(Duration::from_millis(225));
    }
    most
}

fn chance_in_the_longest_life(tries: usize) -> f64 {
    2.0 * tries as f64 * LIVE / CODES
}

/// The numbers of the module's page and of the documentation.
#[test]
fn a_thousand_addresses_hit_nothing_within_the_life_of_a_code() {
    let (limiter, clock) = limiter(GuessSettings::default());
    let tries = most_in_a_life(&limiter, &clock, 1_000, 2);
    assert!((4_400..=4_528).contains(&tries), "{tries}");
    assert!(chance_in_the_longest_life(4_528) < 1e-5);
}

#[test]
fn no_number_of_addresses_gets_more() {
    let (limiter, clock) = limiter(GuessSettings::default());
    let tries = most_in_a_life(&limiter, &clock, 6_000, 2);
    assert!(tries <= 4_528, "{tries}");
}

/// The control: without a budget of all, enough addresses are too many.
#[test]
fn without_a_budget_of_all_the_check_goes_red() {
    let settings = GuessSettings { budget: 1_000_000, ..GuessSettings::default() };
    let (limiter, clock) = limiter(settings);
    let tries = most_in_a_life(&limiter, &clock, 2_000, 1);
    assert!(chance_in_the_longest_life(tries) > 1e-5, "{tries}");
}

#[test]
fn an_address_misses_five_times_in_a_life_and_waits_for_the_oldest() {
    let (limiter, clock) = limiter(GuessSettings::default());
    for miss in 0..5 {
        assert!(limiter.admit(address(1), APP, code(miss)).is_ok(), "{miss}");
        clock.advance(SECOND);
    }
    let wait = limiter.admit(address(1), APP, code(9)).unwrap_err();
    assert_eq!(wait, SECOND * 895);
    assert!(limiter.admit(address(2), APP, code(9)).is_ok(), "another address");
    clock.advance(wait);
    assert!(limiter.admit(address(1), APP, code(9)).is_ok());
    assert!(limiter.admit(address(1), APP, code(10)).is_err(), "one was freed, not all");
}

/// A trap: a success that cleared the failures of whoever had it.
#[test]
fn a_success_forgives_nothing_but_itself() {
    let (limiter, _clock) = limiter(GuessSettings::default());
    for miss in 0..4 {
        assert!(limiter.admit(address(1), APP, code(miss)).is_ok());
    }
    for _ in 0..100 {
        limiter.admit(address(1), APP, code(77)).expect("it is forgiven each time").forgive();
    }
    assert!(limiter.admit(address(1), APP, code(4)).is_ok());
    assert!(limiter.admit(address(1), APP, code(5)).is_err());
}

/// A trap: a page that is loaded again spent the budget.
#[test]
fn the_same_wrong_code_is_charged_once_a_minute() {
    let (limiter, clock) = limiter(GuessSettings::default());
    for _ in 0..50 {
        assert!(limiter.admit(address(1), APP, code(1)).is_ok());
        clock.advance(SECOND);
    }
    assert_eq!(limiter.books.lock().charges.len(), 1);
    clock.advance(SECOND * 10);
    assert!(limiter.admit(address(1), APP, code(1)).is_ok());
    assert_eq!(limiter.books.lock().charges.len(), 2, "a minute later it may hit a new code");
}

/// Charged at the end, a thousand at once would all be the first.
#[test]
fn attempts_at_once_are_all_charged() {
    let (limiter, _clock) = limiter(GuessSettings::default());
    let underway: Vec<_> = (0..20).map(|n| limiter.admit(address(1), APP, code(n))).collect();
    assert_eq!(underway.iter().filter(|attempt| attempt.is_ok()).count(), 5);
    drop(underway);
    assert!(limiter.admit(address(1), APP, code(99)).is_err(), "given up is not given back");
}

#[test]
fn the_wait_stretches_and_shrinks_again() {
    let (limiter, clock) = limiter(GuessSettings::default());
    let unit = Duration::from_millis(225);
    let waits = [3_999, 4_000, 4_099, 4_100, 4_500, 4_528].map(|misses| limiter.wait(misses));
    assert_eq!(waits, [Duration::ZERO, unit, unit, unit * 2, unit * 32, unit * 32]);
    assert_eq!(limiter.wait(40_000), LONGEST_WAIT);
    for attacker in 0..4_000 {
        assert!(limiter.admit(address(attacker), APP, code(u64::from(attacker))).is_ok());
    }
    assert_eq!(limiter.admit(address(9_999), APP, code(9_999)).unwrap_err(), unit);
    clock.advance(unit);
    assert!(limiter.admit(address(9_999), APP, code(9_999)).is_ok(), "one passes");
    assert!(limiter.admit(address(9_998), APP, code(9_998)).is_err(), "the next one waits");
    clock.advance(SECOND * 900);
    assert!((0..100).all(|n| limiter.admit(address(n), APP, code(20_000)).is_ok()));
}

#[test]
fn what_is_over_is_forgotten() {
    let (limiter, clock) = limiter(GuessSettings::default());
    for attacker in 0..3_000 {
        assert!(limiter.admit(address(attacker), APP, code(1)).is_ok());
    }
    clock.advance(SECOND * 900);
    limiter.admit(address(1), APP, code(2)).unwrap().forgive();
    let books = limiter.books.lock();
    assert!(books.charges.is_empty() && books.of_each.is_empty());
}

#[test]
fn a_network_of_ipv6_is_one_source_and_a_mapped_address_is_itself() {
    let source = |text: &str| Source::of(text.parse().unwrap());
    assert_eq!(source("2001:db8:1:2::3"), source("2001:db8:1:2:ffff:1:2:3"));
    assert_ne!(source("2001:db8:1:2::3"), source("2001:db8:1:3::3"));
    assert_eq!(source("::ffff:192.0.2.1"), source("192.0.2.1"));
    assert_ne!(source("192.0.2.1"), source("192.0.2.2"));
}

/// Or one subscriber with 65,536 sources could make everybody wait.
#[test]
fn sources_of_one_ipv6_network_miss_fifty_times_together() {
    let (limiter, clock) = limiter(GuessSettings::default());
    let from = |text: String| Guesser::Address(Source::of(text.parse().unwrap()));
    let guess =
        |source: u64| limiter.admit(from(format!("2001:db8:7:{source:x}::1")), APP, code(source));
    assert!((0..50).all(|source| guess(source).is_ok()));
    assert_eq!(guess(50).unwrap_err(), SECOND * 900);
    assert!(guess(0).is_ok(), "the same attempt again");
    assert!(limiter.admit(from("2001:db8:8::1".into()), APP, code(51)).is_ok());
    clock.advance(SECOND * 900);
    guess(52).unwrap().forgive();
    let books = limiter.books.lock();
    assert!(books.charges.is_empty() && books.of_each.is_empty(), "nothing is kept of it");
}

#[test]
fn an_application_has_misses_of_its_own() {
    let (limiter, _clock) = limiter(GuessSettings::default());
    for miss in 0..1_000 {
        assert!(limiter.admit(Guesser::App, APP, code(miss)).is_ok());
    }
    assert!(limiter.admit(Guesser::App, APP, code(1_000)).is_err());
    assert!(limiter.admit(Guesser::App, ClusterAppId(2), code(1_000)).is_ok());
}

/// What a person found before the address was locked out is not looked for again, only shown.
#[test]
fn a_code_that_was_found_before_is_no_guess() {
    let settings = GuessSettings { per_address: 0, per_app: 0, budget: 1, ..Default::default() };
    let (limiter, _clock) = limiter(settings);
    for number in 0..100 {
        assert!(limiter.admit(Guesser::Known, APP, code(number)).is_ok());
    }
    assert!(limiter.books.lock().charges.is_empty(), "and none is charged");
}

#[test]
fn a_person_has_misses_of_their_own_and_adds_to_those_of_the_application() {
    let settings = GuessSettings { per_app: 12, ..GuessSettings::default() };
    let (limiter, _clock) = limiter(settings);
    let guess = |name: &str, number| {
        limiter.admit(Guesser::Person(Person::named(name)), APP, code(number)).is_ok()
    };
    assert!((0..5).all(|number| guess("mallory", number)));
    assert!(!guess("mallory", 5), "her own five are spent");
    assert!((5..10).all(|number| guess("oscar", number)));
    assert!(guess("alice", 10) && guess("alice", 11));
    assert!(!guess("alice", 12), "those of the application are spent");
    let elsewhere = Guesser::Person(Person::named("mallory"));
    assert!(limiter.admit(elsewhere, ClusterAppId(2), code(5)).is_ok(), "another application's");
}

/// Otherwise whoever has one live code could make everybody wait with it.
#[test]
fn successes_stretch_nobodys_wait() {
    let (limiter, clock) = limiter(GuessSettings::default());
    for attacker in 0..4_000 {
        assert!(limiter.admit(address(attacker), APP, code(u64::from(attacker))).is_ok());
    }
    clock.advance(SECOND);
    for _ in 0..100 {
        limiter.admit(address(5_000), APP, code(1)).expect("it may").forgive();
    }
    assert!(limiter.admit(address(6_000), APP, code(2)).is_ok(), "at once");
}

/// A trap: the time was looked at before the books, and who came second seemed to be too early.
#[test]
fn attempts_at_the_same_moment_refuse_nobody() {
    let limiter = GuessLimiter::new(GuessSettings::default(), SystemClock::shared());
    std::thread::scope(|threads| {
        for thread in 0..4 {
            let limiter = &limiter;
            threads.spawn(move || {
                for number in 0..50_000_u64 {
                    let number = number * 4 + thread;
                    let attempt = limiter.admit(address(number as u32), APP, code(number));
                    attempt.expect("nobody has missed").forgive();
                }
            });
        }
    });
}
