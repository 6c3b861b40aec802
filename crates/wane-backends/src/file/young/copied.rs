//! Rows copied out of a generation, for whoever reads them outside of its lock.
//!
//! The keys of a generation lie all over memory. To share one is to count a reference at it, and a
//! processor does nothing else until that has come from memory; copies of many are fetched at once.

use std::slice;

use super::Row;

/// Rows in the order of keys.
#[derive(Debug, Default)]
pub(in crate::file) struct CopiedRows {
    /// Their keys, one behind the other.
    keys: Vec<u8>,
    /// Where the key of each ends.
    rows: Vec<(usize, Row)>,
}

impl CopiedRows {
    /// None yet, with room for so many.
    pub(in crate::file) fn with_capacity(rows: usize) -> Self {
        /// Of most keys.
        const KEY: usize = 32;
        Self { keys: Vec::with_capacity(rows * KEY), rows: Vec::with_capacity(rows) }
    }

    /// Adds a row that comes after all others.
    pub(in crate::file) fn push(&mut self, key: &[u8], row: &Row) {
        self.keys.extend_from_slice(key);
        self.rows.push((self.keys.len(), row.clone()));
    }

    pub(in crate::file) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The key of the last row.
    pub(in crate::file) fn last_key(&self) -> Option<&[u8]> {
        let (_, before) = self.rows.split_last()?;
        let start = before.last().map_or(0, |(end, _)| *end);
        Some(&self.keys[start..])
    }

    /// The rows, each with its key.
    pub(super) fn iter(&self) -> CopiedIter<'_> {
        CopiedIter { keys: &self.keys, start: 0, rows: self.rows.iter() }
    }
}

/// Copied rows, one after the other.
pub(super) struct CopiedIter<'a> {
    keys: &'a [u8],
    /// Where the next key begins.
    start: usize,
    rows: slice::Iter<'a, (usize, Row)>,
}

impl<'a> Iterator for CopiedIter<'a> {
    type Item = (&'a [u8], &'a Row);

    fn next(&mut self) -> Option<Self::Item> {
        let (end, row) = self.rows.next()?;
        let key = &self.keys[self.start..*end];
        self.start = *end;
        Some((key, row))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_with_their_keys_however_long_those_are() {
        let keys: [&[u8]; 4] = [b"", b"a", b"a longer key than most of the others are", b"b"];
        let mut copied = CopiedRows::with_capacity(1);
        assert_eq!(copied.last_key(), None);
        for (number, key) in keys.iter().enumerate() {
            copied.push(key, &Row { held: None, has_older: number % 2 == 0 });
            assert_eq!((copied.last_key(), copied.len()), (Some(*key), number + 1));
        }
        let rows: Vec<_> = copied.iter().map(|(key, row)| (key, row.has_older)).collect();
        assert_eq!(rows, [(keys[0], true), (keys[1], false), (keys[2], true), (keys[3], false)]);
    }
}
