//! Regions: which of two serves an institution, and how the other one takes over.
//!
//! The state record of a stream says which region serves it, under an epoch that grows with every
//! change. A round is planned against that record and written over exactly it, so that a region that
//! has lost a stream writes nothing of it any more, whatever its nodes believe or how long they slept.
//! The map, a record beside the state, says the same to those who do not read the state: producers
//! look at it about once a second. It follows the state: a change is written there first, and to the
//! map then. Whoever finds the map behind, because somebody died in between, brings it up.
//!
//! An institution that has no regions is served by every node of its store. Records lie where they
//! always lay, at the home of the store (see [`home_region`]), so that nothing moves with a failover.
//!
//! Invariants:
//! - Once a failover is told, the region that lost the stream delivers and acknowledges nothing of it.
//! - What it had taken in or delivered is the other region's to go on with: tokens are good there.
//! - The epoch never goes back, and names one pair of regions.

mod home;
mod map;

pub use home::home_region;
pub use map::RegionMap;
pub(super) use map::{Owners, Regions, checked_name, map_key};

use std::sync::Arc;

use super::audit::{self, Action, AuditEntry, Verdict};
use super::core::Core;
use super::reader::Client;
use super::record::State;
use super::{Ispb, PullStream, PullStreamError};
use crate::store::{Key, Outcome, Record, Store, StoreError, Value};

/// The longest reason, in bytes: it rides in the state record.
const MAX_REASON: usize = 256;

/// How often other nodes may be faster.
const ATTEMPTS: usize = 64;

/// How a failover is asked for.
#[derive(Debug, Clone, Default)]
pub struct Failover {
    /// The region that shall serve the institution. Given, the same call again changes nothing;
    /// `None` for the one that does not.
    pub to: Option<String>,
    /// The epoch that the caller goes by: at any other one nothing is changed.
    pub epoch: Option<u64>,
    /// Why, for the audit: up to 256 bytes.
    pub reason: Option<String>,
}

/// What a change makes of the regions that stand.
enum Planned {
    /// Nothing: it is as it shall be.
    Stands(RegionMap),
    Changes(Regions),
}

impl<S: Store> PullStream<S> {
    /// Which regions serve an institution; `None` where every region does.
    pub async fn region_map(&self, ispb: Ispb) -> Result<Option<RegionMap>, PullStreamError> {
        let key = self.core.place(ispb).state_key("state")?;
        let record = self.core.store.get(&key).await?;
        let state = record.map(|record| State::read(&key, &record.value)).transpose()?;
        Ok(state.and_then(|state| state.region_map()))
    }

    /// Says which regions serve an institution: the first one does, the other one may take over.
    ///
    /// Asked for by the pair that stands, it changes nothing, and the other way round it is refused:
    /// that is a failover. Nodes of other regions refuse readers from then on, and producers within a
    /// second.
    pub async fn set_regions(
        &self,
        ispb: Ispb,
        primary: &str,
        secondary: &str,
        who: &Client,
    ) -> Result<RegionMap, PullStreamError> {
        let plan = |standing: Option<RegionMap>, _: &Known| {
            let asked = Regions::new(primary, secondary)?;
            Ok(match standing {
                Some(map) if map.is_of(&asked) => Planned::Stands(map),
                Some(map) if map.is_turned(&asked) => {
                    let reason = format!("{} serves it; to turn that, fail over", map.primary);
                    return Err(PullStreamError::Invalid { field: "primary", reason });
                }
                Some(map) => Planned::Changes(asked.since(map.failed_over_at)),
                None => Planned::Changes(asked),
            })
        };
        self.change(ispb, Asking { action: Action::Region, who, reason: None }, plan).await
    }

    /// Lets the other region serve an institution, and answers with what holds then.
    ///
    /// The state is changed first, then the map. Where somebody died in between, it is completed, and
    /// not done a second time. [`PullStreamError::Absent`] where the institution has no regions.
    pub async fn fail_over(
        &self,
        ispb: Ispb,
        failover: &Failover,
        who: &Client,
    ) -> Result<RegionMap, PullStreamError> {
        let now = self.core.clock.now();
        let Failover { to, epoch, reason } = failover;
        let (to, reason) = (to.as_deref(), reason.as_deref());
        let plan = |standing: Option<RegionMap>, known: &Known| {
            check_reason(reason)?;
            let map = standing.ok_or(PullStreamError::Absent {
                what: "the institution has no regions; say which they are before one takes over",
            })?;
            match to {
                Some(to) if to == map.primary => Ok(Planned::Stands(map)),
                _ if epoch.is_some_and(|epoch| epoch != map.epoch) => {
                    let RegionMap { epoch, primary, .. } = &map;
                    let reason = format!("it is {epoch} by now, and {primary} serves; look again");
                    Err(PullStreamError::Invalid { field: "epoch", reason })
                }
                Some(to) if to != map.secondary => {
                    let reason = format!("give {} or {}", map.primary, map.secondary);
                    Err(PullStreamError::Invalid { field: "to", reason })
                }
                None if known.is_half_done(&map) => Ok(Planned::Stands(map)),
                Some(_) | None => Ok(Planned::Changes(map.turned(now))),
            }
        };
        self.change(ispb, Asking { action: Action::Failover, who, reason }, plan).await
    }

    /// Carries out a change, or remarks that it was refused.
    async fn change(
        &self,
        ispb: Ispb,
        asking: Asking<'_>,
        plan: impl Fn(Option<RegionMap>, &Known) -> Result<Planned, PullStreamError>,
    ) -> Result<RegionMap, PullStreamError> {
        let changed = self.change_state(ispb, asking, plan).await;
        let map = match changed {
            Ok(map) => map,
            Err(error) => {
                let reason = asking.reason.filter(|reason| reason.len() <= MAX_REASON);
                let entry = self.entry(asking.action, error.verdict(), asking.who, None);
                let entry = AuditEntry { reason: reason.map(Into::into), ..entry };
                self.remark_or_count(ispb, entry).await;
                return Err(error);
            }
        };
        self.core.raise_map(ispb, &map).await.map_err(|error| {
            let source = format!("epoch {} holds, and the map is behind: {error}", map.epoch);
            StoreError::Unknown { backend: "regions", source: source.into() }
        })?;
        // Those who wait here are told at once whether they wait at the wrong place.
        self.core.parking.wake(ispb, usize::MAX, None);
        self.drain_entry(ispb).await;
        Ok(map)
    }

    /// Carries the entry of a change to the chain. What fails to get there rides on, and goes with
    /// the next round.
    async fn drain_entry(&self, ispb: Ispb) {
        let place = self.core.place(ispb);
        let Ok(key) = place.state_key("state") else { return };
        let Ok(Some(record)) = self.core.store.get(&key).await else { return };
        if let Ok(state) = State::read(&key, &record.value) {
            drop(audit::drain(&self.core.store, place, state.audit).await);
        }
    }

    /// Changes the state record: what it says of regions then.
    async fn change_state(
        &self,
        ispb: Ispb,
        asking: Asking<'_>,
        plan: impl Fn(Option<RegionMap>, &Known) -> Result<Planned, PullStreamError>,
    ) -> Result<RegionMap, PullStreamError> {
        let key = self.core.place(ispb).state_key("state")?;
        let mut known = Known { map: self.core.read_map(ispb).await?, unclear: None };
        let mut record = self.core.store.get(&key).await?;
        for _ in 0..ATTEMPTS {
            let (state, value) = match record {
                Some(record) => (State::read(&key, &record.value)?, Some(record.value)),
                None => (State::untouched(), None),
            };
            let regions = match plan(state.region_map(), &known)? {
                Planned::Stands(map) => return Ok(map),
                Planned::Changes(regions) => regions,
            };
            // A map that is ahead of the state was restored from another moment than it.
            let beyond = known.map.as_ref().map_or(0, |map| map.epoch);
            let mut next = state.handed_over(regions, beyond, &*self.core.clock);
            let entry = self.entry(asking.action, Verdict::Done, asking.who, None);
            let reason = asking.reason.map(Into::into);
            next.audit.entries.push(AuditEntry { reason, ..entry });
            // Planned at once against what stood in the way: those who are busy there plan as fast.
            record = match self.replaced(&key, value, &next, &mut known).await? {
                Replaced::Done => return next.region_map().ok_or(PullStreamError::Contended),
                Replaced::Overtaken(record) => record,
            };
        }
        Err(known.unclear.map_or(PullStreamError::Contended, PullStreamError::Store))
    }

    /// Replaces the record, or says what stands there instead.
    async fn replaced(
        &self,
        key: &Key,
        value: Option<Value>,
        next: &State,
        known: &mut Known,
    ) -> Result<Replaced, PullStreamError> {
        let write = next.write()?;
        let outcome = match &value {
            None => self.core.store.insert_if_not_exists(key, write).await,
            Some(value) => self.core.store.compare_and_swap(key, value, write).await,
        };
        match outcome {
            Ok(Outcome::Applied { .. }) => Ok(Replaced::Done),
            Ok(Outcome::Refused { current }) => Ok(Replaced::Overtaken(current)),
            Err(unknown @ StoreError::Unknown { .. }) => {
                let Ok(record) = self.core.store.get(key).await else { return Err(unknown.into()) };
                let Some(record) = record else { return Err(unknown.into()) };
                known.unclear = Some(unknown);
                let is_ours = State::read(key, &record.value)?.is_write(next);
                Ok(if is_ours { Replaced::Done } else { Replaced::Overtaken(Some(record)) })
            }
            // It says that nothing was written, which an earlier try may yet have been.
            Err(error) => Err(known.unclear.take().unwrap_or(error).into()),
        }
    }
}

/// What became of a try to replace the record.
enum Replaced {
    Done,
    /// Somebody else was faster, or may have been.
    Overtaken(Option<Record>),
}

/// Who asks for what, and why.
#[derive(Debug, Clone, Copy)]
struct Asking<'a> {
    action: Action,
    who: &'a Client,
    reason: Option<&'a str>,
}

/// What a change was told on its way.
struct Known {
    /// The map when it began.
    map: Option<RegionMap>,
    /// A write of ours that may have been applied.
    unclear: Option<StoreError>,
}

impl Known {
    /// Whether the state tells of a failover that the map did not know: somebody died in between, is
    /// at it, or we have written the state ourselves and were not told.
    fn is_half_done(&self, state: &RegionMap) -> bool {
        let (epoch, at) =
            self.map.as_ref().map_or((0, None), |map| (map.epoch, map.failed_over_at));
        state.epoch > epoch && state.failed_over_at != at
    }
}

impl<S: Store> Core<S> {
    /// Which regions serve an institution, as the map says. One that cannot be read counts as none:
    /// it follows from the state, and is written anew.
    pub(super) async fn read_map(&self, ispb: Ispb) -> Result<Option<RegionMap>, StoreError> {
        let key = map_key(self.place(ispb))?;
        let record = self.store.get(&key).await?;
        Ok(record.and_then(|record| RegionMap::read(&key, &record.value).ok()))
    }

    /// Brings the map up to what the state says, unless it is there already.
    async fn raise_map(&self, ispb: Ispb, map: &RegionMap) -> Result<(), StoreError> {
        let key = map_key(self.place(ispb))?;
        // Refused, it is higher already: its fence is its epoch.
        let outcome = self.store.put(&key, map.write()?).await?;
        let known = match outcome {
            Outcome::Refused { current: Some(current) } => {
                RegionMap::read(&key, &current.value).unwrap_or_else(|_| map.clone())
            }
            Outcome::Refused { current: None } | Outcome::Applied { .. } => map.clone(),
        };
        self.owners.note(ispb, Some(Arc::new(known)), self.clock.monotonic());
        Ok(())
    }

    /// Takes note of what a state says that was just read, and brings up a map that is behind. False
    /// where that failed: whoever reads the state next is to try again.
    pub(super) async fn follow(&self, ispb: Ispb, state: &State) -> bool {
        let Some(map) = state.region_map() else { return true };
        let known = self.owners.known(ispb, self.clock.monotonic());
        if known.flatten().is_some_and(|known| known.epoch >= map.epoch) {
            return true;
        }
        let Ok(found) = self.read_map(ispb).await else { return false };
        if let Some(found) = found.filter(|found| found.epoch >= map.epoch) {
            self.owners.note(ispb, Some(Arc::new(found)), self.clock.monotonic());
            return true;
        }
        self.raise_map(ispb, &map).await.is_ok()
    }

    /// [`PullStreamError::Elsewhere`] where another region serves the institution. That it is ours is
    /// believed for a second; that it is not is looked at again, and in the state, which the map may
    /// be behind.
    pub(super) async fn check_owner(&self, ispb: Ispb) -> Result<(), PullStreamError> {
        let own =
            |map: Option<&RegionMap>| map.is_none_or(|map| map.primary == self.settings.region);
        let now = self.clock.monotonic();
        if self.owners.known(ispb, now).is_some_and(|known| own(known.as_deref())) {
            return Ok(());
        }
        let found = self.read_map(ispb).await?;
        if own(found.as_ref()) {
            self.owners.note(ispb, found.map(Arc::new), now);
            return Ok(());
        }
        let key = self.place(ispb).state_key("state")?;
        let record = self.store.get(&key).await?;
        let state = record.map(|record| State::read(&key, &record.value)).transpose()?;
        let map = match (state.as_ref().and_then(State::region_map), found) {
            (Some(state), Some(map)) if map.epoch > state.epoch => Some(map),
            (Some(state), _) => Some(state),
            (None, map) => map,
        };
        if let Some(state) = &state {
            // Failing, it is tried again by whoever comes next.
            self.follow(ispb, state).await;
        }
        match map {
            Some(map) if !own(Some(&map)) => {
                Err(PullStreamError::Elsewhere { region: map.primary })
            }
            Some(_) | None => Ok(()),
        }
    }
}

fn check_reason(reason: Option<&str>) -> Result<(), PullStreamError> {
    if reason.is_none_or(|reason| reason.len() <= MAX_REASON) {
        return Ok(());
    }
    let reason = format!("give up to {MAX_REASON} bytes");
    Err(PullStreamError::Invalid { field: "reason", reason })
}
