//! A DynamoDB that is too busy: reads wait and come complete, writes say that nothing was applied.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use wane::store::{Fence, Key, Store};

use super::front::Fault;
use super::unclear::{Pair, assert_unavailable, assert_unknown, permanent, row};

const BUSY: [&str; 3] =
    ["ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_throttled_write_is_sent_once_and_applies_nothing() {
    let Some(pair) = Pair::listed().await else { return };
    let (store, key) = (&pair.store, row("k"));
    assert!(pair.direct.put(&key, permanent("old")).await.unwrap().is_applied());
    for code in BUSY {
        pair.front.next("UpdateItem", Fault::Answer(400, code));
        let answer = store.put(&key, permanent("new")).await;
        assert!(format!("{answer:?}").contains(code), "{answer:?}");
        assert_unavailable(&answer, code);
        pair.front.next("PutItem", Fault::Answer(400, code));
        assert_unavailable(&store.insert_if_not_exists(&key, permanent("new")).await, code);
        pair.front.next("UpdateItem", Fault::Answer(400, code));
        assert_unavailable(&store.compare_and_swap(&key, b"old", permanent("new")).await, code);
        pair.front.next("UpdateItem", Fault::Answer(400, code));
        assert_unavailable(&store.compare_and_delete(&key, b"old", Fence::NONE).await, code);
        let sent = ["UpdateItem", "PutItem", "UpdateItem", "UpdateItem"];
        assert_eq!(pair.front.seen(), sent, "each once, and none looked for");
    }
    assert_eq!(*pair.direct.get(&key).await.unwrap().unwrap().value, *b"old");
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_that_dynamodb_rejects_is_unavailable_and_says_why() {
    let Some(pair) = Pair::listed().await else { return };
    for (code, check) in [
        ("AccessDeniedException", "credentials"),
        ("ExpiredTokenException", "credentials"),
        ("ResourceNotFoundException", "table"),
        ("ValidationException", "table"),
    ] {
        pair.front.next("UpdateItem", Fault::Answer(400, code));
        let answer = pair.store.put(&row("k"), permanent("v")).await;
        let told = answer.as_ref().unwrap_err().to_string();
        assert!(told.contains(code) && told.contains(check), "{told}");
        assert!(told.contains(&pair.front.endpoint), "{told}");
        assert_unavailable(&answer, code);
    }
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_is_sent_again_a_few_times() {
    let Some(pair) = Pair::listed().await else { return };
    let key = row("k");
    assert!(pair.direct.put(&key, permanent("v")).await.unwrap().is_applied());
    for fault in
        [Fault::Answer(400, "ThrottlingException"), Fault::CutBefore, Fault::Answer(500, "")]
    {
        pair.front.next_times(3, "GetItem", &fault);
        assert!(pair.store.get(&key).await.unwrap().is_some(), "{fault:?}");
        pair.front.next_times(4, "GetItem", &fault);
        assert_unavailable(&pair.store.get(&key).await, &format!("{fault:?}"));
    }
    pair.front.next("GetItem", Fault::Answer(400, "AccessDeniedException"));
    pair.front.seen();
    assert_unavailable(&pair.store.get(&key).await, "a read that will not pass");
    assert_eq!(pair.front.seen().len(), 1, "and is not sent again");
    pair.end().await;
}

/// "Unprocessed items dropped": what DynamoDB leaves is asked for until all is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unprocessed_keys_of_a_batch_are_asked_for_again() {
    let Some(pair) = Pair::listed().await else { return };
    let keys: Vec<Key> = (0..130).map(|at| row(&format!("{at:03}"))).collect();
    let writes = keys.iter().map(|key| (key.clone(), permanent("v"))).collect();
    assert_eq!(pair.direct.put_batch(writes).await.unwrap().len(), 130);
    for processed in [0, 0, 1, 7, 0, 99, 3] {
        pair.front.next("BatchGetItem", Fault::ProcessOnly(processed));
    }
    pair.front.next("BatchGetItem", Fault::Answer(400, "ProvisionedThroughputExceededException"));
    let found = pair.store.get_batch(&keys).await.unwrap();
    assert_eq!(found.iter().flatten().count(), 130);
    let requests = pair.front.seen().len();
    assert!(requests >= 9, "{requests} requests, of which 8 went astray");
    pair.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_stay_unprocessed_fail_the_read_in_bounded_time() {
    let Some(pair) = Pair::listed().await else { return };
    assert!(pair.direct.put(&row("a"), permanent("v")).await.unwrap().is_applied());
    pair.front.next_times(8, "BatchGetItem", &Fault::ProcessOnly(0));
    let started = pair.clock.monotonic();
    let answer = pair.store.get_batch(&[row("a"), row("b")]).await;
    assert!(format!("{answer:?}").contains("unprocessed"), "{answer:?}");
    assert_unavailable(&answer, "a batch");
    assert!(pair.clock.monotonic() - started < Duration::from_secs(10));
    pair.end().await;
}

/// "Unprocessed items dropped" on the way in: rows that DynamoDB was too busy for are sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throttled_rows_of_a_batch_are_put_all_the_same() {
    let Some(pair) = Pair::listed().await else { return };
    let keys: Vec<Key> = (0..60).map(|at| row(&format!("{at:03}"))).collect();
    let writes = keys.iter().map(|key| (key.clone(), permanent("v"))).collect();
    pair.front.next_times(40, "UpdateItem", &Fault::Answer(400, "ThrottlingException"));
    let outcomes = pair.store.put_batch(writes).await.unwrap();
    assert!(outcomes.len() == 60 && outcomes.iter().all(|outcome| outcome.is_applied()));
    assert_eq!(pair.direct.get_batch(&keys).await.unwrap().iter().flatten().count(), 60);
    assert_eq!(pair.front.seen().len(), 100);
    pair.end().await;
}

/// Two writes to one key follow each other, so it is known which of them fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_fails_tells_whether_a_part_of_it_is_there() {
    let Some(pair) = Pair::listed().await else { return };
    let (key, rejected) = (row("k"), Fault::Answer(400, "ValidationException"));
    let batch = || vec![(key.clone(), permanent("one")), (key.clone(), permanent("two"))];
    pair.front.next("UpdateItem", rejected.clone());
    assert_unavailable(&pair.store.put_batch(batch()).await, "nothing of it is there");
    assert_eq!(pair.front.seen().len(), 1, "nothing is sent after a failure");
    assert_eq!(pair.direct.get(&key).await.unwrap(), None);

    let passes = Arc::new(Notify::new());
    passes.notify_one();
    pair.front.next("UpdateItem", Fault::Hold(passes));
    pair.front.next("UpdateItem", rejected);
    assert_unknown(&pair.store.put_batch(batch()).await, "a part of it is there");
    assert_eq!(*pair.direct.get(&key).await.unwrap().unwrap().value, *b"one");
    pair.end().await;
}
