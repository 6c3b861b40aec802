//! Numbers given out: named sequences against one swap per call, and the sequencer from its cache.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use wane::clock::SystemClock;
use wane::services::ClusterAppId;
use wane::services::sequencer::{
    Event, EventLog, Offset, SequenceId, Sequencer, SequencerSettings, Start, WorkspaceId,
    WorkspaceKind,
};
use wane::services::sequences::Sequences;
use wane::store::{
    BoxError as StoreBoxError, Key, Life, MemoryStore, Outcome, Store, Value, WatchedStore, Write,
};
use wane_backends::AnyStore;

use crate::report::{Report, Row};
use crate::{BoxError, timing};

/// Callers of the bar.
const CALLERS: usize = 64;

const COMBINED: &str = "sequences.next(1)";
const PLAIN: &str = "one swap per call";

pub(super) fn run(scratch: &Path, quick: bool, report: &mut Report) -> Result<(), BoxError> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let slice = Duration::from_millis(if quick { 500 } else { 3_000 });
    let rounds = if quick { 3 } else { 5 };
    for (kind, url) in [
        ("mem", "mem:".to_owned()),
        ("file", format!("file:{}", scratch.join("numbers").display())),
    ] {
        let clock = SystemClock::shared();
        let store = runtime.block_on(wane_backends::open(&url, Arc::clone(&clock)))?;
        // A handle that can be cloned.
        let store = WatchedStore::new(store, clock);
        for callers in [1, CALLERS] {
            timing::stage(&format!("coordination: numbers on {kind}, {callers} callers"));
            let trial = Trial { runtime: &runtime, kind, callers, slice, rounds };
            compare(&trial, &store, report)?;
        }
    }
    let setting = setting("file", CALLERS);
    let rate = |name: &str| report.find(name, &setting, "ops/s");
    let pair = (rate(COMBINED), rate(PLAIN));
    report.bar(format!("coordination {setting}: {COMBINED} / {PLAIN}"), pair, 20.0);
    sequencer(&runtime, quick, report)
}

fn setting(kind: &str, callers: usize) -> String {
    format!("{kind}, {callers} caller{}", if callers == 1 { "" } else { "s" })
}

/// How callers are tried.
struct Trial<'a> {
    runtime: &'a Runtime,
    kind: &'static str,
    callers: usize,
    slice: Duration,
    rounds: usize,
}

fn compare(
    trial: &Trial<'_>,
    store: &WatchedStore<AnyStore>,
    report: &mut Report,
) -> Result<(), BoxError> {
    let Trial { runtime, kind, callers, slice, rounds } = *trial;
    let sequences = Sequences::new(store.clone(), SystemClock::shared()).of(ClusterAppId(1));
    let plain = Key::new(b"bench", b"plain")?;
    let (mut combined, mut swapped) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let by_service = sequences.clone();
        combined.push(rate(runtime, callers, slice, move || {
            let sequences = by_service.clone();
            async move { Ok(sequences.next("bench", 1, None).await.map(drop)?) }
        })?);
        let (by_hand, plain) = (store.clone(), plain.clone());
        swapped.push(rate(runtime, callers, slice, move || {
            let (store, key) = (by_hand.clone(), plain.clone());
            async move { next_by_swap(&store, &key).await.map(drop) }
        })?);
    }
    for (name, rounds) in [(COMBINED, &combined), (PLAIN, &swapped)] {
        report.row(Row {
            table: "coordination: numbers a second, each durable where the store is".into(),
            subject: name.into(),
            setting: setting(kind, callers),
            measures: vec![("ops/s".into(), median(rounds))],
            note: None,
        });
    }
    Ok(())
}

fn median(rounds: &[f64]) -> Option<f64> {
    let mut rounds = rounds.to_vec();
    rounds.sort_by(f64::total_cmp);
    rounds.get(rounds.len() / 2).copied()
}

/// Calls by so many callers for a while: how many a second.
fn rate<F>(
    runtime: &Runtime,
    callers: usize,
    slice: Duration,
    call: impl Fn() -> F + Clone + Send + 'static,
) -> Result<f64, BoxError>
where
    F: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    let begin = timing::now();
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let call = call.clone();
            runtime.spawn(async move {
                let mut done = 0_u64;
                while begin.elapsed() < slice {
                    call().await?;
                    done += 1;
                }
                Ok::<_, BoxError>(done)
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += runtime.block_on(task)??;
    }
    Ok(done as f64 / begin.elapsed().as_secs_f64())
}

/// As one would write it by hand: read, add one, swap, and again if somebody was faster.
async fn next_by_swap<S: Store>(store: &S, key: &Key) -> Result<u64, BoxError> {
    let write = |number: u64| -> Result<Write, BoxError> {
        Ok(Write::new(Value::copy_from_slice(&number.to_be_bytes())?, Life::Permanent))
    };
    let mut current = store.get(key).await?;
    loop {
        let (next, outcome) = match &current {
            None => (1, store.insert_if_not_exists(key, write(1)?).await?),
            Some(record) => {
                let next = u64::from_be_bytes((*record.value).try_into()?) + 1;
                (next, store.compare_and_swap(key, &record.value, write(next)?).await?)
            }
        };
        match outcome {
            Outcome::Applied { .. } => return Ok(next),
            Outcome::Refused { current: other } => current = other,
        }
    }
}

/// A log that is empty: nothing is recovered from it.
#[derive(Debug)]
struct NoEvents;

impl EventLog for NoEvents {
    async fn events_from(&self, _: Offset, _: usize) -> Result<Vec<Event>, StoreBoxError> {
        Ok(Vec::new())
    }
}

/// `next` of numbers that are in the cache, each the first of its sequence in a transaction.
fn sequencer(runtime: &Runtime, quick: bool, report: &mut Report) -> Result<(), BoxError> {
    const SEQUENCES: u16 = 100;
    timing::stage("coordination: sequencer");
    let transactions = if quick { 2_000 } else { 20_000 };
    let ids = (0..SEQUENCES).map(|id| (SequenceId(id), 1));
    let kind = WorkspaceKind(1);
    let settings = SequencerSettings::new(ClusterAppId(1), 0, [(kind, ids.collect())]);
    let nanos = runtime.block_on(async {
        let clock = SystemClock::shared();
        let store = MemoryStore::new(Arc::clone(&clock))?;
        let mut sequencer = Sequencer::new(store, NoEvents, clock, settings)?;
        let (mut spent, mut drawn) = (Duration::ZERO, 0_u64);
        for transaction in 0..transactions {
            sequencer.ready().await?;
            let Start::Started { .. } = sequencer.start(kind, WorkspaceId(7))? else {
                return Err("it said that it was ready".into());
            };
            let begin = timing::now();
            for id in 0..SEQUENCES {
                sequencer.next(SequenceId(id)).await?;
            }
            // The first transaction reads the store.
            if transaction > 0 {
                spent += begin.elapsed();
                drawn += u64::from(SEQUENCES);
            }
            sequencer.flush()?;
        }
        Ok::<_, BoxError>(spent.as_nanos() as f64 / drawn as f64)
    })?;
    report.row(Row {
        table: "coordination: sequencer, numbers from its cache".into(),
        subject: "sequencer.next".into(),
        setting: format!("{SEQUENCES} sequences"),
        measures: vec![("ns".into(), Some(nanos))],
        note: None,
    });
    report.bar("coordination: 1 us / sequencer.next", (Some(1_000.0), Some(nanos)), 1.0);
    Ok(())
}
