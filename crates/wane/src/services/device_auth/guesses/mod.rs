//! The guess budget: how many wrong user codes may be tried, by one and by all together.
//!
//! An attempt is charged when it begins and given back when it found a live code, or when nobody
//! could look: so only misses count, many attempts at once do not slip through, and a success
//! forgives nothing else. The same wrong code from the same place within a minute is charged once:
//! a page that is loaded again spends nothing.
//!
//! Two limits hold in every stretch of [`GuessSettings::life`], 900 s:
//!
//! - one address (of IPv6: one /64) misses at most 5 times, and one /48 of IPv6, which anybody can
//!   have, 50 times; one person of an application 5 times, and the application for all of its
//!   people 1,000 times;
//! - beyond 4,000 misses of the whole server, everybody waits: at first life/4,000 between two
//!   attempts, twice as long after each further hundred, up to a minute.
//!
//! The arithmetic. Waiting 0.225 s a hundred times, then 0.45, 0.9, 1.8 and 3.6 s, takes 697 s;
//! 7.2 s fits 28 times into the rest of 900 s. So no more than 4,000 + 528 wrong codes are tried in
//! any 900 s, from however many addresses. Ten letters make 20^10 = 1.024e13 codes. With 10,000
//! of them live, a try hits with 9.77e-10, and 4,528 tries with 4.42e-6. The longest life of a code
//! is twice 900 s: 8.85e-6. What is repeated for free hits only a code that is made in that minute:
//! 4,528 codes against 667 new ones, 2.9e-7 in each 900 s. Together 9.4e-6: under one in 100,000.
//!
//! The numbers are a node's own. Where several serve, divide the budget by them.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::secret::{Hash, hash};
use crate::clock::SharedClock;
use crate::services::ClusterAppId;

/// How long the same wrong code from the same place is the same attempt.
const SAME_ATTEMPT: Duration = Duration::from_secs(60);

/// The longest wait between two attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// The wait doubles forty times while the budget is spent a second time.
const DOUBLINGS: usize = 40;

/// How many times as much as an address the network around it may try.
pub(super) const NETWORK: u32 = 10;

/// How many wrong codes may be tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuessSettings {
    /// By one address, in one life; by one /48 of IPv6, ten times as many.
    pub per_address: usize,
    /// By one application on behalf of its people, in one life.
    pub per_app: usize,
    /// By all, in one life, before everybody waits; 0 is taken as 1.
    pub budget: usize,
    /// How long a miss counts: the usual life of a code.
    pub life: Duration,
}

impl Default for GuessSettings {
    fn default() -> Self {
        Self { per_address: 5, per_app: 1_000, budget: 4_000, life: Duration::from_secs(900) }
    }
}

/// Where a request comes from: an address, or the /64 that an IPv6 address is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Source(IpAddr);

impl Source {
    /// The source of a request from this address.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V6(v6) => {
                let network = u128::from(v6) >> 64 << 64;
                Self(Ipv6Addr::from(network).into())
            }
            v4 @ IpAddr::V4(_) => Self(v4),
        }
    }

    /// The /48 that an IPv6 source is in: one subscriber may have 65,536 sources.
    pub(super) fn network(self) -> Option<Self> {
        match self.0 {
            IpAddr::V6(v6) => Some(Self(Ipv6Addr::from(u128::from(v6) >> 80 << 80).into())),
            IpAddr::V4(_) => None,
        }
    }
}

/// Who tries a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Guesser {
    /// Whoever is there.
    Address(Source),
    /// The application itself, with its credential.
    App,
    /// The application, on behalf of this person.
    Person(Person),
    /// Whoever found the code before and proves it: that is no guess, and neither refused nor charged.
    Known,
}

/// A person of an application, by a hash of the name that it has there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Person([u8; 16]);

impl Person {
    /// The person of this name.
    pub fn named(subject: &str) -> Self {
        let hash = hash(&[b"person\0", subject.as_bytes()]);
        Self(hash[..16].try_into().unwrap_or_default())
    }
}

/// Whose misses are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Whose {
    Address(Source),
    Network(Source),
    Person(ClusterAppId, Person),
    App(ClusterAppId),
}

impl Whose {
    /// Whose misses these are as well.
    fn around(self) -> Option<Self> {
        match self {
            Self::Address(source) => source.network().map(Self::Network),
            Self::Person(app, _) => Some(Self::App(app)),
            Self::Network(_) | Self::App(_) => None,
        }
    }

    /// How many there may be.
    fn most(self, settings: &GuessSettings) -> usize {
        match self {
            Self::Address(_) | Self::Person(..) => settings.per_address,
            Self::Network(_) => settings.per_address.saturating_mul(NETWORK as usize),
            Self::App(_) => settings.per_app,
        }
    }
}

/// Counts misses. A clone counts the same ones.
#[derive(Debug, Clone)]
pub struct GuessLimiter {
    settings: GuessSettings,
    clock: SharedClock,
    books: Arc<Mutex<Books>>,
}

/// The misses of the last life. Bounded by the budget and what is tried beyond it.
#[derive(Debug, Default)]
struct Books {
    /// In the order of their times.
    charges: BTreeMap<u64, (Duration, Whose)>,
    of_each: HashMap<Whose, Vec<Charge>>,
    next: u64,
}

#[derive(Debug, Clone, Copy)]
struct Charge {
    number: u64,
    at: Duration,
    code: Hash,
}

impl GuessLimiter {
    /// Nobody has missed yet.
    pub fn new(settings: GuessSettings, clock: SharedClock) -> Self {
        Self { settings, clock, books: Arc::default() }
    }

    /// Begins an attempt at a code, given by its hash; or says how long to wait.
    ///
    /// `app` is whose credential [`Guesser::App`] and [`Guesser::Person`] stand for.
    pub fn admit(
        &self,
        guesser: Guesser,
        app: ClusterAppId,
        code: [u8; 32],
    ) -> Result<Attempt, Duration> {
        let whose = match guesser {
            Guesser::Address(source) => Whose::Address(source),
            Guesser::App => Whose::App(app),
            Guesser::Person(person) => Whose::Person(app, person),
            Guesser::Known => return Ok(Attempt { books: Arc::clone(&self.books), charge: None }),
        };
        let mut books = self.books.lock();
        // Looked at in turn, so that no attempt seems to come before one that is in the books.
        let (now, life) = (self.clock.monotonic(), self.settings.life);
        books.forget(now, life);
        let own = books.of(whose);
        if own.iter().any(|charge| charge.code == code && now < charge.at + SAME_ATTEMPT) {
            return Ok(Attempt { books: Arc::clone(&self.books), charge: None });
        }
        for whose in [Some(whose), whose.around()].into_iter().flatten() {
            let charges = books.of(whose);
            if charges.len() >= whose.most(&self.settings) {
                // With a limit of 0 there is nothing to wait for.
                let freed_at = charges.first().map_or(now + life, |oldest| oldest.at + life);
                return Err(freed_at.saturating_sub(now));
            }
        }
        let allowed_at = books.last_at() + self.wait(books.charges.len());
        if allowed_at > now {
            return Err(allowed_at - now);
        }
        let number = books.charge(whose, code, now);
        Ok(Attempt { books: Arc::clone(&self.books), charge: Some(number) })
    }

    /// How long after an attempt the next one may come, with so many misses in the last life.
    fn wait(&self, misses: usize) -> Duration {
        let budget = self.settings.budget.max(1);
        let Some(over) = misses.checked_sub(budget) else { return Duration::ZERO };
        let doublings = over / budget.div_ceil(DOUBLINGS);
        let factor = 1_u32.checked_shl(u32::try_from(doublings).unwrap_or(u32::MAX));
        let unit = self.settings.life / u32::try_from(budget).unwrap_or(u32::MAX);
        unit.checked_mul(factor.unwrap_or(u32::MAX)).unwrap_or(LONGEST_WAIT).min(LONGEST_WAIT)
    }
}

impl Books {
    fn charge(&mut self, whose: Whose, code: Hash, at: Duration) -> u64 {
        let number = self.next;
        self.next += 1;
        self.charges.insert(number, (at, whose));
        for whose in [Some(whose), whose.around()].into_iter().flatten() {
            self.of_each.entry(whose).or_default().push(Charge { number, at, code });
        }
        number
    }

    fn of(&self, whose: Whose) -> &[Charge] {
        self.of_each.get(&whose).map_or(&[], Vec::as_slice)
    }

    /// When the last miss was: successes make nobody wait.
    fn last_at(&self) -> Duration {
        self.charges.last_key_value().map_or(Duration::ZERO, |(_, (at, _))| *at)
    }

    fn forget(&mut self, now: Duration, life: Duration) {
        while let Some(oldest) = self.charges.first_entry().filter(|it| it.get().0 + life <= now) {
            let (number, (_, whose)) = oldest.remove_entry();
            self.take_from(whose, number);
        }
    }

    fn give_back(&mut self, number: u64) {
        if let Some((_, whose)) = self.charges.remove(&number) {
            self.take_from(whose, number);
        }
    }

    fn take_from(&mut self, whose: Whose, number: u64) {
        for whose in [Some(whose), whose.around()].into_iter().flatten() {
            let Some(own) = self.of_each.get_mut(&whose) else { continue };
            own.retain(|charge| charge.number != number);
            if own.is_empty() {
                self.of_each.remove(&whose);
            }
        }
    }
}

/// An attempt under way. It counts as a miss, also where it is dropped, unless it is forgiven.
#[derive(Debug)]
#[must_use = "an attempt counts as a miss until it is forgiven"]
pub struct Attempt {
    books: Arc<Mutex<Books>>,
    charge: Option<u64>,
}

impl Attempt {
    /// The code was found, or nobody could look.
    pub fn forgive(self) {
        if let Some(number) = self.charge {
            self.books.lock().give_back(number);
        }
    }
}

#[cfg(test)]
mod tests;
