//! The device login benchmark: polls of codes that nobody has decided about, beside an axum handler
//! that does nothing, and complete flows on the file backend.
//!
//! A waiting device polls and polls, so a poll must be cheap and must write nothing: what the store
//! counted before and after says whether it did. A flow is three requests: start, approve, and the
//! poll that gets the token.
//!
//! Starts are paced per address and per client, and live codes are bounded. The bench changes none
//! of that: it has enough apps and clients, and each start comes from an address of its own, told
//! by the header that a proxy in front of a server sets.

mod flows;
mod line;
mod polls;

use std::path::Path;
use std::sync::Arc;

use serde_json::json;
use tokio::runtime::Runtime;

use self::line::Line;
use crate::http::{Kind, Server};
use crate::report::Report;
use crate::{BoxError, Options};

/// Connections of the bars.
const CONNECTIONS: usize = 64;

/// What a client may start at once.
const STARTS_PER_CLIENT: usize = 200;

/// Clients of an app, so that its live codes stay below their bound of 2,000.
const CLIENTS_PER_APP: usize = 8;

/// Runs everything and returns what came out.
pub(crate) fn run(options: &Options) -> Result<Report, BoxError> {
    let mut report = Report::default();
    let scratch = options.scratch()?;
    let client =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    polls::run(scratch.path(), &client, options.quick, &mut report)?;
    flows::run(scratch.path(), &client, options.quick, &mut report)?;
    report.note(
        "device: client and servers share the cores; polls come far more often than every 5 s, and \
         each is told authorization_pending or slow_down, after the same reads; the empty handler \
         is that of `http`. Each start comes from an address of its own \
         (X-Forwarded-For of a trusted proxy), at most 200 by a client and 1,600 in an app: the \
         server's limits are those that it has by default, and 10,000 codes in 15 minutes is what \
         they let through in the long run.",
    );
    Ok(report)
}

/// An app with clients that may start as often as flows need.
#[derive(Debug)]
struct App {
    name: String,
    key: String,
    clients: Vec<String>,
}

/// One start to be made: which app, which client of it, and from which address.
#[derive(Debug, Clone)]
struct Start {
    app: Arc<App>,
    client: usize,
    address: String,
}

impl Start {
    fn request(&self) -> Vec<u8> {
        let body = format!("client_id={}", self.app.clients[self.client]);
        format!(
            "POST /oauth/{}/device_authorization HTTP/1.1\r\nhost: bench\r\n\
             x-forwarded-for: {}\r\ncontent-type: application/x-www-form-urlencoded\r\n\
             content-length: {}\r\n\r\n{body}",
            self.app.name,
            self.address,
            body.len()
        )
        .into_bytes()
    }

    fn poll_request(&self, device_code: &str) -> Vec<u8> {
        let body = format!(
            "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code&client_id={}\
             &device_code={device_code}",
            self.app.clients[self.client]
        );
        format!(
            "POST /oauth/{}/token HTTP/1.1\r\nhost: bench\r\n\
             content-type: application/x-www-form-urlencoded\r\ncontent-length: {}\r\n\r\n{body}",
            self.app.name,
            body.len()
        )
        .into_bytes()
    }

    fn approve_request(&self, user_code: &str) -> Vec<u8> {
        // Each by a person of its own: one person has five attempts under way at most.
        let body = json!({"userCode": user_code, "subject": user_code}).to_string();
        format!(
            "POST /api/v2/apps/{}/devices/approve HTTP/1.1\r\nhost: bench\r\n\
             authorization: Bearer {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            self.app.name,
            self.app.key,
            body.len()
        )
        .into_bytes()
    }
}

/// Makes apps and clients for this many starts, and says which start is whose.
fn starts(server: &Server, client: &Runtime, count: usize) -> Result<Vec<Start>, BoxError> {
    let mut line = client.block_on(Line::to(server.admin()?))?;
    let mut apps = Vec::new();
    for number in 0..count.div_ceil(STARTS_PER_CLIENT * CLIENTS_PER_APP) {
        apps.push(Arc::new(client.block_on(app(server, &mut line, number))?));
    }
    let start = |number: usize| {
        let client = number / STARTS_PER_CLIENT;
        let [_, high, middle, low] = (number as u32).to_be_bytes();
        Start {
            app: Arc::clone(&apps[client / CLIENTS_PER_APP]),
            client: client % CLIENTS_PER_APP,
            address: format!("10.{high}.{middle}.{low}"),
        }
    };
    Ok((0..count).map(start).collect())
}

async fn app(server: &Server, line: &mut Line, number: usize) -> Result<App, BoxError> {
    let of_admin = |method: &str, path: &str, body: &str| server.admin_request(method, path, body);
    let app = format!("app{number}");
    let body = json!({"owner": "bench", "app": app}).to_string();
    let made = line.ask(&of_admin("POST", "/apps", &body), 201).await?;
    let key = made["key"].as_str().ok_or("an app without a key")?.to_owned();
    let limits = json!({"requestsPerSecond": 100_000_000, "inFlight": 100_000}).to_string();
    line.ask(&of_admin("PUT", &format!("/apps/bench/{app}/limits"), &limits), 200).await?;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS_PER_APP {
        let body = json!({"owner": "bench", "app": app, "name": "Bench", "scopes": ["read"]});
        let made = line.ask(&of_admin("POST", "/oauth-clients", &body.to_string()), 201).await?;
        clients.push(made["clientId"].as_str().ok_or("a client without an id")?.to_owned());
    }
    Ok(App { name: format!("bench/{app}"), key, clients })
}

/// What the store counted.
#[derive(Debug, Clone, Copy)]
struct Counted {
    reads: f64,
    writes: f64,
}

impl Counted {
    fn now(server: &Server, client: &Runtime) -> Result<Self, BoxError> {
        let text = client.block_on(async {
            let mut line = Line::to(server.admin()?).await?;
            line.text(&server.metrics_request(), 200).await
        })?;
        Ok(Self {
            reads: sum(&text, &["found", "absent"]),
            writes: sum(&text, &["applied", "refused", "unknown"]),
        })
    }

    fn since(self, before: Self) -> Self {
        Self { reads: self.reads - before.reads, writes: self.writes - before.writes }
    }
}

/// All calls of the store that ended in one of these ways.
fn sum(metrics: &str, outcomes: &[&str]) -> f64 {
    let calls = metrics.lines().filter(|line| line.starts_with("wane_store_operations_total{"));
    let counted = calls.filter(|line| {
        outcomes.iter().any(|outcome| line.contains(&format!("outcome=\"{outcome}\"")))
    });
    let numbers = counted.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
    numbers.sum()
}

fn started(kind: Kind, scratch: &Path, client: &Runtime) -> Result<Server, BoxError> {
    let server = Server::start(kind, scratch)?;
    if kind != Kind::Empty {
        server.raise_limits(client)?;
    }
    Ok(server)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes_are_told_apart_by_their_outcome() {
        let text = "# TYPE wane_store_operations_total counter\n\
            wane_store_operations_total{backend=\"mem\",operation=\"get\",outcome=\"found\"} 5\n\
            wane_store_operations_total{backend=\"mem\",operation=\"get\",outcome=\"absent\"} 2\n\
            wane_store_operations_total{backend=\"mem\",operation=\"put\",outcome=\"applied\"} 3\n\
            wane_http_requests_under_way 9\n";
        assert_eq!(sum(text, &["found", "absent"]), 7.0);
        assert_eq!(sum(text, &["applied", "refused", "unknown"]), 3.0);
    }
}
