//! D2: polls at once on two nodes get one token, and a removal has the last word.

use futures_util::future::join_all;
use wane::services::device_auth::{DeviceId, Polled, Started};

use super::stage::{Click, Stage, issued, on_every_backend};

const POLLS: usize = 12;

async fn approved(it: &Stage, subject: &str) -> (Started, DeviceId) {
    let started = it.started().await;
    match it.click(it.node(0), &started, Some(subject)).await {
        Click::Won(device) => (started, device),
        click @ (Click::Lost | Click::NoSuchCode | Click::Unclear) => {
            panic!("{}: {click:?}", it.backend)
        }
    }
}

pub(super) async fn many_polls_get_one_token(it: &Stage) {
    for round in 0..it.rounds {
        let subject = format!("alice-{round}");
        let (started, device) = approved(it, &subject).await;
        it.swaps.made();
        let polls = (0..POLLS).map(|at| it.poll(it.node(at), &started));
        let tokens: Vec<_> = join_all(polls).await.into_iter().map(issued).collect();
        let redeemed = it.swaps.made();
        assert!(redeemed <= 1, "{}: redeemed {redeemed} times", it.backend);
        let repeats = join_all([0, 1].map(|at| it.poll(it.node(at), &started))).await;
        for one in tokens.iter().chain(&repeats.into_iter().map(issued).collect::<Vec<_>>()) {
            assert_eq!((&one.token, one.device), (&tokens[0].token, device), "{}", it.backend);
        }
        assert!(it.is_good(&tokens[0]).await, "{}", it.backend);
        assert_eq!(it.devices_of(&subject).await, [device], "{}", it.backend);
    }
}

/// Whatever a poll was told, nothing of it is good once the device was revoked.
pub(super) async fn a_revocation_has_the_last_word(it: &Stage) {
    for round in 0..it.rounds {
        let subject = format!("bob-{round}");
        let (started, device) = approved(it, &subject).await;
        let revoke = async {
            for _ in 0..round * 3 {
                tokio::task::yield_now().await;
            }
            it.revoke(it.node(0), device).await
        };
        let polls = join_all((0..4).map(|at| it.poll(it.node(at), &started)));
        let (was_there, polled) = tokio::join!(revoke, polls);
        assert!(was_there, "{}: it was approved", it.backend);
        for one in polled {
            match one {
                Polled::Issued(issued) => assert!(!it.is_good(&issued).await, "{}", it.backend),
                Polled::Invalid => {}
                other @ (Polled::Pending
                | Polled::SlowDown { .. }
                | Polled::Denied
                | Polled::Expired) => panic!("{}: {other:?}", it.backend),
            }
        }
        assert_eq!(it.devices_of(&subject).await, [], "{}", it.backend);
        let after = it.poll(it.node(1), &started).await;
        assert!(matches!(after, Polled::Invalid), "{}: {after:?}", it.backend);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_polls_of_one_code_get_one_token_on_every_backend() {
    on_every_backend(many_polls_get_one_token).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_polls_and_a_revocation_the_revocation_wins_on_every_backend() {
    on_every_backend(a_revocation_has_the_last_word).await;
}
