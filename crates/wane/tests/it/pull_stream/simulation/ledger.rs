//! What producers and readers of a simulated world were told, and what is wrong with it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use wane::services::pull_stream::{Pulled, ResourceId};

use super::super::ids;

/// A batch as it was delivered once.
#[derive(Debug, Clone)]
pub(super) struct Given {
    /// The token that acknowledges it.
    next: String,
    /// When the call began, and when it was answered, in steps of the ledger.
    began: u64,
    noted: u64,
    acknowledged: bool,
}

/// What producers and readers were told.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    steps: u64,
    /// Messages that are in the log for certain, and bytes of those that may be.
    pub(super) known: BTreeMap<ResourceId, Vec<u8>>,
    pub(super) possible: BTreeSet<Vec<u8>>,
    given: BTreeMap<ResourceId, Vec<Given>>,
    batches: BTreeMap<String, Vec<ResourceId>>,
    /// Messages that a call may have acknowledged that was never answered, and when it began.
    perhaps: BTreeMap<ResourceId, u64>,
    /// Tokens of calls that are under way, and when they began.
    open: Vec<(String, u64)>,
    /// What each token was answered with.
    answers: BTreeMap<String, Pulled>,
    /// When a batch was handed out first and last, by the token that came with it.
    handed_out: BTreeMap<String, (Duration, Duration)>,
    pub(super) tokens: BTreeSet<String>,
}

impl Ledger {
    pub(super) fn step(&mut self) -> u64 {
        self.steps += 1;
        self.steps
    }

    /// Takes note of an answer, or says what is wrong with it.
    pub(super) fn note(
        &mut self,
        used: Option<&str>,
        began: u64,
        at: Duration,
        pulled: &Pulled,
    ) -> Result<(), String> {
        if let Some(used) = used {
            self.answered_alike(used, pulled)?;
            self.acknowledge(used)?;
        }
        self.tokens.insert(pulled.next.clone());
        let Some(delivery) = &pulled.batch else { return Ok(()) };
        let noted = self.step();
        for message in delivery.messages() {
            let bytes = message.bytes.to_vec();
            match self.known.get(&message.id) {
                Some(known) if *known == bytes => {}
                None if self.possible.contains(&bytes) => {}
                known => return Err(format!("{:?} has other bytes than {known:?}", message.id)),
            }
            let given = self.given.entry(message.id).or_default();
            if given.iter().any(|given| given.next == pulled.next) {
                continue;
            }
            if given.iter().any(|given| given.acknowledged && began > given.noted) {
                return Err(format!("{:?} was delivered after its acknowledgement", message.id));
            }
            let next = pulled.next.clone();
            given.push(Given { next, began, noted, acknowledged: false });
            if self.perhaps.get(&message.id).is_some_and(|open| *open < began) {
                self.perhaps.remove(&message.id);
            }
        }
        self.batches.insert(pulled.next.clone(), ids(pulled));
        self.handed_out.entry(pulled.next.clone()).or_insert((at, at)).1 = at;
        Ok(())
    }

    fn answered_alike(&mut self, used: &str, pulled: &Pulled) -> Result<(), String> {
        if pulled.batch.is_none() {
            return Ok(());
        }
        match self.answers.insert(used.to_owned(), pulled.clone()) {
            Some(before) if before != *pulled => {
                Err(format!("one token has two answers: {:?}, {:?}", ids(&before), ids(pulled)))
            }
            Some(_) | None => Ok(()),
        }
    }

    /// A call with this token was answered: what it was issued with is acknowledged.
    pub(super) fn acknowledge(&mut self, used: &str) -> Result<(), String> {
        let Some(batch) = self.batches.get(used) else { return Ok(()) };
        for id in batch {
            let given = self.given.get_mut(id).expect("noted with the batch");
            let own = given.iter().find(|given| given.next == used).expect("noted with the batch");
            let noted = own.noted;
            if given.iter().any(|other| other.next != used && other.began > noted) {
                return Err(format!("{id:?} was on two leases"));
            }
            given.iter_mut().filter(|g| g.next == used).for_each(|g| g.acknowledged = true);
        }
        Ok(())
    }

    /// A call begins: when, in steps of the ledger.
    pub(super) fn begin(&mut self, used: Option<&str>) -> u64 {
        let began = self.step();
        self.open.extend(used.map(|used| (used.to_owned(), began)));
        began
    }

    /// A call was answered.
    pub(super) fn heard(&mut self, began: u64) {
        self.open.retain(|(_, call)| *call != began);
    }

    /// A call was given up: nobody knows whether it acknowledged what its token was issued with.
    pub(super) fn unheard(&mut self, began: u64) {
        let given_up = self.open.extract_if(.., |(_, call)| *call == began);
        for (token, began) in given_up.collect::<Vec<_>>() {
            for id in self.batches.get(&token).into_iter().flatten() {
                self.perhaps.insert(*id, began);
            }
        }
    }

    /// Whoever is in a call hears nothing any more.
    pub(super) fn close(&mut self) {
        let open: Vec<u64> = self.open.iter().map(|(_, began)| *began).collect();
        open.into_iter().for_each(|began| self.unheard(began));
    }

    /// Whether each batch was handed out only while it was its reader's: not once another had been
    /// given a message of it, longer ago than two clocks may be `apart`.
    ///
    /// `claim` says of a token which claim it was, in the order of claims.
    pub(super) fn handed_out_in_time(
        &self,
        claim: impl Fn(&str) -> Option<usize>,
        apart: Duration,
    ) -> Result<(), String> {
        for (id, given) in &self.given {
            let claims = given.iter().filter_map(|given| {
                let (first, last) = self.handed_out.get(&given.next)?;
                Some((claim(&given.next)?, *first, *last))
            });
            let mut claims: Vec<_> = claims.collect();
            claims.sort_unstable();
            for (one, next) in claims.iter().zip(claims.iter().skip(1)) {
                let late = one.2.saturating_sub(next.1);
                if late > apart {
                    return Err(format!("{id:?} was handed out {late:?} after it was another's"));
                }
            }
        }
        Ok(())
    }

    /// Messages that nobody has, nor may have, acknowledged.
    pub(super) fn lost(&self) -> Vec<ResourceId> {
        let is_read = |id: &&ResourceId| {
            let given = self.given.get(id).into_iter().flatten();
            self.perhaps.contains_key(id) || given.into_iter().any(|given| given.acknowledged)
        };
        self.known.keys().filter(|id| !is_read(id)).copied().collect()
    }
}

impl Ledger {
    /// Any token that some reader was given: for readers that do not keep to theirs.
    pub(super) fn some_token(&self) -> Option<String> {
        self.tokens.iter().next().cloned()
    }
}
