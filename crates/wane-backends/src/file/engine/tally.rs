//! Counting what a tree holds, and holding its tables against each other.

use redb::{ReadOnlyTable, ReadableDatabase, ReadableTable, ReadableTableMetadata};

use super::{DUE, Engine, RECORDS};
use crate::file::beside::LargeList;
use crate::file::format::{Entry, Place, decode_key, encode_due};
use crate::file::verified::VerifiedTree;

impl Engine {
    /// Counts what is in the tables. Tables that contradict each other are an error, which says how.
    pub(in crate::file) fn tally(&self) -> Result<VerifiedTree, redb::Error> {
        let transaction = self.database.begin_read()?;
        let due = transaction.open_table(DUE)?;
        let listed = LargeList::open(&transaction)?;
        let mut tally = Tally { due, listed, tree: VerifiedTree::default() };
        for row in transaction.open_table(RECORDS)?.iter()? {
            let (key, bytes) = row?;
            tally.count(key.value(), bytes.value())?;
        }
        tally.check_index()?;
        tally.check_list()?;
        Ok(VerifiedTree { commit: self.last_commit(), ..tally.tree })
    }
}

struct Tally {
    due: ReadOnlyTable<&'static [u8], ()>,
    listed: LargeList,
    tree: VerifiedTree,
}

impl Tally {
    fn count(&mut self, key: &[u8], bytes: &[u8]) -> Result<(), redb::Error> {
        let entry = Entry::decode(key, bytes)
            .map_err(|error| contradiction(format!("{} cannot be read: {error}", named(key))))?;
        self.tree.records += 1;
        if !self.is_filed(key, &entry)? {
            let named = named(key);
            return Err(contradiction(format!("{named} is not in the expiry index as it should")));
        }
        entry.place.map_or(Ok(()), |place| self.place(key, place))
    }

    /// Whether a record is in the expiry index where it is found in time, if it expires at all.
    fn is_filed(&mut self, key: &[u8], entry: &Entry) -> Result<bool, redb::Error> {
        let (filed, expires_at) = (entry.stored.filed, entry.stored.record.expires_at);
        let (Some(instant), Some(expiry)) = (filed, expires_at) else {
            return Ok(filed.is_none() && expires_at.is_none());
        };
        self.tree.expiring += 1;
        Ok(instant <= expiry && self.due.get(&*encode_due(instant, key))?.is_some())
    }

    /// A large value is listed where its record says that it lies.
    fn place(&mut self, key: &[u8], place: Place) -> Result<(), redb::Error> {
        if !self.listed.has(key, place)? {
            let (named, offset) = (named(key), place.offset);
            return Err(contradiction(format!(
                "the value of {named} is not listed at byte {offset}, where it lies"
            )));
        }
        self.tree.large_values += 1;
        self.tree.large_bytes += u64::from(place.len);
        Ok(())
    }

    /// Each entry of the expiry index belongs to a record: all records have theirs.
    fn check_index(&self) -> Result<(), redb::Error> {
        let (entries, expiring) = (self.due.len()?, self.tree.expiring);
        if entries == expiring {
            return Ok(());
        }
        Err(contradiction(format!(
            "the expiry index has {entries} entries for {expiring} records that expire"
        )))
    }

    /// Each listed value belongs to a record, and none lies where another does.
    fn check_list(&self) -> Result<(), redb::Error> {
        let (mut listed, mut end) = (0, 0);
        self.listed.each(|place, _| {
            if place.offset < end {
                let offset = place.offset;
                return Err(contradiction(format!("two large values lie at byte {offset}")));
            }
            end = place.offset + u64::from(place.len);
            listed += 1;
            Ok(())
        })?;
        let values = self.tree.large_values;
        if listed == values {
            return Ok(());
        }
        Err(contradiction(format!(
            "{listed} large values are listed, and records refer to {values}"
        )))
    }
}

fn contradiction(reason: String) -> redb::Error {
    redb::Error::Corrupted(reason)
}

/// A record as messages name it.
fn named(stored_key: &[u8]) -> String {
    match decode_key(stored_key) {
        Ok(key) => format!("the record {key:?}"),
        Err(error) => format!("a record whose key cannot be read ({error})"),
    }
}
