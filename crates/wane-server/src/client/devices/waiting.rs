//! Polling until somebody has decided, as RFC 8628 (sections 3.3 to 3.5) wants it of a device.
//!
//! Between two polls the device waits its interval, which each `slow_down` makes five seconds
//! longer for good. A server that cannot be reached or is out of order is asked again, each time
//! after a longer pause on top. The first of these pauses is a second, so that a poll whose answer
//! was lost is repeated while the server still gives the same token again (10 s).
//!
//! Invariant: it ends when the codes do, whatever the server says or does not say.

use std::time::Duration;

use super::{DevicePolled, Devices, LinkedToken, OAuthClient, StartedDevice};
use crate::client::ClientError;

/// What each `slow_down` adds.
const SLOWER: Duration = Duration::from_secs(5);

/// The pause on top after a first failure; it doubles with each further one.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);

const LONGEST_BACKOFF: Duration = Duration::from_secs(64);

/// How long before their end the codes are asked for once more: an approval in the last seconds
/// is worth nothing to a device that asks after them.
const LAST_CHANCE: Duration = Duration::from_secs(1);

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The device is linked.
    Linked(LinkedToken),
    /// Somebody said no.
    Denied,
    /// Nobody decided in time.
    Expired,
}

impl Devices {
    /// Polls until somebody has decided or the codes have expired. What keeps it from asking is
    /// told to `troubled` and endured; what no waiting mends ends it.
    pub async fn wait(
        &self,
        who: &OAuthClient,
        started: &StartedDevice,
        mut troubled: impl FnMut(&ClientError),
    ) -> Result<Verdict, ClientError> {
        let clock = &self.client.shared.clock;
        let mut rhythm = Rhythm::new(started.interval);
        loop {
            let left = started.ends.saturating_sub(clock.monotonic());
            clock.sleep(rhythm.pause(left)).await;
            if clock.monotonic() >= started.ends {
                return Ok(Verdict::Expired);
            }
            match self.poll(who, started).await {
                Ok(DevicePolled::Pending) => rhythm.answered(),
                Ok(DevicePolled::SlowDown) => {
                    rhythm.answered();
                    rhythm.interval += SLOWER;
                }
                Ok(DevicePolled::Denied) => return Ok(Verdict::Denied),
                Ok(DevicePolled::Expired) => return Ok(Verdict::Expired),
                Ok(DevicePolled::Linked(token)) => return Ok(Verdict::Linked(token)),
                Err(error) => {
                    let Some(wish) = passing(&error) else { return Err(error) };
                    rhythm.failed(wish);
                    troubled(&error);
                }
            }
        }
    }
}

/// When to ask next.
#[derive(Debug)]
struct Rhythm {
    interval: Duration,
    backoff: Duration,
    /// How long the server wants to be left alone.
    wish: Duration,
}

impl Rhythm {
    fn new(interval: Duration) -> Self {
        Self { interval, backoff: Duration::ZERO, wish: Duration::ZERO }
    }

    fn answered(&mut self) {
        (self.backoff, self.wish) = (Duration::ZERO, Duration::ZERO);
    }

    fn failed(&mut self, wish: Duration) {
        self.backoff = (self.backoff * 2).clamp(FIRST_BACKOFF, LONGEST_BACKOFF);
        self.wish = wish;
    }

    /// How long to wait where so much is left of the codes.
    fn pause(&self, left: Duration) -> Duration {
        let pause = (self.interval + self.backoff).max(self.wish);
        if left > LAST_CHANCE { pause.min(left - LAST_CHANCE) } else { left }
    }
}

/// Whether the trouble may pass by itself, and how long the server wants to be left alone.
fn passing(error: &ClientError) -> Option<Duration> {
    match error {
        ClientError::Problem { status: 429 | 500.., retry_after, .. } => {
            Some(retry_after.unwrap_or_default())
        }
        // The server repeats what it told a poll whose answer was lost.
        ClientError::Unreachable { .. } | ClientError::UnknownOutcome { .. } => {
            Some(Duration::ZERO)
        }
        ClientError::Problem { .. }
        | ClientError::Refused { .. }
        | ClientError::Contested { .. }
        | ClientError::Absent
        | ClientError::Protocol { .. }
        | ClientError::Source { .. }
        | ClientError::DigestMismatch { .. }
        | ClientError::Spent { .. } => None,
    }
}
