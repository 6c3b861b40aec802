//! What Redis does for pull streams where the settings ask for it: a view of them, and a lock.
//!
//! Neither has to be there for the server to start or to go on: streams answer the same without.

use std::sync::Arc;

use wane::clock::SharedClock;
use wane::services::pull_stream::{AdvanceLock, TokenView};
use wane_backends::OpenError;
#[cfg(feature = "redis")]
use wane_backends::redis::pull_stream::{RedisTier, Redlock};

use crate::settings::Settings;

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum StreamTierError {
    /// The view cannot be as the settings want it.
    #[error("the tier of pull streams: {0} (WANE_STREAM_REDIS_URL)")]
    View(OpenError),

    /// The lock cannot be as the settings want it.
    #[error("the lock of pull streams: {0} (WANE_STREAM_REDLOCK_URLS)")]
    Lock(OpenError),
}

/// The view and the lock, where there are any.
#[derive(Debug, Default)]
pub(crate) struct StreamTier {
    #[cfg(feature = "redis")]
    view: Option<RedisTier>,
    #[cfg(feature = "redis")]
    lock: Option<Arc<Redlock>>,
}

#[cfg(feature = "redis")]
impl StreamTier {
    pub(crate) fn new(settings: &Settings, clock: &SharedClock) -> Result<Self, StreamTierError> {
        let view = settings.stream_redis_url.as_ref().map(|url| {
            RedisTier::new(url.as_str(), Arc::clone(clock)).map_err(StreamTierError::View)
        });
        let lock = settings.stream_redlock_urls.as_ref().map(|urls| {
            let urls = urls.three().ok_or_else(|| {
                let reason = "give three URLs with commas between them".to_owned();
                OpenError::BadUrl { backend: "redis", reason }
            });
            urls.and_then(|urls| Redlock::new(urls, Arc::clone(clock)))
                .map(Arc::new)
                .map_err(StreamTierError::Lock)
        });
        Ok(Self { view: view.transpose()?, lock: lock.transpose()? })
    }

    pub(crate) fn view(&self) -> Option<Arc<dyn TokenView>> {
        let view = self.view.clone()?;
        Some(Arc::new(view))
    }

    pub(crate) fn lock(&self) -> Option<Arc<dyn AdvanceLock>> {
        let lock = self.lock.clone()?;
        Some(lock)
    }

    /// What was counted; nothing where there is neither.
    pub(crate) fn prometheus_text(&self) -> String {
        let mut text = String::new();
        if let Some(counts) = self.view.as_ref().map(RedisTier::counts) {
            text += "# HELP wane_stream_tier_updates_total What became of updates of the tier.\n\
                     # TYPE wane_stream_tier_updates_total counter\n";
            for (outcome, count) in [
                ("shown", counts.shown),
                ("stale", counts.stale),
                ("superseded", counts.superseded),
                ("dropped", counts.dropped),
                ("failed", counts.failed),
            ] {
                let labels = format!("{{outcome=\"{outcome}\"}}");
                text += &format!("wane_stream_tier_updates_total{labels} {count}\n");
            }
        }
        if let Some(counts) = self.lock.as_ref().map(|lock| lock.counts()) {
            text += "# HELP wane_stream_lock_total What came of asking masters for a lock.\n\
                     # TYPE wane_stream_lock_total counter\n";
            for (outcome, count) in
                [("held", counts.held), ("away", counts.away), ("tries", counts.tries)]
            {
                let labels = format!("{{outcome=\"{outcome}\"}}");
                text += &format!("wane_stream_lock_total{labels} {count}\n");
            }
        }
        text
    }
}

#[cfg(not(feature = "redis"))]
impl StreamTier {
    pub(crate) fn new(settings: &Settings, _: &SharedClock) -> Result<Self, StreamTierError> {
        let not_built = || OpenError::NotBuilt { backend: "redis", feature: "redis" };
        if settings.stream_redis_url.is_some() {
            return Err(StreamTierError::View(not_built()));
        }
        if settings.stream_redlock_urls.is_some() {
            return Err(StreamTierError::Lock(not_built()));
        }
        Ok(Self::default())
    }

    pub(crate) fn view(&self) -> Option<Arc<dyn TokenView>> {
        None
    }

    pub(crate) fn lock(&self) -> Option<Arc<dyn AdvanceLock>> {
        None
    }

    pub(crate) fn prometheus_text(&self) -> String {
        String::new()
    }
}
