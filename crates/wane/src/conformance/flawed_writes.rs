//! The writes of the flawed model: what goes in, what happens instead, and what is said of it.

use tokio::task::yield_now;

use super::{Flaw, FlawedModel};
use crate::store::{
    Fence, Key, Life, Outcome, Record, Store, StoreError, Timestamp, Ttl, Value, Write,
};

/// Which write of the contract is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call<'a> {
    Put,
    Insert,
    Swap(&'a [u8]),
    Delete(&'a [u8]),
}

impl FlawedModel {
    /// The limits of lives, as far as the store keeps them.
    pub(super) fn check_life(&self, call: Call<'_>, write: &Write) -> Result<(), StoreError> {
        let end = self.model.lock().1.after(Ttl::MAX);
        let far = matches!(write.life, Life::Until(instant) if instant > end);
        let keep = write.life == Life::Keep && !matches!(call, Call::Swap(_));
        let far = far && !self.has(Flaw::FarInstantCut);
        let keep = keep && !self.has(Flaw::KeepTakenAsPermanent);
        if far || keep { Err(StoreError::invalid("life", "it is too long")) } else { Ok(()) }
    }

    /// What the store writes in place of what it was asked to.
    fn altered(&self, call: Call<'_>, key: &Key, write: Write) -> Result<Write, StoreError> {
        let now = self.model.lock().1;
        let old = self.raw(key).filter(|record| record.is_live(now));
        let old_expiry = old.as_ref().and_then(|record| record.expires_at);
        let Write { mut value, mut life, mut fence } = write;
        match (self.flaw, life) {
            (Flaw::SecondsForMillis, Life::For(ttl)) => {
                let expiry = now.after(ttl).as_unix_millis();
                life = Life::Until(Timestamp::from_unix_millis(expiry / 1_000 * 1_000));
            }
            (Flaw::LongLifeIsAnInstant, Life::For(ttl)) if ttl.as_millis() > 30 * 86_400_000 => {
                life = Life::Until(Timestamp::from_unix_millis(ttl.as_millis()));
            }
            (Flaw::PutKeepsExpiry, Life::Permanent) if call == Call::Put => {
                life = old_expiry.map_or(Life::Permanent, Life::Until);
            }
            (Flaw::SwapKeepsExpiry, _) if matches!(call, Call::Swap(_)) => life = Life::Keep,
            (Flaw::KeepMakesPermanent | Flaw::KeepTakenAsPermanent, Life::Keep)
                if self.has(Flaw::KeepMakesPermanent) == matches!(call, Call::Swap(_)) =>
            {
                life = Life::Permanent;
            }
            (Flaw::FarInstantCut, Life::Until(instant)) => {
                life = Life::Until(instant.min(now.after(Ttl::MAX)));
            }
            (Flaw::PastInstantRefused, Life::Until(instant)) if instant <= now => {
                return Err(StoreError::invalid("life", "the instant has passed"));
            }
            (Flaw::InsertDoesNotStamp, _) if call == Call::Insert => fence = Fence::NONE,
            (Flaw::SignedFences, _) if fence.0 > i64::MAX as u64 => fence = Fence::NONE,
            (Flaw::LargeValueCut, _) if value.len() > 65_535 => {
                value = Value::new(value.into_bytes().slice(..65_535))?;
            }
            _ => {}
        }
        Ok(Write { value, life, fence })
    }

    /// What the store answers without asking the model, if anything.
    async fn instead(
        &self,
        call: Call<'_>,
        key: &Key,
        write: &Write,
    ) -> Result<Option<Outcome>, StoreError> {
        let now = self.model.lock().1;
        let raw = self.raw(key);
        let live = raw.clone().filter(|record| record.is_live(now));
        let stamp = live.as_ref().map_or(Fence::NONE, |record| record.fence);
        let expired = raw.as_ref().filter(|_| live.is_none());
        let refused = Ok(Some(Outcome::Refused { current: live.clone() }));
        let marked = || self.traces.lock().markers.get(key).is_some_and(|marker| now < *marker);
        match (self.flaw, call) {
            (Flaw::PutIsTorn, Call::Put) if live.is_some() && write.fence >= stamp => {
                self.amend(key, |record| record.value = write.value.clone());
                yield_now().await;
                return Ok(None);
            }
            (Flaw::ExpiredBlocksInsert, Call::Insert) if expired.is_some() => return refused,
            (Flaw::MarkerOutlivesRecord, Call::Insert) if live.is_none() && marked() => {
                return refused;
            }
            (Flaw::EqualFenceRefused, _) if stamp != Fence::NONE && write.fence == stamp => {
                return refused;
            }
            (Flaw::UnfencedRefused, _) if stamp != Fence::NONE && write.fence == Fence::NONE => {
                return refused;
            }
            (Flaw::LargeValueKeepsOld, Call::Put | Call::Swap(_))
                if write.value.len() > 65_535 && live.is_some() =>
            {
                return Ok(Some(Outcome::Applied { expires_at: None }));
            }
            (Flaw::ExpiredMatchesSwap, Call::Swap(value))
            | (Flaw::ExpiredMatchesDelete, Call::Delete(value))
                if expired.is_some_and(|record| record.value[..] == *value) => {}
            (Flaw::EmptyMatchesAbsent, Call::Swap(b"") | Call::Delete(b"")) if live.is_none() => {}
            (Flaw::SwapComparesPrefix, Call::Swap(prefix))
                if live.as_ref().is_some_and(|record| record.value.starts_with(prefix)) => {}
            (Flaw::PutIgnoresFence, Call::Put) if write.fence < stamp => {}
            (Flaw::SwapIgnoresFence, Call::Swap(value))
            | (Flaw::DeleteIgnoresFence, Call::Delete(value))
                if live.as_ref().is_some_and(|record| record.value[..] == *value) => {}
            (Flaw::InsertInTwoSteps, Call::Insert) if live.is_none() => yield_now().await,
            (Flaw::SwapInTwoSteps, Call::Swap(value))
            | (Flaw::DeleteInTwoSteps, Call::Delete(value))
                if live.as_ref().is_some_and(|record| record.value[..] == *value)
                    && (write.fence == Fence::NONE || write.fence >= stamp) =>
            {
                yield_now().await;
            }
            (Flaw::PutInTwoSteps, Call::Put)
                if write.fence == Fence::NONE || write.fence >= stamp =>
            {
                yield_now().await;
            }
            _ => return Ok(None),
        }
        self.forced(call, key, write).await.map(Some)
    }

    /// Writes over whatever stands there by now.
    async fn forced(
        &self,
        call: Call<'_>,
        key: &Key,
        write: &Write,
    ) -> Result<Outcome, StoreError> {
        let old = self.raw(key);
        self.remove(key);
        if matches!(call, Call::Delete(_)) {
            return Ok(Outcome::Applied { expires_at: old.and_then(|record| record.expires_at) });
        }
        let mut write = write.clone();
        if write.life == Life::Keep {
            let expiry = old.as_ref().and_then(|record| record.expires_at);
            write.life = expiry.map_or(Life::Permanent, Life::Until);
        }
        if write.fence == Fence::NONE {
            write.fence = old.map_or(Fence::NONE, |record| record.fence);
        }
        self.model.put(key, write).await
    }

    /// One write, with the flaw on every side of it.
    pub(super) async fn change(
        &self,
        call: Call<'_>,
        key: &Key,
        write: Write,
    ) -> Result<Outcome, StoreError> {
        self.sweep_by_stale_index();
        let key = &self.stored(key)?;
        self.cached.lock().remove(key);
        self.check_life(call, &write)?;
        let write = self.altered(call, key, write)?;
        if let Some(outcome) = self.instead(call, key, &write).await? {
            return Ok(outcome);
        }
        let before = self.raw(key);
        let outcome = match call {
            Call::Put => self.model.put(key, write.clone()).await?,
            Call::Insert => self.model.insert_if_not_exists(key, write.clone()).await?,
            Call::Swap(expected) => {
                self.model.compare_and_swap(key, expected, write.clone()).await?
            }
            Call::Delete(expected) => {
                self.model.compare_and_delete(key, expected, write.fence).await?
            }
        };
        if outcome.is_applied() {
            self.leave_traces(call, key, &write, before.as_ref());
        }
        Ok(self.reported(call, key, &write, before, outcome))
    }

    /// What an applied write leaves behind that it should not.
    fn leave_traces(&self, call: Call<'_>, key: &Key, write: &Write, before: Option<&Record>) {
        let now = self.model.lock().1;
        let after = self.raw(key);
        let mut traces = self.traces.lock();
        let old_expiry = before.and_then(|record| record.expires_at);
        match (self.flaw, call) {
            (Flaw::StaleIndexAfterSwap, Call::Swap(_))
            | (Flaw::StaleIndexAfterPut, Call::Put)
            | (Flaw::StaleIndexAfterDelete, Call::Delete(_)) => {
                traces.index.extend(old_expiry.map(|expiry| (expiry, key.clone())));
            }
            (Flaw::MarkerOutlivesRecord, Call::Delete(_)) => drop(traces.markers.remove(key)),
            (Flaw::MarkerOutlivesRecord, _) => {
                let never = Timestamp::from_unix_millis(u64::MAX);
                let expiry = after.and_then(|record| record.expires_at).unwrap_or(never);
                let marker = traces.markers.entry(key.clone()).or_insert(expiry);
                *marker = expiry.max(*marker);
            }
            (Flaw::FenceOutlivesDelete | Flaw::RestartRevivesDeleted, Call::Delete(_)) => {
                traces.deleted.extend(before.map(|record| (key.clone(), record.clone())));
            }
            (Flaw::FenceOutlivesDelete, Call::Put | Call::Insert) => {
                let stamp = traces.deleted.remove(key).map_or(Fence::NONE, |record| record.fence);
                self.amend(key, |record| record.fence = record.fence.max(stamp));
            }
            (Flaw::RestartRevivesDeleted, _) => drop(traces.deleted.remove(key)),
            (Flaw::FenceOutlivesExpiry, _) => {
                let expired = before.filter(|record| !record.is_live(now));
                let stamp = expired.map_or(Fence::NONE, |record| record.fence);
                self.amend(key, |record| record.fence = record.fence.max(stamp));
            }
            (Flaw::UnfencedClearsStamp, _) if write.fence == Fence::NONE => {
                self.amend(key, |record| record.fence = Fence::NONE);
            }
            _ => {}
        }
    }

    /// What the store says became of a write.
    fn reported(
        &self,
        call: Call<'_>,
        key: &Key,
        write: &Write,
        before: Option<Record>,
        outcome: Outcome,
    ) -> Outcome {
        match (self.flaw, call, outcome) {
            (Flaw::SwapRetried, Call::Swap(_), Outcome::Applied { .. }) => {
                Outcome::Refused { current: self.raw(key) }
            }
            (Flaw::RefusalWithoutCurrent, _, Outcome::Refused { .. }) => {
                Outcome::Refused { current: None }
            }
            (Flaw::ExpiredInRefusal, _, Outcome::Refused { current: None }) => {
                Outcome::Refused { current: before }
            }
            (Flaw::RefusalStamps, Call::Swap(_), Outcome::Refused { current }) => {
                self.amend(key, |record| record.fence = record.fence.max(write.fence));
                Outcome::Refused { current }
            }
            (Flaw::ExpiryNotReported, Call::Put | Call::Insert | Call::Swap(_), applied)
            | (Flaw::DeleteReportsNoExpiry, Call::Delete(_), applied)
                if applied.is_applied() =>
            {
                Outcome::Applied { expires_at: None }
            }
            (_, _, outcome) => outcome,
        }
    }
}
