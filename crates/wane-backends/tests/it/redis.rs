//! What is special about redis: its scripts, its keys, and who removes what.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::process::{Command, Stdio};
use std::time::Duration;

use wane::clock::{Clock, ManualClock, SystemClock};
use wane::conformance::{Harness, ModelStore, run_all};
use wane::store::{
    ClusteringRange, Fence, Key, Life, Outcome, PageLimit, Partition, Remaining, Row, Store,
    StoreError, Timestamp, Ttl, Value, Write, for_each_row,
};
use wane_backends::redis::{RedisSettings, RedisStore};
use wane_backends::{OpenError, ServerClock};

use crate::harness::redis::Redis;

fn key(partition: impl AsRef<[u8]>, clustering: impl AsRef<[u8]>) -> Key {
    Key::new(partition.as_ref(), clustering.as_ref()).expect("legal")
}

fn permanent(value: impl AsRef<[u8]>) -> Write {
    Write::new(Value::copy_from_slice(value.as_ref()).expect("legal"), Life::Permanent)
}

fn lasting(value: impl AsRef<[u8]>, millis: u64) -> Write {
    Write { life: Life::For(Ttl::from_millis(millis).expect("legal")), ..permanent(value) }
}

async fn whole_scan(store: &impl Store, limit: usize) -> Vec<Row> {
    let (mut rows, mut cursor) = (Vec::new(), None);
    loop {
        let page =
            store.scan(cursor, PageLimit::new(limit).expect("legal")).await.expect("an answer");
        rows.extend(page.rows);
        cursor = page.next;
        if cursor.is_none() {
            return rows;
        }
    }
}

/// Waits until nothing is left of a store, and says how that went.
async fn leaves_nothing(harness: &Redis, within: Duration) -> bool {
    let deadline = harness.clock().monotonic() + within;
    while !harness.keys().names().is_empty() {
        if harness.clock().monotonic() > deadline {
            return false;
        }
        harness.clock().sleep(Duration::from_millis(50)).await;
    }
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_keeps_the_contract() {
    let Some(harness) = Redis::new().await else { return };
    let report = run_all(&harness).await;
    report.announce();
    report.assert_passed();
}

/// The key of no clustering, and the one of a zero byte beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn empty_clustering_is_a_row_in_every_operation() {
    let Some(harness) = Redis::new().await else { return };
    let store = harness.store();
    let (empty, zero) = (key("p", ""), key("p", [0]));
    assert!(store.insert_if_not_exists(&empty, permanent("a")).await.unwrap().is_applied());
    assert_eq!(store.get(&zero).await.unwrap(), None);
    assert!(store.put(&zero, permanent("z")).await.unwrap().is_applied());
    assert!(!store.insert_if_not_exists(&empty, permanent("b")).await.unwrap().is_applied());
    assert!(store.compare_and_swap(&empty, b"a", permanent("")).await.unwrap().is_applied());
    assert_eq!(&*store.get(&empty).await.unwrap().unwrap().value, b"");
    let batch = store.get_batch(&[empty.clone(), zero.clone(), empty.clone()]).await.unwrap();
    assert!(batch.iter().all(Option::is_some));
    assert_eq!(store.query_ttl(&empty).await.unwrap(), Remaining::Permanent);
    let partition = Partition::new("p").unwrap();
    let page = store.read(&partition, &ClusteringRange::ALL, PageLimit::MAX).await.unwrap();
    let keys: Vec<_> = page.rows.into_iter().map(|row| row.key).collect();
    assert_eq!(keys, [empty.clone(), zero.clone()]);
    assert_eq!(whole_scan(&store, 1).await.len(), 2);
    let written = store.put_batch(vec![(empty.clone(), permanent("c"))]).await.unwrap();
    assert!(written[0].is_applied());
    assert!(store.compare_and_delete(&empty, b"c", Fence::NONE).await.unwrap().is_applied());
    assert_eq!(store.get(&empty).await.unwrap(), None);
    assert!(store.get(&zero).await.unwrap().is_some());
}

/// A double cannot tell these fences apart.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fences_beyond_the_exact_numbers_of_lua_are_compared_exactly() {
    let Some(harness) = Redis::new().await else { return };
    let store = harness.store();
    for (number, high) in [1 << 53, 1 << 32, u64::MAX - 1, 1 << 63, 255].into_iter().enumerate() {
        let key = key("fences", [number as u8]);
        let fenced = |fence| permanent("v").fenced(Fence(fence));
        assert!(store.put(&key, fenced(high + 1)).await.unwrap().is_applied());
        let refused = store.put(&key, fenced(high)).await.unwrap();
        let Outcome::Refused { current: Some(current) } = refused else { panic!("{refused:?}") };
        assert_eq!(current.fence, Fence(high + 1));
        let delete = store.compare_and_delete(&key, b"v", Fence(high)).await.unwrap();
        assert!(!delete.is_applied());
        let swap = store.compare_and_swap(&key, b"v", fenced(high + 1)).await.unwrap();
        assert!(swap.is_applied());
        assert!(store.put(&key, permanent("w")).await.unwrap().is_applied(), "without a fence");
        assert_eq!(store.get(&key).await.unwrap().unwrap().fence, Fence(high + 1));
    }
}

/// Random operations on awkward keys. The lives are such that no answer depends on when it is given.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_answers_as_the_model_does() {
    let Some(harness) = Redis::new().await else { return };
    let (store, dice) = (harness.store(), ManualClock::seeded(5));
    let model = ModelStore::new(SystemClock::shared());
    let far = harness.clock().now().after(Ttl::from_secs(86_400).unwrap());
    let draw = |sides: u64| dice.random_u64() % sides;
    let partitions: [&[u8]; 4] = [b"p", b"{p}", b"\0\xFF", b"p:r"];
    let rows: [&[u8]; 6] = [b"", b"\0", b"a", b"a\0", b"\xFF", b"\xFF\xFF"];
    let values: [&[u8]; 3] = [b"", b"\x01", b"value"];
    for step in 0..3_000 {
        let key = key(partitions[draw(4) as usize], rows[draw(6) as usize]);
        let life = match draw(4) {
            0 | 1 => Life::Permanent,
            2 => Life::Until(far),
            _ => Life::Until(Timestamp::from_unix_millis(draw(2))),
        };
        let fence = Fence([0, 0, 1, 2, u64::MAX][draw(5) as usize]);
        let expected = values[draw(3) as usize];
        let write = Write { life, ..permanent(values[draw(3) as usize]) }.fenced(fence);
        let keeping = Write { life: Life::Keep, ..write.clone() };
        let both = match draw(7) {
            0 => (store.put(&key, write.clone()).await, model.put(&key, write).await),
            1 | 2 => (
                store.insert_if_not_exists(&key, write.clone()).await,
                model.insert_if_not_exists(&key, write).await,
            ),
            3 => (
                store.compare_and_swap(&key, expected, write.clone()).await,
                model.compare_and_swap(&key, expected, write).await,
            ),
            4 => (
                store.compare_and_swap(&key, expected, keeping.clone()).await,
                model.compare_and_swap(&key, expected, keeping).await,
            ),
            5 => (
                store.compare_and_delete(&key, expected, fence).await,
                model.compare_and_delete(&key, expected, fence).await,
            ),
            _ => {
                assert_eq!(store.get(&key).await.unwrap(), model.get(&key).await.unwrap());
                continue;
            }
        };
        assert_eq!(both.0.unwrap(), both.1.unwrap(), "step {step} on {key:?}");
    }
    let sorted = |mut rows: Vec<Row>| {
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        rows
    };
    let left = sorted(whole_scan(&store, 7).await);
    assert_eq!(left, sorted(whole_scan(&model, 7).await));
    assert!(left.len() > 5, "hardly anything was stored");
}

/// Expired records, traces of deletes and everything about them leave. Traces are aged here, as
/// they stay for a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_left_of_what_expired_or_was_deleted() {
    let Some(harness) = Redis::new().await else { return };
    let store = harness.store();
    let row = |number: u32| {
        (key((number / 5).to_be_bytes(), number.to_be_bytes()), lasting("value", 2_000))
    };
    for outcome in store.put_batch((0..200).map(row).collect()).await.unwrap() {
        assert!(outcome.is_applied());
    }
    let deleted = key("deleted", "row");
    assert!(store.put(&deleted, permanent("v")).await.unwrap().is_applied());
    let delete = store.compare_and_delete(&deleted, b"v", Fence::NONE).await.unwrap();
    assert_eq!(delete, Outcome::Applied { expires_at: None });
    assert!(harness.keys().names().len() > 100);
    let keys = harness.keys();
    let of_deleted = |part: &str| {
        let ending = format!(":deleted:{part}");
        keys.names().into_iter().find(|name| name.ends_with(&ending)).expect("it has a trace")
    };
    let (records, expiries) = (of_deleted("r"), of_deleted("x"));
    let mut trace: Vec<u8> = keys.run(&["HGET", &records, "row"]);
    assert_eq!((trace.len(), trace[0]), (41, 2));
    trace[17..25].copy_from_slice(&1_000_u64.to_be_bytes());
    let mut connection = keys.connection();
    redis::cmd("HSET").arg(&records).arg("row").arg(trace).exec(&mut connection).unwrap();
    let due = format!("{}:due", &records[..records.find("}:").unwrap() + 1]);
    let _: u64 = keys.run(&["ZADD", &expiries, "1000", "row"]);
    let _: u64 = keys.run(&["ZADD", &due, "1000", "deleted"]);
    assert!(leaves_nothing(&harness, Duration::from_secs(20)).await, "{:?}", keys.names());
}

/// The sweeping of a process ends with its last handle; what expired is absent all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_handle_ends_the_sweeping() {
    let Some(harness) = Redis::new().await else { return };
    let second = harness.store();
    assert!(second.put(&key("p", "r"), lasting("v", 1_000)).await.unwrap().is_applied());
    harness.close();
    drop(second);
    harness.clock().sleep(Duration::from_millis(2_500)).await;
    assert_eq!(harness.keys().names().len(), 4, "nobody swept");
    harness.reopen().await.unwrap();
    assert_eq!(harness.store().get(&key("p", "r")).await.unwrap(), None);
    assert!(leaves_nothing(&harness, Duration::from_secs(20)).await);
}

/// Four nodes sweep while records are renewed under them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_nodes_sweep_at_once_and_touch_no_live_record() {
    let Some(harness) = Redis::new().await else { return };
    let store = harness.store();
    let others = [harness.another().await, harness.another().await, harness.another().await];
    let row = |row: u32| key(format!("p{}", row % 7), row.to_be_bytes());
    let writes = (0..3_000).map(|number| (row(number), lasting("old", 4_000)));
    for outcome in store.put_batch(writes.collect()).await.unwrap() {
        assert!(outcome.is_applied());
    }
    let renewed: Vec<_> = (0..3_000).step_by(10).map(row).collect();
    let renewing = renewed.iter().enumerate().map(|(number, key)| {
        let life = if number % 2 == 0 { permanent("new") } else { lasting("new", 600_000) };
        others[0].compare_and_swap(key, b"old", life)
    });
    for outcome in futures_util::future::join_all(renewing).await {
        assert!(outcome.unwrap().is_applied());
    }
    let keys = harness.keys();
    let stored = || {
        let hashes = keys.names().into_iter().filter(|name| name.ends_with(":r"));
        hashes.map(|name| keys.run::<usize>(&["HLEN", &name])).sum::<usize>()
    };
    assert_eq!(stored(), 3_000);
    for _ in 0..300 {
        harness.clock().sleep(Duration::from_millis(100)).await;
        if stored() <= renewed.len() {
            break;
        }
    }
    harness.clock().sleep(Duration::from_millis(1_000)).await;
    assert_eq!(stored(), renewed.len(), "the others were removed, not only hidden");
    let records = store.get_batch(&renewed).await.unwrap();
    assert!(records.iter().flatten().all(|record| &*record.value == b"new"));
    assert_eq!(records.iter().flatten().count(), renewed.len());
}

/// Somebody else wrote into a hash of ours: every operation on the row says so and leaves it alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_somebody_else_wrote_is_corrupt() {
    let Some(harness) = Redis::new().await else { return };
    let store = harness.store();
    let (sound, broken) = (key("p", "a"), key("p", "b"));
    for key in [&sound, &broken] {
        assert!(store.put(key, permanent("v")).await.unwrap().is_applied());
    }
    let hash = harness.keys().names().into_iter().find(|name| name.ends_with(":r")).unwrap();
    for garbage in
        ["", "x", "\u{1}short", "\u{7f}a value that is long enough to hold a header......"]
    {
        let _: u64 = harness.keys().run(&["HSET", &hash, "b", garbage]);
        assert_every_operation_is_corrupt(&store, &broken).await;
        assert_eq!(harness.keys().run::<String>(&["HGET", &hash, "b"]), garbage);
    }
    assert!(store.get(&sound).await.unwrap().is_some());
    let _: u64 = harness.keys().run(&["DEL", &hash]);
    let _: () = harness.keys().run(&["SET", &hash, "a string"]);
    assert_every_operation_is_corrupt(&store, &broken).await;
    assert_eq!(harness.keys().run::<String>(&["GET", &hash]), "a string");
}

async fn assert_every_operation_is_corrupt(store: &RedisStore, key: &Key) {
    let partition = Partition::new(key.partition().to_vec()).expect("legal");
    let all = ClusteringRange::ALL;
    let errors = [
        store.get(key).await.expect_err("it fails"),
        store.get_batch(std::slice::from_ref(key)).await.expect_err("it fails"),
        store.query_ttl(key).await.expect_err("it fails"),
        store.read(&partition, &all, PageLimit::MAX).await.expect_err("it fails"),
        store.put(key, permanent("w")).await.expect_err("it fails"),
        store.put_batch(vec![(key.clone(), permanent("w"))]).await.expect_err("it fails"),
        store.insert_if_not_exists(key, permanent("w")).await.expect_err("it fails"),
        store.compare_and_swap(key, b"v", permanent("w")).await.expect_err("it fails"),
        store.compare_and_delete(key, b"v", Fence::NONE).await.expect_err("it fails"),
    ];
    for (number, error) in errors.iter().enumerate() {
        assert!(matches!(error, StoreError::Corrupt { .. }), "{number}: {error:?}");
    }
}

/// Keys that only look like ours are left alone and are in no scan.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_others_are_not_shown() {
    let Some(harness) = Redis::new().await else { return };
    let store = harness.store();
    assert!(store.put(&key("p", "r"), permanent("v")).await.unwrap().is_applied());
    let prefix = &harness.settings().prefix;
    for name in ["{zz}:p:r", "{00}::r", "{00}:%zz:r", "{00}:p:q:r"] {
        let _: u64 = harness.keys().run(&["HSET", &format!("{prefix}:{name}"), "row", "garbage"]);
    }
    assert_eq!(whole_scan(&store, 10).await.len(), 1);
}

/// A server that forgot its scripts is told them again, and no write is applied twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forgotten_scripts_are_told_again() {
    let Some(harness) = Redis::new().await else { return };
    let (store, counter) = (harness.store(), key("p", "counter"));
    assert!(store.put(&counter, permanent("0")).await.unwrap().is_applied());
    for number in 0..50_u32 {
        let _: () = harness.keys().run(&["SCRIPT", "FLUSH"]);
        let (now, next) = (number.to_string(), (number + 1).to_string());
        let swap = store.compare_and_swap(&counter, now.as_bytes(), permanent(next)).await;
        assert!(swap.unwrap().is_applied());
    }
    assert_eq!(&*store.get(&counter).await.unwrap().unwrap().value, b"50");
}

/// Many more expired rows than one script looks at stand before a live one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_gets_past_a_long_stretch_of_expired_rows() {
    let Some(harness) = Redis::new().await else { return };
    let store = harness.store();
    let past = Life::Until(Timestamp::from_unix_millis(1));
    let row = |row: u32| (key("p", row.to_be_bytes()), Write { life: past, ..permanent("v") });
    let live = key("p", [0xFF; 5]);
    let mut writes: Vec<_> = (0..3_500).map(row).collect();
    writes.push((live.clone(), permanent("live")));
    for outcome in store.put_batch(writes).await.unwrap() {
        assert!(outcome.is_applied());
    }
    let partition = Partition::new("p").unwrap();
    let page = store.read(&partition, &ClusteringRange::ALL, PageLimit::MAX).await.unwrap();
    assert_eq!(page.rows.iter().map(|row| &row.key).collect::<Vec<_>>(), [&live]);
}

/// More rows than one script gives, and more bytes than one page holds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_partition_is_read_in_pages_of_bounded_scripts() {
    let Some(harness) = Redis::new().await else { return };
    let store = harness.store();
    let value = |row: u32| vec![7; if row.is_multiple_of(500) { 262_144 } else { 10 }];
    let row = |row: u32| (key("p", row.to_be_bytes()), permanent(value(row)));
    for outcome in store.put_batch((0..5_000).map(row).collect()).await.expect("an answer") {
        assert!(outcome.is_applied());
    }
    let partition = Partition::new("p").unwrap();
    let first = store.read(&partition, &ClusteringRange::ALL, PageLimit::MAX).await.unwrap();
    assert!(first.rows.len() <= 1_000 && first.rest.is_some());
    let mut seen = Vec::new();
    for_each_row(&store, &partition, ClusteringRange::ALL, |row: Row| {
        seen.push(row.key.clustering().to_vec());
        Ok::<_, StoreError>(ControlFlow::Continue(()))
    })
    .await
    .unwrap();
    assert!(seen.is_sorted());
    assert_eq!(seen.len(), 5_000);
    let keys: Vec<_> = (0..5_000_u32).map(|row| key("p", row.to_be_bytes())).collect();
    let records = store.get_batch(&keys).await.unwrap();
    for (number, record) in (0..).zip(records) {
        assert_eq!(record.unwrap().value.to_vec(), value(number), "{number}");
    }
}

/// The clock that decides is the server's, told to the millisecond.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_server_tells_its_time() {
    let Some(harness) = Redis::new().await else { return };
    let before = harness.clock().now();
    let time = harness.store().server_time().await.unwrap();
    let after = harness.clock().now();
    assert_eq!(time.not_before, time.not_after);
    let slack = Ttl::from_millis(50).unwrap();
    assert!(before <= time.not_after.after(slack) && time.not_before <= after.after(slack));
}

/// A store that was laid out by a program of another time is not touched.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_layout_is_refused() {
    let Some(harness) = Redis::new().await else { return };
    let layout = format!("{}:layout", harness.settings().prefix);
    let _: () = harness.keys().run(&["SET", &layout, "99"]);
    let refused = RedisStore::connect(harness.settings().clone(), SystemClock::shared()).await;
    let error = refused.unwrap_err();
    assert!(matches!(error, OpenError::Mismatch { .. }), "{error}");
    assert!(error.to_string().contains("99"), "{error}");
}

const RACE: &str = "WANE_TEST_REDIS_RACE";
const RACERS: usize = 3;
const ROUNDS: u64 = 200;

/// Three processes increment one counter by swaps, and insert into the same rows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_race_and_nothing_is_lost_or_given_twice() {
    let Some(harness) = Redis::new().await else { return };
    let store = harness.store();
    assert!(store.put(&key("race", "counter"), permanent("0")).await.unwrap().is_applied());
    let settings = harness.settings();
    let url = format!("redis://{}?prefix={}", settings.hosts[0], settings.prefix);
    let racers: Vec<_> = (0..RACERS)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "redis::racer", "--ignored", "--nocapture"])
                .env(RACE, &url)
                .stdout(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut won = Vec::new();
    for racer in racers {
        let output = racer.wait_with_output().unwrap();
        assert!(output.status.success());
        let told = String::from_utf8(output.stdout).unwrap();
        won.extend(told.lines().filter_map(|line| line.strip_prefix("won ")?.parse::<u64>().ok()));
    }
    let counter = store.get(&key("race", "counter")).await.unwrap().unwrap();
    assert_eq!(&*counter.value, (RACERS as u64 * ROUNDS).to_string().as_bytes());
    assert_eq!(won.len() as u64, ROUNDS, "each row has one winner");
    assert_eq!(won.into_iter().collect::<BTreeSet<_>>().len() as u64, ROUNDS);
}

/// One process of the race; nothing without the environment that the race gives it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a part of another test"]
async fn racer() {
    let Ok(url) = std::env::var(RACE) else { return };
    let settings = RedisSettings::from_url(&url).unwrap();
    let store = RedisStore::connect(settings, SystemClock::shared()).await.unwrap();
    let counter = key("race", "counter");
    for round in 0..ROUNDS {
        let row = key("race", round.to_be_bytes());
        if store.insert_if_not_exists(&row, permanent("mine")).await.unwrap().is_applied() {
            println!("won {round}");
        }
        loop {
            let now = store.get(&counter).await.unwrap().unwrap().value;
            let next = std::str::from_utf8(&now).unwrap().parse::<u64>().unwrap() + 1;
            let next = permanent(next.to_string());
            if store.compare_and_swap(&counter, &now, next).await.unwrap().is_applied() {
                break;
            }
        }
    }
}
