//! What producers sent and readers got, and what of it contradicts the promises of a stream.
//!
//! Readers tell, for each answer, since when they asked, when it came, and by which token. The claim
//! behind an answer was made between the two, so its lease cannot end before the asking and the
//! lease. That is all that is used: nothing of how the server works.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;
use sha2::{Digest as _, Sha256};

/// What rounding to milliseconds may cost.
const ROUNDED: u64 = 2;

/// A digest in hexadecimal.
pub(super) fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An answer with or without messages, as a reader tells it. Times are in Unix milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// The process, and which of its starts.
    pub(super) session: (String, u64),
    pub(super) token: String,
    pub(super) next: String,
    pub(super) asked: u64,
    pub(super) answered: u64,
    /// A digest of the answer, head and all.
    pub(super) whole: String,
    /// Ids and digests.
    pub(super) messages: Vec<(String, String)>,
}

impl Line {
    /// Reads a line of the log of a reader; none where it tells of no answer.
    pub(super) fn of(reader: &str, line: &Json) -> Option<Self> {
        let text = |name: &str| line[name].as_str().unwrap().to_owned();
        let number = |name: &str| line[name].as_u64().unwrap();
        let messages = line["messages"].as_array()?;
        let pair = |pair: &Json| {
            let part = |place: usize| pair[place].as_str().unwrap().to_owned();
            (part(0), part(1))
        };
        Some(Self {
            session: (reader.to_owned(), number("session")),
            token: text("token"),
            next: text("next"),
            asked: number("asked"),
            answered: number("answered"),
            whole: text("whole"),
            messages: messages.iter().map(pair).collect(),
        })
    }
}

/// What producers know.
#[derive(Debug, Clone, Default)]
pub(super) struct Sent {
    /// Acknowledged: id and digest.
    pub(super) told: BTreeMap<String, String>,
    /// Digests of what was sent without an answer.
    pub(super) untold: BTreeSet<String>,
}

impl Sent {
    pub(super) fn merge(all: impl IntoIterator<Item = Self>) -> Self {
        let mut merged = Self::default();
        for sent in all {
            merged.told.extend(sent.told);
            merged.untold.extend(sent.untold);
        }
        merged
    }

    /// Messages that were acknowledged and that nobody has got.
    pub(super) fn missing(&self, lines: &[Line]) -> Vec<&str> {
        let got: BTreeSet<&str> =
            lines.iter().flat_map(|line| line.messages.iter().map(|(id, _)| &**id)).collect();
        self.told.keys().map(|id| &**id).filter(|id| !got.contains(id)).collect()
    }

    /// Everything that must never happen and did.
    pub(super) fn faults(&self, lines: &[Line], lease: u64) -> Vec<String> {
        let lost = self.missing(lines).into_iter().map(|id| format!("lost: {id}"));
        let mut faults: Vec<_> = lost.collect();
        faults.extend(self.strange(lines));
        faults.extend(other_replays(lines));
        faults.extend(shared(lines, lease));
        faults
    }

    /// Messages that nobody sent, or not so.
    fn strange(&self, lines: &[Line]) -> Vec<String> {
        let mut faults = Vec::new();
        let mut names: BTreeMap<&str, &str> = BTreeMap::new();
        let known: BTreeSet<&str> = self.told.values().map(|sum| &**sum).collect();
        for (id, sum) in lines.iter().flat_map(|line| &line.messages) {
            match self.told.get(id) {
                Some(told) if told != sum => faults.push(format!("other bytes: {id}")),
                None if known.contains(&**sum) => faults.push(format!("another id: {id}")),
                None if !self.untold.contains(sum) => faults.push(format!("never sent: {id}")),
                _ => {}
            }
            let name = names.entry(sum).or_insert(id);
            if name != id {
                faults.push(format!("two ids of one message: {id} and {name}"));
            }
        }
        faults
    }
}

/// Tokens that were answered with messages, and then otherwise.
fn other_replays(lines: &[Line]) -> Vec<String> {
    let mut answers: BTreeMap<(&(String, u64), &str), &Line> = BTreeMap::new();
    let mut faults = Vec::new();
    for line in lines.iter().filter(|line| !line.messages.is_empty()) {
        let first = answers.entry((&line.session, &line.token)).or_insert(line);
        if first.token != "start" && (&first.whole, &first.next) != (&line.whole, &line.next) {
            faults.push(format!("another answer to {} of {:?}", line.token, line.session));
        }
    }
    faults
}

/// Messages that came by two tokens though one of them held them, or had acknowledged them.
fn shared(lines: &[Line], lease: u64) -> Vec<String> {
    let used: BTreeSet<_> = lines.iter().map(|line| (&line.session, &*line.token)).collect();
    let is_acknowledged = |line: &Line| used.contains(&(&line.session, &*line.next));
    // Of the answers to one token the first tells when the claim was made.
    let mut claims: BTreeMap<(&(String, u64), &str), &Line> = BTreeMap::new();
    for line in lines.iter().filter(|line| !line.messages.is_empty()) {
        claims.entry((&line.session, &line.token)).or_insert(line);
    }
    let mut holders: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
    for line in claims.into_values() {
        for (id, _) in &line.messages {
            holders.entry(id).or_default().push(line);
        }
    }
    let mut faults = Vec::new();
    for (id, lines) in holders {
        for (place, one) in lines.iter().enumerate() {
            for other in &lines[place + 1..] {
                faults.extend(conflict(id, one, other, lease, &is_acknowledged));
            }
        }
    }
    faults
}

fn conflict(
    id: &str,
    one: &Line,
    other: &Line,
    lease: u64,
    is_acknowledged: &impl Fn(&Line) -> bool,
) -> Option<String> {
    let told = format!("{id}: {one:?} and {other:?}");
    if one.session == other.session {
        return Some(format!("twice to one reader, {told}"));
    }
    let may_follow = |first: &Line, second: &Line| second.answered + ROUNDED >= first.asked + lease;
    if !may_follow(one, other) && !may_follow(other, one) {
        return Some(format!("on two live leases, {told}"));
    }
    let was_done = |first: &Line, second: &Line| {
        is_acknowledged(first) && second.asked > first.answered + ROUNDED
    };
    (was_done(one, other) || was_done(other, one))
        .then(|| format!("after it was acknowledged, {told}"))
}

/// Controls: each kind of fault is found, and what is right is not.
mod controls {
    use super::*;

    const LEASE: u64 = 1_000;

    fn line(reader: &str, token: &str, next: &str, asked: u64, ids: &[&str]) -> Line {
        Line {
            session: (reader.to_owned(), 1),
            token: token.to_owned(),
            next: next.to_owned(),
            asked,
            answered: asked + 10,
            whole: format!("{ids:?}"),
            messages: ids.iter().map(|id| ((*id).to_owned(), format!("sum of {id}"))).collect(),
        }
    }

    fn sent(told: &[&str], untold: &[&str]) -> Sent {
        let sum = |id: &&str| format!("sum of {id}");
        Sent {
            told: told.iter().map(|id| ((*id).to_owned(), sum(id))).collect(),
            untold: untold.iter().map(sum).collect(),
        }
    }

    #[track_caller]
    fn assert_found(sent: &Sent, lines: &[Line], kind: &str) {
        let faults = sent.faults(lines, LEASE);
        assert!(faults.iter().any(|fault| fault.starts_with(kind)), "{kind}: {faults:?}");
    }

    #[test]
    fn what_is_right_is_no_fault() {
        let sent = sent(&["a", "b", "c"], &["d", "e"]);
        let crashed = line("r1", "t1", "t2", 5_000, &["c"]);
        let lines = [
            line("r1", "start", "t1", 4_000, &["a", "b"]),
            crashed.clone(),
            Line { answered: 5_900, ..crashed },
            line("r2", "start", "u1", 6_000, &["c", "d"]),
            line("r2", "u1", "u2", 6_100, &[]),
        ];
        assert_eq!(sent.faults(&lines, LEASE), [] as [String; 0]);
    }

    #[test]
    fn a_lost_message_is_found() {
        assert_found(&sent(&["a"], &[]), &[], "lost: a");
        assert_eq!(sent(&[], &["a"]).faults(&[], LEASE), [] as [String; 0], "nobody was told");
    }

    #[test]
    fn a_message_that_nobody_sent_or_not_so_is_found() {
        let strange = [line("r1", "start", "t1", 1, &["x"])];
        assert_found(&sent(&[], &["a"]), &strange, "never sent: x");
        let mut changed = [line("r1", "start", "t1", 1, &["a"])];
        changed[0].messages[0].1 = "sum of b".into();
        assert_found(&sent(&["a"], &["b"]), &changed, "other bytes: a");
        let mut renamed = [line("r1", "start", "t1", 1, &["a"])];
        renamed[0].messages[0].0 = "b".into();
        assert_found(&sent(&["a"], &[]), &renamed, "another id: b");
        let mut twice = [line("r1", "start", "t1", 1, &["a", "b"])];
        twice[0].messages[1].1 = "sum of a".into();
        assert_found(&sent(&[], &["a", "b"]), &twice, "two ids of one message: b and a");
    }

    #[test]
    fn a_retry_with_other_bytes_or_another_token_is_found() {
        let sent = sent(&["a", "b"], &[]);
        let first = line("r1", "t1", "t2", 1, &["a"]);
        let other = line("r1", "t1", "t2", 1, &["b"]);
        assert_found(&sent, &[first.clone(), other], "another answer to t1");
        let token = Line { next: "t3".into(), ..first.clone() };
        assert_found(&sent, &[first, token], "another answer to t1");
    }

    #[test]
    fn a_message_on_two_live_leases_is_found() {
        let sent = sent(&["a"], &[]);
        let one = line("r1", "start", "t1", 5_000, &["a"]);
        for asked in [4_100, 5_000, 5_005, 5_900] {
            let other = line("r2", "start", "u1", asked, &["a"]);
            assert_found(&sent, &[one.clone(), other.clone()], "on two live leases");
            assert_found(&sent, &[other, one.clone()], "on two live leases");
        }
        let later = line("r2", "start", "u1", 5_990, &["a"]);
        assert_eq!(sent.faults(&[one, later], LEASE), [] as [String; 0], "the lease has ended");
    }

    #[test]
    fn a_message_that_comes_after_it_was_acknowledged_is_found() {
        let sent = sent(&["a"], &[]);
        let one = line("r1", "start", "t1", 5_000, &["a"]);
        let acknowledged = line("r1", "t1", "t2", 5_100, &[]);
        let late = line("r2", "start", "u1", 9_000, &["a"]);
        let lines = [one.clone(), acknowledged, late.clone()];
        assert_found(&sent, &lines, "after it was acknowledged");
        assert_eq!(sent.faults(&[one.clone(), late], LEASE), [] as [String; 0], "it was not");
        let again = line("r1", "t1", "t2", 5_100, &["a"]);
        assert_found(&sent, &[one, again], "twice to one reader");
    }
}
