//! Races: of any number of writers that expect the same state, exactly one is applied.
//!
//! Every racer is a task with a handle of its own, and all start together. Rounds are many where
//! racers are few, so that each field meets in as many ways.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Barrier;
use tokio::task::{JoinSet, yield_now};

use super::Harness;
use super::case::{Case, Trial, cases};
use super::check::{self, CaseError, CaseResult};
use super::sample::{LONG, SHORT, lasting, permanent, ttl};
use crate::store::{Fence, Key, Outcome, Store, StoreError};

pub(super) fn cases<H: Harness>() -> Vec<Case<H>> {
    cases![Races;
        Store: of_racing_inserts_one_is_applied,
            of_racing_swaps_one_is_applied,
            of_racing_deletes_one_is_applied,
            of_a_racing_swap_and_delete_one_is_applied,
            increments_through_swap_lose_nothing,
            put_is_one_step_beside_a_swap,
            put_is_one_step_beside_a_delete,
            highest_of_racing_fences_stands,
            insert_and_delete_take_turns,
            readers_see_whole_records_only,
            racers_on_different_keys_do_not_meet;
        Time: insert_against_expiry_has_one_winner,
            renewal_against_takeover_has_one_winner,
    ]
}

/// Racers and rounds.
const FIELDS: [(usize, usize); 4] = [(2, 64), (4, 32), (16, 8), (64, 3)];

/// Starts all racers together and returns what each brought home.
async fn race<T, F>(racers: usize, racer: impl Fn(usize) -> F) -> Result<Vec<T>, CaseError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, CaseError>> + Send + 'static,
{
    let gate = Arc::new(Barrier::new(racers));
    let mut tasks = JoinSet::new();
    for number in 0..racers {
        let (gate, running) = (Arc::clone(&gate), racer(number));
        tasks.spawn(async move {
            gate.wait().await;
            running.await
        });
    }
    let mut results = Vec::with_capacity(racers);
    while let Some(joined) = tasks.join_next().await {
        results.push(joined.map_err(|error| CaseError::new(format!("a racer died: {error}")))??);
    }
    Ok(results)
}

/// Runs a race of one call each, in every field, after `before` has prepared the key.
async fn one_is_applied<H, B, C, F>(trial: &Trial<'_, H>, before: B, call: C) -> CaseResult
where
    H: Harness,
    B: AsyncFn(&H::Store, &Key) -> CaseResult,
    C: Fn(H::Store, Key, usize) -> F,
    F: Future<Output = Result<Outcome, StoreError>> + Send + 'static,
{
    for (racers, rounds) in FIELDS {
        for round in 0..rounds {
            let key = trial.key(format!("{racers}/{round}"));
            before(&trial.store(), &key).await?;
            let racer = |number| {
                let running = call(trial.store(), key.clone(), number);
                async move { Ok(running.await?) }
            };
            let outcomes = race(racers, racer).await?;
            let applied = outcomes.iter().filter(|outcome| outcome.is_applied()).count();
            check::equal(&format!("applied of {racers} in round {round}"), applied, 1)?;
        }
    }
    Ok(())
}

async fn of_racing_inserts_one_is_applied<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let insert = |store: H::Store, key: Key, number: usize| async move {
        let outcome = store.insert_if_not_exists(&key, permanent(format!("{number}"))).await?;
        // Whoever was applied stands, and whoever was not was told by whom.
        let stands = store.get(&key).await?;
        match &outcome {
            Outcome::Refused { current } if *current != stands => Err(unexpected("current")),
            Outcome::Applied { .. } if stands.is_none() => Err(unexpected("absence")),
            Outcome::Refused { .. } | Outcome::Applied { .. } => Ok(outcome),
        }
    };
    one_is_applied(trial, async |_: &_, _: &_| Ok(()), insert).await
}

fn unexpected(what: &'static str) -> StoreError {
    let source = format!("an unexpected {what} after a race").into();
    StoreError::Unknown { backend: "the store under test", source }
}

async fn of_racing_swaps_one_is_applied<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let swap = |store: H::Store, key: Key, number: usize| async move {
        let write = lasting(format!("{number}"), LONG);
        store.compare_and_swap(&key, b"same", write).await
    };
    one_is_applied(trial, same::<H::Store>, swap).await
}

async fn of_racing_deletes_one_is_applied<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let delete = |store: H::Store, key: Key, _| async move {
        store.compare_and_delete(&key, b"same", Fence::NONE).await
    };
    one_is_applied(trial, same::<H::Store>, delete).await
}

async fn of_a_racing_swap_and_delete_one_is_applied<H: Harness>(
    trial: &Trial<'_, H>,
) -> CaseResult {
    let either = |store: H::Store, key: Key, number: usize| async move {
        match number % 2 {
            0 => store.compare_and_delete(&key, b"same", Fence::NONE).await,
            _ => store.compare_and_swap(&key, b"same", permanent("other")).await,
        }
    };
    one_is_applied(trial, same::<H::Store>, either).await
}

async fn same<S: Store>(store: &S, key: &Key) -> CaseResult {
    check::applied(store.put(key, permanent("same")).await?)?;
    Ok(())
}

/// Counters rest on this: no increment is lost, none is counted twice.
async fn increments_through_swap_lose_nothing<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    for (racers, each) in [(2, 100_u64), (4, 40), (16, 10), (64, 2)] {
        let (key, total) = (trial.key(format!("{racers}")), racers as u64 * each);
        let store = trial.store();
        check::applied(store.put(&key, permanent(0_u64.to_be_bytes())).await?)?;
        let increments = |_| {
            let (store, key) = (trial.store(), key.clone());
            async move {
                for _ in 0..each {
                    increment(&store, &key, total).await?;
                }
                Ok(())
            }
        };
        race(racers, increments).await?;
        check::holds(store.get(&key).await?, &total.to_be_bytes())?;
    }
    Ok(())
}

/// Adds one. Each refusal is another's increment, so there are fewer than all of them.
async fn increment(store: &impl Store, key: &Key, total: u64) -> CaseResult {
    let mut current = store.get(key).await?;
    for _ in 0..total {
        let record = current.ok_or_else(|| CaseError::new("the counter is gone"))?;
        let count = record.value[..].try_into().map(u64::from_be_bytes);
        let count = count.map_err(|_| CaseError::new("the counter is no number"))?;
        let next = permanent((count + 1).to_be_bytes());
        match store.compare_and_swap(key, &record.value, next).await? {
            Outcome::Applied { .. } => return Ok(()),
            Outcome::Refused { current: standing } => current = standing,
        }
    }
    Err(CaseError::new("refused more often than others were applied"))
}

/// A put that comes before the swap makes it fail, one that comes after it replaces its value:
/// either way the value of the put stands.
async fn put_is_one_step_beside_a_swap<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    for round in 0..100 {
        let key = trial.key(format!("{round}"));
        same(&trial.store(), &key).await?;
        let either = |number| {
            let (store, key) = (trial.store(), key.clone());
            async move {
                Ok(match number {
                    0 => store.put(&key, permanent("put")).await?,
                    _ => store.compare_and_swap(&key, b"same", permanent("swapped")).await?,
                })
            }
        };
        race(3, either).await?;
        check::holds(trial.store().get(&key).await?, b"put")?;
    }
    Ok(())
}

async fn put_is_one_step_beside_a_delete<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    for round in 0..100 {
        let key = trial.key(format!("{round}"));
        same(&trial.store(), &key).await?;
        let either = |number| {
            let (store, key) = (trial.store(), key.clone());
            async move {
                Ok(match number {
                    0 => store.put(&key, permanent("put")).await?,
                    _ => store.compare_and_delete(&key, b"same", Fence::NONE).await?,
                })
            }
        };
        race(3, either).await?;
        check::holds(trial.store().get(&key).await?, b"put")?;
    }
    Ok(())
}

async fn highest_of_racing_fences_stands<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    for (racers, rounds) in FIELDS {
        for round in 0..rounds {
            let key = trial.key(format!("{racers}/{round}"));
            same(&trial.store(), &key).await?;
            let put = |number: usize| {
                let (store, key) = (trial.store(), key.clone());
                let fence = Fence(number as u64 + 1);
                async move {
                    let write = permanent(format!("{}", fence.0)).fenced(fence);
                    Ok(store.put(&key, write).await?)
                }
            };
            race(racers, put).await?;
            let record =
                check::holds(trial.store().get(&key).await?, format!("{racers}").as_bytes())?;
            check::equal("fence", record.fence, Fence(racers as u64))?;
        }
    }
    Ok(())
}

/// A lock taken by insert and released by delete is held by one racer at a time.
async fn insert_and_delete_take_turns<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let key = trial.key("lock");
    let held = Arc::new(AtomicBool::new(false));
    let turns = |number: usize| {
        let (store, key, held) = (trial.store(), key.clone(), Arc::clone(&held));
        async move {
            let name = format!("{number}");
            let mut taken = 0;
            while taken < 10 {
                if !store.insert_if_not_exists(&key, lasting(&name, LONG)).await?.is_applied() {
                    yield_now().await;
                    continue;
                }
                taken += 1;
                check::that(!held.swap(true, Ordering::SeqCst), "two hold the lock")?;
                yield_now().await;
                held.store(false, Ordering::SeqCst);
                let released = store.compare_and_delete(&key, name.as_bytes(), Fence::NONE).await?;
                check::applied(released)?;
            }
            Ok(())
        }
    };
    race(6, turns).await?;
    check::absent(trial.store().get(&key).await?)
}

async fn readers_see_whole_records_only<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let key = trial.key("k");
    let write = |turn: u64| {
        let write = permanent(vec![turn as u8; 1 + (turn as usize * 997) % 9_000]);
        write.fenced(Fence(turn + 1))
    };
    check::applied(trial.store().put(&key, write(0)).await?)?;
    let written = Arc::new(AtomicBool::new(false));
    let running = |number| {
        let (store, key, written) = (trial.store(), key.clone(), Arc::clone(&written));
        async move {
            if number == 0 {
                for turn in 1..60 {
                    check::applied(store.put(&key, write(turn)).await?)?;
                }
                written.store(true, Ordering::SeqCst);
            }
            while !written.load(Ordering::SeqCst) {
                let record = store.get(&key).await?;
                let record = record.ok_or_else(|| CaseError::new("absent amid puts"))?;
                let expected = write(record.fence.0.saturating_sub(1));
                check::that(record.value == expected.value, "a value with another one's fence")?;
                yield_now().await;
            }
            Ok(())
        }
    };
    race(4, running).await?;
    Ok(())
}

async fn racers_on_different_keys_do_not_meet<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let writes = |number: usize| {
        let (store, key) = (trial.store(), trial.row("p", format!("{number:02}")));
        async move {
            check::applied(store.insert_if_not_exists(&key, permanent("0")).await?)?;
            for turn in 0..5 {
                let (old, new) = (format!("{turn}"), permanent(format!("{}", turn + 1)));
                check::applied(store.compare_and_swap(&key, old.as_bytes(), new).await?)?;
            }
            Ok(key)
        }
    };
    let keys = race(64, writes).await?;
    for record in trial.store().get_batch(&keys).await? {
        check::holds(record, b"5")?;
    }
    Ok(())
}

/// Few rounds where expiry is really waited for.
fn rounds<H: Harness>(trial: &Trial<'_, H>) -> usize {
    if trial.harness().clock().is_some() { 40 } else { 2 }
}

/// Tries to insert until it works or someone else did. Gives up once expiry is past.
async fn takeover(
    store: &impl Store,
    key: &Key,
    old: &[u8],
    past: &AtomicBool,
) -> Result<bool, CaseError> {
    loop {
        let is_past = past.load(Ordering::SeqCst);
        match store.insert_if_not_exists(key, lasting("taken", LONG)).await? {
            Outcome::Applied { .. } => return Ok(true),
            Outcome::Refused { current: Some(record) } if record.value[..] == *old => {
                check::that(!is_past, "an expired record refuses an insert")?;
            }
            Outcome::Refused { current: Some(_) } => return Ok(false),
            Outcome::Refused { current: None } => {
                return Err(CaseError::new("an insert was refused by nothing"));
            }
        }
        yield_now().await;
    }
}

async fn insert_against_expiry_has_one_winner<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    for round in 0..rounds(trial) {
        let key = trial.key(format!("{round}"));
        check::applied(trial.store().put(&key, lasting("old", SHORT)).await?)?;
        let past = Arc::new(AtomicBool::new(false));
        let racer = |_| {
            let (store, key, past) = (trial.store(), key.clone(), Arc::clone(&past));
            async move { takeover(&store, &key, b"old", &past).await }
        };
        let (won, ()) = tokio::join!(race(8, racer), async {
            trial.outlive(ttl(SHORT)).await;
            past.store(true, Ordering::SeqCst);
        });
        let won = won?.into_iter().filter(|won| *won).count();
        check::equal(&format!("winners of round {round}"), won, 1)?;
    }
    Ok(())
}

/// Elections rest on this: either the holder renewed, or another took over, never both.
async fn renewal_against_takeover_has_one_winner<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    for round in 0..rounds(trial) {
        let key = trial.key(format!("{round}"));
        check::applied(trial.store().put(&key, lasting("old", SHORT)).await?)?;
        let past = Arc::new(AtomicBool::new(false));
        let racer = |number: usize| {
            let (store, key, past) = (trial.store(), key.clone(), Arc::clone(&past));
            async move {
                if number > 0 {
                    return takeover(&store, &key, b"old", &past).await;
                }
                // The later the round, the later the renewal: some come too late.
                for _ in 0..round * 3 {
                    yield_now().await;
                }
                let renewal = store.compare_and_swap(&key, b"old", lasting("kept", LONG)).await?;
                Ok(renewal.is_applied())
            }
        };
        let (won, ()) = tokio::join!(race(4, racer), async {
            trial.outlive(ttl(SHORT)).await;
            past.store(true, Ordering::SeqCst);
        });
        let won = won?.into_iter().filter(|won| *won).count();
        check::equal(&format!("winners of round {round}"), won, 1)?;
    }
    Ok(())
}
