//! How often a waiting device asks, and what ends its waiting.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use wane::clock::{Clock, ManualClock, Sleep};
use wane::store::Timestamp;

use super::{LINKED, STARTED, refuses, television};
use crate::client::tests::stage::{Player, case, client_at, demo};
use crate::client::{ClientError, Verdict};

/// The deadline of a call, which is no pause between calls.
const DEADLINE: Duration = Duration::from_secs(7_777);

/// How long a connection may take, which is none either.
const CONNECTING: Duration = Duration::from_secs(10);

/// A clock that the test moves, and that says how long was slept.
#[derive(Debug)]
struct Stopwatch {
    clock: Arc<ManualClock>,
    pauses: Mutex<Vec<Duration>>,
}

impl Clock for Stopwatch {
    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        if duration != DEADLINE && duration != CONNECTING {
            self.pauses.lock().push(duration);
        }
        self.clock.sleep(duration)
    }

    fn fill_random(&self, bytes: &mut [u8]) {
        self.clock.fill_random(bytes);
    }

    fn never_before(&self, floor: Timestamp) {
        self.clock.never_before(floor);
    }
}

/// A device that waits, with codes for 900 seconds and an interval of seven.
struct Waiting {
    player: Player,
    clock: Arc<Stopwatch>,
    done: JoinHandle<Result<Verdict, ClientError>>,
    troubles: Arc<Mutex<Vec<&'static str>>>,
    seen: usize,
}

impl Waiting {
    async fn begin() -> Self {
        let (player, url) = Player::start().await;
        let clock = Stopwatch { clock: ManualClock::seeded(1), pauses: Mutex::default() };
        let clock = Arc::new(clock);
        let client = client_at(&url, Arc::clone(&clock) as _).with_deadline(DEADLINE);
        let devices = client.devices(&demo());
        player.json(200, STARTED);
        let started = devices.start(&television(), None).await.unwrap();
        let troubles = Arc::<Mutex<Vec<_>>>::default();
        let told = Arc::clone(&troubles);
        let done = tokio::spawn(async move {
            let told = |error: &ClientError| told.lock().push(case(error));
            devices.wait(&television(), &started, told).await
        });
        Self { player, clock, done, troubles, seen: 0 }
    }

    /// The next pause has this many seconds; lets them pass.
    async fn pauses(&mut self, seconds: u64) {
        while self.clock.pauses.lock().len() == self.seen {
            assert!(!self.done.is_finished(), "it ended instead of pausing");
            tokio::task::yield_now().await;
        }
        let pause = self.clock.pauses.lock()[self.seen];
        self.seen += 1;
        assert_eq!(pause, Duration::from_secs(seconds));
        self.clock.clock.advance(pause);
    }

    fn polls(&self) -> usize {
        self.player.requests() - 1
    }
}

#[tokio::test]
async fn it_asks_at_the_interval_until_it_is_linked() {
    let mut device = Waiting::begin().await;
    for _ in 0..2 {
        refuses(&device.player, "authorization_pending");
        device.pauses(7).await;
    }
    device.player.json(200, LINKED);
    device.pauses(7).await;
    let Verdict::Linked(token) = device.done.await.unwrap().unwrap() else { panic!("linked") };
    assert_eq!(token.access_token, "the-link-token");
    assert_eq!(device.player.requests(), 4);
    assert!(device.troubles.lock().is_empty());
}

/// RFC 8628, section 3.5: "for this and all subsequent requests".
#[tokio::test]
async fn each_slow_down_adds_five_seconds_for_good() {
    let mut device = Waiting::begin().await;
    for (error, pause) in [
        ("slow_down", 7),
        ("authorization_pending", 12),
        ("slow_down", 12),
        ("authorization_pending", 17),
        ("access_denied", 17),
    ] {
        refuses(&device.player, error);
        device.pauses(pause).await;
    }
    assert_eq!(device.done.await.unwrap().unwrap(), Verdict::Denied);
}

#[tokio::test]
async fn the_server_says_that_it_expired() {
    let mut device = Waiting::begin().await;
    refuses(&device.player, "expired_token");
    device.pauses(7).await;
    assert_eq!(device.done.await.unwrap().unwrap(), Verdict::Expired);
}

/// A server that is out of order is asked less and less often, and as often as before once it
/// answers.
#[tokio::test]
async fn trouble_that_may_pass_is_endured_with_longer_pauses() {
    let mut device = Waiting::begin().await;
    device.player.problem(503, "unavailable");
    device.pauses(7).await;
    device.player.answers(502, "text/html", "<p>bad gateway");
    device.pauses(8).await;
    device.player.json(503, r#"{"error":"temporarily_unavailable"}"#);
    device.pauses(9).await;
    device.player.problem(504, "unknown_outcome");
    device.pauses(11).await;
    let limited = Response::builder().status(429).header("retry-after", "40");
    let limited = limited.body(Body::from(r#"{"error":"slow_down"}"#)).unwrap();
    device.player.answers_with(limited);
    device.pauses(15).await;
    refuses(&device.player, "authorization_pending");
    device.pauses(40).await;
    device.player.json(200, LINKED);
    device.pauses(7).await;
    assert!(matches!(device.done.await.unwrap().unwrap(), Verdict::Linked(_)));
    let troubles = device.troubles.lock().clone();
    assert_eq!(troubles, ["problem", "unknown", "problem", "unknown", "problem"]);
}

#[tokio::test]
async fn what_no_waiting_mends_ends_it() {
    for (status, body, name) in [
        (400, r#"{"error":"invalid_grant"}"#, "problem"),
        (401, r#"{"error":"invalid_client"}"#, "problem"),
        (404, r#"{"code":"absent","status":404}"#, "absent"),
        (200, "<p>Welcome to our hotel", "protocol"),
        (302, "", "protocol"),
    ] {
        let mut device = Waiting::begin().await;
        device.player.json(status, body);
        device.pauses(7).await;
        assert_eq!(case(&device.done.await.unwrap().unwrap_err()), name, "{status}");
        assert!(device.troubles.lock().is_empty());
    }
}

/// Also where nobody says so: the last poll is a second before the end, and none comes after it.
#[tokio::test]
async fn it_ends_when_the_codes_do() {
    let mut device = Waiting::begin().await;
    for polls in 0..128 {
        assert_eq!(device.polls(), polls);
        refuses(&device.player, "authorization_pending");
        device.pauses(7).await;
        while device.polls() == polls {
            tokio::task::yield_now().await;
        }
    }
    refuses(&device.player, "authorization_pending");
    device.pauses(3).await;
    device.pauses(1).await;
    assert_eq!(device.done.await.unwrap().unwrap(), Verdict::Expired);
    assert_eq!(device.player.requests(), 130);
}
