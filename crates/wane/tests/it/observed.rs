//! ObservedStore: every call is counted once, timed by the clock, and told to Prometheus.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use wane::clock::ManualClock;
use wane::store::{
    Answer, ClusteringRange, Faults, FaultyStore, Fence, Life, Metrics, ObservedStore, Operation,
    PageLimit, Partition, Store, Write, prometheus_text,
};

use crate::{InnerStore, inner_store, key, lasting, manual_clock, permanent, value};

type Observed = ObservedStore<FaultyStore<InnerStore>>;

fn observed(faults: Faults) -> (Observed, Arc<ManualClock>) {
    let (manual, clock) = manual_clock();
    let faulty = FaultyStore::new(inner_store(Arc::clone(&clock)), faults, 1, Arc::clone(&clock));
    (ObservedStore::new(faulty, "model", clock), manual)
}

fn count(store: &Observed, operation: Operation, answer: Answer) -> u64 {
    store.metrics().of(operation).count(answer)
}

#[tokio::test]
async fn reads_are_counted_as_found_or_absent() {
    let (store, _) = observed(Faults::NONE);
    let partition = Partition::new("tests").unwrap();
    for round in 1..=2 {
        store.get(&key("a")).await.unwrap();
        store.get_batch(&[key("a"), key("never")]).await.unwrap();
        store.read(&partition, &ClusteringRange::ALL, PageLimit::MAX).await.unwrap();
        store.scan(None, PageLimit::MAX).await.unwrap();
        store.query_ttl(&key("a")).await.unwrap();
        let reads = [
            Operation::Get,
            Operation::GetBatch,
            Operation::Read,
            Operation::Scan,
            Operation::QueryTtl,
        ];
        for operation in reads {
            assert_eq!(count(&store, operation, Answer::Absent), 1, "{operation:?}");
            assert_eq!(count(&store, operation, Answer::Found), round - 1, "{operation:?}");
        }
        assert!(store.put(&key("a"), lasting("v", 1_000)).await.unwrap().is_applied());
    }
}

#[tokio::test]
async fn writes_are_counted_as_applied_or_refused() {
    let (store, _) = observed(Faults::NONE);
    let fenced = |fence| permanent("v").fenced(Fence(fence));
    for fence in [2, 1] {
        let _ = store.put(&key("put"), fenced(fence)).await.unwrap();
        let _ = store.put_batch(vec![(key("batch"), fenced(fence))]).await.unwrap();
        let _ = store.insert_if_not_exists(&key("insert"), permanent("v")).await.unwrap();
        let _ = store.compare_and_swap(&key("put"), b"v", fenced(fence)).await.unwrap();
        let _ = store.compare_and_delete(&key("insert"), b"x", Fence::NONE).await.unwrap();
    }
    let _ = store.compare_and_delete(&key("insert"), b"v", Fence::NONE).await.unwrap();
    let each_once = [
        Operation::Put,
        Operation::PutBatch,
        Operation::InsertIfNotExists,
        Operation::CompareAndSwap,
    ];
    for operation in each_once {
        assert_eq!(count(&store, operation, Answer::Applied), 1, "{operation:?}");
        assert_eq!(count(&store, operation, Answer::Refused), 1, "{operation:?}");
    }
    assert_eq!(count(&store, Operation::CompareAndDelete, Answer::Applied), 1);
    assert_eq!(count(&store, Operation::CompareAndDelete, Answer::Refused), 2);
}

#[tokio::test]
async fn errors_are_counted_by_kind() {
    let (store, _) = observed(Faults { lost_answer: 1.0, ..Faults::NONE });
    assert!(store.put(&key("a"), permanent("v")).await.is_err());
    assert!(store.get(&key("a")).await.is_err());
    assert!(store.put(&key("a"), Write::new(value("v"), Life::Keep)).await.is_err());
    assert_eq!(count(&store, Operation::Put, Answer::Unknown), 1);
    assert_eq!(count(&store, Operation::Put, Answer::Invalid), 1);
    assert_eq!(count(&store, Operation::Get, Answer::Unavailable), 1);
}

#[tokio::test]
async fn a_call_takes_as_long_as_the_clock_says_and_is_in_flight_meanwhile() {
    let (store, clock) = observed(Faults { delay: 1.0, ..Faults::NONE });
    let call = tokio::spawn({
        let store = store.clone();
        async move { store.get(&key("a")).await }
    });
    tokio::task::yield_now().await;
    assert_eq!(store.metrics().of(Operation::Get).in_flight, 1);
    clock.advance(Duration::from_millis(100));
    call.await.unwrap().unwrap();
    let numbers = store.metrics().of(Operation::Get).clone();
    assert_eq!((numbers.in_flight, numbers.timed()), (0, 1));
    assert_eq!(numbers.total, Duration::from_millis(100));
}

#[tokio::test]
async fn a_dropped_call_leaves_the_gauge_and_counts_as_cancelled_without_a_duration() {
    let (store, _) = observed(Faults { delay: 1.0, ..Faults::NONE });
    let call = tokio::spawn({
        let store = store.clone();
        async move { store.get(&key("a")).await }
    });
    tokio::task::yield_now().await;
    assert_eq!(store.metrics().of(Operation::Get).in_flight, 1);
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    let numbers = store.metrics().of(Operation::Get).clone();
    assert_eq!((numbers.in_flight, numbers.timed()), (0, 0));
    assert_eq!(numbers.count(Answer::Cancelled), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_is_lost_from_the_count_when_many_count_at_once() {
    let (store, _) = observed(Faults::NONE);
    let callers = (0..8).map(|_| {
        let store = store.clone();
        tokio::spawn(async move {
            for _ in 0..1_000 {
                store.get(&key("a")).await.unwrap();
            }
        })
    });
    for caller in callers.collect::<Vec<_>>() {
        caller.await.unwrap();
    }
    let numbers = store.metrics().of(Operation::Get).clone();
    assert_eq!(numbers.count(Answer::Absent), 8_000);
    assert_eq!((numbers.timed(), numbers.in_flight), (8_000, 0));
}

#[tokio::test]
async fn the_text_is_well_formed_and_agrees_with_the_snapshot() {
    let (store, clock) = observed(Faults { delay: 1.0, ..Faults::NONE });
    for _ in 0..20 {
        let call = tokio::spawn({
            let store = store.clone();
            async move { store.put(&key("a"), permanent("v")).await }
        });
        tokio::task::yield_now().await;
        clock.advance(Duration::from_millis(100));
        assert!(call.await.unwrap().unwrap().is_applied());
    }
    let (other, _) = observed(Faults::NONE);
    let other = Metrics { backend: "quoted\"\\", ..other.metrics() };
    let text = prometheus_text(&[store.metrics(), other]);
    check(&text).unwrap();
    let put = r#"backend="model",operation="put""#;
    for line in [
        format!(r#"wane_store_operations_total{{{put},outcome="applied"}} 20"#),
        format!("wane_store_operation_seconds_count{{{put}}} 20"),
        format!("wane_store_operation_seconds_sum{{{put}}} 2"),
        format!(r#"wane_store_operation_seconds_bucket{{{put},le="0.065536"}} 0"#),
        format!(r#"wane_store_operation_seconds_bucket{{{put},le="0.131072"}} 20"#),
        format!("wane_store_in_flight{{{put}}} 0"),
    ] {
        assert!(text.lines().any(|had| had == line), "{line} is not in\n{text}");
    }
}

/// The control of the syntax check: each way of breaking the text is noticed.
#[tokio::test]
async fn the_syntax_check_notices_every_kind_of_damage() {
    let (store, _) = observed(Faults::NONE);
    store.get(&key("a")).await.unwrap();
    let text = prometheus_text(&[store.metrics()]);
    check(&text).unwrap();
    let get = r#"{backend="model",operation="get""#;
    let damages = [
        ("# HELP wane_store_in_flight Calls under way.\n", ""),
        ("# TYPE wane_store_in_flight gauge\n", ""),
        ("operation=\"get\"", "operation=get"),
        (&format!("_bucket{get},le=\"+Inf\"}} 1"), &format!("_bucket{get},le=\"+Inf\"}} 2")),
        (
            &format!("_bucket{get},le=\"0.000001\"}} 1"),
            &format!("_bucket{get},le=\"0.000001\"}} 3"),
        ),
        (&format!("in_flight{get}}} 0"), &format!("in_flight{get}}} none")),
        (&format!("in_flight{get}}}"), &format!("in-flight{get}}}")),
        (&format!("in_flight{get}}}"), r#"in_flight{backend="model",operation="put"}"#),
    ];
    for (good, bad) in damages {
        assert!(text.contains(good), "{good}");
        check(&text.replacen(good, bad, 1)).expect_err(bad);
    }
}

/// Checks the exposition format: families declared before their samples, labels quoted, no
/// sample twice, and histograms cumulative with +Inf equal to their count.
fn check(text: &str) -> Result<(), String> {
    let mut families = BTreeMap::<String, (bool, String)>::new();
    let mut samples = BTreeMap::<String, f64>::new();
    let mut last_bucket = BTreeMap::<String, f64>::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.splitn(3, ' ');
            let (kind, name, what) = (words.next(), words.next(), words.next());
            let entry = families.entry(name.ok_or(line)?.to_owned()).or_default();
            match kind {
                Some("HELP") => entry.0 = what.is_some(),
                Some("TYPE") => entry.1 = what.ok_or(line)?.to_owned(),
                _ => return Err(format!("neither HELP nor TYPE: {line}")),
            }
            continue;
        }
        let (series, number) = line.rsplit_once(' ').ok_or(line)?;
        let number = number.parse::<f64>().map_err(|error| format!("{line}: {error}"))?;
        let (name, labels) = parse_series(series)?;
        let family = declared(&families, &name).ok_or(format!("undeclared: {line}"))?;
        if families[&family].1 == "histogram" && name.ends_with("_bucket") {
            let (rest, _) = labels.rsplit_once(",le=").ok_or(line)?;
            let last = last_bucket.insert(rest.to_owned(), number).unwrap_or(0.0);
            if number < last {
                return Err(format!("falls below the bucket before: {line}"));
            }
        }
        if name.ends_with("_count") && last_bucket.get(&labels) != Some(&number) {
            return Err(format!("differs from +Inf: {line}"));
        }
        if samples.insert(series.to_owned(), number).is_some() {
            return Err(format!("told twice: {line}"));
        }
    }
    if samples.is_empty() { Err("no samples".to_owned()) } else { Ok(()) }
}

/// The family of a sample, if both its HELP and its TYPE came before.
fn declared(families: &BTreeMap<String, (bool, String)>, name: &str) -> Option<String> {
    let stem = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
    let histogram = stem.filter(|stem| families.get(*stem).is_some_and(|f| f.1 == "histogram"));
    let family = histogram.unwrap_or(name);
    families
        .get(family)
        .is_some_and(|(help, kind)| *help && !kind.is_empty())
        .then(|| family.into())
}

/// Splits `name{label="value",..}` into its name and its labels.
fn parse_series(series: &str) -> Result<(String, String), String> {
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    let (name, labels) = series.split_once('{').ok_or(format!("no labels: {series}"))?;
    let labels = labels.strip_suffix('}').ok_or(format!("not closed: {series}"))?;
    let mut rest = labels;
    while !rest.is_empty() {
        let (label, quoted) = rest.split_once("=\"").ok_or(format!("not quoted: {series}"))?;
        let end = closing_quote(quoted).ok_or(format!("no closing quote: {series}"))?;
        if !is_name(label) || !is_name(name) {
            return Err(format!("not a name: {series}"));
        }
        rest = quoted[end + 1..].trim_start_matches(',');
    }
    Ok((name.to_owned(), labels.to_owned()))
}

fn closing_quote(quoted: &str) -> Option<usize> {
    let mut escaped = false;
    quoted.bytes().position(|byte| {
        let closes = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        closes
    })
}
