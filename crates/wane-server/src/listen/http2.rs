//! A connection of HTTP/2: many requests at once, of which each ends by frames of its own.

use std::sync::Arc;

use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use super::connection::{Attended, Connection, End};
use super::connections::Seat;
use super::exchange::Exchanges;
use super::patience::Patience;
use super::rewound::Rewound;

/// What such a connection begins with.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// What hyper may keep of one answer that the peer does not take.
const SEND_BYTES: usize = 64 * 1024;

/// What a peer may send of one request body before it is read.
const STREAM_WINDOW: u32 = 256 * 1024;

/// What a peer may send of all its request bodies before they are read.
const CONNECTION_WINDOW: u32 = 1024 * 1024;

/// Streams reset by the peer before we came to them, beyond which it is sent away.
const PENDING_RESETS: usize = 20;

/// Streams that we reset for the peer's errors, beyond which it is sent away.
const ERROR_RESETS: usize = 256;

impl Connection {
    pub(super) async fn converse_in_http2(
        &mut self,
        io: Rewound<impl AsyncRead + AsyncWrite + Unpin + Send + 'static>,
        exchanges: Exchanges,
        patience: &Arc<Patience>,
    ) -> End {
        let http2 = self.http2();
        let mut protocol = Box::pin(http2.serve_connection(TokioIo::new(io), exchanges));
        loop {
            match self.attend(patience, protocol.as_mut()).await {
                Attended::Done(result) => return self.done(result),
                Attended::Finish => protocol.as_mut().graceful_shutdown(),
                Attended::Cut(reason) => return End::Cut(reason),
            }
        }
    }

    fn http2(&self) -> http2::Builder<StreamTasks> {
        let limits = &self.host.limits;
        let mut http2 = http2::Builder::new(StreamTasks { seat: self.seat.clone() });
        http2
            .timer(self.host.timer.clone())
            .keep_alive_interval(limits.stalled)
            .keep_alive_timeout(limits.stalled)
            .max_concurrent_streams(limits.http2_streams)
            .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
            .max_send_buf_size(SEND_BYTES)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_pending_accept_reset_streams(PENDING_RESETS)
            .max_local_error_reset_streams(ERROR_RESETS);
        http2
    }
}

/// Runs single requests of a connection, each of which keeps the connection's seat taken.
#[derive(Debug, Clone)]
struct StreamTasks {
    seat: Seat,
}

impl<F> Executor<F> for StreamTasks
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, request: F) {
        let seat = self.seat.clone();
        tokio::spawn(async move {
            let _seat = seat;
            request.await;
        });
    }
}
