//! Rounds: calls of one institution that share one write of its record.
//!
//! One task per busy institution and node gathers calls, plans them all against the record as it
//! was last seen, and writes what comes of them over exactly that. Refused, it plans anew against
//! what stands there instead. Where the store does not know, the record is read: under our version
//! and nonce it is done, else it is planned anew, and a call that was carried out already finds
//! itself answered: its token is one behind, its start is known by its number, its end by its entry.
//!
//! Invariant: calls are answered only once what they are told stands in the store. Answers that
//! need no write are given from a record that was read since the round began; so is the answer that
//! another region serves the stream, whose record is planned against in no other one.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::advance_lock::{AdvanceGuard, LOCK_WAIT};
use super::audit::{self, Drained};
use super::core::Core;
use super::lines::Attended;
use super::log::{Demand, Place, SealedRow, Tail, Window, tail_key};
use super::record::{Answer, Call, Issuer, Moment, Riding, Rules, State};
use super::token_view::slots_of;
use super::{PullStreamError, Refusal};
use crate::store::{Key, Outcome, Record, Store, StoreError, Value};

/// Calls that share a write at most.
const MOST_CALLS: usize = 32;

/// Entries that ride in the record at most before a round waits until they are in the chain.
const MOST_RIDING: usize = 64;

/// How often a round is tried when other nodes are faster.
const ATTEMPTS: usize = 64;

/// Entries that go to the chain together, unless the first has waited for this long.
const ROW_OF_ENTRIES: usize = 8;
const ENTRIES_WAIT: Duration = Duration::from_millis(50);

/// How long the task rests before it ends: readers that come back sooner cost no read.
const RESTS: Duration = Duration::from_millis(200);

/// A call that waits for its answer.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) call: Call,
    pub(super) answer: oneshot::Sender<Result<Answered, PullStreamError>>,
}

/// An answer, with the rows of it that were at hand.
#[derive(Debug)]
pub(super) struct Answered {
    pub(super) answer: Answer,
    pub(super) rows: Vec<(u64, Arc<SealedRow>)>,
}

type Told = Result<Answered, StoreError>;

/// Serves a line of calls until it rests.
pub(super) async fn attend<S: Store>(core: Arc<Core<S>>, mut line: Attended<Waiting>) {
    let place = core.place(line.ispb);
    let mut stream = Stream {
        core: &core,
        place,
        seen: None,
        is_fresh: false,
        tail: 0,
        region_epoch: 0,
        window: Window::default(),
        draining: Draining::default(),
    };
    loop {
        let calls = line.look(|waiting| {
            waiting.retain(|caller| !caller.answer.is_closed());
            let count = waiting.len().min(MOST_CALLS);
            waiting.drain(..count).collect::<Vec<_>>()
        });
        let calls = calls.unwrap_or_default();
        if !calls.is_empty() {
            stream.serve(calls).await;
            stream.drain_if_due();
            continue;
        }
        if !line.rests(&core.clock, ENTRIES_WAIT).await {
            continue;
        }
        stream.start_draining();
        if line.rests(&core.clock, RESTS).await {
            stream.drain().await;
            if line.end_if_empty() {
                return;
            }
        }
    }
}

/// The record as it was last seen. It may be stale: then the swap is refused.
#[derive(Debug)]
struct Standing {
    /// `None` where nobody has written it.
    value: Option<Value>,
    /// What it says, but for leases that are not to be believed.
    state: State,
}

impl Standing {
    fn of(key: &Key, record: Option<Record>) -> Result<Self, StoreError> {
        let state = match &record {
            Some(record) => State::read(key, &record.value)?,
            None => State::untouched(),
        };
        Ok(Self { value: record.map(|record| record.value), state })
    }
}

/// What became of one try.
enum Tried {
    Settled(Vec<Answered>),
    /// Somebody else was faster, or may have been.
    Overtaken,
    /// It may have been written and lost since, or may yet be written.
    Unclear(StoreError),
    /// This region serves the stream.
    Elsewhere(String),
}

/// The stream of one institution, as its task knows it.
struct Stream<'a, S> {
    core: &'a Arc<Core<S>>,
    place: Place<'a>,
    seen: Option<Standing>,
    /// Whether that was since the round began.
    is_fresh: bool,
    /// Where the log ended at least.
    tail: u64,
    /// The last epoch that was looked at.
    region_epoch: u64,
    window: Window,
    draining: Draining,
}

impl<S: Store> Stream<'_, S> {
    async fn serve(&mut self, calls: Vec<Waiting>) {
        match self.settle(&calls).await {
            Ok(answers) => {
                for (caller, answer) in calls.into_iter().zip(answers) {
                    // Whoever has left asks again, and is given the same.
                    drop(caller.answer.send(answer.map_err(PullStreamError::Store)));
                }
            }
            Err(error) => {
                for caller in calls {
                    drop(caller.answer.send(Err(again(&error))));
                }
            }
        }
    }

    /// Tries until what is planned stands in the store.
    async fn settle(&mut self, calls: &[Waiting]) -> Result<Vec<Told>, PullStreamError> {
        let mut unclear = None;
        self.is_fresh = false;
        let _held = self.locked().await;
        for _ in 0..ATTEMPTS {
            match self.attempt(calls).await {
                Ok(Tried::Settled(answers)) => {
                    let told = calls.iter().zip(answers);
                    let unclear = unclear.as_ref();
                    return Ok(told.map(|(call, told)| self.told(call, told, unclear)).collect());
                }
                Ok(Tried::Overtaken) => {}
                Ok(Tried::Unclear(error)) => unclear = Some(error),
                Ok(Tried::Elsewhere(region)) => {
                    let elsewhere = PullStreamError::Elsewhere { region };
                    return Err(unclear.map_or(elsewhere, PullStreamError::Store));
                }
                // It says that nothing was written, which an earlier try may yet have been.
                Err(error @ StoreError::Unavailable { .. }) => {
                    return Err(unclear.unwrap_or(error).into());
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(unclear.map_or(PullStreamError::Contended, PullStreamError::Store))
    }

    /// The lock of the institution, where there is one and it is to be had in time. The swap decides
    /// without it as well.
    async fn locked(&self) -> Option<AdvanceGuard> {
        let lock = self.core.settings.lock.as_ref()?;
        tokio::select! {
            biased;
            guard = lock.acquire(self.place.ispb) => guard,
            () = self.core.clock.sleep(LOCK_WAIT) => None,
        }
    }

    /// What a call is told. After a write that may have been applied, an end that finds its slot gone
    /// may have ended it: its entry tells, or nobody knows.
    fn told(&self, caller: &Waiting, told: Answered, unclear: Option<&StoreError>) -> Told {
        let (Call::End { presented, .. }, Answer::Refused(Refusal::Gone), Some(unclear)) =
            (&caller.call, &told.answer, unclear)
        else {
            return Ok(told);
        };
        let seen = self.seen.as_ref();
        if seen.is_some_and(|standing| standing.state.tells_of_end(presented)) {
            return Ok(Answered { answer: Answer::Ended, ..told });
        }
        Err(unclear.again())
    }

    async fn attempt(&mut self, calls: &[Waiting]) -> Result<Tried, StoreError> {
        let key = self.place.state_key("state")?;
        let mut standing = match self.seen.take() {
            Some(standing) => standing,
            None => self.read(&key).await?,
        };
        if standing.state.elsewhere(&self.core.settings.region).is_some() && !self.is_fresh {
            standing = self.read(&key).await?;
        }
        // With it comes the map, which is then not read once more.
        let policy = self.core.policy(self.place.ispb).await?;
        self.follow(&standing.state).await;
        if let Some(region) = standing.state.elsewhere(&self.core.settings.region) {
            let region = region.to_owned();
            self.seen = Some(standing);
            return Ok(Tried::Elsewhere(region));
        }
        let now = self.core.clock.now();
        standing.state.distrust_leases(now, self.core.settings.longest_lease());
        let messages = calls.iter().map(|caller| standing.state.wanted_by(&caller.call)).sum();
        let tail = self.tail.max(standing.state.tail_hint);
        let demand = Demand { state: &standing.state, now, messages, tail, is_one_off: false };
        self.window.fill(&self.core.store, self.place, demand).await?;

        self.draining.arrived.trim(&standing.state.audit);
        let mut next = standing.state.successor(&*self.core.clock);
        self.draining.forget_in(&mut next.audit, self.core, self.place).await?;
        let keys = self.core.keys.keys();
        let settings = &self.core.settings;
        let moment = Moment {
            now,
            rules: Rules {
                lease: settings.lease,
                token: settings.token_life,
                max_readers: policy.max_readers,
            },
            supply: &self.window.supply(),
            issuer: Issuer { ispb: self.place.ispb, region: &settings.home, keys: &keys },
        };
        let steps: Vec<_> = calls.iter().map(|caller| next.apply(&caller.call, &moment)).collect();
        let is_changed = steps.iter().any(|step| step.changed);
        let answers = steps.into_iter().map(|step| self.answered(step.answer)).collect();
        if !is_changed {
            return self.confirm(&key, standing, answers).await;
        }
        self.write(&key, standing, next, answers).await
    }

    /// Gives answers that need no write, if nobody has written since the record was seen.
    async fn confirm(
        &mut self,
        key: &Key,
        standing: Standing,
        answers: Vec<Answered>,
    ) -> Result<Tried, StoreError> {
        if self.is_fresh {
            self.seen = Some(standing);
            return Ok(Tried::Settled(answers));
        }
        let found = self.read(key).await?;
        let is_same = found.value == standing.value;
        self.seen = Some(found);
        Ok(if is_same { Tried::Settled(answers) } else { Tried::Overtaken })
    }

    async fn write(
        &mut self,
        key: &Key,
        standing: Standing,
        next: State,
        answers: Vec<Answered>,
    ) -> Result<Tried, StoreError> {
        let write = next.write()?;
        let value = write.value.clone();
        let outcome = match &standing.value {
            None => self.core.store.insert_if_not_exists(key, write).await,
            Some(value) => self.core.store.compare_and_swap(key, value, write).await,
        };
        match outcome {
            Ok(Outcome::Applied { .. }) => {
                self.show(&next);
                self.seen = Some(Standing { value: Some(value), state: next });
                Ok(Tried::Settled(answers))
            }
            Ok(Outcome::Refused { current }) => {
                self.note(Standing::of(key, current)?);
                Ok(Tried::Overtaken)
            }
            Err(unknown @ StoreError::Unknown { .. }) => {
                let Ok(record) = self.core.store.get(key).await else { return Err(unknown) };
                let standing = Standing::of(key, record)?;
                let is_ours = standing.state.is_write(&next);
                if is_ours {
                    self.show(&next);
                }
                self.note(standing);
                Ok(if is_ours { Tried::Settled(answers) } else { Tried::Unclear(unknown) })
            }
            Err(error) => Err(error),
        }
    }

    /// Shows what was written, where somebody wants to see it.
    fn show(&self, state: &State) {
        if let Some(view) = &self.core.settings.view {
            let slots = slots_of(state, self.core.clock.now());
            view.show(self.place.ispb, state.version, &slots);
        }
    }

    /// Looks once at what a later epoch says of regions.
    async fn follow(&mut self, state: &State) {
        let is_new = state.region_epoch > self.region_epoch;
        if is_new && self.core.follow(self.place.ispb, state).await {
            self.region_epoch = state.region_epoch;
        }
    }

    fn note(&mut self, standing: Standing) {
        self.seen = Some(standing);
        self.is_fresh = true;
    }

    /// Reads the record, and the tail together with it: before any row.
    async fn read(&mut self, key: &Key) -> Result<Standing, StoreError> {
        self.is_fresh = true;
        let keys = [key.clone(), tail_key(self.place)?];
        let mut records = self.core.store.get_batch(&keys).await?.into_iter();
        let state = records.next().flatten();
        if let Some(record) = records.next().flatten() {
            self.tail = self.tail.max(Tail::read(&keys[1], &record.value)?.0);
        }
        Standing::of(key, state)
    }

    fn answered(&self, answer: Answer) -> Answered {
        let spans = match &answer {
            Answer::Batch { spans, .. } => &spans[..],
            Answer::Empty { .. } | Answer::Ended | Answer::Unsigned | Answer::Refused(_) => &[],
        };
        let rows = spans.iter().filter_map(|span| Some((span.row, self.window.row(span.row)?)));
        let rows = rows.collect();
        Answered { answer, rows }
    }

    /// Carries what rides in the record to the chain, once that is enough for a row or has waited.
    fn drain_if_due(&mut self) {
        let Some(standing) = &self.seen else { return };
        let now = self.core.clock.monotonic();
        let riding = standing.state.audit.entries.len();
        let since = *self.draining.since.get_or_insert(now);
        if riding.saturating_sub(self.draining.arrived.entries()) >= ROW_OF_ENTRIES
            || now >= since + ENTRIES_WAIT
        {
            self.start_draining();
        }
    }

    /// Carries what rides in the record to the chain, beside the next round.
    fn start_draining(&mut self) {
        if let Some(standing) = &self.seen {
            self.draining.start(self.core, self.place, &standing.state.audit);
        }
    }

    /// Carries all that rides in the record to the chain: rounds may have added to it since the last
    /// entries set out.
    async fn drain(&mut self) {
        self.draining.land().await;
        self.start_draining();
        self.draining.land().await;
    }
}

/// Entries on their way to the chain.
#[derive(Debug, Default)]
struct Draining {
    task: Option<JoinHandle<Drained>>,
    /// What has arrived, for the next write to forget.
    arrived: Drained,
    /// Since when entries may wait to set out, of the monotonic clock.
    since: Option<Duration>,
}

impl Draining {
    fn start<S: Store>(&mut self, core: &Arc<Core<S>>, place: Place<'_>, riding: &Riding) {
        if self.task.is_some() {
            return;
        }
        self.since = None;
        let (core, ispb, mut riding) = (Arc::clone(core), place.ispb, riding.clone());
        self.arrived.forget_in(&mut riding);
        if riding.entries.is_empty() {
            return;
        }
        self.task =
            Some(tokio::spawn(
                async move { audit::drain(&core.store, core.place(ispb), riding).await },
            ));
    }

    /// Waits until what is on its way has arrived, or has failed to.
    async fn land(&mut self) {
        if let Some(task) = &mut self.task {
            // A runtime that shuts down ends it: the entries are still in the record.
            self.arrived.extend(task.await.unwrap_or_default());
            self.task = None;
        }
    }

    /// Lets the next write forget what has arrived. Waits for it where too much rides along.
    async fn forget_in<S: Store>(
        &mut self,
        riding: &mut Riding,
        core: &Arc<Core<S>>,
        place: Place<'_>,
    ) -> Result<(), StoreError> {
        if self.task.as_ref().is_some_and(JoinHandle::is_finished) {
            self.land().await;
        }
        self.arrived.forget_in(riding);
        if riding.entries.len() < MOST_RIDING {
            return Ok(());
        }
        self.land().await;
        self.arrived.forget_in(riding);
        self.start(core, place, riding);
        self.land().await;
        self.arrived.forget_in(riding);
        if riding.entries.len() < MOST_RIDING {
            return Ok(());
        }
        let source = "the audit cannot be written, and nothing is done without it".into();
        Err(StoreError::Unavailable { backend: "audit", source })
    }
}

impl Drop for Draining {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// The error for another caller of the same round.
fn again(error: &PullStreamError) -> PullStreamError {
    match error {
        PullStreamError::Store(error) => PullStreamError::Store(error.again()),
        PullStreamError::Elsewhere { region } => {
            PullStreamError::Elsewhere { region: region.clone() }
        }
        PullStreamError::Invalid { .. }
        | PullStreamError::Refused(_)
        | PullStreamError::Absent { .. }
        | PullStreamError::Archive(_)
        | PullStreamError::Busy
        | PullStreamError::Contended
        | PullStreamError::BrokenChain { .. } => PullStreamError::Contended,
    }
}
