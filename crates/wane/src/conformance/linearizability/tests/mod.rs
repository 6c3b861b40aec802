//! Histories written by hand, each showing one rule kept or broken.

mod off_clocks;

use super::*;
use crate::store::{Life, Ttl, Value};

/// A history in the making. The clock starts at 1,000 ms.
#[derive(Debug)]
struct Script {
    points: u64,
    clock: u64,
    events: Vec<Event>,
}

/// An event that has not returned: its place in the script.
struct Pending(usize);

impl Script {
    fn new() -> Self {
        Self { points: 0, clock: 1_000, events: Vec::new() }
    }

    fn moment(&mut self) -> Moment {
        self.points += 1;
        Moment { order: self.points, clock: Timestamp::from_unix_millis(self.clock) }
    }

    /// Lets time pass.
    fn wait(&mut self, millis: u64) -> &mut Self {
        self.clock += millis;
        self
    }

    /// A client of its own calls.
    fn call(&mut self, call: Call) -> Pending {
        let invoked = self.moment();
        let key = Key::new(b"p", b"c").unwrap();
        let client = self.events.len();
        let answer = Answer::Unavailable;
        self.events.push(Event { client, key, call, answer, invoked, returned: invoked });
        Pending(client)
    }

    /// The client is answered.
    fn answer(&mut self, pending: &Pending, answer: Answer) -> &mut Self {
        let returned = self.moment();
        let event = &mut self.events[pending.0];
        (event.answer, event.returned) = (answer, returned);
        self
    }

    /// A call that is answered within the millisecond, before anything else happens.
    fn then(&mut self, call: Call, answer: Answer) -> &mut Self {
        let pending = self.call(call);
        self.answer(&pending, answer)
    }

    #[track_caller]
    fn holds(&self) {
        self.holds_within(Allowance::NONE);
    }

    #[track_caller]
    fn holds_within(&self, allowance: Allowance) {
        match check_within(&self.events, allowance) {
            Verdict::Linearizable => {}
            Verdict::Undecided => panic!("undecided"),
            Verdict::Violated(violation) => panic!("{violation}"),
        }
    }

    /// No order exists, and the shortest beginning without one has this many answers.
    #[track_caller]
    fn breaks_at_answer(&self, answers: usize) {
        self.breaks_within(Allowance::NONE, answers);
    }

    #[track_caller]
    fn breaks_within(&self, allowance: Allowance, answers: usize) {
        match check_within(&self.events, allowance) {
            Verdict::Linearizable => panic!("an order was found"),
            Verdict::Undecided => panic!("undecided"),
            Verdict::Violated(violation) => assert_eq!(violation.answers(), answers, "{violation}"),
        }
    }

    #[track_caller]
    fn breaks(&self) {
        self.breaks_at_answer(self.events.len());
    }
}

fn millis(millis: u64) -> Life {
    Life::For(Ttl::from_millis(millis).unwrap())
}

fn until(instant: u64) -> Life {
    Life::Until(Timestamp::from_unix_millis(instant))
}

fn write(value: &'static str, life: Life) -> Write {
    Write::new(Value::new(value).unwrap(), life)
}

fn put(value: &'static str, life: Life) -> Call {
    Call::Put(write(value, life))
}

fn insert(value: &'static str, life: Life) -> Call {
    Call::Insert(write(value, life))
}

fn swap(expected: &'static str, value: &'static str, life: Life) -> Call {
    Call::Swap { expected: expected.into(), write: write(value, life) }
}

fn delete(expected: &'static str) -> Call {
    Call::Delete { expected: expected.into(), fence: Fence::NONE }
}

fn fenced(value: &'static str, fence: u64) -> Call {
    Call::Put(write(value, millis(10)).fenced(Fence(fence)))
}

fn stamped(value: &'static str, expires_at: impl Into<Option<u64>>, fence: u64) -> Option<Record> {
    let expires_at = expires_at.into().map(Timestamp::from_unix_millis);
    Some(Record { value: Value::new(value).unwrap(), expires_at, fence: Fence(fence) })
}

fn held(value: &'static str, expires_at: impl Into<Option<u64>>) -> Option<Record> {
    stamped(value, expires_at, 0)
}

fn found(value: &'static str, expires_at: impl Into<Option<u64>>) -> Answer {
    Answer::Read(held(value, expires_at))
}

fn applied(expires_at: impl Into<Option<u64>>) -> Answer {
    let expires_at = expires_at.into().map(Timestamp::from_unix_millis);
    Answer::Written(Outcome::Applied { expires_at })
}

fn refused(current: Option<Record>) -> Answer {
    Answer::Written(Outcome::Refused { current })
}

const GOOD: Life = Life::Permanent;
const ABSENT: Answer = Answer::Read(None);

#[test]
fn nothing_was_there_before_the_history() {
    Script::new().then(Call::Get, ABSENT).holds();
    Script::new().then(Call::Get, found("a", None)).breaks();
}

#[test]
fn a_read_shows_the_write_before_it() {
    Script::new().then(put("a", GOOD), applied(None)).then(Call::Get, found("a", None)).holds();
}

#[test]
fn an_acknowledged_write_is_never_lost() {
    Script::new().then(put("a", GOOD), applied(None)).then(Call::Get, ABSENT).breaks();
}

#[test]
fn a_read_never_shows_an_overwritten_value() {
    let mut script = Script::new();
    script.then(put("a", GOOD), applied(None)).then(put("b", GOOD), applied(None));
    script.then(Call::Get, found("a", None)).breaks();
}

#[test]
fn a_read_during_a_write_shows_either_side() {
    for answer in [ABSENT, found("a", None)] {
        let mut script = Script::new();
        let writing = script.call(put("a", GOOD));
        script.then(Call::Get, answer).answer(&writing, applied(None)).holds();
    }
}

#[test]
fn a_read_never_goes_back_behind_another() {
    let mut script = Script::new();
    let writing = script.call(put("a", GOOD));
    script.then(Call::Get, found("a", None)).then(Call::Get, ABSENT);
    script.answer(&writing, applied(None)).breaks_at_answer(2);
}

/// A write that fits the state without changing it may still be the one that comes last.
#[test]
fn a_write_of_the_same_value_may_come_last() {
    let mut script = Script::new();
    script.then(put("a", GOOD), applied(None));
    let again = script.call(put("a", GOOD));
    let other = script.call(put("b", GOOD));
    script.answer(&again, applied(None)).answer(&other, applied(None));
    script.then(Call::Get, found("a", None)).holds();
}

#[test]
fn of_racing_inserts_one_is_applied() {
    let race = |second| {
        let mut script = Script::new();
        let one = script.call(insert("a", GOOD));
        let two = script.call(insert("b", GOOD));
        script.answer(&two, applied(None)).answer(&one, second);
        script
    };
    race(refused(held("b", None))).holds();
    race(applied(None)).breaks();
    race(refused(held("a", None))).breaks();
    race(refused(None)).breaks();
}

#[test]
fn of_racing_swaps_from_one_value_one_is_applied() {
    let race = |second| {
        let mut script = Script::new();
        script.then(put("a", GOOD), applied(None));
        let one = script.call(swap("a", "b", GOOD));
        let two = script.call(swap("a", "c", GOOD));
        script.answer(&one, applied(None)).answer(&two, second);
        script
    };
    race(refused(held("b", None))).holds();
    race(applied(None)).breaks();
    race(refused(held("a", None))).breaks();
}

#[test]
fn of_racing_deletes_one_is_applied() {
    let race = |second| {
        let mut script = Script::new();
        script.then(put("a", GOOD), applied(None));
        let one = script.call(delete("a"));
        let two = script.call(delete("a"));
        script.answer(&one, applied(None)).answer(&two, second);
        script
    };
    race(refused(None)).holds();
    race(applied(None)).breaks();
}

#[test]
fn a_record_lives_until_its_expiry_and_not_longer() {
    let after = |wait, answer| {
        let mut script = Script::new();
        script.then(put("a", millis(10)), applied(1_010)).wait(wait).then(Call::Get, answer);
        script
    };
    after(9, found("a", 1_010)).holds();
    after(10, ABSENT).holds();
    after(9, ABSENT).breaks();
    after(10, found("a", 1_010)).breaks();
}

#[test]
fn a_call_across_the_expiry_may_find_the_record_or_not() {
    for answer in [found("a", 1_010), ABSENT] {
        let mut script = Script::new();
        script.then(put("a", millis(10)), applied(1_010)).wait(9);
        let reading = script.call(Call::Get);
        script.wait(1).answer(&reading, answer).holds();
    }
}

#[test]
fn what_was_reported_gone_never_comes_back() {
    let mut script = Script::new();
    script.then(put("a", millis(10)), applied(1_010)).wait(5);
    let one = script.call(Call::Get);
    script.wait(10).answer(&one, ABSENT);
    script.then(Call::Get, found("a", 1_010)).breaks();
}

/// Each read alone could lie before or after the expiry; their order decides.
#[test]
fn two_calls_across_the_expiry_agree_on_it() {
    let read_both = |first, second| {
        let mut script = Script::new();
        script.then(put("a", millis(10)), applied(1_010)).wait(5);
        let slow = script.call(insert("b", until(1_015)));
        script.then(Call::Get, first).wait(10).then(Call::Get, second);
        script.answer(&slow, refused(held("a", 1_010)));
        script
    };
    read_both(found("a", 1_010), ABSENT).holds();
    read_both(ABSENT, ABSENT).breaks_at_answer(2);
}

#[test]
fn an_insert_finds_an_expired_record_absent() {
    let after = |wait, answer| {
        let mut script = Script::new();
        script.then(put("a", millis(10)), applied(1_010)).wait(wait);
        script.then(insert("b", GOOD), answer);
        script
    };
    after(10, applied(None)).holds();
    after(9, applied(None)).breaks();
    after(10, refused(held("a", 1_010))).breaks();
}

#[test]
fn a_life_counts_from_between_the_call_and_its_answer() {
    let written = |expires_at| {
        let mut script = Script::new();
        let writing = script.call(put("a", millis(10)));
        script.wait(5).answer(&writing, applied(expires_at));
        script
    };
    written(1_010).holds();
    written(1_015).holds();
    written(1_009).breaks();
    written(1_016).breaks();
    let mut forever = Script::new();
    forever.then(put("a", millis(10)), applied(None)).breaks();
}

/// A store may take the time before the write shows, as a durable one must, but not after.
#[test]
fn a_life_counts_from_no_later_than_the_write_shows() {
    let written = |expires_at| {
        let mut script = Script::new();
        let writing = script.call(put("a", millis(10)));
        script.wait(5).then(Call::Get, ABSENT).wait(5).answer(&writing, applied(expires_at));
        script
    };
    written(1_015).holds();
    written(1_010).holds();
    written(1_009).breaks();
    let shown = |expires_at| {
        let mut script = Script::new();
        script.then(put("a", millis(10)), Answer::Unknown);
        script.wait(2).then(Call::Get, found("a", expires_at));
        script
    };
    shown(1_012).holds();
    shown(1_013).breaks();
}

#[test]
fn a_record_keeps_the_expiry_it_was_given() {
    let seen = |expires_at| {
        let mut script = Script::new();
        script.then(put("a", millis(10)), applied(1_010));
        script.then(Call::Get, found("a", expires_at));
        script
    };
    seen(1_010).holds();
    seen(1_011).breaks();
}

#[test]
fn a_record_written_into_the_past_is_absent_at_once() {
    let seen = |answer| {
        let mut script = Script::new();
        script.then(put("a", GOOD), applied(None));
        script.then(put("b", until(1_000)), applied(1_000)).then(Call::Get, answer);
        script
    };
    seen(ABSENT).holds();
    seen(found("b", 1_000)).breaks();
    seen(found("a", None)).breaks();
}

#[test]
fn a_keeping_swap_keeps_the_expiry() {
    let swapped = |expires_at| {
        let mut script = Script::new();
        script.then(put("a", millis(10)), applied(1_010)).wait(5);
        script.then(swap("a", "b", Life::Keep), applied(expires_at));
        script
    };
    swapped(1_010).holds();
    swapped(1_015).breaks();
}

#[test]
fn a_delete_reports_the_expiry_of_what_it_removed() {
    let deleted = |expires_at| {
        let mut script = Script::new();
        script.then(put("a", millis(10)), applied(1_010)).then(delete("a"), applied(expires_at));
        script
    };
    deleted(1_010).holds();
    deleted(1_000).breaks();
}

#[test]
fn a_refusal_needs_a_reason() {
    let mut script = Script::new();
    script.then(put("a", GOOD), applied(None));
    script.then(swap("a", "b", GOOD), refused(held("a", None))).breaks();
    Script::new().then(put("a", GOOD), refused(None)).breaks();
}

#[test]
fn a_lower_fence_is_refused_while_the_stamp_lives() {
    let after = |wait, answer| {
        let mut script = Script::new();
        script.then(fenced("a", 5), applied(1_010)).wait(wait).then(fenced("b", 4), answer);
        script
    };
    after(0, refused(stamped("a", 1_010, 5))).holds();
    after(0, applied(1_010)).breaks();
    after(10, applied(1_020)).holds();
    after(10, refused(stamped("a", 1_010, 5))).breaks();
}

#[test]
fn an_unavailable_write_was_not_applied() {
    let after = |answer| {
        let mut script = Script::new();
        script.then(put("a", GOOD), Answer::Unavailable).then(Call::Get, answer);
        script
    };
    after(ABSENT).holds();
    after(found("a", None)).breaks();
}

#[test]
fn an_unknown_write_is_applied_or_not() {
    for answer in [ABSENT, found("a", None)] {
        let mut script = Script::new();
        script.then(put("a", GOOD), Answer::Unknown).then(Call::Get, answer).holds();
    }
}

#[test]
fn an_unknown_write_may_arrive_after_its_return() {
    let mut script = Script::new();
    script.then(put("a", GOOD), Answer::Unknown).wait(50);
    script.then(Call::Get, ABSENT).wait(50).then(Call::Get, found("a", None)).holds();
}

#[test]
fn an_unknown_write_has_no_effect_before_it_was_asked_for() {
    let mut script = Script::new();
    script.then(Call::Get, found("a", None));
    script.then(put("a", GOOD), Answer::Unknown).breaks_at_answer(1);
}

#[test]
fn an_unknown_write_is_applied_once() {
    let mut script = Script::new();
    script.then(insert("a", GOOD), Answer::Unknown);
    script.then(delete("a"), applied(None)).then(Call::Get, found("a", None)).breaks();
}

#[test]
fn two_unknown_writes_may_both_be_applied() {
    let mut script = Script::new();
    script.then(insert("a", GOOD), Answer::Unknown).then(insert("a", GOOD), Answer::Unknown);
    script.then(delete("a"), applied(None)).then(delete("a"), applied(None)).holds();
    script.then(delete("a"), applied(None)).breaks();
}

/// A client may be held up between its place in the order and its look at the clock. Then the
/// write invoked first cannot stand in for an equal one whose clock was read earlier.
#[test]
fn of_equal_unknown_writes_either_may_be_the_one_that_arrived() {
    let mut script = Script::new();
    script.then(put("a", millis(30)), Answer::Unknown).then(put("a", millis(30)), Answer::Unknown);
    script.then(Call::Get, found("a", 1_030)).holds();
    script.events[0].invoked.clock = Timestamp::from_unix_millis(1_001);
    script.holds();
    script.events[1].invoked.clock = Timestamp::from_unix_millis(1_001);
    script.breaks();
}

#[test]
fn an_unknown_write_once_seen_stays() {
    let mut script = Script::new();
    script.then(put("a", GOOD), Answer::Unknown);
    script.then(Call::Get, found("a", None)).then(Call::Get, ABSENT).breaks();
}

#[test]
fn an_unknown_delete_explains_an_absence() {
    let mut script = Script::new();
    script.then(put("a", GOOD), applied(None)).then(delete("a"), Answer::Unknown);
    script.then(Call::Get, ABSENT).holds();
    let mut other = Script::new();
    other.then(put("a", GOOD), applied(None)).then(delete("b"), Answer::Unknown);
    other.then(Call::Get, ABSENT).breaks();
}

/// Written between 1,000 and the read at 1,020, so it expires between 1,030 and 1,050.
#[test]
fn the_expiry_of_an_unknown_write_fits_its_arrival() {
    let seen = |expires_at| {
        let mut script = Script::new();
        script.then(put("a", millis(30)), Answer::Unknown);
        script.wait(20).then(Call::Get, found("a", expires_at));
        script
    };
    seen(1_030).holds();
    seen(1_050).holds();
    seen(1_029).breaks();
    seen(1_051).breaks();
}

#[test]
fn the_expiry_of_an_unknown_write_is_the_same_for_all() {
    let seen = |second| {
        let mut script = Script::new();
        script.then(put("a", millis(30)), Answer::Unknown).wait(20);
        script.then(Call::Get, found("a", 1_040)).then(Call::Get, found("a", second));
        script
    };
    seen(1_040).holds();
    seen(1_041).breaks();
}

/// A write that arrived at 1,040 cannot be followed by an answer given at 1,030.
#[test]
fn an_unknown_write_arrives_before_whatever_depends_on_it() {
    let seen = |expires_at| {
        let mut script = Script::new();
        script.then(insert("a", millis(30)), Answer::Unknown).wait(30);
        script.then(swap("a", "b", Life::Keep), applied(expires_at));
        script
    };
    seen(1_060).holds();
    seen(1_061).breaks();
    seen(1_030).breaks();
}

#[test]
fn an_unknown_write_is_gone_after_the_longest_life_it_may_have() {
    let seen = |gone| {
        let mut script = Script::new();
        script.then(put("a", millis(10)), applied(1_010));
        script.then(swap("a", "b", millis(10)), Answer::Unknown);
        // Applied by 1,009 at the latest, so gone by 1,019.
        script.wait(gone).then(swap("b", "c", GOOD), applied(None));
        script
    };
    seen(18).holds();
    seen(19).breaks();
}

#[test]
fn keys_are_checked_apart() {
    let mut script = Script::new();
    script.then(put("a", GOOD), applied(None)).then(Call::Get, ABSENT);
    script.events[1].key = Key::new(b"p", b"other").unwrap();
    script.holds();
}

#[test]
fn a_violation_shows_the_fewest_answers_and_what_led_there() {
    let mut script = Script::new();
    script.then(put("a", GOOD), applied(None)).then(Call::Get, found("b", None));
    script.then(put("b", GOOD), applied(None)).then(Call::Get, found("b", None));
    script.breaks_at_answer(2);
    let Verdict::Violated(violation) = check(&script.events) else { panic!("an order was found") };
    assert_eq!(violation.last(), &script.events[1]);
    let shown = violation.to_string();
    assert!(shown.contains("client 0  put \"a\" for good -> applied, for good"), "{shown}");
    assert!(shown.contains("leaves \"a\" for good"), "{shown}");
    assert!(!shown.contains("client 3"), "{shown}");
}
