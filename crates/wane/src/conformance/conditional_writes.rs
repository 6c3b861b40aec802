//! Conditional writes: applied or refused, never both, never half, and a refusal says by what.

use super::Harness;
use super::case::{Case, Trial, cases};
use super::check::{self, CaseResult};
use super::reads::{abandoned, is_absent_everywhere, is_everywhere};
use super::sample::{LONG, SHORT, keeping, lasting, permanent, ttl, value};
use crate::store::{Fence, Life, Outcome, Remaining, Store, Timestamp, Write};

pub(super) fn cases<H: Harness>() -> Vec<Case<H>> {
    cases![ConditionalWrites;
        Store: insert_twice_with_the_same_value_is_refused,
            insert_twice_with_another_value_is_refused,
            swap_with_a_match_is_applied,
            swap_with_a_wrong_value_is_refused,
            swap_compares_every_byte,
            swap_on_an_absent_record_is_refused,
            swap_for_the_same_value_is_applied,
            swap_makes_a_permanent_record_last_and_back,
            swap_may_keep_the_expiry,
            delete_with_a_match_is_applied,
            delete_with_a_wrong_value_is_refused,
            delete_of_an_absent_record_is_refused,
            put_writes_over_anything,
            refusal_changes_nothing_and_carries_the_whole_record,
            applied_write_reports_its_expiry,
            write_until_a_past_instant_leaves_nothing,
            write_given_up_is_applied_or_not_but_never_half;
        Time: swap_on_an_expired_record_is_refused,
            swap_to_a_shorter_life_ends_with_it,
            kept_expiry_still_comes,
            delete_of_an_expired_record_is_refused,
            reinserted_record_outlives_the_deleted_one,
            renewed_record_outlives_its_old_expiry,
            put_record_outlives_the_expiry_it_replaced,
    ]
}

async fn insert_twice_with_the_same_value_is_refused<H: Harness>(
    trial: &Trial<'_, H>,
) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.insert_if_not_exists(&key, permanent("v")).await?)?;
    check::refused_by(store.insert_if_not_exists(&key, permanent("v")).await?, b"v")?;
    is_everywhere(&store, &key, b"v").await
}

async fn insert_twice_with_another_value_is_refused<H: Harness>(
    trial: &Trial<'_, H>,
) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.insert_if_not_exists(&key, lasting("first", LONG)).await?)?;
    let stored = store.get(&key).await?;
    let second = store.insert_if_not_exists(&key, permanent("second")).await?;
    check::equal("current", Some(check::refused_by(second, b"first")?), stored.clone())?;
    check::equal("the first record", store.get(&key).await?, stored)
}

async fn swap_with_a_match_is_applied<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.put(&key, permanent("old")).await?)?;
    check::applied(store.compare_and_swap(&key, b"old", permanent("new")).await?)?;
    is_everywhere(&store, &key, b"new").await
}

async fn swap_with_a_wrong_value_is_refused<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.put(&key, permanent("old")).await?)?;
    let swap = store.compare_and_swap(&key, b"other", permanent("new")).await?;
    check::refused_by(swap, b"old")?;
    is_everywhere(&store, &key, b"old").await
}

async fn swap_compares_every_byte<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    let stored: &[u8] = b"Old\0";
    check::applied(store.put(&key, permanent(stored)).await?)?;
    for almost in [&b"Old"[..], b"Old\0\0", b"old\0", b"Ol", b"", b"\0Old", b"Old\x80", b"Old\x01"]
    {
        let swap = store.compare_and_swap(&key, almost, permanent("new")).await?;
        check::refused_by(swap, stored)?;
        let delete = store.compare_and_delete(&key, almost, Fence::NONE).await?;
        check::refused_by(delete, stored)?;
    }
    check::applied(store.compare_and_swap(&key, stored, permanent("new")).await?)?;
    Ok(())
}

async fn swap_on_an_absent_record_is_refused<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    for expected in [&b""[..], b"v", b"\0"] {
        let swap = store.compare_and_swap(&key, expected, permanent("new")).await?;
        check::refused_by_absence(swap)?;
    }
    is_absent_everywhere(&store, &key).await
}

async fn swap_for_the_same_value_is_applied<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.put(&key, permanent("v")).await?)?;
    for _ in 0..3 {
        check::applied(store.compare_and_swap(&key, b"v", lasting("v", LONG)).await?)?;
    }
    let left = check::remaining_millis(store.query_ttl(&key).await?)?;
    check::that(left <= LONG, "the swap did not change the life")
}

async fn swap_makes_a_permanent_record_last_and_back<H: Harness>(
    trial: &Trial<'_, H>,
) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.insert_if_not_exists(&key, permanent("a")).await?)?;
    check::equal("remaining", store.query_ttl(&key).await?, Remaining::Permanent)?;
    let expiry = store.compare_and_swap(&key, b"a", lasting("b", LONG)).await?;
    let expiry = check::applied(expiry)?;
    check::remaining_millis(store.query_ttl(&key).await?)?;
    check::equal("expiry", check::holds(store.get(&key).await?, b"b")?.expires_at, expiry)?;
    check::applied(store.compare_and_swap(&key, b"b", permanent("c")).await?)?;
    check::equal("remaining", store.query_ttl(&key).await?, Remaining::Permanent)?;
    check::equal("expiry", check::holds(store.get(&key).await?, b"c")?.expires_at, None)
}

async fn swap_may_keep_the_expiry<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("lasting"));
    let expiry = check::applied(store.put(&key, lasting("a", LONG)).await?)?;
    let swapped = check::applied(store.compare_and_swap(&key, b"a", keeping("b")).await?)?;
    check::equal("expiry reported", swapped, expiry)?;
    check::equal("expiry", check::holds(store.get(&key).await?, b"b")?.expires_at, expiry)?;
    let key = trial.key("permanent");
    check::applied(store.put(&key, permanent("a")).await?)?;
    let swapped = check::applied(store.compare_and_swap(&key, b"a", keeping("b")).await?)?;
    check::equal("expiry reported", swapped, None)?;
    check::equal("remaining", store.query_ttl(&key).await?, Remaining::Permanent)?;
    check::refused_by_absence(
        store.compare_and_swap(&trial.key("absent"), b"", keeping("b")).await?,
    )
}

async fn delete_with_a_match_is_applied<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    for write in [permanent("v"), lasting("v", LONG)] {
        check::applied(store.insert_if_not_exists(&key, write).await?)?;
        check::applied(store.compare_and_delete(&key, b"v", Fence::NONE).await?)?;
        is_absent_everywhere(&store, &key).await?;
    }
    check::refused_by_absence(store.compare_and_delete(&key, b"v", Fence::NONE).await?)
}

async fn delete_with_a_wrong_value_is_refused<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.put(&key, permanent("v")).await?)?;
    check::refused_by(store.compare_and_delete(&key, b"other", Fence::NONE).await?, b"v")?;
    is_everywhere(&store, &key, b"v").await
}

async fn delete_of_an_absent_record_is_refused<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    for expected in [&b""[..], b"v"] {
        let delete = store.compare_and_delete(&key, expected, Fence::NONE).await?;
        check::refused_by_absence(delete)?;
    }
    Ok(())
}

async fn put_writes_over_anything<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.put(&key, permanent("a")).await?)?;
    is_everywhere(&store, &key, b"a").await?;
    check::applied(store.put(&key, lasting("b", LONG)).await?)?;
    is_everywhere(&store, &key, b"b").await?;
    check::remaining_millis(store.query_ttl(&key).await?)?;
    check::applied(store.put(&key, permanent("c")).await?)?;
    is_everywhere(&store, &key, b"c").await?;
    check::equal("remaining", store.query_ttl(&key).await?, Remaining::Permanent)
}

async fn refusal_changes_nothing_and_carries_the_whole_record<H: Harness>(
    trial: &Trial<'_, H>,
) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.put(&key, lasting("v", LONG).fenced(Fence(3))).await?)?;
    let stored = store.get(&key).await?;
    let refusals = [
        store.insert_if_not_exists(&key, permanent("x").fenced(Fence(9))).await?,
        store.compare_and_swap(&key, b"x", permanent("y").fenced(Fence(9))).await?,
        store.compare_and_delete(&key, b"x", Fence(9)).await?,
        store.put(&key, permanent("x").fenced(Fence(2))).await?,
    ];
    for refusal in refusals {
        check::equal("outcome", refusal, Outcome::Refused { current: stored.clone() })?;
    }
    check::equal("the record", store.get(&key).await?, stored)
}

async fn applied_write_reports_its_expiry<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    let inserted = check::applied(store.insert_if_not_exists(&key, lasting("a", LONG)).await?)?;
    let stored = check::holds(store.get(&key).await?, b"a")?;
    check::equal("expiry of an insert", inserted, stored.expires_at)?;
    let until = stored.expires_at.map(|expiry| expiry.after(ttl(1_234)));
    let until = until.unwrap_or(Timestamp::from_unix_millis(0));
    let write = Write::new(value("b"), Life::Until(until));
    let swapped = check::applied(store.compare_and_swap(&key, b"a", write).await?)?;
    check::equal("expiry of a swap", swapped, Some(until))?;
    check::equal("stored", check::holds(store.get(&key).await?, b"b")?.expires_at, swapped)?;
    let deleted = check::applied(store.compare_and_delete(&key, b"b", Fence::NONE).await?)?;
    check::equal("expiry of a delete", deleted, Some(until))?;
    let put = check::applied(store.put(&key, permanent("c")).await?)?;
    check::equal("expiry of a put", put, None)?;
    let deleted = check::applied(store.compare_and_delete(&key, b"c", Fence::NONE).await?)?;
    check::equal("expiry of a delete", deleted, None)
}

async fn write_until_a_past_instant_leaves_nothing<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    let past = Timestamp::from_unix_millis(1_000);
    let write = Write::new(value("gone"), Life::Until(past));
    for expected in [None, Some("live")] {
        if let Some(value) = expected {
            check::applied(store.put(&key, permanent(value)).await?)?;
        }
        let reported = check::applied(store.put(&key, write.clone()).await?)?;
        check::equal("expiry", reported, Some(past))?;
        is_absent_everywhere(&store, &key).await?;
    }
    check::applied(store.insert_if_not_exists(&key, write.clone()).await?)?;
    is_absent_everywhere(&store, &key).await?;
    check::refused_by_absence(store.compare_and_swap(&key, b"gone", permanent("x")).await?)?;
    check::applied(store.insert_if_not_exists(&key, permanent("live")).await?)?;
    check::applied(store.compare_and_swap(&key, b"live", write).await?)?;
    is_absent_everywhere(&store, &key).await
}

async fn write_given_up_is_applied_or_not_but_never_half<H: Harness>(
    trial: &Trial<'_, H>,
) -> CaseResult {
    let store = trial.store();
    for round in 0..20 {
        let key = trial.key(format!("{round}"));
        check::applied(store.put(&key, permanent("old")).await?)?;
        abandoned(store.compare_and_swap(&key, b"old", lasting("new", LONG).fenced(Fence(5))))
            .await;
        let record = store.get(&key).await?;
        let (value, fence, lasts) = match &record {
            Some(record) => (&record.value[..], record.fence, record.expires_at.is_some()),
            None => (&b"nothing"[..], Fence::NONE, false),
        };
        let whole = (value == b"old" && fence == Fence::NONE && !lasts)
            || (value == b"new" && fence == Fence(5) && lasts);
        check::that(whole, format!("{record:?} is neither the old record nor the new one"))?;
        // Whatever became of it, the row is not left locked.
        check::applied(store.put(&key, permanent("next").fenced(Fence(6))).await?)?;
    }
    Ok(())
}

async fn swap_on_an_expired_record_is_refused<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.insert_if_not_exists(&key, lasting("old", SHORT)).await?)?;
    trial.outlive(ttl(SHORT)).await;
    for write in [permanent("late"), keeping("late")] {
        check::refused_by_absence(store.compare_and_swap(&key, b"old", write).await?)?;
    }
    check::refused_by_absence(store.compare_and_swap(&key, b"", permanent("late")).await?)?;
    is_absent_everywhere(&store, &key).await
}

async fn swap_to_a_shorter_life_ends_with_it<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    let before = [("lasting", lasting("old", LONG)), ("permanent", permanent("old"))];
    for (tag, write) in before.clone() {
        let key = trial.key(tag);
        check::applied(store.insert_if_not_exists(&key, write).await?)?;
        check::applied(store.compare_and_swap(&key, b"old", lasting("new", SHORT)).await?)?;
        check::holds(store.get(&key).await?, b"new")?;
    }
    trial.outlive(ttl(SHORT)).await;
    for (tag, _) in before {
        let key = trial.key(tag);
        is_absent_everywhere(&store, &key).await?;
        check::applied(store.insert_if_not_exists(&key, permanent("next")).await?)?;
        is_everywhere(&store, &key, b"next").await?;
    }
    Ok(())
}

async fn kept_expiry_still_comes<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.insert_if_not_exists(&key, lasting("a", SHORT)).await?)?;
    check::applied(store.compare_and_swap(&key, b"a", keeping("b")).await?)?;
    check::holds(store.get(&key).await?, b"b")?;
    trial.outlive(ttl(SHORT)).await;
    is_absent_everywhere(&store, &key).await
}

async fn delete_of_an_expired_record_is_refused<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.insert_if_not_exists(&key, lasting("old", SHORT)).await?)?;
    trial.outlive(ttl(SHORT)).await;
    check::refused_by_absence(store.compare_and_delete(&key, b"old", Fence::NONE).await?)?;
    check::applied(store.insert_if_not_exists(&key, permanent("new")).await?)?;
    Ok(())
}

async fn reinserted_record_outlives_the_deleted_one<H: Harness>(
    trial: &Trial<'_, H>,
) -> CaseResult {
    let store = trial.store();
    let after = [("permanent", permanent("new")), ("lasting", lasting("new", LONG))];
    for (tag, write) in after.clone() {
        let key = trial.key(tag);
        check::applied(store.insert_if_not_exists(&key, lasting("old", SHORT)).await?)?;
        check::applied(store.compare_and_delete(&key, b"old", Fence::NONE).await?)?;
        check::applied(store.insert_if_not_exists(&key, write).await?)?;
    }
    outlived(trial, after.map(|(tag, _)| tag)).await
}

/// Leases rest on this: a holder that renews in time stays.
async fn renewed_record_outlives_its_old_expiry<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    let after = [("permanent", permanent("new")), ("lasting", lasting("new", LONG))];
    for (tag, write) in after.clone() {
        let key = trial.key(tag);
        check::applied(store.insert_if_not_exists(&key, lasting("old", SHORT)).await?)?;
        check::applied(store.compare_and_swap(&key, b"old", lasting("old", SHORT)).await?)?;
        check::applied(store.compare_and_swap(&key, b"old", write).await?)?;
    }
    outlived(trial, after.map(|(tag, _)| tag)).await
}

async fn put_record_outlives_the_expiry_it_replaced<H: Harness>(
    trial: &Trial<'_, H>,
) -> CaseResult {
    let store = trial.store();
    let after = [("permanent", permanent("new")), ("lasting", lasting("new", LONG))];
    for (tag, write) in after.clone() {
        let key = trial.key(tag);
        check::applied(store.put(&key, lasting("old", SHORT)).await?)?;
        check::applied(store.put(&key, write).await?)?;
    }
    outlived(trial, after.map(|(tag, _)| tag)).await
}

/// The records hold `new` after the short life has passed, and some time later.
async fn outlived<H: Harness>(trial: &Trial<'_, H>, tags: [&str; 2]) -> CaseResult {
    for _ in 0..2 {
        trial.outlive(ttl(SHORT)).await;
        for tag in tags {
            is_everywhere(&trial.store(), &trial.key(tag), b"new").await?;
        }
    }
    let late = trial.store().insert_if_not_exists(&trial.key(tags[0]), permanent("late")).await?;
    check::refused_by(late, b"new")?;
    Ok(())
}
