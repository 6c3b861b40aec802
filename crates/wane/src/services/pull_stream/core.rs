//! What the handles and the tasks of a service share.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::audit::Remark;
use super::budget::Budget;
use super::institutions::Institutions;
use super::keys::KeySource;
use super::lines::Lines;
use super::log::{Ingest, Place};
use super::parking::Parking;
use super::policy::{Policies, Policy, Recorded};
use super::regions::{self, Owners};
use super::replay::Restored;
use super::rounds::Waiting;
use super::strangers::Strangers;
use super::{Ispb, PullStreamSettings, RegionMap};
use crate::clock::SharedClock;
use crate::store::{Store, StoreError};

/// The parts of a service.
#[derive(Debug)]
pub(super) struct Core<S> {
    pub(super) store: S,
    pub(super) clock: SharedClock,
    pub(super) keys: Arc<dyn KeySource>,
    pub(super) settings: PullStreamSettings,
    pub(super) readers: Arc<Lines<Waiting>>,
    pub(super) producers: Arc<Lines<Ingest>>,
    /// What producers may let wait.
    pub(super) budget: Arc<Budget>,
    pub(super) remarks: Arc<Lines<Remark>>,
    pub(super) parking: Arc<Parking>,
    pub(super) policies: Policies,
    pub(super) owners: Owners,
    pub(super) institutions: Institutions,
    pub(super) strangers: Strangers,
    /// Readers that another region has to answer, who are noted as rarely.
    pub(super) misdirected: Strangers,
    /// What replays read of the archive.
    pub(super) restored: Restored,
    /// Rejections that could not be written to the audit.
    pub(super) remarks_lost: AtomicU64,
}

impl<S: Store> Core<S> {
    pub(super) fn new(
        store: S,
        clock: SharedClock,
        keys: Arc<dyn KeySource>,
        settings: PullStreamSettings,
    ) -> Self {
        let restored = Restored::of(settings.archive.as_ref());
        Self {
            store,
            keys,
            settings,
            readers: Lines::new(&*clock),
            producers: Lines::new(&*clock),
            budget: Arc::default(),
            remarks: Lines::new(&*clock),
            parking: Arc::new(Parking::new(&*clock)),
            policies: Policies::default(),
            owners: Owners::default(),
            institutions: Institutions::default(),
            strangers: Strangers::default(),
            misdirected: Strangers::default(),
            restored,
            remarks_lost: AtomicU64::new(0),
            clock,
        }
    }

    pub(super) fn place(&self, ispb: Ispb) -> Place<'_> {
        Place { region: &self.settings.home, ispb }
    }

    /// What holds for an institution and what held before, as it stands.
    pub(super) async fn recorded_policy(&self, ispb: Ispb) -> Result<Recorded, StoreError> {
        let key = self.place(ispb).state_key("policy")?;
        match self.store.get(&key).await? {
            Some(record) => Recorded::read(&key, &record.value),
            None => Ok(Recorded::new(self.settings.policy())),
        }
    }

    /// What holds for an institution, as of the last second.
    pub(super) async fn policy(&self, ispb: Ispb) -> Result<Policy, StoreError> {
        let now = self.clock.monotonic();
        if let Some(policy) = self.policies.known(ispb, now) {
            return Ok(policy);
        }
        // Whoever takes messages in wants to know both.
        let keys = [self.place(ispb).state_key("policy")?, regions::map_key(self.place(ispb))?];
        let mut records = self.store.get_batch(&keys).await?.into_iter();
        let policy = match records.next().flatten() {
            Some(record) => Policy::read(&keys[0], &record.value)?,
            None => self.settings.policy(),
        };
        let map = records.next().flatten();
        // One that cannot be read is written anew by whoever reads the state.
        let map = map.and_then(|record| RegionMap::read(&keys[1], &record.value).ok());
        self.policies.note(ispb, policy, now);
        self.owners.note(ispb, map.map(Arc::new), now);
        Ok(policy)
    }
}
