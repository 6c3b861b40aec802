//! A real cluster of three masters: every key of a script on one of them, slots that move.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use wane::clock::SystemClock;
use wane::store::{
    ClusteringRange, Fence, Key, Life, PageLimit, Partition, Store, StoreError, Ttl, Value, Write,
};
use wane_backends::ServerClock;
use wane_backends::redis::{RedisSettings, RedisStore};

use crate::harness::redis::{fresh_settings, listed_url};
use crate::harness::redis_server::Server;

const PARTITIONS: u32 = 300;

fn key(partition: u32, row: &str) -> Key {
    Key::new(&partition.to_be_bytes(), row.as_bytes()).expect("legal")
}

fn permanent(value: impl AsRef<[u8]>) -> Write {
    Write::new(Value::copy_from_slice(value.as_ref()).expect("legal"), Life::Permanent)
}

/// Runs `redis-cli --cluster`.
fn manage(arguments: &[&str]) -> String {
    let output =
        Command::new("redis-cli").arg("--cluster").args(arguments).output().expect("an answer");
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{arguments:?}: {told}");
    told
}

/// Three masters, each with a third of the slots.
pub(crate) async fn cluster() -> Option<(Vec<Server>, RedisSettings)> {
    listed_url()?;
    let servers: Vec<_> = (0..3).map(|_| Server::start(&["--cluster-enabled", "yes"])).collect();
    let hosts: Vec<_> =
        servers.iter().map(|server| format!("127.0.0.1:{}", server.port())).collect();
    let mut create = vec!["create"];
    create.extend(hosts.iter().map(String::as_str));
    create.push("--cluster-yes");
    manage(&create);
    let clock = SystemClock::shared();
    for server in &servers {
        let formed = || -> bool {
            let info: String = redis::cmd("CLUSTER")
                .arg("INFO")
                .query(&mut server.connection())
                .expect("an answer");
            info.contains("cluster_state:ok")
        };
        while !formed() {
            clock.sleep(Duration::from_millis(50)).await;
        }
    }
    // One of them leads to the others.
    let settings = fresh_settings(&servers[0].url());
    Some((servers, settings))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_keeps_the_contract_while_slots_move() {
    let Some((servers, settings)) = cluster().await else { return };
    let clock = SystemClock::shared();
    let store = RedisStore::connect(settings, clock.clone()).await.unwrap();
    assert!(scripts_across_slots_are_refused(&servers[0]), "the control");
    every_operation_reaches_every_master(&store, &servers).await;
    counters_survive_moving_slots(&store, &servers).await;
    assert!(store.server_time().await.is_ok());

    let short = Write { life: Life::For(Ttl::from_millis(300).unwrap()), ..permanent("v") };
    let writes = (1_000..1_200).map(|partition| (key(partition, "row"), short.clone()));
    for outcome in store.put_batch(writes.collect()).await.unwrap() {
        assert!(outcome.is_applied());
    }
    let of_these = || {
        let mut names = 0;
        for server in &servers {
            let keys: Vec<String> =
                redis::cmd("KEYS").arg("*:{*}:*:x").query(&mut server.connection()).unwrap();
            names += keys.len();
        }
        names
    };
    let before = of_these();
    assert!(before >= 200);
    for _ in 0..1_200 {
        clock.sleep(Duration::from_millis(50)).await;
        if of_these() <= before - 200 {
            return;
        }
    }
    panic!("not swept: {} of {before}", of_these());
}

/// Whether the server would notice a script whose keys are not in one slot.
fn scripts_across_slots_are_refused(server: &Server) -> bool {
    let mut script = redis::cmd("EVAL");
    script.arg("return 1").arg(2).arg("one").arg("other");
    let told: redis::RedisResult<u64> = script.query(&mut server.connection());
    told.is_err_and(|error| error.code() == Some("CROSSSLOT"))
}

async fn every_operation_reaches_every_master(store: &RedisStore, servers: &[Server]) {
    let writes = (0..PARTITIONS).map(|partition| (key(partition, ""), permanent("0")));
    for outcome in store.put_batch(writes.collect()).await.expect("an answer") {
        assert!(outcome.is_applied());
    }
    for server in servers {
        let keys: u64 = redis::cmd("DBSIZE").query(&mut server.connection()).expect("an answer");
        assert!(keys > u64::from(PARTITIONS) / 3, "a master has only {keys} keys");
    }
    let keys: Vec<_> = (0..PARTITIONS).map(|partition| key(partition, "")).collect();
    let records = store.get_batch(&keys).await.expect("an answer");
    assert!(records.iter().all(Option::is_some));
    for key in keys.iter().take(60) {
        assert!(
            !store.insert_if_not_exists(key, permanent("x")).await.expect("an answer").is_applied()
        );
        let partition = Partition::new(key.partition().to_vec()).expect("legal");
        let page =
            store.read(&partition, &ClusteringRange::ALL, PageLimit::MAX).await.expect("an answer");
        assert_eq!(page.rows.len(), 1);
        let other = Key::new(key.partition(), b"other").expect("legal");
        assert!(
            store
                .insert_if_not_exists(&other, permanent("x"))
                .await
                .expect("an answer")
                .is_applied()
        );
        assert!(
            store
                .compare_and_delete(&other, b"x", Fence::NONE)
                .await
                .expect("an answer")
                .is_applied()
        );
        assert!(store.query_ttl(key).await.is_ok());
    }
    let (mut seen, mut cursor) = (BTreeSet::new(), None);
    loop {
        let page = store.scan(cursor, PageLimit::new(40).expect("legal")).await.expect("an answer");
        seen.extend(page.rows.into_iter().map(|row| row.key));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen, keys.into_iter().collect());
}

/// Counts in every partition while a third of the slots moves to another master.
async fn counters_survive_moving_slots(store: &RedisStore, servers: &[Server]) {
    let id = |server: &Server| -> String {
        redis::cmd("CLUSTER").arg("MYID").query(&mut server.connection()).expect("an answer")
    };
    let (from, to) = (id(&servers[0]), id(&servers[1]));
    let address = format!("127.0.0.1:{}", servers[0].port());
    let moved = AtomicBool::new(false);
    let moving = async {
        let moving = tokio::task::spawn_blocking(move || {
            manage(&[
                "reshard",
                &address,
                "--cluster-from",
                &from,
                "--cluster-to",
                &to,
                "--cluster-slots",
                "5000",
                "--cluster-yes",
            ])
        });
        moving.await.expect("an answer");
        moved.store(true, Ordering::SeqCst);
    };
    let counting = async {
        let mut counts = vec![0_u64; PARTITIONS as usize];
        let mut rounds_after = 0;
        while rounds_after < 2 {
            rounds_after += u32::from(moved.load(Ordering::SeqCst));
            for partition in 0..PARTITIONS {
                let count = &mut counts[partition as usize];
                let (now, next) = (count.to_string(), (*count + 1).to_string());
                let swap = store
                    .compare_and_swap(&key(partition, ""), now.as_bytes(), permanent(next))
                    .await;
                match swap {
                    Ok(outcome) => {
                        assert!(outcome.is_applied(), "{partition}: {outcome:?}");
                        *count += 1;
                    }
                    Err(StoreError::Unavailable { .. }) => {}
                    Err(other) => panic!("{other}"),
                }
            }
        }
        counts
    };
    let (counts, ()) = tokio::join!(counting, moving);
    assert!(counts.iter().all(|count| *count > 0));
    for (partition, count) in (0..).zip(counts) {
        let record = store.get(&key(partition, "")).await.expect("an answer").expect("an answer");
        assert_eq!(&*record.value, count.to_string().as_bytes());
    }
}
