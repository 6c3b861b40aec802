//! Transitions, one rule each.

use std::time::Duration;

use super::transitions::Step;
use super::*;
use crate::clock::ManualClock;
use crate::services::pull_stream::audit::Verdict;
use crate::services::pull_stream::keys::{TokenKey, TokenKeys};
use crate::services::pull_stream::token::{self, Claims};
use crate::services::pull_stream::{Reader, Refusal};

const BEGIN: u64 = 1_000_000_000_000;
const LEASE: u64 = 30_000;

pub(super) fn key(kid: &str) -> TokenKey {
    TokenKey::new(kid, kid.repeat(32).as_bytes()).unwrap()
}

pub(super) fn reader(form: Form) -> Reader {
    Reader { form, ..Reader::default() }
}

/// A record, the log beside it, and a clock.
#[derive(Debug, Clone)]
pub(super) struct World {
    pub(super) state: State,
    pub(super) supply: Supply,
    pub(super) keys: TokenKeys,
    pub(super) now: u64,
    pub(super) max_readers: usize,
    starts: u64,
}

impl World {
    pub(super) fn with_rows(rows: &[u8]) -> Self {
        let mut world = Self {
            state: State::untouched(),
            supply: Supply::default(),
            keys: TokenKeys::new(key("a"), None).unwrap(),
            now: BEGIN,
            max_readers: MAX_READERS,
            starts: 0,
        };
        rows.iter().for_each(|count| world.append(*count));
        world
    }

    pub(super) fn append(&mut self, count: u8) {
        self.supply.rows.insert(self.supply.end, count);
        self.supply.end += 1;
    }

    fn expire(&mut self, row: u64) {
        self.supply.rows.remove(&row);
        self.supply.gone.insert(row);
    }

    /// Applies a call, as a write would: a step that says it changed nothing must not have.
    pub(super) fn apply(&mut self, call: &Call) -> Answer {
        let moment = Moment {
            now: Timestamp::from_unix_millis(self.now),
            rules: Rules {
                lease: Duration::from_millis(LEASE),
                token: Duration::from_secs(300),
                max_readers: self.max_readers,
            },
            supply: &self.supply,
            issuer: Issuer { ispb: "00000208".parse().unwrap(), region: "local", keys: &self.keys },
        };
        let before = self.state.clone();
        let Step { answer, changed } = self.state.apply(call, &moment);
        assert_eq!(changed, self.state != before, "{call:?} -> {answer:?}");
        answer
    }

    pub(super) fn start(&mut self, form: Form) -> Answer {
        self.starts += 1;
        self.apply(&Call::Start { reader: reader(form), opened_by: self.starts })
    }

    pub(super) fn next(&mut self, presented: Presented, form: Form) -> Answer {
        self.apply(&Call::Next { reader: reader(form), presented })
    }

    pub(super) fn end(&mut self, presented: Presented) -> Answer {
        self.apply(&Call::End { client: Client::default(), presented })
    }

    /// The token of an answer, as it would be presented.
    pub(super) fn token(&self, answer: &Answer) -> Presented {
        let text = text(answer);
        let now = Timestamp::from_unix_millis(self.now);
        let ispb = "00000208".parse().unwrap();
        let claims: Claims = token::verify(&self.keys, ispb, now, text).expect("a good token");
        Presented {
            thread: claims.thread,
            epoch: claims.epoch,
            seq: claims.cursor_seq,
            hash: Some(TokenHash::of(text)),
        }
    }
}

pub(super) fn held(answer: &Answer) -> &Held {
    match answer {
        Answer::Batch { held, .. } | Answer::Empty { held, .. } => held,
        Answer::Ended | Answer::Unsigned | Answer::Refused(_) => {
            panic!("nothing is held: {answer:?}")
        }
    }
}

pub(super) fn text(answer: &Answer) -> &str {
    &held(answer).token
}

/// The messages of an answer, as row and place.
pub(super) fn given(answer: &Answer) -> Vec<(u64, u8)> {
    match answer {
        Answer::Batch { spans, .. } => {
            let places = |span: &Span| {
                let row = span.row;
                (span.index..span.index + span.count).map(move |index| (row, index))
            };
            spans.iter().flat_map(places).collect()
        }
        Answer::Empty { .. } => Vec::new(),
        Answer::Ended | Answer::Unsigned | Answer::Refused(_) => {
            panic!("nothing is given: {answer:?}")
        }
    }
}

fn is_replay(answer: &Answer) -> bool {
    matches!(answer, Answer::Batch { is_unnoted: true, .. })
}

fn row(number: u64, count: u8) -> Vec<(u64, u8)> {
    (0..count).map(|index| (number, index)).collect()
}

#[test]
fn a_batch_takes_ten_across_rows_and_a_single_reader_takes_one() {
    let mut world = World::with_rows(&[3, 4, 10]);
    let first = world.start(Form::MULTIPART);
    assert_eq!(given(&first), [row(0, 3), row(1, 4), row(2, 3)].concat());
    let one = world.start(Form::SINGLE);
    assert_eq!(given(&one), [(2, 3)]);
    let rest = world.next(world.token(&first), Form::MULTIPART);
    assert_eq!(given(&rest), (4..10).map(|index| (2, index)).collect::<Vec<_>>());
}

#[test]
fn a_token_is_answered_the_same_until_the_next_one_is_used() {
    let mut world = World::with_rows(&[10, 10, 10]);
    let first = world.start(Form::MULTIPART);
    let one = world.token(&first);
    let second = world.next(one, Form::MULTIPART);
    world.now += 1_000;
    let again = world.next(one, Form::SINGLE);
    assert!(is_replay(&again));
    assert_eq!((given(&again), held(&again)), (given(&second), held(&second)), "in its old form");
    let two = world.token(&second);
    world.next(two, Form::MULTIPART);
    assert_eq!(world.next(one, Form::MULTIPART), Answer::Refused(Refusal::OutOfOrder));
}

#[test]
fn a_lease_that_is_longer_than_any_counts_as_ended() {
    let mut world = World::with_rows(&[10, 10]);
    let longest = Duration::from_secs(300);
    let first = world.start(Form::MULTIPART);
    world.now -= 300_000 - LEASE;
    let at = |now| Timestamp::from_unix_millis(now);
    world.state.distrust_leases(at(world.now), longest);
    assert_eq!(world.state.live_readers(at(world.now)), 1, "as long as one may be");
    world.now -= 1;
    world.state.distrust_leases(at(world.now), longest);
    assert_eq!(world.state.live_readers(at(world.now)), 0);
    let token = world.token(&first);
    let second = world.next(token, Form::MULTIPART);
    assert_eq!(held(&second).lease_until, world.now + LEASE, "it may be taken up again");
}

/// What is read of the log follows from it: retries of many readers read nothing ahead.
#[test]
fn a_call_that_was_answered_before_wants_nothing_more() {
    let mut world = World::with_rows(&[10, 10, 10]);
    let next = |presented| Call::Next { reader: reader(Form::MULTIPART), presented };
    let start = Call::Start { reader: reader(Form::SINGLE), opened_by: 7 };
    assert_eq!(world.state.wanted_by(&start), 1);
    let one = {
        let first = world.start(Form::MULTIPART);
        world.token(&first)
    };
    assert_eq!(world.state.wanted_by(&next(one)), 10, "not answered yet");
    let second = world.next(one, Form::MULTIPART);
    assert_eq!(world.state.wanted_by(&next(one)), 0, "a retry");
    let two = world.token(&second);
    assert_eq!(world.state.wanted_by(&next(two)), 10);
    let ended = Presented { epoch: one.epoch + 1, ..two };
    assert_eq!(world.state.wanted_by(&next(ended)), 0, "it will be refused");
    let end = Call::End { client: Client::default(), presented: two };
    assert_eq!(world.state.wanted_by(&end), 0);
}

#[test]
fn a_token_that_was_never_issued_is_ahead_and_one_with_another_hash_tampered() {
    let mut world = World::with_rows(&[10]);
    let token = {
        let first = world.start(Form::MULTIPART);
        world.token(&first)
    };
    let ahead = Presented { seq: token.seq + 1, ..token };
    assert_eq!(world.next(ahead, Form::MULTIPART), Answer::Refused(Refusal::Ahead));
    let other = Presented { hash: Some(TokenHash::of("another")), ..token };
    assert_eq!(world.next(other, Form::MULTIPART), Answer::Refused(Refusal::Tampered));
    let nowhere = Presented { thread: 5, ..token };
    assert_eq!(world.next(nowhere, Form::MULTIPART), Answer::Refused(Refusal::Expired));
}

#[test]
fn a_seventh_start_is_refused_and_changes_nothing() {
    let mut world = World::with_rows(&[10; 8]);
    (0..6).for_each(|_| drop(world.start(Form::MULTIPART)));
    let before = world.state.clone();
    world.now += 10_000;
    let retry_after = Duration::from_millis(LEASE - 10_000);
    assert_eq!(
        world.start(Form::MULTIPART),
        Answer::Refused(Refusal::TooManyReaders { retry_after })
    );
    assert_eq!(world.state, before);
    world.now += 20_000;
    assert_eq!(given(&world.start(Form::MULTIPART)), row(0, 10), "the first lease has ended");
}

#[test]
fn a_policy_may_allow_fewer_readers() {
    let mut world = World::with_rows(&[10; 8]);
    world.max_readers = 2;
    let first = world.start(Form::SINGLE);
    world.start(Form::SINGLE);
    assert!(matches!(world.start(Form::SINGLE), Answer::Refused(Refusal::TooManyReaders { .. })));
    world.now += LEASE;
    world.start(Form::SINGLE);
    world.start(Form::SINGLE);
    let token = world.token(&first);
    assert_eq!(world.next(token, Form::SINGLE), Answer::Refused(Refusal::Expired));
}

/// A stream that always has something newer does not starve what was abandoned.
#[test]
fn what_a_reader_that_is_long_gone_had_comes_first() {
    let mut world = World::with_rows(&[2, 2, 2]);
    let gone = world.start(Form::SINGLE);
    assert_eq!(given(&gone), [(0, 0)]);
    world.now += LEASE;
    assert_eq!(given(&world.start(Form::SINGLE)), [(0, 1)], "it may still come back");
    world.now += LEASE;
    let other = world.start(Form::MULTIPART);
    assert_eq!(given(&other), [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)]);
    let late = world.token(&gone);
    assert_eq!(world.next(late, Form::SINGLE), Answer::Refused(Refusal::Expired));
}

/// An abandoned batch does not wait for somebody to start.
#[test]
fn a_claim_that_finds_nothing_else_ends_a_slot_whose_reader_is_gone() {
    let mut world = World::with_rows(&[5]);
    let gone = world.start(Form::MULTIPART);
    world.now += LEASE / 2;
    let waiting = world.start(Form::MULTIPART);
    let Answer::Empty { look_at, .. } = waiting else { panic!("{waiting:?}") };
    assert_eq!(look_at, Some(BEGIN + LEASE), "when the other lease ends");
    world.now = BEGIN + LEASE;
    let token = world.token(&waiting);
    assert_eq!(given(&world.next(token, Form::MULTIPART)), row(0, 5));
    let late = world.token(&gone);
    assert_eq!(world.next(late, Form::MULTIPART), Answer::Refused(Refusal::Expired));
    assert_eq!(world.end(late), Answer::Refused(Refusal::Gone));
}

#[test]
fn a_token_that_outlived_its_lease_takes_its_slot_up_again_if_nobody_took_it() {
    let mut world = World::with_rows(&[5, 5]);
    let first = world.start(Form::SINGLE);
    world.now += LEASE + 1;
    let token = world.token(&first);
    let second = world.next(token, Form::SINGLE);
    assert_eq!(given(&second), [(0, 1)], "the first one is acknowledged");
    assert_eq!(held(&second).lease_until, world.now + LEASE);
}

/// The first empty read acknowledges at once, before it waits.
#[test]
fn an_empty_read_acknowledges_and_what_comes_later_answers_the_same_token() {
    let mut world = World::with_rows(&[1]);
    let one = {
        let first = world.start(Form::MULTIPART);
        world.token(&first)
    };
    let empty = world.next(one, Form::MULTIPART);
    assert!(matches!(empty, Answer::Empty { .. }));
    assert!(world.state.slots[0].in_flight.is_empty());
    world.append(3);
    let given_later = world.next(one, Form::MULTIPART);
    assert_eq!(given(&given_later), row(1, 3));
    // Both the token that waited and the one that an empty answer may have issued name the batch.
    for token in [one, world.token(&empty)] {
        let again = world.next(token, Form::MULTIPART);
        assert!(is_replay(&again));
        assert_eq!(held(&again).token, held(&given_later).token);
        assert_eq!(given(&again), row(1, 3));
    }
    world.append(1);
    let last = world.token(&given_later);
    assert_eq!(given(&world.next(last, Form::MULTIPART)), row(2, 1));
    assert_eq!(world.next(one, Form::MULTIPART), Answer::Refused(Refusal::OutOfOrder));
}

#[test]
fn a_further_empty_read_writes_only_when_half_of_the_lease_is_gone() {
    let mut world = World::with_rows(&[]);
    let first = world.start(Form::MULTIPART);
    let token = world.token(&first);
    world.now += LEASE / 2;
    let before = world.state.clone();
    assert_eq!(text(&world.next(token, Form::MULTIPART)), text(&first), "the token that was used");
    assert_eq!(world.state, before);
    world.now += 1;
    let renewed = world.next(token, Form::MULTIPART);
    assert_ne!(text(&renewed), text(&first));
    assert_eq!(held(&renewed).lease_until, world.now + LEASE);
}

#[test]
fn a_retry_prolongs_the_lease_only_when_half_of_it_is_gone() {
    let mut world = World::with_rows(&[1, 1]);
    let one = {
        let first = world.start(Form::SINGLE);
        world.token(&first)
    };
    let second = world.next(one, Form::SINGLE);
    world.now += LEASE / 2 + 1;
    let client = Client::new("another").unwrap();
    let retry = Reader { client: client.clone(), form: Form::SINGLE };
    let again = world.apply(&Call::Next { reader: retry, presented: one });
    assert_eq!(text(&again), text(&second), "the same token");
    assert_eq!(held(&again).lease_until, world.now + LEASE);
    let entry = world.state.audit.entries.last().unwrap();
    assert_eq!((entry.verdict, &entry.who), (Verdict::Replayed, &client), "whoever asked again");
    assert!(!is_replay(&again), "it is noted, and need not be remarked on");
}

#[test]
fn an_end_acknowledges_what_its_token_was_issued_with_and_nothing_else() {
    let mut world = World::with_rows(&[1, 1, 1]);
    let one = {
        let first = world.start(Form::SINGLE);
        world.token(&first)
    };
    let second = world.next(one, Form::SINGLE);
    assert_eq!(world.end(one), Answer::Ended, "its answer may have been lost");
    assert_eq!(given(&world.start(Form::SINGLE)), [(1, 0)], "delivered, not acknowledged");
    let two = world.token(&second);
    assert_eq!(world.end(two), Answer::Refused(Refusal::Gone));

    let mut world = World::with_rows(&[1, 1]);
    let one = {
        let first = world.start(Form::SINGLE);
        world.token(&first)
    };
    assert_eq!(world.end(one), Answer::Ended);
    assert_eq!(world.end(one), Answer::Refused(Refusal::Gone));
    assert_eq!(given(&world.start(Form::SINGLE)), [(1, 0)]);
}

#[test]
fn rows_that_retention_took_are_passed_over() {
    let mut world = World::with_rows(&[2, 2, 2, 2]);
    let gone = world.start(Form::SINGLE);
    world.expire(0);
    world.expire(2);
    world.now += 2 * LEASE;
    let other = world.start(Form::MULTIPART);
    assert_eq!(given(&other), [row(1, 2), row(3, 2)].concat());
    assert_eq!(world.state.head, Position { row: 4, index: 0 });
    assert!(matches!(world.next(world.token(&gone), Form::SINGLE), Answer::Refused(_)));
}

/// Else every empty read would look for its row again.
#[test]
fn what_was_requeued_from_a_row_that_is_gone_is_forgotten_by_an_empty_read() {
    let mut world = World::with_rows(&[2]);
    let gone = world.start(Form::MULTIPART);
    world.now += LEASE / 3 * 2;
    let waiting = world.start(Form::MULTIPART);
    world.expire(0);
    world.now += LEASE / 3;
    let token = world.token(&waiting);
    assert_eq!(given(&world.next(token, Form::MULTIPART)), []);
    let now = Timestamp::from_unix_millis(world.now);
    assert_eq!(world.state.rows_to_look_for(now).count(), 0);
    assert!(matches!(world.next(world.token(&gone), Form::MULTIPART), Answer::Refused(_)));
    let before = world.state.clone();
    assert_eq!(given(&world.next(token, Form::MULTIPART)), []);
    assert_eq!(world.state, before, "once");
}

/// Of a row that was not looked for nothing is known: its messages wait, and are not dropped.
#[test]
fn what_was_requeued_from_a_row_that_was_not_looked_for_stays_requeued() {
    let mut world = World::with_rows(&[2, 2]);
    let one = {
        let first = world.start(Form::SINGLE);
        world.token(&first)
    };
    world.next(one, Form::SINGLE);
    let count = world.supply.rows.remove(&0).unwrap();
    assert_eq!(world.end(one), Answer::Ended, "the second message was not acknowledged");
    assert_eq!(given(&world.start(Form::SINGLE)), [(1, 0)]);
    world.supply.rows.insert(0, count);
    assert_eq!(given(&world.start(Form::MULTIPART)), [(0, 1), (1, 1)]);
}

/// A start whose answer was lost, and that is planned once more, finds its slot.
#[test]
fn a_start_that_was_written_is_not_carried_out_twice() {
    let mut world = World::with_rows(&[10, 10]);
    let call = Call::Start { reader: reader(Form::MULTIPART), opened_by: 77 };
    let first = world.apply(&call);
    let again = world.apply(&call);
    assert_eq!((text(&again), given(&again)), (text(&first), given(&first)));
    assert_eq!(world.state.slots.len(), 1);
}

#[test]
fn tokens_survive_a_rotation_and_a_retry_is_signed_as_before() {
    let mut world = World::with_rows(&[1, 1, 1, 1]);
    let one = {
        let first = world.start(Form::SINGLE);
        world.token(&first)
    };
    let second = world.next(one, Form::SINGLE);
    world.keys = TokenKeys::new(key("b"), Some(key("a"))).unwrap();
    assert_eq!(text(&world.next(one, Form::SINGLE)), text(&second));
    let two = world.token(&second);
    let third = world.next(two, Form::SINGLE);
    assert_eq!(world.state.slots[0].kid, "b");
    world.keys = TokenKeys::new(key("c"), Some(key("b"))).unwrap();
    let three = world.token(&third);
    assert_eq!(given(&world.next(three, Form::SINGLE)), [(3, 0)]);
}

/// A node whose keys are behind cannot give a token again, and must not give another in its place.
#[test]
fn a_retry_is_not_signed_otherwise_while_its_token_is_good() {
    let mut world = World::with_rows(&[1, 1, 1]);
    let one = {
        let first = world.start(Form::SINGLE);
        world.token(&first)
    };
    let (behind, ahead) = (world.keys.clone(), TokenKeys::new(key("b"), Some(key("a"))).unwrap());
    world.keys = ahead.clone();
    let second = world.next(one, Form::SINGLE);
    for _ in 0..2 {
        world.keys = behind.clone();
        assert_eq!(world.next(one, Form::SINGLE), Answer::Unsigned);
        world.keys = ahead.clone();
        let again = world.next(one, Form::SINGLE);
        assert_eq!((text(&again), given(&again)), (text(&second), given(&second)));
        world.now += LEASE / 2 + 1;
    }
    world.keys = behind;
    world.now += 300_000;
    assert_eq!(given(&world.next(one, Form::SINGLE)), given(&second), "its token is over");
    assert_eq!(world.state.slots[0].kid, "a");
}

#[test]
fn every_change_lets_an_entry_ride_along() {
    let mut world = World::with_rows(&[1, 1]);
    let first = world.start(Form::SINGLE);
    let one = world.token(&first);
    world.next(one, Form::SINGLE);
    world.next(one, Form::SINGLE);
    world.end(one);
    let entries = &world.state.audit.entries;
    assert_eq!(entries.len(), 3, "a retry changes nothing: {entries:?}");
    assert_eq!(entries[0].issued, Some(TokenHash::of(text(&first))));
    assert_eq!(entries[1].used, Some(TokenHash::of(text(&first))));
    assert_eq!(entries[1].messages, 1);
}

#[test]
fn what_is_written_is_read_and_what_a_later_version_wrote_is_kept() {
    let mut world = World::with_rows(&[3, 4, 10]);
    world.start(Form::MULTIPART);
    let key = Key::new(b"k", b"").unwrap();
    let written = world.state.successor(&*ManualClock::seeded(1)).write().unwrap().value;
    let mut json: Json = serde_json::from_slice(&written).unwrap();
    json["later"] = 7.into();
    json["slots"][0]["later"] = "x".into();
    let read = State::read(&key, &serde_json::to_vec(&json).unwrap()).unwrap();
    let again: Json = serde_json::from_slice(&read.write().unwrap().value).unwrap();
    assert_eq!(again, json);
    json["format"] = 2.into();
    assert!(State::read(&key, &serde_json::to_vec(&json).unwrap()).is_err());
    assert!(State::read(&key, b"{}").is_err());
}

/// Nothing that a damaged record says makes a call panic or count beyond its numbers.
#[test]
fn a_record_that_no_transition_makes_is_corrupt() {
    let mut world = World::with_rows(&[3, 10]);
    world.start(Form::MULTIPART);
    let key = Key::new(b"k", b"").unwrap();
    let good = serde_json::to_value(&world.state).unwrap();
    let is_read = |json: &Json| State::read(&key, &serde_json::to_vec(json).unwrap()).is_ok();
    assert!(is_read(&good), "the control");
    let span = |row: u64, index: u8, count: u8| serde_json::json!({ "row": row, "index": index, "count": count });
    let wrong = [
        ("/slots/0/inFlight/0", span(0, 0, 0)),
        ("/slots/0/inFlight/0", span(0, 200, 100)),
        ("/slots/0/inFlight/0", span(0, 1, 10)),
        ("/slots/0/inFlight/0", span(u64::MAX, 0, 1)),
        ("/slots/0/inFlight/0", span(0, 0, 4)),
        ("/slots/0/epoch", u64::MAX.into()),
        ("/slots/0/seq", u64::MAX.into()),
        ("/requeued", serde_json::json!([span(0, 255, 255)])),
        ("/head", serde_json::json!({ "row": u64::MAX, "index": 0 })),
        ("/head", serde_json::json!({ "row": 0, "index": 11 })),
        ("/version", u64::MAX.into()),
        ("/tailHint", u64::MAX.into()),
        ("/audit/row", u64::MAX.into()),
    ];
    for (place, value) in wrong {
        let mut json = good.clone();
        *json.pointer_mut(place).unwrap() = value.clone();
        assert!(!is_read(&json), "{place}: {value}");
    }
}
