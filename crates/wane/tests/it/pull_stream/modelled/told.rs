//! The model: sets of messages, and what readers were told. It knows nothing of rows and records.
//!
//! A message is unread, waits to be delivered again, is with one reader, or is acknowledged. Which
//! of them a reader is given is up to the service, within rules: in the order of the log, what comes
//! again first, nothing that is with a live reader, and as much as there is.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use wane::services::pull_stream::{MAX_READERS, Pulled, Refusal, ResourceId};

use super::super::ids;

/// Milliseconds.
pub(super) const LEASE: u64 = 30_000;

/// A reader, by what it was told.
#[derive(Debug)]
struct Teller {
    /// The slot that its tokens name.
    thread: u64,
    /// In the order in which they were issued.
    tokens: Vec<String>,
    /// The number of the first token, counted from 1, that is not out of order.
    since: usize,
    has: Vec<ResourceId>,
    /// The answer that it has them from.
    answer: Option<Pulled>,
    lease_until: u64,
    is_gone: bool,
}

/// What a token is good for.
#[derive(Debug, PartialEq, Eq)]
enum Good {
    /// Acknowledges, and takes what comes next.
    Last,
    /// Is answered the same again.
    Again,
    /// Goes on waiting: it was not answered with anything yet.
    Waits,
}

/// What became of all messages.
#[derive(Debug, Default)]
pub(super) struct Told {
    pub(super) now: u64,
    bytes: BTreeMap<ResourceId, Vec<u8>>,
    unread: VecDeque<ResourceId>,
    again: BTreeSet<ResourceId>,
    acknowledged: BTreeSet<ResourceId>,
    readers: Vec<Teller>,
}

type Checked = Result<(), String>;

impl Told {
    pub(super) fn take_in(&mut self, id: ResourceId, bytes: Vec<u8>) {
        self.bytes.insert(id, bytes);
        self.unread.push_back(id);
    }

    /// The token of a reader that was issued so many before its last one.
    pub(super) fn token(&self, reader: usize, before: usize) -> Option<(usize, usize, String)> {
        let reader = reader.checked_rem(self.readers.len())?;
        let tokens = &self.readers[reader].tokens;
        let number = tokens.len().saturating_sub(before).max(1);
        Some((reader, number, tokens[number - 1].clone()))
    }

    /// Messages that are not acknowledged.
    pub(super) fn open(&self) -> BTreeSet<ResourceId> {
        self.bytes.keys().filter(|id| !self.acknowledged.contains(id)).copied().collect()
    }

    fn is_live(&self, reader: usize) -> bool {
        let Teller { is_gone, lease_until, .. } = self.readers[reader];
        !is_gone && lease_until > self.now
    }

    fn live(&self) -> usize {
        (0..self.readers.len()).filter(|reader| self.is_live(*reader)).count()
    }

    fn is_fading(&self, reader: usize) -> bool {
        self.readers[reader].lease_until.saturating_sub(self.now) < LEASE / 2
    }

    fn vacate(&mut self, reader: usize) {
        let reader = &mut self.readers[reader];
        reader.is_gone = true;
        self.again.extend(std::mem::take(&mut reader.has));
    }

    /// Readers other than one that have messages, and whose lease had ended by then.
    fn abandoned(&self, own: usize, by: u64) -> Vec<usize> {
        let is_abandoned = |index: &usize| {
            let reader = &self.readers[*index];
            *index != own && reader.lease_until <= by && !reader.has.is_empty()
        };
        (0..self.readers.len()).filter(is_abandoned).collect()
    }

    /// A reader was given these: they were there to be given, and nothing was held back.
    fn claim(&mut self, own: usize, most: usize, given: &[ResourceId]) -> Checked {
        for reader in self.abandoned(own, self.now - LEASE) {
            self.vacate(reader);
        }
        let had_nothing = self.again.is_empty() && self.unread.is_empty();
        let mut is_fresh = false;
        for id in given {
            let gone = self.abandoned(own, self.now);
            let from = gone.into_iter().find(|reader| self.readers[*reader].has.contains(id));
            if let Some(reader) = from.filter(|_| had_nothing) {
                self.vacate(reader);
            }
            if self.again.remove(id) {
                if is_fresh {
                    return Err(format!("{id:?} comes again after what is new"));
                }
            } else if self.unread.front() == Some(id) {
                self.unread.pop_front();
                is_fresh = true;
            } else {
                return Err(format!("{id:?} is not what comes next"));
            }
        }
        if given.len() > most {
            return Err(format!("{} messages for one that takes {most}", given.len()));
        }
        let is_held_back = !self.again.is_empty() || !self.unread.is_empty();
        if given.len() < most && is_held_back {
            return Err(format!("{} are given, and there is more", given.len()));
        }
        if given.is_empty() && !self.abandoned(own, self.now).is_empty() {
            return Err("nothing is given, and a reader has gone".into());
        }
        Ok(())
    }

    fn has_bytes(&self, pulled: &Pulled) -> Checked {
        let messages = pulled.batch.iter().flat_map(|batch| batch.messages());
        for message in messages {
            if self.bytes.get(&message.id).is_none_or(|bytes| *bytes != message.bytes) {
                return Err(format!("{:?} has other bytes", message.id));
            }
        }
        Ok(())
    }

    pub(super) fn started(
        &mut self,
        most: usize,
        thread: impl Fn(&str) -> u64,
        answer: Result<Pulled, Refusal>,
    ) -> Checked {
        let is_full = self.live() >= MAX_READERS;
        let pulled = match answer {
            Ok(_) if is_full => return Err("a seventh reader".into()),
            Ok(pulled) => pulled,
            Err(Refusal::TooManyReaders { .. }) if is_full => return Ok(()),
            Err(refusal) => return Err(format!("a start: {refusal:?}")),
        };
        self.has_bytes(&pulled)?;
        let thread = thread(&pulled.next);
        self.take_slot(thread)?;
        let own = self.readers.len();
        self.claim(own, most, &ids(&pulled))?;
        self.readers.push(Teller {
            thread,
            tokens: vec![pulled.next.clone()],
            since: 0,
            has: ids(&pulled),
            lease_until: self.now + LEASE,
            answer: Some(pulled).filter(|pulled| pulled.batch.is_some()),
            is_gone: false,
        });
        Ok(())
    }

    /// Whoever had the slot has gone, for longest of all; unless another one was free.
    fn take_slot(&mut self, thread: u64) -> Checked {
        let staying: Vec<_> =
            (0..self.readers.len()).filter(|reader| !self.readers[*reader].is_gone).collect();
        let before = staying.iter().find(|reader| self.readers[**reader].thread == thread);
        let Some(before) = before.copied() else { return Ok(()) };
        let longest = staying.iter().map(|reader| self.readers[*reader].lease_until).min();
        let is_longest = Some(self.readers[before].lease_until) == longest;
        if staying.len() < MAX_READERS || self.is_live(before) || !is_longest {
            return Err(format!("slot {thread} was given to a second reader"));
        }
        self.vacate(before);
        Ok(())
    }

    fn good(&self, reader: usize, number: usize) -> Result<Good, Refusal> {
        let Teller { is_gone, since, ref tokens, ref has, .. } = self.readers[reader];
        let is_lost = is_gone || (!self.is_live(reader) && self.live() >= MAX_READERS);
        match () {
            () if is_gone => Err(Refusal::Expired),
            () if number < since => Err(Refusal::OutOfOrder),
            () if is_lost => Err(Refusal::Expired),
            () if number == tokens.len() => Ok(Good::Last),
            () if has.is_empty() => Ok(Good::Waits),
            () => Ok(Good::Again),
        }
    }

    pub(super) fn went_on(
        &mut self,
        (own, number): (usize, usize),
        most: usize,
        answer: Result<Pulled, Refusal>,
    ) -> Checked {
        let good = self.good(own, number);
        let (pulled, good) = match (answer, good) {
            (Ok(pulled), Ok(good)) => (pulled, good),
            (Err(told), Err(expected)) if told == expected => return Ok(()),
            (told, good) => return Err(format!("a token that is {good:?}: {told:?}")),
        };
        self.has_bytes(&pulled)?;
        let fades = self.is_fading(own);
        if good == Good::Again {
            if Some(&pulled) != self.readers[own].answer.as_ref() {
                return Err(format!("a retry has another answer: {pulled:?}"));
            }
            if fades {
                self.readers[own].lease_until = self.now + LEASE;
            }
            return Ok(());
        }
        let given = ids(&pulled);
        self.claim(own, most, &given)?;
        let reader = &mut self.readers[own];
        let is_issued = !given.is_empty() || !reader.has.is_empty() || fades;
        if is_issued == reader.tokens.contains(&pulled.next) {
            return Err(format!("a token is issued: {is_issued}, and is {}", pulled.next));
        }
        if !is_issued {
            return Ok(());
        }
        if good == Good::Last {
            self.acknowledged.extend(std::mem::take(&mut reader.has));
            reader.since = number;
        }
        reader.tokens.push(pulled.next.clone());
        reader.has = given;
        reader.lease_until = self.now + LEASE;
        reader.answer = Some(pulled).filter(|pulled| pulled.batch.is_some());
        Ok(())
    }

    pub(super) fn ended(
        &mut self,
        (own, number): (usize, usize),
        answer: Result<(), Refusal>,
    ) -> Checked {
        let expected = match self.good(own, number) {
            Err(Refusal::Expired) => Err(Refusal::Gone),
            Err(refusal) => Err(refusal),
            Ok(good) => Ok(good),
        };
        match (answer, expected) {
            (Ok(()), Ok(good)) => {
                if good == Good::Last {
                    let had = std::mem::take(&mut self.readers[own].has);
                    self.acknowledged.extend(had);
                }
                self.vacate(own);
                Ok(())
            }
            (Err(told), Err(expected)) if told == expected => Ok(()),
            (told, expected) => Err(format!("an end: {told:?}, not {expected:?}")),
        }
    }
}
