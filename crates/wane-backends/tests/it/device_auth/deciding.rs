//! D1: of clicks at once on two nodes one decides, and the device hears of that one.

use futures_util::future::join_all;
use wane::services::device_auth::Polled;

use super::stage::{Click, Stage, issued, on_every_backend};

const CLICKS: usize = 8;

/// Who clicks: their names, or `None` to deny.
async fn clicked(it: &Stage, subjects: &[Option<String>]) {
    let started = it.started().await;
    let clicks = subjects.iter().enumerate();
    let clicks = clicks.map(|(at, subject)| it.click(it.node(at), &started, subject.as_deref()));
    let told = join_all(clicks).await;
    let won = |click: &Click| matches!(click, Click::Won(_));
    let is_clear = !told.contains(&Click::Unclear);
    let winners = told.iter().filter(|click| won(click)).count();
    assert!(winners == 1 || (winners == 0 && !is_clear), "{}: {told:?}", it.backend);
    assert!(!told.contains(&Click::NoSuchCode), "{}: {told:?}", it.backend);

    let polled = it.poll(it.node(1), &started).await;
    let Some(winner) = told.iter().position(won) else { return };
    let Some(subject) = &subjects[winner] else {
        assert!(matches!(polled, Polled::Denied), "{}: denied, and {polled:?}", it.backend);
        return;
    };
    let issued = issued(polled);
    assert_eq!(told[winner], Click::Won(issued.device), "{}", it.backend);
    assert_eq!(it.subject_of(&issued).await, *subject, "{}", it.backend);
    for other in subjects.iter().flatten() {
        let is_linked = it.devices_of(other).await.contains(&issued.device);
        assert_eq!(is_linked, other == subject, "{}: {other}", it.backend);
    }
}

pub(super) async fn one_of_approving_and_denying_wins(it: &Stage) {
    for round in 0..it.rounds {
        let subject = |at: usize| (at + round).is_multiple_of(2).then(|| "alice".to_owned());
        clicked(it, &(0..CLICKS).map(subject).collect::<Vec<_>>()).await;
    }
}

pub(super) async fn one_of_many_approvals_wins(it: &Stage) {
    for round in 0..it.rounds {
        let names = (0..CLICKS).map(|at| Some(format!("{round}-{at}")));
        clicked(it, &names.collect::<Vec<_>>()).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_approving_and_denying_one_wins_on_every_backend() {
    on_every_backend(one_of_approving_and_denying_wins).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_approvals_one_wins_on_every_backend() {
    on_every_backend(one_of_many_approvals_wins).await;
}
