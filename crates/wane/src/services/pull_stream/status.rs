//! What operators ask of a stream: how far it is, its policy, its audit.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::audit::{
    self, Action, AuditCheck, AuditChecked, AuditListing, AuditPage, AuditQuery, Chain, Ending,
    Reached, Rest, Verdict,
};
use super::log::{Demand, Tail, Window, tail_key};
use super::policy::{Policy, Recorded};
use super::reader::Client;
use super::record::{State, messages_in};
use super::{Ispb, PullStream, PullStreamError};
use crate::store::{Key, Store, StoreError};

/// How often others may change a policy under a call.
const ATTEMPTS: usize = 16;

/// How far a stream is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamStatus {
    /// Readers that hold a lease.
    pub live_readers: usize,
    /// Messages that were delivered and are not acknowledged.
    pub in_flight: usize,
    /// Messages that wait to be delivered again.
    pub requeued: usize,
    /// The row that is delivered next.
    pub head_row: u64,
    /// Where the log ended at least; rows of the last second may be beyond it.
    pub tail_row: u64,
    /// How long the oldest message that was never delivered has waited; zero where there is none.
    pub lag: Duration,
}

impl<S: Store> PullStream<S> {
    /// How far the stream of an institution is. Changes nothing.
    pub async fn status(&self, ispb: Ispb) -> Result<StreamStatus, PullStreamError> {
        let (mut state, tail) = self.standing(ispb).await?;
        let now = self.core.clock.now();
        state.distrust_leases(now, self.core.settings.longest_lease());
        let mut window = Window::default();
        let demand = Demand { state: &state, now, messages: 1, tail, is_one_off: true };
        window.fill(&self.core.store, self.core.place(ispb), demand).await?;
        let oldest = window.first_from(state.head);
        Ok(StreamStatus {
            live_readers: state.live_readers(now),
            in_flight: state.slots.iter().map(|slot| messages_in(&slot.in_flight)).sum(),
            requeued: messages_in(&state.requeued),
            head_row: state.head.row,
            tail_row: tail.max(state.first_unclaimed_row()),
            lag: oldest.map_or(Duration::ZERO, |at| at.until(now)),
        })
    }

    async fn standing(&self, ispb: Ispb) -> Result<(State, u64), StoreError> {
        let place = self.core.place(ispb);
        let keys = [place.state_key("state")?, tail_key(place)?];
        let mut records = self.core.store.get_batch(&keys).await?.into_iter();
        let state = match records.next().flatten() {
            Some(record) => State::read(&keys[0], &record.value)?,
            None => State::untouched(),
        };
        let tail = match records.next().flatten() {
            Some(record) => Tail::read(&keys[1], &record.value)?.0,
            None => 0,
        };
        let tail = tail.max(state.tail_hint);
        Ok((state, tail))
    }

    /// What holds for an institution.
    pub async fn policy(&self, ispb: Ispb) -> Result<Policy, PullStreamError> {
        Ok(self.core.policy(ispb).await?)
    }

    /// Sets what holds for an institution. Other nodes go by it within a second. Messages that are
    /// in the log already keep the retention that they came in with; where it was shorter, they are
    /// archived before they end, and what is older with them.
    ///
    /// [`StoreError::Unknown`] of `audit` where it holds, and the audit could not be told.
    pub async fn set_policy(
        &self,
        ispb: Ispb,
        policy: Policy,
        who: &Client,
    ) -> Result<(), PullStreamError> {
        let policy = policy.checked()?;
        let key = self.core.place(ispb).state_key("policy")?;
        self.record_policy(&key, policy).await?;
        self.core.policies.note(ispb, policy, self.core.clock.monotonic());
        let remark = self.remark(ispb, self.entry(Action::Policy, Verdict::Done, who, None)).await;
        remark.map_err(|error| {
            let source = format!("the policy holds, and the audit does not tell of it: {error}");
            StoreError::Unknown { backend: "audit", source: source.into() }.into()
        })
    }

    /// Writes a policy over what stands, of which it keeps what the archive has to know.
    async fn record_policy(&self, key: &Key, policy: Policy) -> Result<(), PullStreamError> {
        let store = &self.core.store;
        for _ in 0..ATTEMPTS {
            let standing = store.get(key).await?;
            let held = match &standing {
                // One that cannot be read is written anew: nothing else would mend it.
                Some(record) => Recorded::read(key, &record.value).ok(),
                None => None,
            };
            let held = held.unwrap_or_else(|| Recorded::new(self.core.settings.policy()));
            let write = held.changed(policy, self.core.clock.now()).write()?;
            let outcome = match standing {
                Some(record) => store.compare_and_swap(key, &record.value, write).await?,
                None => store.insert_if_not_exists(key, write).await?,
            };
            if outcome.is_applied() {
                return Ok(());
            }
        }
        Err(PullStreamError::Contended)
    }

    /// Entries of the audit from a row on, in order.
    pub async fn audit(
        &self,
        ispb: Ispb,
        chain: Chain,
        from: u64,
    ) -> Result<AuditPage, PullStreamError> {
        audit::entries(&self.core.store, self.core.place(ispb), chain, from).await
    }

    /// Entries of both chains between two times, each with the row that it stands in. Changes nothing.
    ///
    /// [`PullStreamError::BrokenChain`] where a row on the way cannot be read; rows that are missing
    /// are passed over, and [`PullStream::verify_audit`] tells of them.
    pub async fn list_audit(
        &self,
        ispb: Ispb,
        query: &AuditQuery,
    ) -> Result<AuditListing, PullStreamError> {
        let endings = [
            self.ending(ispb, Chain::Transitions).await?,
            self.ending(ispb, Chain::Remarks).await?,
        ];
        audit::list(&self.core.store, self.core.place(ispb), endings, query).await
    }

    /// Reads a chain of the audit to its end: [`PullStreamError::BrokenChain`] where a row was
    /// changed, moved, taken out, or cut off.
    pub async fn verify_audit(
        &self,
        ispb: Ispb,
        chain: Chain,
    ) -> Result<AuditCheck, PullStreamError> {
        let of = (chain, self.ending(ispb, chain).await?);
        let (store, place) = (&self.core.store, self.core.place(ispb));
        let (reached, _) = audit::verify(store, place, of, Reached::default(), u64::MAX).await?;
        Ok(reached.check())
    }

    /// The same for both chains, about so many rows at a time: `after` is what the call before had as
    /// `next`. [`PullStreamError::Invalid`] where it is not.
    pub async fn verify_audit_on(
        &self,
        ispb: Ispb,
        after: Option<&str>,
        most_rows: u64,
    ) -> Result<AuditChecked, PullStreamError> {
        let (store, place) = (&self.core.store, self.core.place(ispb));
        let mut rest = after.map_or_else(|| Ok(Rest::default()), |text| Rest::read(place, text))?;
        let checked = |rest: &Rest, last: Option<AuditCheck>| {
            let checks = rest.done.iter().copied().chain(last);
            Chain::ALL.into_iter().zip(checks).collect()
        };
        let mut left = most_rows;
        for chain in Chain::ALL.into_iter().skip(rest.done.len()) {
            let of = (chain, self.ending(ispb, chain).await?);
            let before = rest.reached.check().rows;
            let (reached, is_end) = audit::verify(store, place, of, rest.reached, left).await?;
            if !is_end {
                rest.reached = reached;
                let chains = checked(&rest, Some(reached.check()));
                return Ok(AuditChecked { chains, next: Some(rest.write(place)?) });
            }
            left = left.saturating_sub(reached.check().rows - before).max(1);
            rest.done.push(reached.check());
            rest.reached = Reached::default();
        }
        Ok(AuditChecked { chains: checked(&rest, None), next: None })
    }

    /// How far a chain is known to reach.
    async fn ending(&self, ispb: Ispb, chain: Chain) -> Result<Ending, StoreError> {
        match chain {
            Chain::Transitions => Ok(self.standing(ispb).await?.0.audit.into()),
            Chain::Remarks => audit::hinted_end(&self.core.store, self.core.place(ispb)).await,
        }
    }

    /// Readers of all institutions that wait on this node for a message.
    pub fn parked(&self) -> usize {
        self.core.parking.waiting()
    }

    /// Tasks that serve institutions on this node. Institutions that rest have none.
    pub fn at_work(&self) -> usize {
        let Self { core, .. } = self;
        core.readers.at_work() + core.producers.at_work() + core.remarks.at_work()
    }

    /// Rejections that could not be written to the audit since this service was made.
    pub fn remarks_lost(&self) -> u64 {
        self.core.remarks_lost.load(Ordering::Relaxed)
    }
}
