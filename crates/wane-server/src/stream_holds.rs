//! Keeping legal holds: what comes in under one is held, and what somebody left half done is completed.

use std::sync::Weak;
use std::time::Duration;

use wane::clock::SharedClock;

use crate::wiring::Parts;

/// How often holds are looked at. A message that lives for less may be gone before it is held.
const EVERY: Duration = Duration::from_secs(10);

/// Looks after holds for as long as the services are there.
pub(crate) async fn keep(services: Weak<Parts>, clock: SharedClock) {
    loop {
        clock.sleep(EVERY).await;
        let Some(services) = services.upgrade() else { return };
        if let Err(error) = services.pull_stream.keep_holds().await {
            tracing::warn!(%error, "legal holds are not kept; it is tried again");
        }
    }
}
