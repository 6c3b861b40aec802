//! A reader: which token it asks with, and what it hands out.

use std::time::Duration;

use super::{asked, delivers, delivers_nothing, ends, id, multipart, stage};
use crate::client::tests::stage::{Player, case};
use crate::client::{ClientError, Ending, Reading, Remedy};

async fn reader() -> (Player, Reading) {
    let (player, stream) = stage().await;
    let reading = stream.reading(multipart());
    (player, reading)
}

async fn asks(reading: &mut Reading) -> Vec<String> {
    let messages = reading.ask().await.unwrap();
    messages.iter().map(|it| String::from_utf8(it.bytes.to_vec()).unwrap()).collect()
}

#[tokio::test]
async fn each_call_acknowledges_what_came_before() {
    let (player, mut reading) = reader().await;
    assert!(!reading.has_slot());
    delivers(&player, "t1", &[(1, "a"), (2, "b")]);
    assert_eq!(asks(&mut reading).await, ["a", "b"]);
    assert!(reading.has_slot() && reading.has_unacknowledged());
    delivers(&player, "t2", &[(3, "c")]);
    assert_eq!(asks(&mut reading).await, ["c"]);
    delivers_nothing(&player, "t3");
    assert!(asks(&mut reading).await.is_empty());
    assert!(!reading.has_unacknowledged());
    ends(&player);
    assert_eq!(reading.end().await.unwrap(), Ending::Ended);
    assert!(!reading.has_slot());
    assert_eq!(reading.end().await.unwrap(), Ending::Ended, "there is nothing to end");
    assert_eq!(asked(&player), ["GET start", "GET t1", "GET t2", "DELETE t3"]);
}

#[tokio::test]
async fn a_call_that_failed_is_made_again_with_the_same_token() {
    let (player, mut reading) = reader().await;
    delivers(&player, "t1", &[(1, "a")]);
    asks(&mut reading).await;
    for status in [503, 504, 502] {
        player.problem(status, if status == 504 { "unknown_outcome" } else { "unavailable" });
        let error = reading.ask().await.unwrap_err();
        assert!(matches!(Remedy::of(&error), Remedy::Again(_)), "{error}");
        assert!(reading.has_unacknowledged());
    }
    delivers(&player, "t2", &[(2, "b")]);
    assert_eq!(asks(&mut reading).await, ["b"]);
    assert_eq!(asked(&player), ["GET start", "GET t1", "GET t1", "GET t1", "GET t1"]);
}

/// A slot that is lost delivers again what it had not acknowledged; whoever kept it has it.
#[tokio::test]
async fn what_was_kept_before_a_slot_was_lost_is_not_handed_out_twice() {
    let (player, mut reading) = reader().await;
    delivers(&player, "t1", &[(1, "a"), (2, "b")]);
    asks(&mut reading).await;
    player.problem(401, "token_expired");
    let error = reading.ask().await.unwrap_err();
    assert_eq!(Remedy::of(&error), Remedy::Anew);
    reading.begin_anew();
    assert!(!reading.has_slot());
    // One comes with others, the other alone: that batch is acknowledged without a word.
    delivers(&player, "u1", &[(1, "a"), (3, "c")]);
    assert_eq!(asks(&mut reading).await, ["c"]);
    delivers(&player, "u2", &[(2, "b")]);
    delivers(&player, "u3", &[(2, "b again")]);
    assert_eq!(
        asks(&mut reading).await,
        ["b again"],
        "it was acknowledged, and is another one now"
    );
    assert_eq!(asked(&player), ["GET start", "GET t1", "GET start", "GET u1", "GET u2"]);
}

#[tokio::test]
async fn a_batch_that_came_twice_and_was_lost_twice_is_still_known() {
    let (player, mut reading) = reader().await;
    delivers(&player, "t1", &[(1, "a")]);
    asks(&mut reading).await;
    reading.begin_anew();
    delivers(&player, "u1", &[(1, "a"), (2, "b")]);
    assert_eq!(asks(&mut reading).await, ["b"]);
    reading.begin_anew();
    delivers(&player, "v1", &[(1, "a"), (2, "b"), (3, "c")]);
    assert_eq!(asks(&mut reading).await, ["c"]);
}

/// The token before the last one gives a slot back without acknowledging anything.
#[tokio::test]
async fn what_could_not_be_kept_is_given_back() {
    let (player, mut reading) = reader().await;
    delivers(&player, "t1", &[(1, "a")]);
    asks(&mut reading).await;
    assert_eq!(reading.give_back().await.unwrap(), Ending::Left, "no token does that yet");
    assert!(reading.has_slot());
    delivers(&player, "t2", &[(2, "b")]);
    asks(&mut reading).await;
    ends(&player);
    assert_eq!(reading.give_back().await.unwrap(), Ending::Ended);
    assert_eq!(asked(&player), ["GET start", "GET t1", "DELETE t1"]);
}

#[tokio::test]
async fn a_slot_that_is_gone_is_no_failure() {
    for (status, code) in [(410, "gone"), (401, "token_expired")] {
        let (player, mut reading) = reader().await;
        delivers(&player, "t1", &[(1, "a")]);
        asks(&mut reading).await;
        player.problem(503, "unavailable");
        assert_eq!(case(&reading.end().await.unwrap_err()), "problem");
        assert!(reading.has_slot(), "it can be ended again");
        player.problem(status, code);
        assert_eq!(reading.end().await.unwrap(), Ending::Gone);
        assert!(!reading.has_slot());
    }
}

#[test]
fn every_failure_has_its_remedy() {
    let problem = |code: &str, status, seconds: Option<u64>| ClientError::Problem {
        code: code.into(),
        status,
        detail: String::new(),
        retry_after: seconds.map(Duration::from_secs),
    };
    let at_once = Remedy::Again(Duration::ZERO);
    for (error, remedy) in [
        (ClientError::Unreachable { url: String::new(), source: "".into() }, at_once),
        (ClientError::UnknownOutcome { source: "".into() }, at_once),
        (problem("unavailable", 503, None), at_once),
        (problem("unavailable", 503, Some(2)), Remedy::Again(Duration::from_secs(2))),
        (problem("internal", 500, None), at_once),
        (problem("token_expired", 401, None), Remedy::Anew),
        (problem("gone", 410, None), Remedy::Anew),
        (problem("limited", 429, Some(17)), Remedy::Wait(Duration::from_secs(17))),
        (problem("limited", 429, None), Remedy::Wait(Duration::from_secs(5))),
        (problem("invalid_token", 401, None), Remedy::Nothing),
        (problem("unauthorized", 401, None), Remedy::Nothing),
        (problem("forbidden", 403, None), Remedy::Nothing),
        (problem("token_out_of_order", 400, None), Remedy::Nothing),
        (problem("not_acceptable", 406, None), Remedy::Nothing),
        (ClientError::Absent, Remedy::Nothing),
        (ClientError::Protocol { reason: String::new() }, Remedy::Nothing),
    ] {
        assert_eq!(Remedy::of(&error), remedy, "{error:?}");
    }
}

/// A token lets anybody go on with the stream.
#[tokio::test]
async fn tokens_are_not_shown() {
    let (player, mut reading) = reader().await;
    delivers(&player, "the-token-itself", &[(1, "a")]);
    asks(&mut reading).await;
    player.problem(400, "token_out_of_order");
    let error = reading.ask().await.unwrap_err();
    let shown = format!("{reading:?} {error:?} {error}");
    assert!(!shown.contains("the-token-itself"), "{shown}");
    assert!(shown.contains(&id(1).to_string()), "the control: the rest is shown");
}
