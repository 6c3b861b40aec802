//! What one listener allows its clients, in numbers that an operator may change.

use std::time::Duration;

use super::ListenError;

/// The least `header_bytes`: the HTTP/1 parser does not work with less.
const MIN_HEADER_BYTES: usize = 8 * 1024;

/// Limits of a [`Listener`](super::Listener). Plain data; the defaults suit a public address.
#[derive(Debug, Clone)]
pub struct ListenLimits {
    /// Connections open at once; one more is accepted and closed at once.
    pub connections: usize,
    /// From accepting a connection to the end of its TLS handshake.
    pub handshake: Duration,
    /// A whole request head, from its first byte. The first request of a connection counts from the
    /// connection's start.
    pub header: Duration,
    /// A connection between requests.
    pub idle: Duration,
    /// A peer that takes no byte of an answer, or sends no byte of a body that is waited for.
    pub stalled: Duration,
    /// Bytes a second below which a request body counts as dripped: it may be slower for
    /// `stalled` in all.
    pub body_rate: u32,
    /// Requests under way when the listener ends get this long to finish.
    pub drain: Duration,
    /// A request head: its line and all headers. At least 8 KiB.
    pub header_bytes: usize,
    /// Requests at once on one HTTP/2 connection.
    pub http2_streams: u32,
}

impl Default for ListenLimits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            handshake: Duration::from_secs(10),
            header: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            stalled: Duration::from_secs(30),
            body_rate: 240,
            drain: Duration::from_secs(10),
            header_bytes: 32 * 1024,
            http2_streams: 128,
        }
    }
}

impl ListenLimits {
    /// Refuses what cannot work, by name.
    pub(super) fn check(&self) -> Result<(), ListenError> {
        let broken = |limit, reason| Err(ListenError::Limit { limit, reason });
        if self.connections == 0 || u32::try_from(self.connections).is_err() {
            return broken("connections", "it must be at least 1 and fit 32 bits");
        }
        if self.header_bytes < MIN_HEADER_BYTES || u32::try_from(self.header_bytes).is_err() {
            return broken("header_bytes", "it must be at least 8192 and fit 32 bits");
        }
        if self.body_rate == 0 {
            return broken("body_rate", "it must be at least 1 byte a second");
        }
        if self.http2_streams == 0 {
            return broken("http2_streams", "it must be at least 1");
        }
        if [self.handshake, self.header, self.idle, self.stalled].contains(&Duration::ZERO) {
            return broken("handshake, header, idle, stalled", "each must be longer than nothing");
        }
        Ok(())
    }

    /// The time that `bytes` of a body may take.
    pub(super) fn time_for(&self, bytes: usize) -> Duration {
        Duration::from_secs_f64(bytes as f64 / f64::from(self.body_rate))
    }
}
