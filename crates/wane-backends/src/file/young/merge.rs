//! Rows of several generations, as one.

use std::cmp::Ordering;
use std::iter::Peekable;
use std::ops::Bound;
use std::sync::Arc;

use super::{Generation, Row, StoredKey};

type Rows<'a> = Peekable<Box<dyn Iterator<Item = (&'a StoredKey, &'a Row)> + 'a>>;

/// The rows of generations in the order of keys; of each key the newest.
pub(in crate::file) struct Merge<'a> {
    /// Newest first.
    sources: Vec<Rows<'a>>,
}

impl<'a> Merge<'a> {
    /// Merges `active`, which comes in the order of keys and is newer than all, with those of
    /// `sealed`, oldest first, from `start` on.
    pub(in crate::file) fn new(
        active: &'a [(StoredKey, Row)],
        sealed: &'a [Arc<Generation>],
        start: Bound<&[u8]>,
    ) -> Self {
        let mut sources: Vec<Rows<'a>> = Vec::with_capacity(1 + sealed.len());
        let active = active.iter().map(|(key, row)| (key, row));
        sources.push((Box::new(active) as Box<dyn Iterator<Item = _>>).peekable());
        for generation in sealed.iter().rev().filter(|generation| !generation.is_empty()) {
            let rows = generation.range(start);
            sources.push((Box::new(rows) as Box<dyn Iterator<Item = _>>).peekable());
        }
        Self { sources }
    }

    /// The next row, if `is_wanted` says so of its key.
    pub(in crate::file) fn next_if(
        &mut self,
        is_wanted: impl FnOnce(&[u8]) -> bool,
    ) -> Option<(&'a StoredKey, &'a Row)> {
        if self.peek().is_some_and(|key| is_wanted(key)) { self.next() } else { None }
    }

    /// The key that comes next.
    fn peek(&mut self) -> Option<&'a StoredKey> {
        self.sources.iter_mut().filter_map(|rows| rows.peek().map(|(key, _)| *key)).min()
    }
}

impl<'a> Iterator for Merge<'a> {
    type Item = (&'a StoredKey, &'a Row);

    fn next(&mut self) -> Option<Self::Item> {
        let least = self.peek()?;
        let mut newest = None;
        for rows in &mut self.sources {
            let is_least = rows.peek().is_some_and(|(key, _)| key.cmp(&least) == Ordering::Equal);
            if is_least {
                let row = rows.next();
                newest = newest.or(row);
            }
        }
        newest
    }
}

#[cfg(test)]
mod tests {
    use wane::store::{Fence, Record, Value};

    use super::super::Held;
    use super::*;

    fn row(value: Option<&str>) -> Row {
        let held = value.map(|value| Held {
            record: Record {
                value: Value::new(value.to_owned()).unwrap(),
                expires_at: None,
                fence: Fence::NONE,
            },
            place: None,
        });
        Row { held, has_older: false }
    }

    fn generation(rows: &[(&str, Option<&str>)]) -> Arc<Generation> {
        let mut generation = Generation::default();
        for (key, value) in rows {
            generation.insert(key.as_bytes().into(), row(*value));
        }
        Arc::new(generation)
    }

    fn merged(
        active: &[(&str, Option<&str>)],
        sealed: &[Arc<Generation>],
        start: Bound<&[u8]>,
    ) -> Vec<(String, Option<String>)> {
        let active: Vec<_> =
            active.iter().map(|(key, value)| (key.as_bytes().into(), row(*value))).collect();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Merge::new(&active, sealed, start)
            .map(|(key, row)| (text(key), row.held.as_ref().map(|held| text(&held.record.value))))
            .collect()
    }

    fn owned(rows: &[(&str, Option<&str>)]) -> Vec<(String, Option<String>)> {
        rows.iter().map(|(key, value)| ((*key).to_owned(), value.map(str::to_owned))).collect()
    }

    #[test]
    fn of_each_key_the_newest_row_comes_in_the_order_of_keys() {
        let older = generation(&[("d", Some("4")), ("a", Some("1")), ("c", Some("3"))]);
        let newer = generation(&[("c", None), ("b", Some("2")), ("e", Some("5"))]);
        let active = [("a", Some("one")), ("f", Some("6"))];
        let all = merged(&active, &[older, newer], Bound::Unbounded);
        let expected = [
            ("a", Some("one")),
            ("b", Some("2")),
            ("c", None),
            ("d", Some("4")),
            ("e", Some("5")),
            ("f", Some("6")),
        ];
        assert_eq!(all, owned(&expected));
    }

    #[test]
    fn it_begins_where_it_is_told_to() {
        let sealed = [generation(&[("a", Some("1")), ("b", Some("2")), ("c", Some("3"))])];
        let from = |start: Bound<&[u8]>| merged(&[], &sealed, start);
        assert_eq!(from(Bound::Included(b"b")), owned(&[("b", Some("2")), ("c", Some("3"))]));
        assert_eq!(from(Bound::Excluded(b"b")), owned(&[("c", Some("3"))]));
        assert_eq!(from(Bound::Excluded(b"c")), owned(&[]));
    }

    #[test]
    fn a_generation_knows_what_came_last_and_what_it_weighs() {
        let mut generation = Generation::default();
        assert_eq!(generation.get(b"a"), None);
        let before = generation.insert(b"a"[..].into(), Row { has_older: true, ..row(Some("1")) });
        assert_eq!(before, None);
        let light = generation.weight();
        let before = generation.insert(b"a"[..].into(), row(Some("a long value")));
        assert_eq!(before, Some(Row { has_older: true, ..row(Some("1")) }));
        assert_eq!(generation.weight(), light + "a long value".len() - 1);
        let known = generation.get(b"a").unwrap();
        assert!(known.has_older, "what lies below is still there");
        generation.insert(b"a"[..].into(), row(None));
        assert_eq!(generation.get(b"a").unwrap().held, None);
        assert_eq!((generation.len(), generation.weight()), (1, light - 1));
    }
}
