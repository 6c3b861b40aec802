//! Warm starts: how long a server takes to be ready on a file with many records.

use std::path::Path;
use std::time::Duration;

use wane::clock::SystemClock;
use wane::services::ClusterAppId;
use wane::store::{Key, Keyspace, Life, Store, Ttl, Value, Write};
use wane_backends::file::FileStore;

use crate::server::Server;
use crate::{measuring, stopwatch};

const RECORDS: u32 = 100_000;

/// What a release build may take, whether the process before was stopped or killed.
const BAR: Duration = Duration::from_millis(500);

/// Writes the entries of `demo/app`, the first application, to a store that nobody has open.
fn fill(data: &Path) {
    let partition = Keyspace::AppTtl.partition(&ClusterAppId(1).0.to_be_bytes()).unwrap();
    let store = FileStore::open(data, SystemClock::shared()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let life = Life::For(Ttl::from_secs(3_600).unwrap());
    let row = |number: u32| {
        let key = Key::new(partition.as_bytes(), format!("warm-{number:06}").as_bytes()).unwrap();
        (key, Write::new(Value::new(format!("value {number:090}")).unwrap(), life))
    };
    for slice in 0..RECORDS / 10_000 {
        let rows = (slice * 10_000..(slice + 1) * 10_000).map(row).collect();
        runtime.block_on(store.put_batch(rows)).unwrap();
    }
}

#[test]
fn a_start_on_many_records_is_ready_soon() {
    let _machine = measuring();
    let home = tempfile::tempdir().unwrap();
    Server::start(home.path(), &[]).stop();
    fill(home.path());
    for after in ["a stop", "a kill", "a stop"] {
        let took = stopwatch();
        let server = Server::start(home.path(), &[]);
        let ready = took();
        let last = format!("/api/v2/apps/demo/app/ttl/warm-{:06}", RECORDS - 1);
        assert_eq!(server.ask("GET", &last, "").status, 200);
        let took = stopwatch();
        let body = r#"{"value":"v","ttlSeconds":60}"#;
        assert_eq!(server.ask("PUT", "/api/v2/apps/demo/app/ttl/first", body).status, 200);
        eprintln!(
            "after {after}, on {RECORDS} records: ready after {ready:?}, the first write took {:?}",
            took()
        );
        assert!(cfg!(debug_assertions) || ready < BAR, "ready after {ready:?}, bar {BAR:?}");
        match after {
            "a stop" => server.kill(),
            _ => assert_eq!(server.stop(), Some(0)),
        }
    }
}
