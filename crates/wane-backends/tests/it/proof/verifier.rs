//! The verifier: replays a ledger into what each key must hold, and compares that with a store.
//!
//! Of an operation that began and was not answered both outcomes are allowed; of an answered one
//! only the answer. A record may be gone only where its expiry has passed, and must be gone then.
//! What is found where two outcomes are allowed counts as settled from then on, so one verifier
//! follows a store through any number of crashes.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use wane::clock::SharedClock;
use wane::store::{BoxError, Fence, Life, PageLimit, Store, StoreError, Write};

use super::ledger::{Answer, FOREIGN, Held, Line, Operation, Verb, store_key, value};
use super::workload::{COUNTERS, CROWD, LEASE, LEASE_MILLIS};

/// What is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wrong {
    /// Something acknowledged is gone.
    Lost,
    /// Something deleted, replaced or expired is back.
    Resurrected,
    /// Something is there that nobody wrote.
    Foreign,
    /// One of two racers that expect the same state was enough.
    AppliedTwice,
    /// An answer or an error that cannot be.
    Impossible,
}

/// Where, and the particulars.
#[derive(Debug)]
struct Violation {
    wrong: Wrong,
    key: String,
    particulars: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {}: {}", self.wrong, self.key, self.particulars)
    }
}

/// What one key has been through.
#[derive(Debug, Default)]
struct History {
    settled: Option<Held>,
    /// The operation that was not answered, and when it began.
    pending: Option<(Operation, u64)>,
}

/// A key that all callers increase.
#[derive(Debug, Default)]
struct Counter {
    /// Its number when it was last looked at.
    base: u64,
    acknowledged: BTreeSet<u64>,
    pending: HashMap<usize, u64>,
    unanswered: u64,
}

/// A time in which something happened.
#[derive(Debug, Clone, Copy)]
struct Window {
    from: u64,
    to: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Verifier {
    keys: BTreeMap<String, History>,
    counters: HashMap<String, Counter>,
    leases: BTreeSet<u64>,
    acknowledged: u64,
    checks: u64,
    violations: Vec<Violation>,
}

impl Verifier {
    /// Takes in the lines of a ledger, once.
    pub(crate) fn replay(&mut self, ledger: &[Line]) {
        for line in ledger {
            match line {
                Line::Started | Line::Opened => {}
                Line::Failed(reason) => self.report(Wrong::Impossible, "process", reason.clone()),
                Line::Began { caller, key, at, operation } => {
                    self.began(*caller, key, *at, *operation);
                }
                Line::Ended { caller, key, at, answer } => self.ended(*caller, key, *at, *answer),
            }
        }
    }

    /// Compares everything with what `store` holds, and has it take a write.
    pub(crate) async fn check<S: Store>(&mut self, store: &S, clock: &SharedClock) {
        self.checks += 1;
        if let Err(error) = self.try_check(store, clock).await {
            self.report(Wrong::Impossible, "store", format!("a sound store failed: {error}"));
        }
    }

    /// Changes that callers were told of.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// What was wrong so far, each kind once.
    pub(crate) fn wrongs(&self) -> BTreeSet<Wrong> {
        self.violations.iter().map(|violation| violation.wrong).collect()
    }

    /// Panics with all that was wrong.
    pub(crate) fn assert_sound(&self) {
        let shown: Vec<_> = self.violations.iter().take(20).map(Violation::to_string).collect();
        let count = self.violations.len();
        assert!(
            shown.is_empty(),
            "{count} violations after {} checks:\n{}",
            self.checks,
            shown.join("\n")
        );
    }

    fn report(&mut self, wrong: Wrong, key: &str, particulars: String) {
        self.violations.push(Violation { wrong, key: key.to_owned(), particulars });
    }

    fn began(&mut self, caller: usize, key: &str, at: u64, operation: Operation) {
        if COUNTERS.contains(&key) {
            let counter = self.counters.entry(key.to_owned()).or_default();
            counter.pending.insert(caller, operation.number);
        } else if key != LEASE {
            self.keys.entry(key.to_owned()).or_default().pending = Some((operation, at));
        }
    }

    fn ended(&mut self, caller: usize, key: &str, at: u64, answer: Answer) {
        self.acknowledged += u64::from(matches!(answer, Answer::Applied { .. }));
        if COUNTERS.contains(&key) {
            self.ended_counting(caller, key, answer);
        } else if key == LEASE {
            self.ended_leasing(answer);
        } else {
            self.ended_on_own_key(key, at, answer);
        }
    }

    fn ended_counting(&mut self, caller: usize, key: &str, answer: Answer) {
        let counter = self.counters.entry(key.to_owned()).or_default();
        let number = counter.pending.remove(&caller).expect("an answer follows a question");
        let double = match answer {
            Answer::Applied { .. } => !counter.acknowledged.insert(number),
            Answer::Unknown => {
                counter.unanswered += 1;
                false
            }
            Answer::Saw(_) | Answer::Unavailable => false,
        };
        if double {
            self.report(Wrong::AppliedTwice, key, format!("{number} was reached twice"));
        }
    }

    /// Nobody gives the lease back, so each begins after the one before has ended.
    fn ended_leasing(&mut self, answer: Answer) {
        let Answer::Applied { expires_at: Some(expiry) } = answer else { return };
        let overlap = expiry.saturating_sub(LEASE_MILLIS - 1)..expiry + LEASE_MILLIS;
        if let Some(other) = self.leases.range(overlap).next().copied() {
            let particulars = format!("leases that end at {other} and at {expiry} overlap");
            self.report(Wrong::AppliedTwice, LEASE, particulars);
        }
        self.leases.insert(expiry);
    }

    fn ended_on_own_key(&mut self, key: &str, at: u64, answer: Answer) {
        let history = self.keys.entry(key.to_owned()).or_default();
        let Some((operation, from)) = history.pending else { panic!("an answer without question") };
        let window = Window { from, to: at };
        let settled = history.settled;
        let became = match answer {
            Answer::Unknown => return,
            Answer::Unavailable => Ok(settled),
            Answer::Applied { .. } | Answer::Saw(_) => {
                let currents = possible(settled, window);
                let fitting = currents.iter().find_map(|c| fits(operation, *c, window, answer));
                fitting.ok_or(())
            }
        };
        history.pending = None;
        match (became, answer) {
            (Ok(became), _) => history.settled = became,
            (Err(()), Answer::Saw(found)) => {
                history.settled = found;
                let wrong = blame(settled, found);
                self.report(wrong, key, format!("{operation:?} saw {found:?}, not {settled:?}"));
            }
            (Err(()), answer) => {
                let particulars = format!("{operation:?} was told {answer:?} over {settled:?}");
                self.report(Wrong::Impossible, key, particulars);
            }
        }
    }

    async fn try_check<S: Store>(
        &mut self,
        store: &S,
        clock: &SharedClock,
    ) -> Result<(), BoxError> {
        let from = clock.now().as_unix_millis();
        let mut found = BTreeMap::new();
        let names: Vec<_> = self.keys.keys().cloned().chain(COUNTERS.map(Into::into)).collect();
        for name in names {
            let record = store.get(&store_key(&name)).await?;
            found.insert(name.clone(), record.map(|record| Held::found(&name, &record)));
        }
        let window = Window { from, to: clock.now().as_unix_millis() };
        for (name, found) in &found {
            match self.keys.contains_key(name) {
                true => self.check_key(name, *found, window),
                false => self.check_counter(name, *found),
            }
        }
        let rows = scan(store).await?;
        let window = Window { from: clock.now().as_unix_millis(), ..window };
        self.check_scan(&found, &rows, window);
        takes_writes(store).await
    }

    fn check_key(&mut self, key: &str, found: Option<Held>, window: Window) {
        let history = self.keys.entry(key.to_owned()).or_default();
        let (settled, pending) = (history.settled, history.pending.take());
        let as_before = possible(settled, window).contains(&found);
        let as_changed = pending.is_some_and(|(operation, began)| {
            let since = Window { from: began, to: window.to };
            let currents = possible(settled, since);
            currents.iter().any(|current| leaves(operation, *current, since, window, found))
        });
        history.settled = found;
        if !as_before && !as_changed {
            let wrong = blame(settled.filter(|held| held.is_live(window.to)), found);
            let particulars = format!("found {found:?}, settled {settled:?}, pending {pending:?}");
            self.report(wrong, key, particulars);
        }
    }

    fn check_counter(&mut self, key: &str, found: Option<Held>) {
        let counter = self.counters.entry(key.to_owned()).or_default();
        let number = found.map_or(0, |held| held.number);
        let new = counter.acknowledged.range(counter.base + 1..).count() as u64;
        let stale = counter.acknowledged.len() as u64 - new;
        let least = counter.base + new;
        let most = least + counter.pending.len() as u64 + counter.unanswered;
        let Counter { base, .. } = *counter;
        *counter = Counter { base: number, ..Counter::default() };
        let wrong = match number {
            FOREIGN => Wrong::Foreign,
            _ if stale > 0 => Wrong::AppliedTwice,
            _ if number < least => Wrong::Lost,
            _ if number > most => Wrong::AppliedTwice,
            _ => return,
        };
        let particulars = format!("found {found:?} after {base}, expected {least} to {most}");
        self.report(wrong, key, particulars);
    }

    /// A scan shows what gets have shown, and nothing else.
    fn check_scan(
        &mut self,
        found: &BTreeMap<String, Option<Held>>,
        rows: &BTreeMap<String, Held>,
        window: Window,
    ) {
        for (key, row) in rows {
            let shared = key == LEASE || key.split('/').next() == Some(CROWD);
            let agrees = found.get(key).is_some_and(|held| *held == Some(*row));
            if row.number == FOREIGN || !(shared || agrees) {
                let particulars = format!("a scan shows {row:?}, a get {:?}", found.get(key));
                self.report(Wrong::Foreign, key, particulars);
            }
        }
        for (key, held) in found {
            let Some(held) = held.filter(|held| held.is_live(window.from)) else { continue };
            if !rows.contains_key(key) {
                self.report(Wrong::Lost, key, format!("a scan leaves out {held:?}"));
            }
        }
    }
}

/// Everything in the store, by name.
pub(crate) async fn scan<S: Store>(store: &S) -> Result<BTreeMap<String, Held>, StoreError> {
    let mut rows = BTreeMap::new();
    let mut next = None;
    loop {
        let page = store.scan(next, PageLimit::MAX).await?;
        for row in page.rows {
            let partition = String::from_utf8_lossy(row.key.partition());
            let name = format!("{partition}/{}", String::from_utf8_lossy(row.key.clustering()));
            let held = Held::found(&name, &row.record);
            rows.insert(name, held);
        }
        next = page.next;
        if next.is_none() {
            return Ok(rows);
        }
    }
}

async fn takes_writes<S: Store>(store: &S) -> Result<(), BoxError> {
    let name = "verifier/probe";
    let (key, probe) = (store_key(name), value(name, 1));
    let write = Write::new(probe.clone(), Life::Permanent);
    let inserted = store.insert_if_not_exists(&key, write).await?.is_applied();
    let deleted = store.compare_and_delete(&key, &probe, Fence::NONE).await?.is_applied();
    if inserted && deleted { Ok(()) } else { Err("it does not take writes".into()) }
}

impl Held {
    fn is_live(&self, at: u64) -> bool {
        self.expires_at.is_none_or(|expiry| at < expiry)
    }
}

/// What a reader may see of `settled` at some instant of the window.
fn possible(settled: Option<Held>, window: Window) -> Vec<Option<Held>> {
    let mut seen = Vec::new();
    if let Some(held) = settled.filter(|held| held.is_live(window.from)) {
        seen.push(Some(held));
    }
    if settled.is_none_or(|held| !held.is_live(window.to)) {
        seen.push(None);
    }
    seen
}

/// Whether `operation` takes effect on a live `current`, or on none.
fn applies(operation: Operation, current: Option<Held>) -> bool {
    let stamp = current.map_or(0, |held| held.fence);
    let passes = operation.fence == 0 || operation.fence >= stamp;
    let holds = match operation.verb {
        Verb::Get => false,
        Verb::Put => true,
        Verb::Insert => current.is_none(),
        Verb::Swap | Verb::Delete => current.is_some_and(|h| h.number == operation.expected),
    };
    passes && holds
}

/// What the key holds after `operation` met `current` in the window and was answered so.
fn fits(
    operation: Operation,
    current: Option<Held>,
    window: Window,
    answer: Answer,
) -> Option<Option<Held>> {
    let applies = applies(operation, current);
    match answer {
        Answer::Saw(seen) => (!applies && seen == current).then_some(current),
        Answer::Applied { expires_at } if applies && operation.verb == Verb::Delete => {
            (expires_at == current.and_then(|held| held.expires_at)).then_some(None)
        }
        Answer::Applied { expires_at } if applies => {
            let fence = operation.fence.max(current.map_or(0, |held| held.fence));
            let held = Held { number: operation.number, expires_at, fence };
            expiry_fits(operation.life, current, window, expires_at).then_some(Some(held))
        }
        Answer::Applied { .. } | Answer::Unknown | Answer::Unavailable => None,
    }
}

/// Whether `found` may be there now, where `operation` met `current` in the window `since`.
fn leaves(
    operation: Operation,
    current: Option<Held>,
    since: Window,
    now: Window,
    found: Option<Held>,
) -> bool {
    if !applies(operation, current) {
        return false;
    }
    if operation.verb == Verb::Delete {
        return found.is_none();
    }
    let Some(found) = found else {
        let earliest = match operation.life {
            Life::For(ttl) => Some(since.from + ttl.as_millis()),
            Life::Keep => current.and_then(|held| held.expires_at),
            Life::Permanent | Life::Until(_) => None,
        };
        return earliest.is_some_and(|expiry| expiry <= now.to);
    };
    let answer = Answer::Applied { expires_at: found.expires_at };
    found.is_live(now.from) && fits(operation, current, since, answer) == Some(Some(found))
}

fn expiry_fits(life: Life, current: Option<Held>, window: Window, expires_at: Option<u64>) -> bool {
    match (life, expires_at) {
        (Life::Permanent, None) => true,
        (Life::For(ttl), Some(expiry)) => {
            let ttl = ttl.as_millis();
            (window.from + ttl..=window.to + ttl).contains(&expiry)
        }
        (Life::Keep, expiry) => current.is_some_and(|held| held.expires_at == expiry),
        (Life::Permanent | Life::For(_) | Life::Until(_), _) => false,
    }
}

/// The kind of wrong where `found` stands in place of a `settled` that should.
fn blame(settled: Option<Held>, found: Option<Held>) -> Wrong {
    match (settled, found) {
        (_, Some(Held { number: FOREIGN, .. })) => Wrong::Foreign,
        (None, Some(_)) => Wrong::Resurrected,
        (Some(_), None) => Wrong::Lost,
        (Some(settled), Some(found)) if found.number < settled.number => Wrong::Lost,
        (Some(_), Some(_)) | (None, None) => Wrong::Impossible,
    }
}
