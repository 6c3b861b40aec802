//! Another's app is like none: the same answer, to the byte and in the same time.

use std::time::{Duration, Instant};

use wane_server::http::{Access, main_routes};

use super::Site;
use super::credentials::{Cast, Kind, Standing};
use crate::http::conversation::{Conversation, Request};
use crate::server::{Answer, Server};

/// Requests to each place in one round.
const ROUND: usize = 300;

/// Rounds before a machine counts as too busy to tell anything.
const ROUNDS: usize = 20;

/// What the control adds, and the test must notice.
const NOTICEABLE: Duration = Duration::from_micros(200);

/// Two paths of the same length: one of an app that is there and is not ours, one of none.
struct Pair {
    method: String,
    foreign: String,
    nowhere: String,
}

/// A pair for each route of apps and each of these keys.
fn pairs(keys: &[&str]) -> Vec<Pair> {
    let routes = main_routes();
    let of_apps = routes
        .iter()
        .filter(|route| matches!(route.access, Access::App(_) | Access::OwnerOrHolder(_)));
    let pairs = of_apps.flat_map(|route| {
        keys.iter().map(|key| {
            let at = |owner: &str| {
                let path = route.path.replace("{owner}", owner).replace("{app}", "app");
                path.replace("{key}", key)
            };
            Pair { method: route.method.to_string(), foreign: at("own"), nowhere: at("xyz") }
        })
    });
    pairs.collect()
}

/// Everything of an answer that does not differ from request to request.
fn comparable(answer: &Answer) -> (u16, Vec<&str>, &str) {
    let varies = |line: &str| line.starts_with("x-request-id:") || line.starts_with("date:");
    let mut lines: Vec<_> = answer.head.lines().filter(|line| !varies(line)).collect();
    lines.sort_unstable();
    (answer.status, lines, &answer.body)
}

fn strangers(cast: &Cast) -> impl Iterator<Item = &Kind> {
    let is_stranger = |kind: &&Kind| match kind.standing {
        Standing::Nobody => kind.name == "no credential" || kind.name == "a wrong secret",
        Standing::AppKey { own, .. } => !own,
        Standing::System { .. } => true,
    };
    cast.kinds().iter().filter(is_stranger)
}

fn ask(connection: &mut Conversation, kind: &Kind, method: &str, path: &str) -> Answer {
    let headers = kind.headers.clone();
    connection.ask(&Request { headers, ..Request::new(method, path) })
}

#[test]
fn anothers_app_is_answered_like_none() {
    let server = Server::in_memory();
    let site = Site::of(&server);
    let cast = Cast::assemble(&site);
    let long = "k".repeat(2_000);
    let keys = ["kept", "never", "%FF", "100%", "%00", "a%2Fb", &long];
    let mut connection = Conversation::with(site.http);
    for pair in pairs(&keys) {
        for kind in strangers(&cast) {
            let head = (pair.method == "GET").then_some("HEAD");
            for method in [Some(&*pair.method), head].into_iter().flatten() {
                let foreign = ask(&mut connection, kind, method, &pair.foreign);
                let nowhere = ask(&mut connection, kind, method, &pair.nowhere);
                let call = format!("{method} {:.80} by {}", pair.foreign, kind.name);
                assert_eq!(comparable(&foreign), comparable(&nowhere), "{call}");
                let wanted = if kind.standing == Standing::Nobody { 401 } else { 404 };
                assert_eq!(foreign.status, wanted, "{call}");
            }
        }
    }
}

/// The control of the comparison: an answer of one's own is not like one from nowhere.
#[test]
fn an_answer_of_ones_own_app_is_told_apart_from_none() {
    let server = Server::in_memory();
    let site = Site::of(&server);
    let cast = Cast::assemble(&site);
    let own = cast.kinds().iter().find(|kind| kind.name == "own key").unwrap();
    let mut connection = Conversation::with(site.http);
    let here = ask(&mut connection, own, "GET", "/api/v2/apps/own/app/ttl/kept");
    let nowhere = ask(&mut connection, own, "GET", "/api/v2/apps/xyz/app/ttl/kept");
    assert_ne!(comparable(&here), comparable(&nowhere));
    let absent = ask(&mut connection, own, "GET", "/api/v2/apps/own/app/ttl/never");
    assert_eq!(comparable(&absent), comparable(&nowhere), "what is not there reads alike");
}

/// A foreign app, no app, and no app with the control's delay, asked in turn.
#[derive(Default)]
struct Times {
    foreign: Vec<Duration>,
    nowhere: Vec<Duration>,
    control: Vec<Duration>,
}

impl Times {
    fn measure(connection: &mut Conversation, kind: &Kind, pair: &Pair) -> Self {
        let mut times = Self::default();
        for _ in 0..ROUND {
            let mut one = |path, delay| timed(delay, || ask(connection, kind, &pair.method, path));
            times.foreign.push(one(&pair.foreign, Duration::ZERO));
            times.nowhere.push(one(&pair.nowhere, Duration::ZERO));
            times.control.push(one(&pair.nowhere, NOTICEABLE));
        }
        times
    }
}

/// The time of a call, with a delay as if the server had taken it.
#[expect(clippy::disallowed_methods, reason = "what is compared is real time")]
fn timed<T>(delay: Duration, call: impl FnOnce() -> T) -> Duration {
    let began = Instant::now();
    call();
    let answered = Instant::now();
    while answered.elapsed() < delay {
        std::hint::spin_loop();
    }
    began.elapsed()
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Whether two series differ by more than a fifth.
fn tells_apart(one: &mut [Duration], other: &mut [Duration]) -> bool {
    let (one, other) = (median(one), median(other));
    one.abs_diff(other) > one.min(other) / 5
}

/// Only a round in which the control is noticed says anything: then a difference of that size
/// between the two apps would have been noticed as well.
#[test]
fn anothers_app_takes_as_long_as_none() {
    let server = Server::in_memory();
    let site = Site::of(&server);
    let cast = Cast::assemble(&site);
    let foreigner = cast.kinds().iter().find(|kind| kind.name == "foreign key").unwrap();
    let mut connection = Conversation::with(site.http);
    for pair in pairs(&["kept"]) {
        let mut seen = Vec::new();
        let is_alike = (0..ROUNDS).any(|_| {
            let mut times = Times::measure(&mut connection, foreigner, &pair);
            let would_notice = tells_apart(&mut times.control, &mut times.nowhere);
            let differs = tells_apart(&mut times.foreign, &mut times.nowhere);
            let medians = [times.foreign, times.nowhere, times.control].map(|mut t| median(&mut t));
            seen.push((would_notice, differs, medians));
            would_notice && !differs
        });
        assert!(is_alike, "{} {}: {seen:?}", pair.method, pair.foreign);
    }
}
