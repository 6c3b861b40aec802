//! Rows of several generations, as one.

use std::cmp::Ordering;
use std::ops::Bound;
use std::sync::Arc;

use super::copied::CopiedIter;
use super::{CopiedRows, Generation, Row, Rows};

type Next<'a> = (&'a [u8], &'a Row);

/// The rows of generations in the order of keys; of each key the newest.
pub(in crate::file) struct Merge<'a> {
    /// Newest first.
    sources: Vec<Source<'a>>,
    /// The one whose row comes next, where that is known.
    least: Option<usize>,
}

/// The rows of one generation.
struct Source<'a> {
    head: Next<'a>,
    rest: Rest<'a>,
}

/// Those that come after its first.
enum Rest<'a> {
    Copied(CopiedIter<'a>),
    Shared(Rows<'a>),
}

impl<'a> Rest<'a> {
    fn next(&mut self) -> Option<Next<'a>> {
        match self {
            Self::Copied(rows) => rows.next(),
            Self::Shared(rows) => rows.next().map(|(key, row)| (&**key, row)),
        }
    }
}

impl<'a> Source<'a> {
    fn new(mut rest: Rest<'a>) -> Option<Self> {
        Some(Self { head: rest.next()?, rest })
    }
}

impl<'a> Merge<'a> {
    /// Merges `active`, which is newer than all, with those of `sealed`, oldest first, from `start` on.
    /// Generations that have nothing of what `is_wanted` from there on are left out, so that nobody
    /// compares with them: keys that are wanted come before all others.
    pub(in crate::file) fn new(
        active: &'a CopiedRows,
        sealed: &'a [Arc<Generation>],
        start: Bound<&[u8]>,
        is_wanted: impl Fn(&[u8]) -> bool,
    ) -> Self {
        let shared = |generation: &'a Arc<Generation>| Rest::Shared(generation.range(start));
        let sealed = sealed.iter().rev().map(shared);
        let sources = [Rest::Copied(active.iter())].into_iter().chain(sealed);
        let sources = sources.filter_map(Source::new).filter(|source| is_wanted(source.head.0));
        Self { sources: sources.collect(), least: None }
    }

    /// The next row, if its key comes before `key` or is the same, and which of both.
    pub(in crate::file) fn next_up_to(&mut self, key: &[u8]) -> Option<(Next<'a>, Ordering)> {
        let least = self.least()?;
        let order = self.sources[least].head.0.cmp(key);
        if order.is_gt() {
            return None;
        }
        Some((self.take(least)?, order))
    }

    /// The source whose row comes next. What it knows of a key goes before what older ones do.
    fn least(&mut self) -> Option<usize> {
        if self.least.is_none() {
            let mut at = 0;
            while at < self.sources.len() {
                at = self.look_at(at);
            }
        }
        self.least
    }

    /// Looks whether a source goes before those that were looked at, and returns the next one.
    fn look_at(&mut self, at: usize) -> usize {
        let order = self.least.map_or(Ordering::Less, |least| {
            self.sources[at].head.0.cmp(self.sources[least].head.0)
        });
        match order {
            Ordering::Less => self.least = Some(at),
            Ordering::Greater => {}
            // A newer source knows the key: this row is not shown.
            Ordering::Equal => {
                if !self.advance(at) {
                    return at;
                }
            }
        }
        at + 1
    }

    /// Goes on to a source's next row. `false` means that there is none, and the source is gone.
    fn advance(&mut self, at: usize) -> bool {
        match self.sources[at].rest.next() {
            Some(next) => {
                self.sources[at].head = next;
                true
            }
            None => {
                self.sources.remove(at);
                false
            }
        }
    }

    fn take(&mut self, least: usize) -> Option<Next<'a>> {
        let head = self.sources.get(least)?.head;
        self.advance(least);
        self.least = None;
        Some(head)
    }
}

impl<'a> Iterator for Merge<'a> {
    type Item = Next<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let least = self.least()?;
        self.take(least)
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
        let mut copied = CopiedRows::default();
        active.iter().for_each(|(key, value)| copied.push(key.as_bytes(), &row(*value)));
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        Merge::new(&copied, sealed, start, |_| true)
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
    fn it_begins_where_it_is_told_to_whether_rows_are_sorted_or_not() {
        let loose = generation(&[("c", Some("3")), ("a", Some("1")), ("b", Some("2"))]);
        for sealed in [Arc::new(loose.sorted()), loose] {
            let sealed = [sealed];
            let from = |start: Bound<&[u8]>| merged(&[], &sealed, start);
            assert_eq!(from(Bound::Included(b"b")), owned(&[("b", Some("2")), ("c", Some("3"))]));
            assert_eq!(from(Bound::Excluded(b"b")), owned(&[("c", Some("3"))]));
            assert_eq!(from(Bound::Excluded(b"c")), owned(&[]));
            assert_eq!(from(Bound::Included(b"aa")).len(), 2);
        }
    }

    #[test]
    fn generations_with_nothing_that_is_wanted_are_not_compared_with() {
        let near = generation(&[("a", Some("1")), ("b", Some("2"))]);
        let far = generation(&[("x", Some("8")), ("a", Some("0"))]);
        let (none, sealed) = (CopiedRows::default(), [near, far]);
        let merge = |start: &'static [u8]| {
            Merge::new(&none, &sealed, Bound::Included(start), |key| key < &b"x"[..])
        };
        assert_eq!((merge(b"a").sources.len(), merge(b"b").sources.len()), (2, 1));
        let keys: Vec<_> = merge(b"b").map(|(key, _)| key).collect();
        assert_eq!(keys, [b"b"]);
    }

    #[test]
    fn a_sorted_generation_knows_what_the_loose_one_did_and_can_go_on() {
        let loose = generation(&[("c", Some("3")), ("a", None), ("b", Some("2"))]);
        let mut sorted = loose.sorted();
        assert!(sorted.is_sorted() && !loose.is_sorted());
        assert_eq!((sorted.len(), sorted.weight()), (loose.len(), loose.weight()));
        for key in [&b"a"[..], b"b", b"c", b"d"] {
            assert_eq!(sorted.get(key), loose.get(key));
        }
        sorted.insert(b"aa"[..].into(), row(Some("4")));
        assert!(!sorted.is_sorted());
        let keys: Vec<_> = sorted.range(Bound::Unbounded).map(|(key, _)| &**key).collect();
        assert_eq!(keys, [&b"a"[..], b"aa", b"b", b"c"]);
    }

    #[test]
    fn of_rows_that_several_know_one_comes_however_they_lie() {
        let all = [("a", Some("1")), ("b", Some("2")), ("c", Some("3"))];
        let sealed = [generation(&all), generation(&all[..1]), generation(&all[1..2])];
        let active = [("c", None)];
        let expected = [("a", Some("1")), ("b", Some("2")), ("c", None)];
        assert_eq!(merged(&active, &sealed, Bound::Unbounded), owned(&expected));
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
