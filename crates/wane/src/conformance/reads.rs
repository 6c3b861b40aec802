//! Reads: what is there comes back whole, what is not is none, and every key is a key.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use super::case::{Case, Trial, cases};
use super::check::{self, CaseResult};
use super::sample::{LONG, clusterings, lasting, list, permanent, read_all};
use super::{CaseError, Harness};
use crate::store::{
    ClusteringRange, Fence, Key, Keyspace, MAX_CLUSTERING, MAX_PARTITION, MAX_VALUE, PageLimit,
    Partition, Remaining, Row, Store,
};

pub(super) fn cases<H: Harness>() -> Vec<Case<H>> {
    cases![Reads;
        Store: absent_partition_is_none,
            absent_clustering_is_none,
            record_comes_back_whole_from_every_read,
            every_handle_sees_a_write_at_once,
            empty_value_is_present_in_every_operation,
            values_of_every_size_come_back,
            large_value_replaces_a_small_one_and_back,
            longest_keys_work_on_every_keyspace,
            longest_keys_differ_in_their_last_byte,
            keys_of_zero_and_ff_bytes_are_rows_of_their_own,
            partitions_of_zero_and_ff_bytes_are_apart,
            empty_clustering_is_one_row_in_every_operation,
            zero_byte_and_empty_clustering_differ_in_every_operation,
            same_bytes_split_elsewhere_are_another_key,
            cancelled_read_is_not_an_error,
    ]
}

async fn absent_partition_is_none<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    is_absent_everywhere(&trial.store(), &trial.key("never written")).await
}

async fn absent_clustering_is_none<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    for clustering in ["a", "c", ""] {
        check::applied(store.put(&trial.row("p", clustering), permanent("v")).await?)?;
    }
    for clustering in ["b", "a\0", "aa", "A"] {
        let key = trial.row("p", clustering);
        check::absent(store.get(&key).await?)?;
        check::equal("answers", store.get_batch(std::slice::from_ref(&key)).await?, vec![None])?;
        check::equal("remaining", store.query_ttl(&key).await?, Remaining::Absent)?;
    }
    Ok(())
}

async fn record_comes_back_whole_from_every_read<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    let write = lasting(b"\0value\xFF", LONG).fenced(Fence(7));
    let expiry = check::applied(store.put(&key, write.clone()).await?)?;
    check::that(expiry.is_some(), "the write reports no expiry")?;
    let record = check::holds(store.get(&key).await?, &write.value)?;
    check::equal("expiry", record.expires_at, expiry)?;
    check::equal("fence", record.fence, Fence(7))?;
    let answers = store.get_batch(std::slice::from_ref(&key)).await?;
    check::equal("get_batch", answers, vec![Some(record.clone())])?;
    let rows = whole(&store, &trial.partition("k")).await?;
    check::equal("read", rows, vec![Row { key, record }])
}

async fn every_handle_sees_a_write_at_once<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (one, other, key) = (trial.store(), trial.store(), trial.key("k"));
    let third = one.clone();
    is_absent_everywhere(&one, &key).await?;
    is_absent_everywhere(&third, &key).await?;
    check::applied(other.insert_if_not_exists(&key, permanent("a")).await?)?;
    is_everywhere(&one, &key, b"a").await?;
    is_everywhere(&third, &key, b"a").await?;
    check::applied(one.compare_and_swap(&key, b"a", permanent("b")).await?)?;
    is_everywhere(&other, &key, b"b").await?;
    check::applied(other.put(&key, permanent("c")).await?)?;
    is_everywhere(&one, &key, b"c").await?;
    check::applied(one.compare_and_delete(&key, b"c", Fence::NONE).await?)?;
    is_absent_everywhere(&other, &key).await?;
    is_absent_everywhere(&third, &key).await
}

async fn empty_value_is_present_in_every_operation<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, key) = (trial.store(), trial.key("k"));
    check::applied(store.insert_if_not_exists(&key, permanent("")).await?)?;
    is_everywhere(&store, &key, b"").await?;
    check::equal("remaining", store.query_ttl(&key).await?, Remaining::Permanent)?;
    check::refused_by(store.insert_if_not_exists(&key, permanent("x")).await?, b"")?;
    check::refused_by(store.compare_and_swap(&key, b"x", permanent("y")).await?, b"")?;
    check::refused_by(store.compare_and_delete(&key, b"x", Fence::NONE).await?, b"")?;
    check::applied(store.compare_and_swap(&key, b"", permanent("")).await?)?;
    is_everywhere(&store, &key, b"").await?;
    check::applied(store.compare_and_swap(&key, b"", permanent("x")).await?)?;
    check::applied(store.put(&key, permanent("")).await?)?;
    is_everywhere(&store, &key, b"").await?;
    check::applied(store.compare_and_delete(&key, b"", Fence::NONE).await?)?;
    is_absent_everywhere(&store, &key).await?;
    check::equal("answers", store.put_batch(vec![(key.clone(), permanent(""))]).await?.len(), 1)?;
    is_everywhere(&store, &key, b"").await
}

/// Sizes at which lengths, pages or cells of the known engines end.
const SIZES: [usize; 8] = [0, 1, 65_527, 65_530, 65_535, 65_536, 100 * 1024, MAX_VALUE];

async fn values_of_every_size_come_back<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    for size in SIZES {
        let key = trial.key(format!("{size}"));
        let bytes: Vec<u8> = (0..size).map(|at| (at % 251) as u8).collect();
        check::applied(store.insert_if_not_exists(&key, permanent(&bytes)).await?)?;
        is_everywhere(&store, &key, &bytes).await?;
        check::refused_by(store.insert_if_not_exists(&key, permanent("x")).await?, &bytes)?;
        let mut other = bytes.clone();
        other.reverse();
        check::applied(store.compare_and_swap(&key, &bytes, permanent(&other)).await?)?;
        check::holds(store.get(&key).await?, &other)?;
        check::applied(store.compare_and_delete(&key, &other, Fence::NONE).await?)?;
        check::absent(store.get(&key).await?)?;
    }
    Ok(())
}

async fn large_value_replaces_a_small_one_and_back<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    for size in SIZES {
        let key = trial.key(format!("{size}"));
        let bytes = vec![b'x'; size];
        check::applied(store.put(&key, permanent("small")).await?)?;
        check::holds(store.get(&key).await?, b"small")?;
        check::applied(store.put(&key, permanent(&bytes)).await?)?;
        check::holds(store.get(&key).await?, &bytes)?;
        check::applied(store.compare_and_swap(&key, &bytes, permanent("small")).await?)?;
        check::holds(store.get(&key).await?, b"small")?;
        check::applied(store.compare_and_swap(&key, b"small", permanent(&bytes)).await?)?;
        check::holds(store.get(&key).await?, &bytes)?;
    }
    Ok(())
}

async fn longest_keys_work_on_every_keyspace<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    let longest = [vec![b'x'; MAX_CLUSTERING], vec![0xFF; MAX_CLUSTERING]];
    let clusterings = longest.into_iter().chain([vec![0; MAX_CLUSTERING - 1]]);
    let clusterings: Vec<_> = clusterings.collect();
    for keyspace in Keyspace::ALL {
        let mut rest = trial.prefix().to_vec();
        rest.resize(MAX_PARTITION - keyspace.prefix().len(), b'p');
        let partition = keyspace.partition(&rest)?;
        for clustering in &clusterings {
            let key = Key::new(partition.as_bytes(), clustering)?;
            check::applied(store.insert_if_not_exists(&key, lasting("a", LONG)).await?)?;
            check::applied(store.compare_and_swap(&key, b"a", permanent("b")).await?)?;
            check::holds(store.get(&key).await?, b"b")?;
            check::equal("remaining", store.query_ttl(&key).await?, Remaining::Permanent)?;
            check::applied(store.put(&key, permanent("c")).await?)?;
        }
        let rows = whole(&store, &partition).await?;
        check::equal("rows", rows.len(), clusterings.len())?;
        for row in rows {
            check::applied(store.compare_and_delete(&row.key, b"c", Fence::NONE).await?)?;
        }
    }
    Ok(())
}

async fn longest_keys_differ_in_their_last_byte<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    let mut clustering = vec![b'x'; MAX_CLUSTERING];
    let one = trial.row("p", &clustering);
    clustering[MAX_CLUSTERING - 1] = b'y';
    let other = trial.row("p", &clustering);
    let shorter = trial.row("p", &clustering[..MAX_CLUSTERING - 1]);
    for (key, value) in [(&one, "one"), (&other, "other"), (&shorter, "shorter")] {
        check::applied(store.insert_if_not_exists(key, permanent(value)).await?)?;
    }
    check::holds(store.get(&one).await?, b"one")?;
    check::holds(store.get(&other).await?, b"other")?;
    check::holds(store.get(&shorter).await?, b"shorter")?;
    Ok(())
}

/// Byte strings of the two outermost bytes, in order.
const OUTERMOST: [&[u8]; 13] = [
    b"",
    b"\0",
    b"\0\0",
    b"\0\0\0",
    b"\0\0\xFF",
    b"\0\xFF",
    b"\x01",
    b"\x7F",
    b"\x80",
    b"\xFF",
    b"\xFF\0",
    b"\xFF\xFF",
    b"\xFF\xFF\xFF",
];

async fn keys_of_zero_and_ff_bytes_are_rows_of_their_own<H: Harness>(
    trial: &Trial<'_, H>,
) -> CaseResult {
    let (store, partition) = (trial.store(), trial.partition("p"));
    for clustering in OUTERMOST.iter().rev() {
        let key = trial.row("p", clustering);
        check::applied(store.insert_if_not_exists(&key, permanent(clustering)).await?)?;
    }
    for clustering in OUTERMOST {
        check::holds(store.get(&trial.row("p", clustering)).await?, clustering)?;
    }
    let found = clusterings(&store, &partition, &ClusteringRange::ALL).await?;
    check::equal("rows", found, list(OUTERMOST))
}

async fn partitions_of_zero_and_ff_bytes_are_apart<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let store = trial.store();
    for tag in OUTERMOST {
        for clustering in [&b""[..], b"\0", b"\xFF"] {
            let write = permanent([tag, clustering].concat());
            check::applied(store.insert_if_not_exists(&trial.row(tag, clustering), write).await?)?;
        }
    }
    for tag in OUTERMOST {
        let rows = whole(&store, &trial.partition(tag)).await?;
        let values = rows.iter().map(|row| row.record.value.to_vec());
        let expected = [&b""[..], b"\0", b"\xFF"].map(|end| [tag, end].concat());
        check::equal("values", values.collect::<Vec<_>>(), expected.to_vec())?;
    }
    Ok(())
}

async fn empty_clustering_is_one_row_in_every_operation<H: Harness>(
    trial: &Trial<'_, H>,
) -> CaseResult {
    let (store, key) = (trial.store(), trial.row("p", ""));
    check::applied(store.insert_if_not_exists(&key, permanent("a")).await?)?;
    is_everywhere(&store, &key, b"a").await?;
    check::refused_by(store.insert_if_not_exists(&key, permanent("b")).await?, b"a")?;
    check::applied(store.put(&key, lasting("b", LONG)).await?)?;
    is_everywhere(&store, &key, b"b").await?;
    check::applied(store.compare_and_swap(&key, b"b", permanent("c")).await?)?;
    is_everywhere(&store, &key, b"c").await?;
    let batch = vec![(key.clone(), permanent("d")), (trial.row("p", "x"), permanent("x"))];
    for outcome in store.put_batch(batch).await? {
        check::applied(outcome)?;
    }
    check::holds(store.get(&key).await?, b"d")?;
    let found = clusterings(&store, &trial.partition("p"), &ClusteringRange::ALL).await?;
    check::equal("rows", found, list(["", "x"]))?;
    check::applied(store.compare_and_delete(&key, b"d", Fence::NONE).await?)?;
    check::absent(store.get(&key).await?)?;
    let found = clusterings(&store, &trial.partition("p"), &ClusteringRange::ALL).await?;
    check::equal("rows", found, list(["x"]))
}

async fn zero_byte_and_empty_clustering_differ_in_every_operation<H: Harness>(
    trial: &Trial<'_, H>,
) -> CaseResult {
    let store = trial.store();
    let (empty, zero) = (trial.row("p", ""), trial.row("p", "\0"));
    check::applied(store.insert_if_not_exists(&empty, permanent("empty")).await?)?;
    check::absent(store.get(&zero).await?)?;
    check::equal("remaining", store.query_ttl(&zero).await?, Remaining::Absent)?;
    check::refused_by_absence(store.compare_and_swap(&zero, b"empty", permanent("x")).await?)?;
    check::refused_by_absence(store.compare_and_delete(&zero, b"empty", Fence::NONE).await?)?;
    check::applied(store.insert_if_not_exists(&zero, lasting("zero", LONG)).await?)?;
    let answers = store.get_batch(&[empty.clone(), zero.clone()]).await?;
    let values = answers.into_iter().flatten().map(|record| record.value.to_vec());
    check::equal("values", values.collect(), list(["empty", "zero"]))?;
    let range = ClusteringRange::new("\0", "")?;
    let found = clusterings(&store, &trial.partition("p"), &range).await?;
    check::equal("rows from the zero byte on", found, list(["\0"]))?;
    let range = ClusteringRange::new("", "\0")?;
    let found = clusterings(&store, &trial.partition("p"), &range).await?;
    check::equal("rows before the zero byte", found, list([""]))?;
    check::applied(store.put(&zero, permanent("other")).await?)?;
    check::holds(store.get(&empty).await?, b"empty")?;
    check::applied(store.compare_and_delete(&empty, b"empty", Fence::NONE).await?)?;
    check::holds(store.get(&zero).await?, b"other")?;
    Ok(())
}

async fn same_bytes_split_elsewhere_are_another_key<H: Harness>(
    trial: &Trial<'_, H>,
) -> CaseResult {
    let store = trial.store();
    let splits = [("a", "bc"), ("ab", "c"), ("abc", "")];
    for (tag, clustering) in splits {
        let key = trial.row(tag, clustering);
        check::applied(store.insert_if_not_exists(&key, permanent(tag)).await?)?;
    }
    for (tag, clustering) in splits {
        is_everywhere(&store, &trial.row(tag, clustering), tag.as_bytes()).await?;
    }
    Ok(())
}

async fn cancelled_read_is_not_an_error<H: Harness>(trial: &Trial<'_, H>) -> CaseResult {
    let (store, partition) = (trial.store(), trial.partition("p"));
    for clustering in ["a", "b"] {
        check::applied(store.put(&trial.row("p", clustering), permanent("v")).await?)?;
    }
    for _ in 0..10 {
        abandoned(store.read(&partition, &ClusteringRange::ALL, PageLimit::MAX)).await;
        abandoned(store.get(&trial.row("p", "a"))).await;
        abandoned(store.scan(None, PageLimit::MAX)).await;
    }
    let found = clusterings(&store, &partition, &ClusteringRange::ALL).await?;
    check::equal("rows", found, list(["a", "b"]))?;
    check::applied(store.put(&trial.row("p", "a"), permanent("w")).await?)?;
    Ok(())
}

/// Starts the call and drops it as soon as it has to wait.
pub(super) async fn abandoned<T>(call: impl Future<Output = T>) {
    let mut call = pin!(call);
    poll_fn(|context| Poll::Ready(call.as_mut().poll(context).is_ready())).await;
}

/// Every live row of the partition.
pub(super) async fn whole(
    store: &impl Store,
    partition: &Partition,
) -> Result<Vec<Row>, CaseError> {
    read_all(store, partition, &ClusteringRange::ALL, PageLimit::MAX).await
}

/// Every read that knows the key finds this value.
pub(super) async fn is_everywhere(store: &impl Store, key: &Key, value: &[u8]) -> CaseResult {
    let record = check::holds(store.get(key).await?, value)?;
    let answers = store.get_batch(&[key.clone(), key.clone()]).await?;
    check::equal("get_batch", answers, vec![Some(record.clone()), Some(record.clone())])?;
    let rows = whole(store, &Partition::new(key.partition().to_vec())?).await?;
    let row = rows.into_iter().find(|row| row.key == *key);
    check::equal("read", row.map(|row| row.record), Some(record))?;
    check::that(store.query_ttl(key).await? != Remaining::Absent, "query_ttl says absent")
}

/// No read that knows the key finds a record.
pub(super) async fn is_absent_everywhere(store: &impl Store, key: &Key) -> CaseResult {
    check::absent(store.get(key).await?)?;
    let answers = store.get_batch(&[key.clone(), key.clone()]).await?;
    check::equal("get_batch", answers, vec![None, None])?;
    let rows = whole(store, &Partition::new(key.partition().to_vec())?).await?;
    check::absent(rows.into_iter().find(|row| row.key == *key).map(|row| row.record))?;
    check::equal("query_ttl", store.query_ttl(key).await?, Remaining::Absent)
}
