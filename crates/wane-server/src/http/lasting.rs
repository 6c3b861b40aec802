//! Answers without an end: streams of events, and what ends them.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use futures_util::Stream;
use wane::services::apps::Scope;

use super::caller::Caller;
use super::limiters::Watching;
use super::problem::Problem;
use crate::wiring::Services;

/// How often a silent stream says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// How often a stream asks whether its key is still good. What is read is at most half a second old.
const KEY_CHECK: Duration = Duration::from_millis(250);

/// A stream of events as an answer.
pub(super) fn kept_alive<S>(events: S) -> Sse<impl Stream<Item = Result<Event, Infallible>>>
where
    S: Stream<Item = Result<Event, Infallible>> + Send + 'static,
{
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}

/// A stream under way: counted among those of its application, and ended with its key or server.
pub(super) struct Lasted {
    ended: Pin<Box<dyn Future<Output = ()> + Send>>,
    _one: Watching,
}

impl fmt::Debug for Lasted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lasted").finish_non_exhaustive()
    }
}

impl Lasted {
    /// Counts one more stream, or says that there are enough.
    pub(super) fn begin(services: &Services, caller: &Caller) -> Result<Self, Problem> {
        let one = services.limiters.admit_watch(&caller.app)?;
        let ended = Box::pin(ended(services.clone(), caller.clone()));
        Ok(Self { ended, _one: one })
    }

    /// Returns once the server stops or the caller's key no longer opens reading.
    pub(super) async fn ended(&mut self) {
        self.ended.as_mut().await;
    }
}

async fn ended(services: Services, caller: Caller) {
    let revoked = async {
        loop {
            services.clock.sleep(KEY_CHECK).await;
            let holds = services.apps.holds(caller.app.id, caller.key(), Scope::Read).await;
            // A store that does not answer has nothing to tell either.
            if matches!(holds, Ok(false)) {
                return;
            }
        }
    };
    tokio::select! {
        () = services.closing.wait() => {}
        () = revoked => {}
    }
}
