//! What callers were told: for each key the states it may have, and what contradicts them.
//!
//! A key has one caller, so its answers are a history in order: after an answer there is one state,
//! after a request without one there are two. What a server holds is explained by one of them or
//! is wrong. A write that was refused is no state, so that its value, where it appears, is wrong.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use crate::server::Server;
use crate::wall_clock;

/// How far apart the clocks of server and test may be, in milliseconds.
const APART: u64 = 50;

/// An entry as far as its caller knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) value: String,
    /// One instant where it was told, more where nobody told it.
    pub(super) expires_at: RangeInclusive<u64>,
}

impl Held {
    pub(super) fn told(value: &str, expires_at: u64) -> Self {
        Self { value: value.to_owned(), expires_at: expires_at..=expires_at }
    }
}

/// An entry as a server shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) value: String,
    pub(super) expires_at: u64,
}

/// Everything that a server shows, and when it was looked at.
#[derive(Debug)]
pub(super) struct Sight {
    pub(super) entries: BTreeMap<String, Shown>,
    pub(super) looked: RangeInclusive<u64>,
}

impl Sight {
    /// Looks at everything that the server has under `prefix`.
    pub(super) fn of(server: &Server, prefix: &str) -> Self {
        let (from, mut entries, mut after) = (wall_clock(), BTreeMap::new(), String::new());
        loop {
            let path = format!("/api/v2/apps/demo/app/ttl?prefix={prefix}&limit=1000{after}");
            let page = server.ask("GET", &path, "");
            assert_eq!(page.status, 200, "{}", page.body);
            let page = page.json();
            for item in page["items"].as_array().unwrap() {
                let value = item["value"].as_str().unwrap().to_owned();
                let expires_at = item["expiresAt"].as_u64().unwrap();
                let key = item["key"].as_str().unwrap().to_owned();
                entries.insert(key, Shown { value, expires_at });
            }
            match page["next"].as_str() {
                Some(next) => after = format!("&after={next}"),
                None => return Self { entries, looked: from..=wall_clock() },
            }
        }
    }
}

/// What the callers know.
#[derive(Debug, Default, Clone)]
pub(super) struct Ledger {
    keys: BTreeMap<String, Vec<Option<Held>>>,
    pub(super) acknowledged: u64,
}

impl Ledger {
    /// The one state that the key has, if its caller knows it.
    pub(super) fn known(&self, key: &str) -> Option<&Option<Held>> {
        match self.keys.get(key).map(Vec::as_slice) {
            None => Some(&None),
            Some([state]) => Some(state),
            Some(_) => None,
        }
    }

    /// The key was told to have this state.
    pub(super) fn told(&mut self, key: &str, state: Option<Held>) {
        self.acknowledged += 1;
        self.keys.insert(key.to_owned(), vec![state]);
    }

    /// Nobody answered: the key has the state it had, or this one.
    pub(super) fn untold(&mut self, key: &str, state: Option<Held>) {
        self.keys.entry(key.to_owned()).or_insert_with(|| vec![None]).push(state);
    }

    /// The ledgers of several callers, who share no key.
    pub(super) fn merge(ledgers: impl IntoIterator<Item = Self>) -> Self {
        let mut all = Self::default();
        for ledger in ledgers {
            all.keys.extend(ledger.keys);
            all.acknowledged += ledger.acknowledged;
        }
        all
    }

    /// Says what no answer explains.
    pub(super) fn contradictions(&self, sight: &Sight) -> Vec<String> {
        let mut found = Vec::new();
        for (key, states) in &self.keys {
            let shown = sight.entries.get(key);
            if !states.iter().any(|state| explains(state.as_ref(), shown, &sight.looked)) {
                found.push(format!("{key}: told {states:?}, found {shown:?}"));
            }
        }
        for (key, shown) in &sight.entries {
            if !self.keys.contains_key(key) {
                found.push(format!("{key}: told nothing, found {shown:?}"));
            }
        }
        found
    }

    /// How many entries were told to live through this time, and how many to end in it.
    pub(super) fn lived_and_ended(&self, time: &RangeInclusive<u64>) -> (usize, usize) {
        let held = self.keys.values().filter_map(|states| match states.as_slice() {
            [Some(held)] => Some(*held.expires_at.start()),
            _ => None,
        });
        let (mut lived, mut ended) = (0, 0);
        for expires_at in held {
            lived += usize::from(expires_at > time.end() + APART);
            ended += usize::from(time.contains(&expires_at));
        }
        (lived, ended)
    }

    /// Takes what is shown as told, once it is known not to contradict.
    pub(super) fn settle(&mut self, sight: &Sight) {
        for (key, states) in &mut self.keys {
            let shown = sight.entries.get(key);
            *states = vec![shown.map(|shown| Held::told(&shown.value, shown.expires_at))];
        }
    }
}

fn explains(state: Option<&Held>, shown: Option<&Shown>, looked: &RangeInclusive<u64>) -> bool {
    match (state, shown) {
        (None, None) => true,
        (None, Some(_)) => false,
        (Some(held), None) => *held.expires_at.start() <= looked.end() + APART,
        (Some(held), Some(shown)) => {
            let alive = looked.start() < &(shown.expires_at + APART);
            alive && shown.value == held.value && held.expires_at.contains(&shown.expires_at)
        }
    }
}

/// Controls: each kind of wrong is found, and what is right is not.
mod controls {
    use super::*;

    fn sight(entries: &[(&str, &str, u64)]) -> Sight {
        let entries = entries.iter().map(|(key, value, expires_at)| {
            let shown = Shown { value: (*value).to_owned(), expires_at: *expires_at };
            ((*key).to_owned(), shown)
        });
        Sight { entries: entries.collect(), looked: 1_000..=1_010 }
    }

    fn wrongs(ledger: &Ledger, entries: &[(&str, &str, u64)]) -> usize {
        ledger.contradictions(&sight(entries)).len()
    }

    #[test]
    fn a_lost_a_changed_and_a_foreign_entry_are_found() {
        let mut ledger = Ledger::default();
        ledger.told("k", Some(Held::told("v", 9_000)));
        assert_eq!(wrongs(&ledger, &[("k", "v", 9_000)]), 0);
        assert_eq!(wrongs(&ledger, &[]), 1, "lost");
        assert_eq!(wrongs(&ledger, &[("k", "refused", 9_000)]), 1, "another value");
        assert_eq!(wrongs(&ledger, &[("k", "v", 9_001)]), 1, "another expiry");
        assert_eq!(wrongs(&ledger, &[("k", "v", 9_000), ("x", "v", 9_000)]), 1, "foreign");
    }

    #[test]
    fn a_deleted_and_an_expired_entry_that_are_back_are_found() {
        let mut ledger = Ledger::default();
        ledger.told("k", None);
        assert_eq!(wrongs(&ledger, &[]), 0);
        assert_eq!(wrongs(&ledger, &[("k", "v", 9_000)]), 1, "deleted");
        ledger.told("k", Some(Held::told("v", 900)));
        assert_eq!(wrongs(&ledger, &[]), 0);
        assert_eq!(wrongs(&ledger, &[("k", "v", 900)]), 1, "expired");
    }

    #[test]
    fn an_unanswered_write_may_be_there_or_not() {
        let mut ledger = Ledger::default();
        ledger.told("k", Some(Held::told("old", 9_000)));
        ledger.untold("k", Some(Held { value: "new".into(), expires_at: 9_500..=9_600 }));
        assert_eq!(wrongs(&ledger, &[("k", "old", 9_000)]), 0);
        assert_eq!(wrongs(&ledger, &[("k", "new", 9_555)]), 0);
        assert_eq!(wrongs(&ledger, &[("k", "new", 9_000)]), 1, "an expiry of neither");
        assert_eq!(wrongs(&ledger, &[]), 1, "gone");
    }
}
