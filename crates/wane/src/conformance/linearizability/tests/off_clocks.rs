//! Histories judged by clocks that are off: what that explains, and what it never does.

use super::*;

/// Five milliseconds either way.
const OFF: Allowance = Allowance::skew(Duration::from_millis(5));

/// A day either way: whatever is broken under it is broken without a word about time.
const DAY: Allowance = Allowance::skew(Duration::from_secs(86_400));

impl Script {
    /// Legal only because clocks are off.
    #[track_caller]
    fn holds_only_within(&self, allowance: Allowance) {
        self.breaks();
        self.holds_within(allowance);
    }

    /// The last answer fits under no allowance at all.
    #[track_caller]
    fn breaks_under_any(&self) {
        for allowance in [Allowance::NONE, OFF, OFF.dated(), DAY, DAY.dated()] {
            self.breaks_within(allowance, self.events.len());
        }
    }
}

/// A record that expires at 1,010 and is looked at after `wait`.
fn ten_millis_looked_at_after(wait: u64, answer: Answer) -> Script {
    let mut script = Script::new();
    script.then(put("a", millis(10)), applied(1_010)).wait(wait).then(Call::Get, answer);
    script
}

#[test]
fn a_record_vanishes_no_earlier_than_the_skew_before_its_expiry() {
    ten_millis_looked_at_after(5, ABSENT).holds_only_within(OFF);
    ten_millis_looked_at_after(4, ABSENT).breaks_within(OFF, 2);
}

#[test]
fn a_record_lingers_less_than_the_skew_past_its_expiry() {
    ten_millis_looked_at_after(14, found("a", 1_010)).holds_only_within(OFF);
    ten_millis_looked_at_after(15, found("a", 1_010)).breaks_within(OFF, 2);
}

/// Two nodes ask by turns: one clock is ahead, the other behind.
#[test]
fn what_was_gone_may_come_back_only_around_its_expiry() {
    let flicker = |first, second| {
        let mut script = ten_millis_looked_at_after(first, ABSENT);
        script.wait(second).then(Call::Get, found("a", 1_010));
        script
    };
    flicker(5, 9).holds_within(OFF);
    flicker(5, 10).breaks_within(OFF, 3);
    flicker(4, 10).breaks_within(OFF, 2);
    flicker(14, 0).holds_within(OFF);
    flicker(15, 0).breaks_within(OFF, 3);
}

#[test]
fn an_insert_over_what_it_took_for_expired_ends_the_record() {
    let mut script = Script::new();
    script.then(put("a", millis(10)), applied(1_010)).wait(7);
    script.then(insert("b", GOOD), applied(None)).holds_only_within(OFF);
    script.then(Call::Get, found("a", 1_010)).breaks_within(OFF, 3);
}

#[test]
fn a_swap_of_what_others_took_for_expired_is_one_step() {
    let mut script = ten_millis_looked_at_after(7, ABSENT);
    script.then(swap("a", "b", GOOD), applied(None)).holds_within(OFF);
    let again = script.then(swap("a", "c", GOOD), applied(None));
    again.breaks_within(OFF, 4);
}

#[test]
fn a_deleted_record_never_comes_back() {
    let mut script = Script::new();
    script.then(put("a", millis(10)), applied(1_010)).wait(9);
    script.then(delete("a"), applied(1_010)).then(Call::Get, found("a", 1_010));
    script.breaks_under_any();
}

#[test]
fn a_record_for_good_never_vanishes() {
    let mut script = Script::new();
    script.then(put("a", GOOD), applied(None)).wait(9).then(Call::Get, ABSENT);
    script.breaks_under_any();
}

#[test]
fn a_value_that_nobody_wrote_is_never_found() {
    let mut script = Script::new();
    script.then(put("a", millis(10)), applied(1_010)).wait(9);
    script.then(Call::Get, found("b", 1_010)).breaks_under_any();
}

#[test]
fn racing_writes_stay_one_step() {
    let mut inserts = Script::new();
    inserts.then(insert("a", GOOD), applied(None)).then(insert("b", GOOD), applied(None));
    inserts.breaks_under_any();
    let mut swaps = Script::new();
    swaps.then(put("a", GOOD), applied(None)).then(swap("a", "b", GOOD), applied(None));
    swaps.then(swap("a", "c", GOOD), applied(None)).breaks_under_any();
}

#[test]
fn an_unknown_write_is_applied_once_whatever_the_clocks() {
    let mut script = Script::new();
    script.then(insert("a", GOOD), Answer::Unknown);
    script.then(delete("a"), applied(None)).then(Call::Get, found("a", None));
    script.breaks_under_any();
}

#[test]
fn an_unavailable_write_is_not_applied_whatever_the_clocks() {
    let mut script = Script::new();
    script.then(put("a", GOOD), Answer::Unavailable).then(Call::Get, found("a", None));
    script.breaks_under_any();
}

#[test]
fn a_life_counts_from_within_the_skew_of_the_call_and_its_answer() {
    let written = |expires_at| {
        let mut script = Script::new();
        let writing = script.call(put("a", millis(30)));
        script.wait(5).answer(&writing, applied(expires_at));
        script
    };
    written(1_025).holds_only_within(OFF);
    written(1_040).holds_only_within(OFF);
    written(1_024).breaks_within(OFF, 1);
    written(1_041).breaks_within(OFF, 1);
}

/// The instant was given, not taken from a clock.
#[test]
fn an_expiry_that_the_caller_chose_is_kept_to_the_millisecond() {
    let mut script = Script::new();
    script.then(put("a", until(1_010)), applied(1_011)).breaks_under_any();
    let mut script = Script::new();
    script.then(put("a", until(1_010)), applied(1_010)).then(Call::Get, found("a", 1_011));
    script.breaks_under_any();
}

/// Written between 1,000 and 1,020 by a clock that shows 995 to 1,025.
#[test]
fn the_expiry_of_an_unknown_write_fits_its_arrival_and_the_skew() {
    let seen = |expires_at| {
        let mut script = Script::new();
        script.then(put("a", millis(30)), Answer::Unknown);
        script.wait(20).then(Call::Get, found("a", expires_at));
        script
    };
    seen(1_025).holds_only_within(OFF);
    seen(1_055).holds_only_within(OFF);
    seen(1_024).breaks_within(OFF, 2);
    seen(1_056).breaks_within(OFF, 2);
}

/// Whoever took it for gone at 1,030 saw a clock of 1,035 at most, so it expires by then.
#[test]
fn an_unknown_write_that_was_gone_has_an_expiry_that_explains_it() {
    let seen = |expires_at| {
        let mut script = Script::new();
        script.then(put("a", millis(30)), Answer::Unknown).wait(2);
        script.then(delete("b"), refused(held("a", 1_032))).wait(28);
        script.then(Call::Get, ABSENT).then(Call::Get, found("a", expires_at));
        script
    };
    seen(1_032).holds_within(OFF);
    seen(1_033).breaks_within(OFF, 4);
    let unseen = |expires_at| {
        let mut script = Script::new();
        script.then(put("a", millis(5)), applied(1_005));
        script.then(swap("a", "b", millis(30)), Answer::Unknown).wait(30);
        script.then(Call::Get, ABSENT).then(Call::Get, found("b", expires_at));
        script
    };
    unseen(1_035).holds_within(OFF);
    unseen(1_036).breaks_within(OFF, 4);
}

/// The swap asked at 1,000 by the time it had then, and arrived when others saw the record gone.
#[test]
fn a_dated_request_finds_what_expired_on_its_way() {
    let mut script = Script::new();
    script.then(put("a", millis(10)), applied(1_010));
    let late = script.call(swap("a", "b", GOOD));
    script.wait(500).then(Call::Get, ABSENT).answer(&late, applied(None));
    script.then(Call::Get, found("b", None));
    script.breaks_within(OFF, 3);
    script.holds_within(OFF.dated());
    script.holds_within(Allowance::NONE.dated());
}

#[test]
fn a_dated_request_sent_after_the_expiry_finds_nothing() {
    let swapped = |wait| {
        let mut script = Script::new();
        script.then(put("a", millis(10)), applied(1_010)).wait(wait);
        script.then(swap("a", "b", GOOD), applied(None));
        script
    };
    swapped(14).holds_within(OFF.dated());
    swapped(15).breaks_within(OFF.dated(), 2);
    swapped(9).holds_within(Allowance::NONE.dated());
    swapped(10).breaks_within(Allowance::NONE.dated(), 2);
}

#[test]
fn a_violation_says_how_far_off_the_clocks_were_taken_to_be() {
    let script = ten_millis_looked_at_after(4, ABSENT);
    let Verdict::Violated(violation) = check_within(&script.events, OFF) else {
        panic!("an order was found")
    };
    assert!(violation.to_string().contains("with clocks up to 5 ms off"), "{violation}");
}
