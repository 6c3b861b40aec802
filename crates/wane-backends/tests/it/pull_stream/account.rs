//! What producers and readers of a run were told, and the first thing that is wrong with it.
//!
//! Every message is known by its id and its bytes. A batch is acknowledged once a call with the
//! token that came with it was answered; where such a call had no answer, it may be.

use std::collections::BTreeMap;

use wane::services::pull_stream::{Pulled, ResourceId};

use super::stage::ids;

/// The most messages that one call can take.
const BATCH: usize = 10;

/// A batch as it was delivered once.
#[derive(Debug)]
struct Given {
    /// The token that acknowledges it.
    next: String,
    /// When the call began, and when it was answered, in steps of the account.
    began: u64,
    noted: u64,
    acknowledged: bool,
}

/// A message as its producer made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Made {
    pub(super) producer: usize,
    pub(super) number: usize,
}

/// The last message of each producer that a reader was given since it started.
pub(super) type Session = BTreeMap<usize, usize>;

/// What producers and readers were told.
#[derive(Debug, Default)]
pub(super) struct Account {
    steps: u64,
    made: BTreeMap<Vec<u8>, Made>,
    /// Messages that are in the log for certain.
    taken_in: BTreeMap<ResourceId, Vec<u8>>,
    given: BTreeMap<ResourceId, Vec<Given>>,
    /// What came with a token.
    batches: BTreeMap<String, Vec<ResourceId>>,
    /// What a token was answered with.
    answers: BTreeMap<String, Pulled>,
    /// Messages that a call without an answer may have acknowledged, and when it began.
    perhaps: BTreeMap<ResourceId, u64>,
    /// Calls without an answer, and messages that came out of order and can be theirs.
    unheard: usize,
    excused: usize,
    wrong: Option<String>,
}

impl Account {
    pub(super) fn step(&mut self) -> u64 {
        self.steps += 1;
        self.steps
    }

    fn fail(&mut self, wrong: String) {
        self.wrong.get_or_insert(wrong);
    }

    pub(super) fn has_failed(&self) -> bool {
        self.wrong.is_some()
    }

    /// A message is about to be sent.
    pub(super) fn make(&mut self, bytes: Vec<u8>, made: Made) {
        self.made.insert(bytes, made);
    }

    /// A message is in the log.
    pub(super) fn take_in(&mut self, id: ResourceId, bytes: Vec<u8>) {
        if self.taken_in.insert(id, bytes).is_some() {
            self.fail(format!("{id:?} was given out twice"));
        }
    }

    /// A reader was refused what it should have.
    pub(super) fn refused(&mut self, what: &str) {
        self.fail(format!("refused: {what}"));
    }

    /// Takes note of an answer to a call that began then, by a reader of that session.
    pub(super) fn note(
        &mut self,
        session: &mut Session,
        used: Option<&str>,
        began: u64,
        pulled: &Pulled,
    ) {
        if let Some(used) = used {
            self.answered_alike(used, pulled);
            self.acknowledge(used);
        }
        let Some(delivery) = &pulled.batch else { return };
        let noted = self.step();
        let is_again = self.batches.contains_key(&pulled.next);
        for message in delivery.messages() {
            let Some(made) = self.made.get(&message.bytes[..]).copied() else {
                return self.fail(format!("{:?} has bytes that nobody sent", message.id));
            };
            let known = self.taken_in.get(&message.id);
            if known.is_some_and(|known| *known != message.bytes) {
                return self.fail(format!("{:?} has other bytes than were sent", message.id));
            }
            if !is_again {
                self.in_order(session, message.id, made);
                self.given_once(message.id, pulled, began, noted);
            }
        }
        self.batches.insert(pulled.next.clone(), ids(pulled));
    }

    /// A token that was answered with messages is answered the same each time.
    fn answered_alike(&mut self, used: &str, pulled: &Pulled) {
        if pulled.batch.is_none() {
            return;
        }
        match self.answers.insert(used.to_owned(), pulled.clone()) {
            Some(before) if before != *pulled => self.fail("one token has two answers".into()),
            Some(_) | None => {}
        }
    }

    /// Messages of a producer come in its order, but for those that come again: they were given to
    /// another before, or to a call without an answer.
    fn in_order(&mut self, session: &mut Session, id: ResourceId, made: Made) {
        let last = session.entry(made.producer).or_default();
        let came_before = self.given.contains_key(&id);
        if made.number > *last {
            if !came_before {
                *last = made.number;
            }
            return;
        }
        if !came_before {
            self.excused += 1;
        }
        if self.excused > self.unheard * BATCH {
            self.fail(format!("{made:?} came after number {last}"));
        }
    }

    fn given_once(&mut self, id: ResourceId, pulled: &Pulled, began: u64, noted: u64) {
        let given = self.given.entry(id).or_default();
        if given.iter().any(|given| given.acknowledged && began > given.noted) {
            return self.fail(format!("{id:?} was delivered after its acknowledgement"));
        }
        given.push(Given { next: pulled.next.clone(), began, noted, acknowledged: false });
        if self.perhaps.get(&id).is_some_and(|unheard| *unheard < began) {
            self.perhaps.remove(&id);
        }
    }

    /// A call with this token was answered: what it was issued with is acknowledged.
    pub(super) fn acknowledge(&mut self, used: &str) {
        let batch = self.batches.get(used).cloned().unwrap_or_default();
        for id in batch {
            let given = self.given.entry(id).or_default();
            let noted = given.iter().find(|given| given.next == used).map_or(0, |own| own.noted);
            let is_doubled = given.iter().any(|other| other.next != used && other.began > noted);
            given.iter_mut().filter(|own| own.next == used).for_each(|own| own.acknowledged = true);
            if is_doubled {
                self.fail(format!("{id:?} was on two leases"));
            }
        }
    }

    /// A call that began then had no answer: nobody knows what it acknowledged and took.
    pub(super) fn unheard(&mut self, used: Option<&str>, began: u64) {
        self.unheard += 1;
        let batch = used.and_then(|used| self.batches.get(used)).cloned().unwrap_or_default();
        self.perhaps.extend(batch.into_iter().map(|id| (id, began)));
    }

    /// Messages that nobody has, nor may have, acknowledged.
    pub(super) fn open(&self) -> Vec<ResourceId> {
        let is_read = |id: &&ResourceId| {
            let mut given = self.given.get(*id).into_iter().flatten();
            self.perhaps.contains_key(*id) || given.any(|given| given.acknowledged)
        };
        self.taken_in.keys().filter(|id| !is_read(id)).copied().collect()
    }

    /// Whether some message was delivered on more than one lease, one after the other.
    pub(super) fn came_again(&self) -> usize {
        self.given.values().filter(|given| given.len() > 1).count()
    }

    /// How many calls had no answer.
    pub(super) fn count_unheard(&self) -> usize {
        self.unheard
    }

    /// How many tokens readers were given with messages.
    pub(super) fn tokens(&self) -> usize {
        self.batches.len()
    }

    /// How many messages there were, or what is wrong.
    pub(super) fn settled(&self) -> Result<usize, String> {
        if let Some(wrong) = &self.wrong {
            return Err(wrong.clone());
        }
        match &self.open()[..] {
            [] => Ok(self.taken_in.len()),
            lost => Err(format!("{} messages are lost, the first is {:?}", lost.len(), lost[0])),
        }
    }
}
