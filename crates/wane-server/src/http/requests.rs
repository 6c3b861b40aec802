//! Every request, seen from outside: its id, its line in the log, its place in the counters.
//!
//! The log names the route, not the path: keys may be secrets. Neither headers nor bodies are in it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use axum::extract::Request;
use axum::http::HeaderValue;
use axum::response::Response;
use parking_lot::Mutex;
use wane::clock::SharedClock;

use crate::telemetry::Access;
use crate::wiring::Services;

const REQUEST_ID: &str = "x-request-id";

/// Upper bounds of the latency buckets, in seconds.
const BOUNDS: [f64; 10] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2.5, 10.0];

/// What was counted of requests.
#[derive(Debug)]
pub(crate) struct RequestMetrics {
    /// Where ids begin: at random, so that those of two processes differ.
    first_id: u64,
    ids: AtomicU64,
    under_way: AtomicI64,
    answers: Mutex<BTreeMap<Answer, Latencies>>,
}

/// Route, method and status.
type Answer = (&'static str, &'static str, u16);

#[derive(Debug, Default, Clone, Copy)]
struct Latencies {
    buckets: [u64; BOUNDS.len()],
    count: u64,
    seconds: f64,
}

impl RequestMetrics {
    /// Nothing counted yet.
    pub(crate) fn of(clock: &SharedClock) -> Self {
        Self {
            first_id: clock.random_u64(),
            ids: AtomicU64::new(0),
            under_way: AtomicI64::new(0),
            answers: Mutex::default(),
        }
    }

    /// An id that no other request of this process has. It tells nothing: steps are odd multiples.
    fn new_id(&self) -> u64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        self.first_id.wrapping_add(self.ids.fetch_add(1, Ordering::Relaxed).wrapping_mul(STEP))
    }

    fn record(&self, answer: Answer, took: Duration) {
        let mut answers = self.answers.lock();
        let entry = answers.entry(answer).or_default();
        let seconds = took.as_secs_f64();
        for (bucket, bound) in entry.buckets.iter_mut().zip(BOUNDS) {
            *bucket += u64::from(seconds <= bound);
        }
        entry.count += 1;
        entry.seconds += seconds;
    }

    /// The counters as Prometheus reads them.
    pub(crate) fn prometheus_text(&self) -> String {
        let name = "wane_http_request_duration_seconds";
        let mut text = format!(
            "# HELP wane_http_requests_under_way Requests that are being answered.\n\
             # TYPE wane_http_requests_under_way gauge\n\
             wane_http_requests_under_way {}\n\
             # HELP {name} Time from the request's head to the head of its answer.\n\
             # TYPE {name} histogram\n",
            self.under_way.load(Ordering::Relaxed)
        );
        for ((route, method, status), seen) in &*self.answers.lock() {
            let labels = format!("route=\"{route}\",method=\"{method}\",status=\"{status}\"");
            for (count, bound) in seen.buckets.iter().zip(BOUNDS) {
                let _written = writeln!(text, "{name}_bucket{{{labels},le=\"{bound}\"}} {count}");
            }
            let _written = write!(
                text,
                "{name}_bucket{{{labels},le=\"+Inf\"}} {count}\n{name}_sum{{{labels}}} {sum}\n\
                 {name}_count{{{labels}}} {count}\n",
                count = seen.count,
                sum = seen.seconds,
            );
        }
        text
    }
}

/// A request under way, also where nobody waits for its answer any more.
struct UnderWay(Services);

impl UnderWay {
    fn begin(services: &Services) -> Self {
        services.requests.under_way.fetch_add(1, Ordering::Relaxed);
        Self(services.clone())
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.requests.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A request from its head to the head of its answer.
pub(super) struct Seen {
    id: HeaderValue,
    method: &'static str,
    route: &'static str,
    began: Duration,
    under_way: UnderWay,
}

impl Seen {
    /// Gives the request an id and counts it as under way.
    pub(super) fn begin(route: &'static str, request: &Request, services: &Services) -> Self {
        Self {
            id: request_id(request, services),
            method: known_method(request.method()),
            route,
            began: services.clock.monotonic(),
            under_way: UnderWay::begin(services),
        }
    }

    /// The route that was asked.
    pub(super) fn route(&self) -> &'static str {
        self.route
    }

    /// Counts and logs the request, and gives its answer the id.
    pub(super) fn end(self, mut response: Response) -> Response {
        let Self { id, method, route, began, under_way } = self;
        let services = &under_way.0;
        let took = services.clock.monotonic().saturating_sub(began);
        let status = response.status().as_u16();
        services.requests.record((route, method, status), took);
        let (at, micros) = (services.clock.now(), took.as_micros() as u64);
        let id_text = id.to_str().unwrap_or_default();
        Access { at, id: id_text, method, route, status, micros }.log();
        response.headers_mut().insert(REQUEST_ID, id);
        response
    }
}

/// The id that the caller gave, if it is short and plain, or a new one.
fn request_id(request: &Request, services: &Services) -> HeaderValue {
    let is_plain = |id: &&HeaderValue| {
        (1..=64).contains(&id.len())
            && id
                .as_bytes()
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
    };
    let given = request.headers().get(REQUEST_ID).filter(is_plain).cloned();
    given.unwrap_or_else(|| {
        let id = hex(services.requests.new_id());
        HeaderValue::from_bytes(&id).unwrap_or_else(|_| HeaderValue::from_static("none"))
    })
}

fn hex(number: u64) -> [u8; 16] {
    std::array::from_fn(|digit| b"0123456789abcdef"[(number >> (60 - 4 * digit)) as usize & 15])
}

/// The method if it is a usual one: counters must not grow with what strangers make up.
fn known_method(method: &axum::http::Method) -> &'static str {
    ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
        .into_iter()
        .find(|known| *known == method.as_str())
        .unwrap_or("other")
}
