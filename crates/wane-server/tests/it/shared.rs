//! Servers on a store that others use too: real Redis, Cassandra and DynamoDB, as far as the run
//! lists them in `WANE_TEST_BACKENDS`.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::http::conversation::{Conversation, Request};
use crate::http::watch::Watch;
use crate::listed::settings_of;
use crate::server::{Answer, Server, eventually, request, wane};
use crate::{stopwatch, wait};

const TTL: &str = "/api/v2/apps/demo/app/ttl";

/// Shared storages; cas3 differs from cas1 in the keyspace alone.
const STORAGES: [&str; 4] = ["redis", "cas1", "cas3", "dynamodb"];

/// The flags of a server on a store of its own name, where the run lists the storage.
pub(crate) fn flags(storage: &str) -> Option<Vec<String>> {
    let told = settings_of(storage)?;
    let name = format!("server_{:x}", rand_id());
    let of = |variable: &str| told.get(variable).cloned().unwrap_or_default();
    let flags = match storage {
        "redis" => vec![format!("--redis-url={}?prefix={name}", of("WANE_REDIS_URL"))],
        "dynamodb" => vec![
            format!("--dynamodb-endpoint={}", of("WANE_DYNAMODB_ENDPOINT")),
            format!("--dynamodb-table={name}"),
        ],
        _ => vec![
            format!("--cassandra-hosts={}", of("WANE_CASSANDRA_HOSTS")),
            format!("--cassandra-datacenter={}", of("WANE_CASSANDRA_DATACENTER")),
            format!("--cassandra-keyspace={name}"),
        ],
    };
    Some([vec!["--storage".to_owned(), storage.to_owned()], flags].concat())
}

/// A number that no other run has.
fn rand_id() -> u64 {
    wane::clock::SystemClock::shared().random_u64()
}

pub(crate) fn start(flags: &[String]) -> Server {
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    Server::with(&flags)
}

fn insert(server: &Server, key: &str, value: &str) -> Answer {
    let body = format!(r#"{{"value":"{value}","ttlSeconds":600}}"#);
    server.ask("POST", &format!("{TTL}/{key}"), &body)
}

pub(crate) fn each_listed(test: impl Fn(&[String])) {
    for storage in STORAGES {
        if let Some(flags) = flags(storage) {
            println!("on {storage}");
            test(&flags);
        }
    }
}

#[test]
fn two_servers_on_one_store_serve_the_same_data() {
    each_listed(|flags| {
        let (one, other) = (start(flags), start(flags));
        assert_ne!(one.key, other.key, "each node has a key of its own");
        for number in 0..30 {
            let server = if number % 2 == 0 { &one } else { &other };
            assert_eq!(insert(server, &format!("k{number:02}"), "v").status, 201);
        }
        for server in [&one, &other] {
            let page = server.ask("GET", &format!("{TTL}?prefix=k&limit=100"), "").json();
            let keys: Vec<_> = page["items"].as_array().unwrap().iter().collect();
            let keys: Vec<_> = keys.iter().map(|item| item["key"].as_str().unwrap()).collect();
            assert_eq!(keys, (0..30).map(|number| format!("k{number:02}")).collect::<Vec<_>>());
        }
        let crossed = request(other.http, Some(&one.key), "GET", &format!("{TTL}/k00"), "");
        assert_eq!(crossed.status, 200, "a key made at one node opens the app at the other");
        let taken = insert(&other, "k00", "w");
        assert_eq!((taken.status, taken.json()["current"]["value"].as_str()), (409, Some("v")));
        one.kill();
        assert_eq!(other.ask("GET", &format!("{TTL}/k28"), "").status, 200, "the other goes on");
    });
}

#[test]
fn of_racing_inserts_at_two_servers_one_is_applied() {
    each_listed(|flags| {
        let servers = [start(flags), start(flags)];
        for round in 0..5 {
            let key = format!("race{round}");
            let statuses: Vec<u16> = std::thread::scope(|scope| {
                let racers = (0..8).map(|racer| {
                    let (server, key) = (&servers[racer % 2], &key);
                    scope.spawn(move || insert(server, key, &racer.to_string()).status)
                });
                let racers: Vec<_> = racers.collect();
                racers.into_iter().map(|racer| racer.join().unwrap()).collect()
            });
            let applied = statuses.iter().filter(|status| **status == 201).count();
            assert_eq!(applied, 1, "{statuses:?}");
            assert_eq!(statuses.iter().filter(|status| **status == 409).count(), 7, "{statuses:?}");
        }
    });
}

#[test]
fn entries_expire_on_time_at_both_servers() {
    each_listed(|flags| {
        let servers = [start(flags), start(flags)];
        let body = r#"{"value":"v","ttlMillis":1500}"#;
        assert_eq!(servers[0].ask("POST", &format!("{TTL}/short"), body).status, 201);
        for server in &servers {
            assert_eq!(server.ask("GET", &format!("{TTL}/short"), "").status, 200);
        }
        // Its life, and what two clocks may be apart.
        wait(Duration::from_millis(1_500 + 50));
        for server in &servers {
            assert_eq!(server.ask("GET", &format!("{TTL}/short"), "").status, 404);
        }
        assert_eq!(insert(&servers[1], "short", "again").status, 201);
    });
}

/// A watch would miss what other servers write.
#[test]
fn a_prefix_watch_is_refused_with_the_reason() {
    each_listed(|flags| {
        let answer = start(flags).ask("GET", &format!("{TTL}:watch?prefix=a"), "");
        assert_eq!((answer.status, &*answer.code()), (400, "invalid_request"));
        assert!(answer.body.contains("shared with other processes"), "{}", answer.body);
    });
}

#[test]
fn another_number_of_buckets_is_refused_with_both_numbers() {
    each_listed(|flags| {
        let with = |buckets: &str| [flags, &["--spread-buckets".into(), buckets.into()]].concat();
        drop(start(&with("4")));
        let home = tempfile::tempdir().unwrap();
        let refused = serve(&with("8")).arg("--data").arg(home.path()).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(1), "{said}");
        for words in ["4 bucket(s)", "8 were asked for", "WANE_SPREAD_BUCKETS"] {
            assert!(said.contains(words), "{words:?} is not in {said:?}");
        }
    });
}

/// `wane serve` on any ports, not started yet.
fn serve(flags: &[String]) -> Command {
    let mut command = wane();
    command.args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
    command.args(flags).stdout(Stdio::null());
    command
}

/// A port where nobody listens.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_server_that_does_not_answer_ends_the_start_with_what_to_check() {
    for (storage, flag) in [("redis", "--redis-url=redis://"), ("cas1", "--cassandra-hosts=")] {
        let (port, home) = (free_port(), tempfile::tempdir().unwrap());
        let flags = ["--storage".into(), storage.into(), format!("{flag}127.0.0.1:{port}")];
        let took = stopwatch();
        let ended = serve(&flags).arg("--data").arg(home.path()).output().unwrap();
        let (took, said) = (took(), String::from_utf8_lossy(&ended.stderr).into_owned());
        assert_eq!(ended.status.code(), Some(1), "{said}");
        for words in [storage, &format!("127.0.0.1:{port}"), "does not answer", "check", "--wait"] {
            assert!(said.contains(words), "{words:?} is not in {said:?}");
        }
        assert!(took < Duration::from_secs(15), "it took {took:?}");
    }
}

/// A process that ends with its test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already, which is what is wanted.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A Redis that a test can end; where the run lists Redis at all.
pub(crate) struct OwnRedis {
    process: Process,
    port: u16,
    _home: tempfile::TempDir,
}

impl OwnRedis {
    pub(crate) fn start() -> Option<Self> {
        settings_of("redis")?;
        let (port, home) = (free_port(), tempfile::tempdir().unwrap());
        let process = redis_server(port, home.path());
        let answers = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
        assert!(eventually(answers), "redis-server does not start");
        Some(Self { process, port, _home: home })
    }

    /// A server on it.
    pub(crate) fn serve(&self) -> Server {
        let url = format!("--redis-url=redis://127.0.0.1:{}", self.port);
        Server::with(&["--storage=redis", &url])
    }

    /// Ends it, without a word to its clients.
    pub(crate) fn end(mut self) {
        self.process.0.kill().unwrap();
        self.process.0.wait().unwrap();
    }
}

fn redis_server(port: u16, home: &std::path::Path) -> Process {
    let redis = Command::new("redis-server")
        .args(["--bind", "127.0.0.1", "--save", "", "--port", &port.to_string()])
        .current_dir(home)
        .stdout(Stdio::null())
        .spawn();
    Process(redis.unwrap())
}

#[test]
fn a_server_that_waits_begins_once_redis_answers() {
    if settings_of("redis").is_none() {
        return;
    }
    let (port, home) = (free_port(), tempfile::tempdir().unwrap());
    let ready = home.path().join("ready.json");
    let flags = ["--storage=redis".into(), format!("--redis-url=redis://127.0.0.1:{port}")];
    let mut command = serve(&flags);
    command.arg("--wait").arg("--data").arg(home.path()).arg("--ready-file").arg(&ready);
    let mut waiting = Process(command.stderr(Stdio::null()).spawn().unwrap());
    wait(Duration::from_millis(1_500));
    assert!(!ready.exists() && waiting.0.try_wait().unwrap().is_none(), "it waits");
    let _redis = redis_server(port, home.path());
    assert!(eventually(|| ready.exists()), "it begins");
}

/// What one server was told holds at the other: who leads, whose writes pass, which numbers are gone.
#[test]
fn elections_and_numbers_go_from_server_to_server() {
    const ELECTION: &str = "/api/v2/apps/demo/app/elections/e";
    const NEXT: &str = "/api/v2/apps/demo/app/sequences/s/next";
    const CAMPAIGN: &str = r#"{"holder":"me","ttlMillis":15000}"#;
    each_listed(|flags| {
        let (one, other) = (start(flags), start(flags));
        let short =
            one.ask("POST", &format!("{ELECTION}/campaign"), r#"{"holder":"me","ttlMillis":2999}"#);
        assert_eq!(short.code(), "invalid_ttl", "{}", short.body);
        let won = one.ask("POST", &format!("{ELECTION}/campaign"), CAMPAIGN);
        assert_eq!(won.status, 200, "{}", won.body);
        let held = other.ask("POST", &format!("{ELECTION}/campaign"), CAMPAIGN);
        assert_eq!((held.status, held.json()["holder"].as_str()), (409, Some("me")));
        let lease = won.json();
        let body = format!(r#"{{"leaseId":{},"token":1}}"#, lease["leaseId"]);
        assert_eq!(other.ask("POST", &format!("{ELECTION}/renew"), &body).status, 200);
        let guarded = |server: &Server, token: u64| {
            let guard = format!("wane-guard: e;{token}");
            ask_with(server, "POST", NEXT, r#"{"count":10}"#, &guard)
        };
        assert_eq!(guarded(&one, 1).json()["first"], 1);
        assert_eq!(other.ask("POST", NEXT, r#"{"count":5}"#).json()["first"], 11);
        let mut watch = Watch::at(&other, &format!("{ELECTION}/watch"), None);
        assert_eq!(watch.next().data["holder"], "me");
        let passed = stopwatch();
        assert_eq!(one.ask("POST", &format!("{ELECTION}/resign"), &body).status, 204);
        assert!(watch.next().data["holder"].is_null());
        assert!(passed() < Duration::from_secs(2), "looked at four times a second: {:?}", passed());
        let next = other.ask("POST", &format!("{ELECTION}/campaign"), CAMPAIGN);
        assert_eq!(next.json()["token"], 2, "{}", next.body);
        let stale = guarded(&one, 1);
        assert_eq!((stale.status, stale.code().as_str()), (409, "stale_token"), "{}", stale.body);
        assert_eq!(guarded(&one, 2).json()["first"], 16);
    });
}

fn ask_with(server: &Server, method: &str, path: &str, body: &str, header: &str) -> Answer {
    let request = Request::new(method, path).key(&server.key).header(header).body(body);
    Conversation::with(server.http).ask(&request)
}
