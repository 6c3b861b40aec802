//! Fences: a writer that was overtaken is refused by what overtook it.

use super::Harness;
use super::case::{Case, Trial, cases};
use super::check::{self, CaseResult};
use super::reads::whole;
use super::sample::{LONG, SHORT, keeping, lasting, permanent, ttl};
use crate::store::{Fence, Store};

pub(super) fn cases<H: Harness>() -> Vec<Case<H>> {
    cases![Fences;
        Store: lower_fence_is_refused_by_every_write,
            equal_fence_passes_every_write,
            higher_fence_passes_and_stamps,
            write_without_a_fence_passes_and_leaves_the_stamp,
            insert_stamps_its_fence,
            largest_fence_is_a_fence,
            refusal_by_a_fence_carries_the_stamp,
            wrong_value_is_refused_whatever_the_fence,
            every_read_shows_the_stamp,
            deleted_record_leaves_no_fence,
            batch_is_fenced_row_by_row;
        Time: expired_record_leaves_no_fence,
    ]
}

async fn lower_fence_is_refused_by_every_write<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.put(&key, permanent("v").fenced(Fence(5))).await?)?;
    for fence in [Fence(1), Fence(4)] {
        check::refused_by(store.put(&key, permanent("x").fenced(fence)).await?, b"v")?;
        let swap = store.compare_and_swap(&key, b"v", permanent("x").fenced(fence)).await?;
        check::refused_by(swap, b"v")?;
        let swap = store.compare_and_swap(&key, b"v", keeping("x").fenced(fence)).await?;
        check::refused_by(swap, b"v")?;
        check::refused_by(store.compare_and_delete(&key, b"v", fence).await?, b"v")?;
        let insert = store.insert_if_not_exists(&key, permanent("x").fenced(fence)).await?;
        check::refused_by(insert, b"v")?;
    }
    check::equal("fence", check::holds(store.get(&key).await?, b"v")?.fence, Fence(5))
}

async fn equal_fence_passes_every_write<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.put(&key, permanent("a").fenced(Fence(5))).await?)?;
    check::applied(store.put(&key, permanent("b").fenced(Fence(5))).await?)?;
    let swap = store.compare_and_swap(&key, b"b", permanent("c").fenced(Fence(5))).await?;
    check::applied(swap)?;
    check::equal("fence", check::holds(store.get(&key).await?, b"c")?.fence, Fence(5))?;
    check::applied(store.compare_and_delete(&key, b"c", Fence(5)).await?)?;
    Ok(())
}

async fn higher_fence_passes_and_stamps<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.put(&key, permanent("a")).await?)?;
    check::equal("fence", check::holds(store.get(&key).await?, b"a")?.fence, Fence::NONE)?;
    check::applied(store.put(&key, permanent("b").fenced(Fence(5))).await?)?;
    check::equal("fence", check::holds(store.get(&key).await?, b"b")?.fence, Fence(5))?;
    let swap = store.compare_and_swap(&key, b"b", permanent("c").fenced(Fence(6))).await?;
    check::applied(swap)?;
    check::equal("fence", check::holds(store.get(&key).await?, b"c")?.fence, Fence(6))?;
    let late = store.put(&key, permanent("late").fenced(Fence(5))).await?;
    check::equal("fence", check::refused_by(late, b"c")?.fence, Fence(6))?;
    check::applied(store.compare_and_delete(&key, b"c", Fence(7)).await?)?;
    Ok(())
}

async fn write_without_a_fence_passes_and_leaves_the_stamp<H: Harness>(
    trial: &Trial<'_, H>,
) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.put(&key, permanent("a").fenced(Fence(5))).await?)?;
    check::applied(store.put(&key, lasting("b", LONG)).await?)?;
    check::equal("fence", check::holds(store.get(&key).await?, b"b")?.fence, Fence(5))?;
    check::applied(store.compare_and_swap(&key, b"b", permanent("c")).await?)?;
    check::equal("fence", check::holds(store.get(&key).await?, b"c")?.fence, Fence(5))?;
    check::applied(store.compare_and_swap(&key, b"c", keeping("d")).await?)?;
    check::equal("fence", check::holds(store.get(&key).await?, b"d")?.fence, Fence(5))?;
    check::refused_by(store.put(&key, permanent("x").fenced(Fence(4))).await?, b"d")?;
    check::applied(store.compare_and_delete(&key, b"d", Fence::NONE).await?)?;
    Ok(())
}

async fn insert_stamps_its_fence<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.insert_if_not_exists(&key, permanent("a").fenced(Fence(3))).await?)?;
    check::equal("fence", check::holds(store.get(&key).await?, b"a")?.fence, Fence(3))?;
    check::refused_by(store.put(&key, permanent("x").fenced(Fence(2))).await?, b"a")?;
    Ok(())
}

async fn largest_fence_is_a_fence<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    // Beyond what a signed number or a floating one can hold.
    let fences = [1 << 53, (1 << 53) + 1, i64::MAX as u64, 1 << 63, u64::MAX - 1, u64::MAX];
    for fence in fences.map(Fence) {
        check::applied(store.put(&key, permanent("v").fenced(fence)).await?)?;
        check::equal("fence", check::holds(store.get(&key).await?, b"v")?.fence, fence)?;
        let lower = Fence(fence.0 - 1);
        check::refused_by(store.put(&key, permanent("x").fenced(lower)).await?, b"v")?;
    }
    Ok(())
}

async fn refusal_by_a_fence_carries_the_stamp<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.put(&key, lasting("v", LONG).fenced(Fence(8))).await?)?;
    let stored = store.get(&key).await?;
    let refusals = [
        store.put(&key, permanent("x").fenced(Fence(7))).await?,
        store.compare_and_swap(&key, b"v", permanent("x").fenced(Fence(7))).await?,
        store.compare_and_delete(&key, b"v", Fence(7)).await?,
    ];
    for refusal in refusals {
        check::equal("current", Some(check::refused_by(refusal, b"v")?), stored.clone())?;
    }
    Ok(())
}

async fn wrong_value_is_refused_whatever_the_fence<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.put(&key, permanent("v").fenced(Fence(5))).await?)?;
    let swap = store.compare_and_swap(&key, b"w", permanent("x").fenced(Fence(9))).await?;
    check::refused_by(swap, b"v")?;
    check::refused_by(store.compare_and_delete(&key, b"w", Fence(9)).await?, b"v")?;
    check::equal("fence", check::holds(store.get(&key).await?, b"v")?.fence, Fence(5))
}

async fn every_read_shows_the_stamp<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.put(&key, permanent("v").fenced(Fence(5))).await?)?;
    let batch = store.get_batch(std::slice::from_ref(&key)).await?;
    let rows = whole(&store, &trial.partition("k")).await?;
    let read = rows.into_iter().map(|row| Some(row.record));
    for record in batch.into_iter().chain(read) {
        check::equal("fence", check::holds(record, b"v")?.fence, Fence(5))?;
    }
    Ok(())
}

async fn deleted_record_leaves_no_fence<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    for (tag, fence) in [("insert", Fence(1)), ("put", Fence::NONE)] {
        let key = trial.key(tag);
        check::applied(store.put(&key, permanent("v").fenced(Fence(5))).await?)?;
        check::applied(store.compare_and_delete(&key, b"v", Fence(5)).await?)?;
        let insert = store.insert_if_not_exists(&key, permanent("w").fenced(fence)).await?;
        check::applied(insert)?;
        check::equal("fence", check::holds(store.get(&key).await?, b"w")?.fence, fence)?;
    }
    let key = trial.key("again");
    check::applied(store.put(&key, permanent("v").fenced(Fence(5))).await?)?;
    check::applied(store.compare_and_delete(&key, b"v", Fence::NONE).await?)?;
    check::applied(store.put(&key, permanent("w").fenced(Fence(1))).await?)?;
    check::equal("fence", check::holds(store.get(&key).await?, b"w")?.fence, Fence(1))
}

async fn expired_record_leaves_no_fence<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    let writes = [("put", Fence(1)), ("insert", Fence(2)), ("unfenced", Fence::NONE)];
    for (tag, _) in writes {
        let write = lasting("v", SHORT).fenced(Fence(5));
        check::applied(store.put(&trial.key(tag), write).await?)?;
    }
    trial.outlive(ttl(SHORT)).await;
    for (tag, fence) in writes {
        let (key, write) = (trial.key(tag), permanent("w").fenced(fence));
        let outcome = match tag {
            "insert" => store.insert_if_not_exists(&key, write).await?,
            _ => store.put(&key, write).await?,
        };
        check::applied(outcome)?;
        check::equal("fence", check::holds(store.get(&key).await?, b"w")?.fence, fence)?;
    }
    Ok(())
}

async fn batch_is_fenced_row_by_row<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    let keys = ["low", "equal", "high", "none", "absent"].map(|row| trial.row("p", row));
    for key in &keys[..4] {
        check::applied(store.put(key, permanent("v").fenced(Fence(5))).await?)?;
    }
    let fences = [4, 5, 6, 0, 1].map(Fence);
    let writes = keys.iter().zip(fences);
    let writes = writes.map(|(key, fence)| (key.clone(), permanent("w").fenced(fence)));
    let mut answers = store.put_batch(writes.collect()).await?.into_iter();
    let low = answers.next();
    check::equal("answers", 1 + answers.len(), keys.len())?;
    if let Some(outcome) = low {
        check::equal("fence", check::refused_by(outcome, b"v")?.fence, Fence(5))?;
    }
    for outcome in answers {
        check::applied(outcome)?;
    }
    check::holds(store.get(&keys[0]).await?, b"v")?;
    for (key, fence) in keys.iter().zip([5, 5, 6, 5, 1].map(Fence)).skip(1) {
        check::equal("fence", check::holds(store.get(key).await?, b"w")?.fence, fence)?;
    }
    Ok(())
}
