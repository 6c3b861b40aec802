//! What callers do wrong gets an error that says what to do, and changes nothing.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use wane::services::ClusterAppId;
use wane::services::sequencer::{
    Closed, MAX_SEQUENCES, Offset, Phase, SequenceId, Sequencer, SequencerError, SequencerSettings,
    Sequences, WorkspaceId, WorkspaceKind,
};

use super::{ORDERS, SHOP, draw, ground, started, until};

#[tokio::test]
async fn calls_without_a_transaction_are_errors() {
    let ground = ground();
    let mut sequencer = ground.ready().await;
    for _ in 0..2 {
        let errors = [
            ("next", sequencer.next(ORDERS).await.map(drop)),
            ("flush", sequencer.flush()),
            ("actualize", sequencer.actualize()),
        ];
        for (name, error) in errors {
            let Err(SequencerError::NotStarted { call }) = error else { panic!("{error:?}") };
            assert_eq!(call, name);
        }
        assert_eq!(ground.write_event(&mut sequencer, 1, &[ORDERS]).await.len(), 1);
    }
    started(&mut sequencer, 1);
    sequencer.flush().unwrap();
    assert!(matches!(sequencer.flush(), Err(SequencerError::NotStarted { call: "flush" })));
}

#[tokio::test]
async fn a_second_start_is_an_error_and_the_first_one_goes_on() {
    let ground = ground();
    let mut sequencer = ground.ready().await;
    ground.write_event(&mut sequencer, 1, &[ORDERS]).await;
    let event = draw(&mut sequencer, 1, &[ORDERS]).await;
    let error = sequencer.start(SHOP, WorkspaceId(2)).unwrap_err();
    assert!(matches!(error, SequencerError::AlreadyStarted { offset: Offset(2) }), "{error}");
    assert!(error.to_string().contains("flush or actualize"), "{error}");
    assert_eq!(sequencer.next(ORDERS).await.unwrap(), 3);
    ground.log.append(event).unwrap();
    sequencer.flush().unwrap();
}

#[tokio::test]
async fn unknown_kinds_and_sequences_are_errors() {
    let ground = ground();
    let mut sequencer = ground.ready().await;
    let error = sequencer.start(WorkspaceKind(9), WorkspaceId(1)).unwrap_err();
    assert!(matches!(error, SequencerError::UnknownKind { kind: WorkspaceKind(9) }), "{error}");
    started(&mut sequencer, 1);
    let error = sequencer.next(SequenceId(9)).await.unwrap_err();
    assert!(matches!(error, SequencerError::UnknownSequence { kind: SHOP, .. }), "{error}");
    assert_eq!(sequencer.next(ORDERS).await.unwrap(), 1, "the transaction goes on");
}

#[tokio::test]
async fn an_exhausted_sequence_is_an_error_and_never_begins_again() {
    let mut ground = ground();
    ground.settings.kinds.get_mut(&SHOP).unwrap().insert(ORDERS, u64::MAX - 1);
    let mut sequencer = ground.ready().await;
    let drawn = ground.write_event(&mut sequencer, 1, &[ORDERS, ORDERS]).await;
    assert_eq!(drawn, [u64::MAX - 1, u64::MAX]);
    for round in 0..2 {
        started(&mut sequencer, 1);
        let error = sequencer.next(ORDERS).await.unwrap_err();
        let exhausted = matches!(
            error,
            SequencerError::NumbersExhausted { workspace: WorkspaceId(1), sequence: ORDERS }
        );
        assert!(exhausted, "round {round}: {error}");
        sequencer.actualize().unwrap();
        sequencer.ready().await.unwrap();
    }
    started(&mut sequencer, 2);
    assert_eq!(sequencer.next(ORDERS).await.unwrap(), u64::MAX - 1);
    assert_eq!(sequencer.next(ORDERS).await.unwrap(), u64::MAX);
    assert!(sequencer.next(ORDERS).await.is_err(), "in the middle of a transaction too");
}

#[tokio::test]
async fn a_log_without_offsets_left_is_an_error() {
    let mut ground = ground();
    ground.settings.first_offset = Offset(u64::MAX);
    let mut sequencer = ground.sequencer();
    let monitor = sequencer.monitor();
    let running = Phase::Running { next: Offset(u64::MAX) };
    until("it has recovered", || monitor.status().phase == running).await;
    let error = sequencer.start(SHOP, WorkspaceId(1)).unwrap_err();
    assert!(matches!(error, SequencerError::OffsetsExhausted), "{error}");
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused() {
    type Change = fn(&mut SequencerSettings);
    let changes: [(&str, Change); 7] = [
        ("app", |it| it.app = ClusterAppId::NONE),
        ("cache_size", |it| it.cache_size = 0),
        ("max_unflushed", |it| it.max_unflushed = 0),
        ("concurrency", |it| it.concurrency = 0),
        ("page", |it| it.page = 0),
        ("first_pause", |it| it.longest_pause = it.first_pause / 2),
        ("kinds", |it| {
            let ids = 0..=u16::try_from(MAX_SEQUENCES).unwrap();
            let sequences: Sequences = ids.map(|id| (SequenceId(id), 1)).collect();
            it.kinds.insert(SHOP, sequences);
        }),
    ];
    let ground = ground();
    for (name, change) in changes {
        let mut settings = ground.settings.clone();
        change(&mut settings);
        let (store, log) = (ground.store.clone(), Arc::clone(&ground.log));
        let error = Sequencer::new(store, log, ground.clock.clone(), settings).unwrap_err();
        let SequencerError::Invalid { field, .. } = error else { panic!("{name}: {error}") };
        assert_eq!(field, name);
    }
}

/// The background task ends only when what it calls panics. Nobody must wait for it for ever.
#[tokio::test]
async fn a_sequencer_whose_task_has_ended_says_so() {
    let ground = ground();
    let mut sequencer = ground.ready().await;
    started(&mut sequencer, 1);
    ground.log.panicking.store(true, Ordering::Relaxed);
    sequencer.actualize().unwrap();
    assert!(matches!(sequencer.ready().await, Err(SequencerError::Stopped)));
    assert_eq!(sequencer.status().phase, Phase::Stopped);
    let error = sequencer.start(SHOP, WorkspaceId(1)).unwrap_err();
    assert!(matches!(error, SequencerError::Stopped), "{error}");
    let closed = sequencer.close(Duration::from_secs(1)).await;
    assert_eq!(closed, Closed::Unflushed { numbers: 0 });
}
