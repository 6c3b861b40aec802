//! A model: a list of what came in and when. Every replay of a time is the part of the list that came
//! in then, whatever producers and readers of the stream do meanwhile.

use super::*;

/// What came in, in order.
#[derive(Default)]
struct Model(Vec<(Timestamp, ResourceId, Vec<u8>)>);

impl Model {
    async fn take_in<S: Store>(&mut self, setup: &Setup, node: &PullStream<S>, count: usize) {
        let first = self.0.len();
        let numbers = first..first + count;
        let at = setup.now();
        let ids = node.ingest(ispb(), batch(numbers.clone())).await.expect("nothing fails here");
        assert_eq!(setup.now(), at, "no time passes while nobody waits");
        self.0.extend(ids.into_iter().zip(numbers).map(|(id, number)| (at, id, message(number))));
    }

    fn of(&self, times: &Range<Timestamp>) -> Vec<(ResourceId, Vec<u8>)> {
        let came = self.0.iter().filter(|(at, ..)| times.contains(at));
        came.map(|(_, id, bytes)| (*id, bytes.clone())).collect()
    }

    /// What is wrong with a replay of a time.
    fn violation(&self, times: &Range<Timestamp>, read: &[Delivered]) -> Option<String> {
        let expected = self.of(times);
        let read: Vec<_> = read.iter().map(|m| (m.id, m.bytes.to_vec())).collect();
        if read == expected {
            return None;
        }
        let differs = read.iter().zip(&expected).position(|(read, expected)| read != expected);
        let (got, wanted) = (read.len(), expected.len());
        Some(format!("{times:?}: {got} messages instead of {wanted}, others from {differs:?} on"))
    }
}

fn below(setup: &Setup, limit: u64) -> u64 {
    setup.machine.clock().random_u64() % limit
}

/// Some time since the world began, a little of it before and after.
fn some_times(setup: &Setup, began: Timestamp) -> Range<Timestamp> {
    let long = began.until(setup.now()).as_millis() as u64 + 2_000;
    let (one, two) = (below(setup, long), below(setup, long));
    let at = |millis: u64| Timestamp::from_unix_millis(began.as_unix_millis() + millis - 1_000);
    at(one.min(two))..at(one.max(two) + 1)
}

/// Reads the stream for as long as it is let, and acknowledges.
async fn pull_for_ever<S: Store>(node: PullStream<S>) {
    let mut pulled = node.start(ispb(), &many()).await.expect("nothing fails here");
    loop {
        pulled = node.next(ispb(), &pulled.next, &many()).await.expect("nothing fails here");
        true_sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_replay_of_any_time_is_what_came_in_then() {
    for _ in 0..2 {
        let setup = setup();
        let nodes = [setup.node(), setup.node()];
        let readers = nodes.clone().map(|node| tokio::spawn(pull_for_ever(node)));
        let (began, mut model, mut replayed) = (setup.now(), Model::default(), 0);
        for step in 0..160_usize {
            model.take_in(&setup, &nodes[step % 2], 1 + below(&setup, 10) as usize).await;
            true_sleep(Duration::from_millis(below(&setup, 300))).await;
            if step % 8 != 7 {
                continue;
            }
            let times = some_times(&setup, began);
            match replay(&nodes[0], times.clone()).await {
                Ok(started) => {
                    let reader = if below(&setup, 8) == 0 { single() } else { many() };
                    let read = read_all(&nodes[1], &started, &reader).await;
                    assert_eq!(model.violation(&times, &read), None);
                    replayed += read.len();
                }
                Err(PullStreamError::Absent { .. }) => assert_eq!(model.of(&times).len(), 0),
                Err(error) => panic!("{error}"),
            }
        }
        assert!(replayed > 2_000, "{replayed}");
        readers.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

/// The control: a row is taken out behind everybody's back, and the model finds it missing.
#[tokio::test(start_paused = true)]
async fn a_row_that_was_taken_out_is_found_missing() {
    let setup = setup();
    let node = setup.node();
    let mut model = Model::default();
    for _ in 0..30 {
        model.take_in(&setup, &node, 5).await;
        true_sleep(SECOND).await;
    }
    let read = read_all(&node, &replay(&node, ever()).await.unwrap(), &many()).await;
    assert_eq!(model.violation(&ever(), &read), None);
    take_out(&setup, &row_key(17)).await;
    let read = read_all(&node, &replay(&node, ever()).await.unwrap(), &many()).await;
    let found = model.violation(&ever(), &read).unwrap();
    assert!(found.contains("145 messages instead of 150"), "{found}");
}

/// Several ranges of the log, most of the time in between them.
#[tokio::test(start_paused = true)]
async fn a_time_is_found_in_a_long_log() {
    let setup = setup();
    let node = setup.node();
    let (began, mut model) = (setup.now(), Model::default());
    for _ in 0..1_500 {
        model.take_in(&setup, &node, 1).await;
        true_sleep(SECOND).await;
    }
    for _ in 0..20 {
        let times = some_times(&setup, began);
        let Ok(started) = replay(&node, times.clone()).await else {
            assert_eq!(model.of(&times).len(), 0);
            continue;
        };
        let read = read_all(&node, &started, &many()).await;
        assert_eq!(model.violation(&times, &read), None);
    }
}
