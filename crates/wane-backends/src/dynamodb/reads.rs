//! Reads: consistent, in pages, and decided by our clock.
//!
//! The time of a read is taken before it is sent: what had expired by then is absent, whatever
//! DynamoDB still holds. One read may take several requests, as a page of DynamoDB ends at 1 MB
//! and a batch of it at 100 keys or 16 MB; what it left out is asked for again.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use aws_sdk_dynamodb::operation::query::QueryOutput;
use aws_sdk_dynamodb::types::KeysAndAttributes;
use futures_util::StreamExt;
use wane::store::{
    ClusteringRange, Key, Page, PageFill, PageLimit, Partition, Record, Remaining, ScanPage,
    StoreError, Timestamp,
};

use super::client::Table;
use super::failure::{Failure, Kind};
use super::item::{
    CLUSTERING, Item, PARTITION, binary, bytes, clustering_of, item_key, key_of, live_record,
    stored_bound,
};

/// How many keys DynamoDB takes at once, and how many such batches are under way.
const BATCH: usize = 100;
const BATCHES_AT_ONCE: usize = 8;

/// How often a batch may bring nothing before it fails.
const FRUITLESS: u32 = 8;

/// How many requests a page may take. One that has rows by then is given short, one that has none
/// is given without: a stretch of expired rows cannot hold up a reader for ever.
const REQUESTS: usize = 16;

/// The rows of a partition, whole or within bounds. Both bounds are inclusive, for DynamoDB has
/// nothing else between two; the row at the end is left out here.
const WHOLE: &str = "p = :p";
const FROM: &str = "p = :p AND c >= :start";
const WITHIN: &str = "p = :p AND c BETWEEN :start AND :end";

/// Where a scan of a table goes on: after this item.
#[derive(Debug)]
pub struct DynamodbScanCursor {
    after: Item,
}

impl Table {
    pub(super) async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        let now = self.clock.now();
        match self.item(key).await? {
            Some(item) => live_record(key, item, now),
            None => Ok(None),
        }
    }

    pub(super) async fn remaining(&self, key: &Key) -> Result<Remaining, StoreError> {
        let now = self.clock.now();
        let Some(item) = self.item(key).await? else { return Ok(Remaining::Absent) };
        let record = live_record(key, item, now)?;
        let now = self.clock.now();
        Ok(record.map_or(Remaining::Absent, |record| record.remaining_of_live(now)))
    }

    pub(super) async fn page(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        if range.end().is_some_and(|end| range.start() >= end) {
            return Ok(Page { rows: Vec::new(), rest: None });
        }
        let now = self.clock.now();
        let mut fill = PageFill::new(limit);
        let mut after = None;
        let mut requests = 0;
        loop {
            requests += 1;
            // One more than there is room for: its key is where the next page begins.
            let wanted = fill.room() + 1;
            let answer = self.query(partition, range, after.take(), wanted).await?;
            let items = answer.items.unwrap_or_default();
            let is_cut_by_size = items.len() < wanted;
            if let Some(start) = take_rows(&mut fill, items, range, now)? {
                return Ok(Page { rows: fill.into_rows(), rest: Some(range.starting_at(start)) });
            }
            let Some(last) = answer.last_evaluated_key else {
                return Ok(Page { rows: fill.into_rows(), rest: None });
            };
            let is_empty = fill.room() == limit.rows();
            let ends = fill.is_full() || (is_cut_by_size && !is_empty) || requests >= REQUESTS;
            // A mark is no clustering, so no page can go on after it.
            if let Some(last) = bytes(&last, CLUSTERING).and_then(clustering_of).filter(|_| ends) {
                return Ok(Page { rows: fill.into_rows(), rest: range.after(last) });
            }
            after = Some(last);
        }
    }

    async fn query(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        after: Option<Item>,
        wanted: usize,
    ) -> Result<QueryOutput, StoreError> {
        let mut values = Item::from([(":p".to_owned(), binary(partition.as_bytes()))]);
        let mut rows = WHOLE;
        if !range.start().is_empty() || range.end().is_some() {
            values.insert(":start".to_owned(), binary(stored_bound(range.start())));
            rows = FROM;
        }
        if let Some(end) = range.end() {
            values.insert(":end".to_owned(), binary(stored_bound(end)));
            rows = WITHIN;
        }
        let wanted = i32::try_from(wanted).unwrap_or(i32::MAX);
        self.reading(|| {
            let request = self.client.query().table_name(&self.name).consistent_read(true);
            let request = request.key_condition_expression(rows);
            let request = request.set_expression_attribute_values(Some(values.clone()));
            request.set_exclusive_start_key(after.clone()).limit(wanted).send()
        })
        .await
    }

    pub(super) async fn scan(
        &self,
        after: Option<DynamodbScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<DynamodbScanCursor>, StoreError> {
        let now = self.clock.now();
        let after = after.map(|cursor| cursor.after);
        let wanted = i32::try_from(limit.rows()).unwrap_or(i32::MAX);
        let answer = self.reading(|| {
            let request = self.client.scan().table_name(&self.name).consistent_read(true);
            request.set_exclusive_start_key(after.clone()).limit(wanted).send()
        });
        let answer = answer.await?;
        let mut fill = PageFill::new(limit);
        let mut last = None;
        for item in answer.items.unwrap_or_default() {
            if fill.is_full() {
                let next = last.map(|after| DynamodbScanCursor { after });
                return Ok(ScanPage { rows: fill.into_rows(), next });
            }
            let (after, row) = scanned(item, now)?;
            last = Some(after);
            if let Some((key, record)) = row {
                fill.push(key, record);
            }
        }
        let next = answer.last_evaluated_key.map(|after| DynamodbScanCursor { after });
        Ok(ScanPage { rows: fill.into_rows(), next })
    }
}

/// The key of an item as a scan goes on after it, and its row where it is live.
fn scanned(item: Item, now: Timestamp) -> Result<(Item, Option<(Key, Record)>), StoreError> {
    let key_attributes = [PARTITION, CLUSTERING].into_iter();
    let after = key_attributes.filter_map(|name| item.get_key_value(name));
    let after = after.map(|(name, value)| (name.clone(), value.clone())).collect();
    if !item.contains_key(super::item::EXPIRY) {
        return Ok((after, None));
    }
    let key = key_of(&item)?;
    let record = live_record(&key, item, now)?;
    Ok((after, record.map(|record| (key, record))))
}

/// Puts live rows on the page. Returns where the next one begins if there is a row too many.
fn take_rows(
    fill: &mut PageFill,
    items: Vec<Item>,
    range: &ClusteringRange,
    now: Timestamp,
) -> Result<Option<Vec<u8>>, StoreError> {
    for item in items {
        let clustering = bytes(&item, CLUSTERING).and_then(clustering_of);
        let Some(clustering) = clustering.filter(|row| range.contains(row)) else { continue };
        if fill.is_full() {
            return Ok(Some(clustering.to_vec()));
        }
        let key = key_of(&item)?;
        if let Some(record) = live_record(&key, item, now)? {
            fill.push(key, record);
        }
    }
    Ok(None)
}

/// The live record of each position.
pub(super) async fn get_batch(
    table: &Arc<Table>,
    keys: &[Key],
) -> Result<Vec<Option<Record>>, StoreError> {
    let now = table.clock.now();
    // DynamoDB refuses to be asked for one key twice.
    let distinct: Vec<&Key> = keys.iter().collect::<HashSet<_>>().into_iter().collect();
    let batches = distinct.chunks(BATCH).map(|batch| batch.iter().map(|key| item_key(key)));
    let batches = batches.map(|batch| fetch(Arc::clone(table), batch.collect()));
    let batches: Vec<_> = batches.collect();
    let mut fetched = futures_util::stream::iter(batches).buffer_unordered(BATCHES_AT_ONCE);
    let mut found: HashMap<Key, Record> = HashMap::new();
    while let Some(items) = fetched.next().await {
        for item in items? {
            let key = key_of(&item)?;
            if let Some(record) = live_record(&key, item, now)? {
                found.insert(key, record);
            }
        }
    }
    Ok(keys.iter().map(|key| found.get(key).cloned()).collect())
}

/// The items of up to a hundred keys. What DynamoDB leaves unprocessed is asked for again: at
/// once while that brings more, after a pause where it was too busy to bring anything.
async fn fetch(table: Arc<Table>, keys: Vec<Item>) -> Result<Vec<Item>, StoreError> {
    let mut items = Vec::with_capacity(keys.len());
    let mut left = keys;
    let mut fruitless = 0;
    while !left.is_empty() {
        let asked = KeysAndAttributes::builder().consistent_read(true).set_keys(Some(left));
        let asked = asked.build().expect("the keys are given");
        let answer = table.reading(|| {
            let request = table.client.batch_get_item();
            request.request_items(&table.name, asked.clone()).send()
        });
        let answer = answer.await?;
        let brought = answer.responses.and_then(|mut tables| tables.remove(&table.name));
        let brought = brought.unwrap_or_default();
        let unprocessed = answer.unprocessed_keys.and_then(|mut left| left.remove(&table.name));
        left = unprocessed.map(|left| left.keys).unwrap_or_default();
        fruitless = if brought.is_empty() { fruitless + 1 } else { 0 };
        items.extend(brought);
        if fruitless >= FRUITLESS && !left.is_empty() {
            let reason = format!("{} keys of a batch stay unprocessed", left.len());
            return Err(table.unavailable(&Failure { kind: Kind::Throttled, reason }));
        }
        if fruitless > 0 && !left.is_empty() {
            table.pause(fruitless).await;
        }
    }
    Ok(items)
}
