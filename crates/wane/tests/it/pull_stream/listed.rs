//! The audit as auditors read it: both chains between two times, in order, page by page.

use super::metered::{Metered, Op, Quirk};
use super::*;
use wane::services::pull_stream::{
    Action, AuditListing, AuditQuery, Chain, ListedEntry, MAX_LISTED, Verdict,
};
use wane::store::{
    ClusteringRange, Fence, Keyspace, Life, PageLimit, Row, Timestamp, Value, Write,
};

const HOUR: Duration = Duration::from_secs(3_600);

fn all() -> AuditQuery {
    AuditQuery { limit: MAX_LISTED, ..AuditQuery::default() }
}

fn between(from: u64, to: u64) -> AuditQuery {
    let at = |millis| Some(Timestamp::from_unix_millis(millis));
    AuditQuery { from: at(from), to: at(to), ..all() }
}

async fn list<S: Store>(node: &PullStream<S>, query: &AuditQuery) -> AuditListing {
    node.list_audit(ispb(), query).await.expect("nothing fails here")
}

/// Everything that a query finds, so many entries at a time.
async fn paged<S: Store>(
    node: &PullStream<S>,
    query: &AuditQuery,
    limit: usize,
) -> Vec<ListedEntry> {
    let mut query = AuditQuery { limit, ..query.clone() };
    let mut found = Vec::new();
    loop {
        let page = list(node, &query).await;
        assert!(page.entries.len() <= limit);
        assert!(page.next.is_none() || page.entries.len() == limit, "a page that goes on is full");
        found.extend(page.entries);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return found,
        }
    }
}

/// A stream whose readers are refused now and then, over some hours.
async fn used<S: Store>(node: &PullStream<S>) {
    ingest(node, 60).await;
    for round in 0..6 {
        let pulled = node.start(ispb(), &many()).await.expect("nothing fails here");
        refusal(node.next(ispb(), "none of ours", &many()).await);
        true_sleep(SECOND).await;
        let next = node.next(ispb(), &pulled.next, &many()).await.expect("nothing fails here");
        if round % 2 == 0 {
            node.next(ispb(), &pulled.next, &many()).await.expect("a retry");
        }
        node.end(ispb(), &next.next, &Client::default()).await.expect("nothing fails here");
        true_sleep(HOUR).await;
    }
}

async fn rows(setup: &Setup, letter: u8) -> Vec<Row> {
    let rest = [&[5][..], b"local", b"00000208", &[letter], &[0; 8]].concat();
    let partition = Keyspace::Audit.partition(&rest).expect("within the limits");
    let page = setup.store.read(&partition, &ClusteringRange::ALL, PageLimit::MAX).await;
    page.expect("nothing fails here").rows
}

#[tokio::test(start_paused = true)]
async fn both_chains_are_listed_in_order_each_entry_with_its_row() {
    let setup = setup();
    let node = setup.node();
    used(&node).await;
    let listed = list(&node, &all()).await;
    assert_eq!(listed.next, None);
    let times: Vec<_> = listed.entries.iter().map(|listed| listed.entry.at).collect();
    assert!(times.is_sorted(), "{times:?}");
    for chain in Chain::ALL {
        let mut expected = Vec::new();
        let mut from = Some(0);
        while let Some(row) = from {
            let page = node.audit(ispb(), chain, row).await.unwrap();
            expected.extend(page.entries);
            from = page.next;
        }
        let of_chain = listed.entries.iter().filter(|listed| listed.chain == chain);
        let entries: Vec<_> = of_chain.map(|listed| listed.entry.clone()).collect();
        assert!(entries.len() >= 8, "{}", entries.len());
        assert_eq!(entries, expected, "{chain}");
        // What is told as the hash of a row is what the next row has in it.
        let letter = if chain == Chain::Remarks { b'r' } else { b't' };
        let rows = rows(&setup, letter).await;
        for listed in listed.entries.iter().filter(|listed| listed.chain == chain) {
            let Some(next) = rows.get(listed.row as usize + 1) else { continue };
            let next = String::from_utf8(next.record.value.to_vec()).unwrap();
            assert!(next.contains(&format!("\"prev\":\"{}\"", listed.row_hash)), "{next}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn pages_of_any_size_make_the_whole() {
    let setup = setup();
    let node = setup.node();
    used(&node).await;
    let whole = list(&node, &all()).await.entries;
    for limit in [1, 2, 3, 7, whole.len() - 1, whole.len(), whole.len() + 1] {
        assert!(paged(&node, &all(), limit).await == whole, "{limit} at a time");
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_listed_is_what_lies_between_the_times() {
    let setup = setup();
    let node = setup.node();
    used(&node).await;
    let whole = list(&node, &all()).await.entries;
    let mut times: Vec<_> = whole.iter().map(|listed| listed.entry.at).collect();
    times.dedup();
    times.push(times[times.len() - 1] + 1);
    for (place, from) in times.iter().enumerate() {
        for to in &times[place + 1..] {
            let expected: Vec<_> =
                whole.iter().filter(|listed| (*from..*to).contains(&listed.entry.at)).collect();
            let found = paged(&node, &between(*from, *to), 5).await;
            assert!(found.iter().collect::<Vec<_>>() == expected, "{from} to {to}");
        }
    }
    assert_eq!(list(&node, &between(0, times[0])).await.entries, []);
}

#[tokio::test(start_paused = true)]
async fn a_list_goes_on_with_what_has_come_meanwhile() {
    let setup = setup();
    let node = setup.node();
    used(&node).await;
    let query = AuditQuery { limit: 10, ..all() };
    let first = list(&node, &query).await;
    used(&node).await;
    let rest = AuditQuery { after: first.next.clone(), ..all() };
    let rest = list(&node, &rest).await.entries;
    assert!([first.entries, rest].concat() == list(&node, &all()).await.entries);
}

/// A list over a damaged chain shows what is left of it, each entry once.
#[tokio::test(start_paused = true)]
async fn rows_that_are_missing_are_passed_over() {
    let setup = setup();
    let node = setup.node();
    used(&node).await;
    let whole = list(&node, &all()).await.entries;
    let rows = rows(&setup, b't').await;
    for missing in [0, 3, 4] {
        let Row { key, record } = &rows[missing];
        let gone = setup.store.compare_and_delete(key, &record.value, Fence::NONE).await;
        assert!(gone.unwrap().is_applied());
    }
    let is_left =
        |listed: &&ListedEntry| listed.chain == Chain::Remarks || ![0, 3, 4].contains(&listed.row);
    let left: Vec<_> = whole.iter().filter(is_left).cloned().collect();
    assert!(left.len() < whole.len());
    for limit in [1, 2, 100] {
        assert!(paged(&node, &all(), limit).await == left, "{limit} at a time");
    }
    let since = whole[whole.len() / 2].entry.at;
    let late: Vec<_> = left.into_iter().filter(|listed| listed.entry.at >= since).collect();
    assert!(paged(&node, &between(since, u64::MAX), 3).await == late);
}

/// It may hold entries of the time to the next row that tells. What is beyond is listed all the same.
#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_read_ends_the_list_where_it_stands() {
    let setup = setup();
    let node = setup.node();
    used(&node).await;
    let whole = list(&node, &all()).await.entries;
    let rows = rows(&setup, b'r').await;
    let garbled = rows.len() / 2;
    let write = Write::new(Value::new("{").unwrap(), Life::Permanent);
    assert!(setup.store.put(&rows[garbled].key, write).await.unwrap().is_applied());
    let told = node.list_audit(ispb(), &all()).await.unwrap_err();
    let PullStreamError::BrokenChain { chain, row, .. } = told else { panic!("{told}") };
    assert_eq!((chain, row), (Chain::Remarks, garbled as u64));
    let is_it = |listed: &&ListedEntry| listed.chain == chain && listed.row == row;
    let at = whole.iter().find(is_it).unwrap().entry.at;
    // The rows of the hours before and behind it tell.
    let apart = HOUR.as_millis() as u64 * 3 / 2;
    let early: Vec<_> = whole.iter().filter(|it| it.entry.at < at - apart).cloned().collect();
    let late: Vec<_> = whole.iter().filter(|it| it.entry.at >= at + apart).cloned().collect();
    assert!(!early.is_empty() && !late.is_empty());
    assert!(paged(&node, &between(0, at - apart), 3).await == early);
    assert!(paged(&node, &between(at + apart, u64::MAX), 3).await == late);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_asked_is_refused() {
    let setup = setup();
    let node = setup.node();
    used(&node).await;
    let one = AuditQuery { limit: 1, ..all() };
    let next = list(&node, &one).await.next;
    let at = |millis| Some(Timestamp::from_unix_millis(millis));
    for (wrong, field) in [
        (between(5, 5), "to"),
        (between(6, 5), "to"),
        (AuditQuery { limit: 0, ..all() }, "limit"),
        (AuditQuery { limit: MAX_LISTED + 1, ..all() }, "limit"),
        (AuditQuery { after: Some(String::new()), ..all() }, "after"),
        (AuditQuery { after: Some("nonsense".into()), ..all() }, "after"),
        (AuditQuery { after: next.clone(), from: at(1), ..all() }, "after"),
    ] {
        let told = node.list_audit(ispb(), &wrong).await.unwrap_err();
        let PullStreamError::Invalid { field: named, .. } = told else { panic!("{told}") };
        assert_eq!(named, field, "{wrong:?}");
    }
    let foreign = AuditQuery { after: next, ..all() };
    let other = "00000209".parse().unwrap();
    let told = node.list_audit(other, &foreign).await.unwrap_err();
    assert!(matches!(told, PullStreamError::Invalid { field: "after", .. }), "{told}");
    assert!(node.list_audit(ispb(), &foreign).await.is_ok(), "the control");
}

/// A day of a long chain is found without reading those before it; rows lie in several partitions.
#[tokio::test(start_paused = true)]
async fn a_time_is_found_in_few_reads() {
    let setup = setup();
    let store = Metered::new(setup.store.clone());
    let node = setup.node_over(store.clone(), PullStreamSettings::default());
    for _ in 0..12 {
        for _ in 0..200 {
            refusal(node.next(ispb(), "none of ours", &many()).await);
        }
        true_sleep(HOUR).await;
    }
    let whole = paged(&node, &all(), 999).await;
    assert_eq!(whole.len(), 12 * 200, "over three partitions");
    store.set(Quirk::None);
    let from = whole[whole.len() - 1].entry.at - HOUR.as_millis() as u64 / 2;
    let found = list(&node, &between(from, u64::MAX)).await;
    let reads = store.calls(Op::Get, Keyspace::Audit) + store.calls(Op::Read, Keyspace::Audit);
    assert_eq!((found.entries.len(), found.next), (200, None));
    assert!(reads < 30, "{reads} reads");
    let noted = found.entries.iter().map(|listed| (listed.entry.action, listed.entry.verdict));
    assert!(noted.into_iter().all(|noted| noted == (Action::Next, Verdict::Tampered)));
}
