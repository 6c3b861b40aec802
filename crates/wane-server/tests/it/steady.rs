//! A server at work for long: its memory stays where it was once it is warm.
//!
//! Writers churn entries that live for a second, callers come with a connection for each request,
//! watches are opened and left in the middle. Everything that a request could leave behind is made
//! thousands of times.
//!
//! The 8,192 events that watches can resume from are filled at once. A server is warm after so many
//! requests, not after so long: on a machine with much else to do, what the allocator holds back was
//! still growing when a third of the time was over. From then on memory may grow by what settles late:
//! the allocator's, up to 1.5 MiB, and on file the pages that redb keeps, which follow the size of the
//! file up to 4 MiB. Twice that is tolerated on memory, and half as much again on file.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::connection::Connection;
use crate::server::{Server, request};
use crate::{count, loading, wait, wall_clock};

const TTL: &str = "/api/v2/apps/demo/app/ttl";

/// How much more memory may be there in the end, in KiB.
const TOLERATED_ON_MEM: u64 = 3 << 10;
const TOLERATED_ON_FILE: u64 = 6 << 10;

/// Requests after which a server is warm.
const WARM_AFTER: u64 = 60_000;

/// How often memory is looked at.
const SAMPLE: Duration = Duration::from_millis(250);

/// Entries that are written once.
#[derive(Debug, Clone, Copy)]
struct Brief {
    /// Their life at least, in milliseconds.
    life: u64,
    /// Their size at least, in bytes.
    size: u64,
}

/// Entries that are gone within a second or two.
const BRIEF: Brief = Brief { life: 200, size: 50 };

impl Brief {
    /// Of many sizes, as allocators keep each apart.
    fn value(&self, number: u64) -> String {
        "v".repeat((self.size + number * 131 % 2_000) as usize)
    }
}

/// Whom the callers ask, and until when.
struct Work {
    server: SocketAddr,
    key: String,
    /// What the entries that are called brief are like.
    brief: Brief,
    over: AtomicBool,
    requests: AtomicU64,
}

impl Work {
    fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }

    fn done(&self, requests: u64) {
        self.requests.fetch_add(requests, Ordering::Relaxed);
    }

    /// More events than watches can resume from.
    fn fill_the_journal(&self, number: u64) {
        let mut connection = self.connect();
        for batch in 0..25 {
            let operations = (0..100).map(|operation| {
                let value = BRIEF.value(batch * 100 + operation);
                let key = format!("first-{number}-{batch}-{operation}");
                format!(r#"{{"op":"insert","key":"{key}","value":"{value}","ttlMillis":1000}}"#)
            });
            let operations = operations.collect::<Vec<_>>().join(",");
            let body = format!(r#"{{"operations":[{operations}]}}"#);
            assert_eq!(connection.ask("POST", &format!("{TTL}:batch"), &body).unwrap().status, 200);
        }
    }

    fn connect(&self) -> Connection {
        Connection::to(self.server, &self.key).unwrap()
    }

    /// Inserts of brief entries, and swaps and deletes of others, on a connection that is kept.
    fn write(&self, number: u64) {
        let mut connection = self.connect();
        for step in 0_u64.. {
            if !self.goes_on() {
                return;
            }
            let life = self.brief.life + step * 37 % 1_000;
            let value = self.brief.value(step);
            let brief = format!(r#"{{"value":"{value}","ttlMillis":{life}}}"#);
            let path = format!("{TTL}/brief-{number}-{step}-{}", wall_clock());
            assert_eq!(connection.ask("POST", &path, &brief).unwrap().status, 201);
            let path = format!("{TTL}/lasting-{number}-{}", step % 50);
            let body = format!(r#"{{"value":"{step}","ttlSeconds":60}}"#);
            assert_eq!(connection.ask("PUT", &path, &body).unwrap().status, 200);
            let swap = format!(r#"{{"expectedValue":"{step}","newValue":"n","keepExpiry":true}}"#);
            assert_eq!(connection.ask("PUT", &path, &swap).unwrap().status, 200);
            assert_eq!(connection.ask("PUT", &path, &swap).unwrap().status, 409);
            assert_eq!(connection.ask("GET", &path, "").unwrap().status, 200);
            if step % 3 == 0 {
                let expected = r#"{"expectedValue":"n"}"#;
                assert_eq!(connection.ask("DELETE", &path, expected).unwrap().status, 204);
            }
            self.done(6);
        }
    }

    /// A connection for each request, answered, refused, or left before its answer.
    fn come_and_go(&self) {
        while self.goes_on() {
            let path = format!("{TTL}?prefix=lasting&limit=5");
            assert_eq!(request(self.server, Some(&self.key), "GET", &path, "").status, 200);
            assert_eq!(request(self.server, Some("a.b"), "GET", &path, "").status, 401);
            assert_eq!(request(self.server, Some(&self.key), "GET", "/nowhere", "").status, 404);
            drop(TcpStream::connect(self.server).unwrap());
            self.connect().send("GET", &path, "").unwrap();
            self.done(5);
        }
    }

    /// Watches, left after a few events.
    fn watch(&self) {
        while self.goes_on() {
            let mut watch = self.connect();
            watch.send("GET", &format!("{TTL}:watch?prefix=brief"), "").unwrap();
            assert_eq!(watch.head().unwrap().status, 200);
            wait(Duration::from_millis(20));
            self.done(1);
        }
    }
}

/// Memory that the process has now, in KiB.
fn resident(server: &Server) -> u64 {
    let statm = fs::read_to_string(format!("/proc/{}/statm", server.pid())).unwrap();
    let pages: u64 = statm.split(' ').nth(1).unwrap().parse().unwrap();
    // The page of every machine that this is built for.
    pages * 4
}

/// Looks at memory for this long while callers work, once they have made so many requests.
fn samples(server: &Server, brief: Brief, warm_after: u64, time: Duration) -> (Vec<u64>, u64) {
    let limits = r#"{"requestsPerSecond":1000000,"maxBytes":1000000000000}"#;
    let limits = server.administer("PUT", "/api/v1/admin/apps/demo/app/limits", limits);
    assert_eq!(limits.status, 200, "{}", limits.body);
    let work = Arc::new(Work {
        server: server.http,
        key: server.key.clone(),
        brief,
        over: AtomicBool::new(false),
        requests: AtomicU64::new(0),
    });
    let start = |job: fn(&Work)| {
        let work = Arc::clone(&work);
        std::thread::spawn(move || job(&work))
    };
    let fill: [fn(&Work); 4] = [
        |work| work.fill_the_journal(1),
        |work| work.fill_the_journal(2),
        |work| work.fill_the_journal(3),
        |work| work.fill_the_journal(4),
    ];
    fill.map(start).into_iter().for_each(|caller| caller.join().unwrap());
    let jobs: [fn(&Work); 4] =
        [|work| work.write(1), |work| work.write(2), Work::come_and_go, Work::watch];
    let callers = jobs.map(start);
    while work.requests.load(Ordering::Relaxed) < warm_after {
        assert!(!callers.iter().any(JoinHandle::is_finished), "a caller has given up");
        wait(SAMPLE);
    }
    let mut samples = Vec::new();
    for _ in 0..time.as_millis() / SAMPLE.as_millis() {
        wait(SAMPLE);
        samples.push(resident(server));
    }
    work.over.store(true, Ordering::Relaxed);
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    (samples, work.requests.load(Ordering::Relaxed))
}

/// Memory at first, and in the end: the middle of a quarter of the samples each.
fn first_and_last(samples: &[u64]) -> (u64, u64) {
    let quarter = samples.len() / 4;
    let middle = |samples: &[u64]| {
        let mut samples = samples.to_vec();
        samples.sort_unstable();
        samples[samples.len() / 2]
    };
    (middle(&samples[..quarter]), middle(&samples[samples.len() - quarter..]))
}

fn assert_flat(name: &str, flags: &[&str], tolerated: u64) {
    let _machine = loading();
    let time = Duration::from_secs(count("WANE_TEST_STEADY_SECONDS", 20));
    let server = Server::with(&[flags, &["--log-filter", "warn"]].concat());
    let (samples, requests) = samples(&server, BRIEF, WARM_AFTER, time);
    let (warm, end) = first_and_last(&samples);
    eprintln!(
        "{name}: {requests} requests, the last of them in {time:?}; {warm} KiB when warm, {end} KiB \
         at the end"
    );
    let by_the_second: Vec<_> = samples.iter().step_by(4).collect();
    assert!(end <= warm + tolerated, "memory grows, in KiB: {by_the_second:?}");
}

#[test]
fn memory_of_a_server_on_mem_stays_flat() {
    assert_flat("mem", &["--storage", "mem"], TOLERATED_ON_MEM);
}

#[test]
fn memory_of_a_server_on_file_stays_flat() {
    // What is young grows for half a minute and goes at once. With the least memory for it that can be
    // set, it goes several times while it is looked at.
    assert_flat("file", &["--file-young-bytes", "16777216"], TOLERATED_ON_FILE);
}

/// The control: entries that stay are memory that grows.
#[test]
fn memory_that_grows_is_noticed() {
    let _machine = loading();
    let server = Server::with(&["--storage", "mem", "--log-filter", "warn"]);
    // More than what the journal has left free, also on a machine that has much to do.
    let staying = Brief { life: 900_000, size: 40_000 };
    let (samples, _) = samples(&server, staying, 0, Duration::from_secs(6));
    let (warm, end) = first_and_last(&samples);
    assert!(end > warm + TOLERATED_ON_MEM, "not noticed: {samples:?}");
}
