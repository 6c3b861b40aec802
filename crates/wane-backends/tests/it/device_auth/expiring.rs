//! D3: approvals and polls around the expiry of a code. What a person is told is what became of it,
//! and a device that asks too late gets nothing.

use std::time::Duration;

use futures_util::future::join_all;
use wane::services::device_auth::{Issued, Polled, Started};
use wane::store::Timestamp;

use super::stage::{Click, Node, Stage, side_by_side};

/// How long it takes to hand all codes out, and then some.
const STARTING: Duration = Duration::from_secs(4);

/// Codes that are clicked one after the other, two in three of them before the expiry.
const CODES: u32 = 24;

/// How long before the expiry the first one is clicked; longer where a store is so slow that none
/// was in time.
const LEADS: [Duration; 3] =
    [Duration::from_millis(400), Duration::from_secs(2), Duration::from_secs(6)];

/// How long after the expiry a device goes on asking.
const AFTER: Duration = Duration::from_millis(600);

/// One code, and when it is clicked and asked for.
#[derive(Clone, Copy)]
struct Course<'a> {
    started: &'a Started,
    lead: Duration,
    /// The click comes so much later than the lead.
    offset: Duration,
    /// The device asks too late for an approval that came in time.
    is_late: bool,
}

async fn wait_for(it: &Stage, at: Timestamp, before: Duration, offset: Duration) {
    let left = it.clock.now().until(at) + offset;
    it.clock.sleep(left.saturating_sub(before)).await;
}

/// The first token that a device gets, which asks until a while after the expiry.
async fn device(it: &Stage, node: &Node, course: &Course<'_>) -> Option<Issued> {
    let (started, mut first) = (course.started, None);
    let before = if course.is_late { Duration::ZERO } else { course.lead };
    wait_for(it, started.expires_at, before, Duration::from_millis(2)).await;
    while started.expires_at.until(it.clock.now()) < AFTER {
        if let Polled::Issued(issued) = it.poll(node, started).await {
            first.get_or_insert(issued);
        }
        it.clock.sleep(Duration::from_millis(5)).await;
    }
    first
}

/// What the person was told.
async fn one_code(it: &Stage, asked: &Node, course: Course<'_>) -> Click {
    let started = course.started;
    let click = async {
        wait_for(it, started.expires_at, course.lead, course.offset).await;
        it.click(it.node(0), started, Some("alice")).await
    };
    let (click, token) = tokio::join!(click, device(it, asked, &course));
    let what = format!("{}: clicked at {:?}: {click:?}", it.backend, course.offset);
    match (&click, &token) {
        (Click::Won(_), Some(_)) if course.is_late => {
            panic!("{what}, and a token after the expiry")
        }
        (Click::Won(device), Some(issued)) => {
            assert_eq!(*device, issued.device, "{what}");
            assert!(it.is_good(issued).await, "{what}, and its token is not good");
        }
        (Click::NoSuchCode, Some(_)) => panic!("{what}, and a token"),
        (Click::Won(_) | Click::NoSuchCode, None) | (Click::Unclear, _) => {}
        (Click::Lost, _) => panic!("{what}, and nobody else decided"),
    }
    let again = it.click(it.node(1), started, Some("mallory")).await;
    assert!(matches!(again, Click::NoSuchCode | Click::Unclear), "{what}, then {again:?}");
    let polled = it.poll(it.node(1), started).await;
    let is_right = match (&polled, &token) {
        (Polled::Issued(again), Some(first)) => again.token == first.token,
        // It was told so long ago that the window is over.
        (Polled::Invalid, Some(_)) | (Polled::Expired, None) => true,
        _ => false,
    };
    assert!(is_right, "{what}, then {polled:?}");
    click
}

/// Whether some were told in time, and some that it was too late.
async fn both_ends_are_seen(it: &Stage, asked: &Node, lead: Duration) -> bool {
    let started = join_all((0..CODES).map(|_| it.started_with(STARTING + lead))).await;
    let courses = (0..CODES).zip(&started).map(|(number, started)| {
        let is_late = number.is_multiple_of(4);
        let offset = if is_late { Duration::ZERO } else { lead * number / 16 };
        Course { started, lead, offset, is_late }
    });
    let told = join_all(courses.map(|course| one_code(it, asked, course))).await;
    let won = told.iter().filter(|click| matches!(click, Click::Won(_))).count();
    let late = told.iter().filter(|click| **click == Click::NoSuchCode).count();
    println!("{}: {won} in time, {late} too late", it.backend);
    won > 0 && late > 0
}

/// The device asks at this node.
pub(super) async fn what_is_told_is_what_became_of_it(it: &Stage, asked: &Node) {
    for lead in LEADS {
        if both_ends_are_seen(it, asked, lead).await {
            return;
        }
    }
    panic!("{}: not one was in time, or not one too late", it.backend);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn approvals_around_the_expiry_are_told_as_they_end_on_every_backend() {
    side_by_side(async |it| what_is_told_is_what_became_of_it(it, it.node(1)).await).await;
}
