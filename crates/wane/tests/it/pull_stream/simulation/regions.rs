//! Regions of simulated worlds: they take over from each other at any moment, whatever fails.
//!
//! Looked at with every answer: a node of a region that was told to be the other's, before the call
//! began and not asked to take over since, serves nobody. What was told stands: of calls that nobody
//! was told of, one that comes late may change it, but none that came before the last change.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use wane::services::pull_stream::{Failover, PullStream, PullStreamError};
use wane::store::Store;

use super::super::{Client, ispb};
use super::node::NodeStore;
use super::{Kind, USUAL, World, found, live};
use crate::simulation::machine::true_sleep;
use crate::simulation::{Dice, first_failure, seeds};

pub(super) const REGIONS: [&str; 2] = ["r1", "r2"];

/// Who serves, as far as anybody was told.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The region, and since when in steps of the ledger; `None` while that is not certain.
    owner: Option<(String, u64)>,
    last_epoch: u64,
}

impl Turns {
    /// Says what is wrong with an answer of this region to a call that began then.
    pub(super) fn may_serve(&self, region: &str, began: u64) -> Result<(), String> {
        match &self.owner {
            Some((owner, since)) if owner != region && began > *since => {
                Err(format!("{region} serves what {owner} has taken over"))
            }
            Some(_) | None => Ok(()),
        }
    }
}

impl<S: Store> World<S> {
    /// Says that there are regions, and lets them take over from each other.
    pub(super) async fn take_turns(self: Arc<Self>, mut dice: Dice) {
        loop {
            true_sleep(dice.millis(20, 1_500)).await;
            let stream = self.node(&mut dice).stream();
            let has_begun = {
                let mut turns = self.turns.lock();
                turns.owner = None;
                turns.last_epoch > 0
            };
            let to = dice.hits(0.5).then(|| REGIONS[(dice.draw() % 2) as usize].into());
            let (failover, nobody) = (Failover { to, ..Failover::default() }, Client::default());
            let call = async {
                if has_begun {
                    return stream.fail_over(ispb(), &failover, &nobody).await;
                }
                stream.set_regions(ispb(), REGIONS[0], REGIONS[1], &nobody).await
            };
            let patience = dice.millis(50, 3_000);
            let told = tokio::select! {
                biased;
                told = call => told.ok(),
                () = true_sleep(patience) => None,
            };
            let Some(map) = told else { continue };
            let since = self.ledger.lock().step();
            let mut turns = self.turns.lock();
            if map.epoch > turns.last_epoch {
                turns.last_epoch = map.epoch;
                turns.owner = Some((map.primary, since));
            }
        }
    }
}

/// Gives the stream to the first region, if it has regions at all.
pub(super) async fn settle<S: Store>(
    stream: &PullStream<NodeStore<S>>,
) -> Result<(), PullStreamError> {
    let to = Failover { to: Some(REGIONS[0].into()), ..Failover::default() };
    match stream.fail_over(ispb(), &to, &Client::default()).await {
        Ok(_) | Err(PullStreamError::Absent { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

#[test]
fn every_message_is_accounted_for_while_regions_take_over() {
    let (count, answers) = (seeds(300), AtomicU64::new(0));
    let kind = Kind { regions: true, ..USUAL };
    let world = async |seed| {
        let heard = live(kind, seed).await?;
        answers.fetch_add(heard, Ordering::Relaxed);
        Ok(())
    };
    if let Some((seed, failure)) = first_failure(0..count, world) {
        panic!("seed {seed}: {failure}");
    }
    let answers = answers.into_inner();
    println!("{count} worlds, {answers} answers");
    assert!(answers > count * 10, "too little happened: {answers} answers in {count} worlds");
}

/// The record of the stream is what keeps the region out that lost it: a map does not.
#[test]
fn a_failover_of_the_map_alone_is_found() {
    let blunder = Some(super::Blunder::KeepsRegions);
    found(Kind { regions: true, blunder, ..USUAL }, &["has taken over"]);
}
