//! One connection, from being accepted to being closed.
//!
//! ```text
//! accepted -> TLS handshake -> HTTP -> lingering -> closed
//! ```
//!
//! The connection's task polls the protocol and, when a limit may have been reached, asks
//! `patience` for a verdict. A connection that ends while its peer may still be sending lingers:
//! it says that it is done, then reads and forgets for a moment. Closing at once would make the
//! kernel send a reset, which can destroy the answer (413, 431) before the peer has read it, and
//! which a request that crosses the end of a kept connection would meet instead of a close. Only
//! HTTP/1 needs the former: an HTTP/2 request is ended by frames of its own.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::{BoxError, Router};
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::server::TlsStream;
use wane::clock::SharedClock;

use super::ListenLimits;
use super::clock_timer::ClockTimer;
use super::connections::Seat;
use super::exchange::{Client, exchanges};
use super::patience::{Patience, Verdict};
use super::timed_io::TimedIo;
use super::tls::{Certificates, ClientCertificate};

/// How long a connection lingers.
const LINGER: Duration = Duration::from_secs(2);

/// How much a connection that lingers reads.
const LINGER_BYTES: u64 = 64 * 1024 * 1024;

/// How long one lingers that was told to finish: what crosses its end is a request at most.
const LINGER_TOLD: Duration = Duration::from_millis(250);

/// What hyper may keep of one HTTP/2 answer that the peer does not take.
const HTTP2_SEND_BYTES: usize = 64 * 1024;

/// What a peer may send of one HTTP/2 request body before it is read.
const HTTP2_STREAM_WINDOW: u32 = 256 * 1024;

/// What a peer may send of all its HTTP/2 request bodies before they are read.
const HTTP2_CONNECTION_WINDOW: u32 = 1024 * 1024;

/// HTTP/2 streams reset by the peer before we came to them, beyond which it is sent away.
const HTTP2_PENDING_RESETS: usize = 20;

/// HTTP/2 streams that we reset for the peer's errors, beyond which it is sent away.
const HTTP2_ERROR_RESETS: usize = 256;

/// What the connections of a listener have in common.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) router: Router,
    pub(super) certificates: Option<Certificates>,
    pub(super) limits: Arc<ListenLimits>,
    pub(super) clock: SharedClock,
    pub(super) timer: ClockTimer,
}

/// An accepted connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) host: Arc<Host>,
    pub(super) peer: SocketAddr,
    pub(super) seat: Seat,
    /// True once the listener wants to end.
    pub(super) closing: watch::Receiver<bool>,
}

/// How the protocol ended.
enum End {
    /// By itself, or because it was `told` to finish.
    Done { result: Result<(), BoxError>, told: bool },
    /// By us.
    Cut(&'static str),
}

impl Connection {
    pub(super) async fn serve(mut self, socket: TcpStream) {
        let patience = Patience::new(Arc::clone(&self.host.clock), Arc::clone(&self.host.limits));
        let io = TimedIo::new(socket, Arc::clone(&patience));
        let end = match self.host.certificates.clone() {
            None => self.converse(io.clone(), None, &patience).await,
            Some(certificates) => match self.handshake(&certificates, io.clone()).await {
                Ok(stream) => {
                    let shown = shown_certificate(&stream);
                    self.converse(stream, shown, &patience).await
                }
                Err(end) => end,
            },
        };
        self.close(io, end, &patience).await;
    }

    async fn handshake(
        &mut self,
        certificates: &Certificates,
        io: TimedIo,
    ) -> Result<TlsStream<TimedIo>, End> {
        let mut closing = self.closing.clone();
        tokio::select! {
            stream = certificates.acceptor().accept(io) => {
                stream.map_err(|error| End::Done { result: Err(error.into()), told: false })
            }
            () = self.host.clock.sleep(self.host.limits.handshake) => {
                Err(End::Cut("the TLS handshake did not end"))
            }
            _ = closing.wait_for(|closing| *closing) => Err(End::Cut("the listener ends")),
        }
    }

    async fn converse(
        &mut self,
        io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        certificate: Option<ClientCertificate>,
        patience: &Arc<Patience>,
    ) -> End {
        patience.begin();
        let client = Client { address: self.peer, certificate };
        let exchanges = exchanges(self.host.router.clone(), client, Arc::clone(patience));
        let protocols = self.protocols();
        let mut protocol = pin!(protocols.serve_connection(TokioIo::new(io), exchanges));
        let mut finishing = false;
        loop {
            let wait = match patience.verdict() {
                Verdict::Wait(wait) => Some(wait),
                Verdict::Finish => None,
                Verdict::Cut(reason) => return End::Cut(reason),
            };
            let finish = match wait {
                None => true,
                Some(wait) => tokio::select! {
                    result = protocol.as_mut() => return End::Done { result, told: finishing },
                    () = self.host.clock.sleep(wait) => false,
                    _ = self.closing.wait_for(|closing| *closing), if !finishing => true,
                },
            };
            if finish && !finishing {
                finishing = true;
                protocol.as_mut().graceful_shutdown();
            }
        }
    }

    fn protocols(&self) -> auto::Builder<StreamTasks> {
        let limits = &self.host.limits;
        let mut protocols = auto::Builder::new(StreamTasks { seat: self.seat.clone() });
        // hyper's own limit would also end connections between requests.
        protocols.http1().header_read_timeout(None).max_buf_size(limits.header_bytes);
        let header_bytes = u32::try_from(limits.header_bytes).unwrap_or(u32::MAX);
        protocols
            .http2()
            .timer(self.host.timer.clone())
            .keep_alive_interval(limits.stalled)
            .keep_alive_timeout(limits.stalled)
            .max_concurrent_streams(limits.http2_streams)
            .max_header_list_size(header_bytes)
            .max_send_buf_size(HTTP2_SEND_BYTES)
            .initial_stream_window_size(HTTP2_STREAM_WINDOW)
            .initial_connection_window_size(HTTP2_CONNECTION_WINDOW)
            .max_pending_accept_reset_streams(HTTP2_PENDING_RESETS)
            .max_local_error_reset_streams(HTTP2_ERROR_RESETS);
        protocols
    }

    async fn close(&self, io: TimedIo, end: End, patience: &Patience) {
        let Some(mut socket) = io.into_socket() else { return };
        match end {
            End::Cut(reason) => {
                tracing::debug!(peer = %self.peer, reason, "connection cut");
                if patience.is_blocked() {
                    // The kernel would go on offering what it holds for minutes.
                    let _ = socket.set_zero_linger();
                }
            }
            End::Done { result, told } => {
                if let Err(error) = &result {
                    tracing::debug!(peer = %self.peer, error, "connection ended");
                }
                let linger = if patience.unread() {
                    LINGER
                } else if told {
                    LINGER_TOLD
                } else {
                    return;
                };
                tokio::select! {
                    () = forget_rest(&mut socket) => {}
                    () = self.host.clock.sleep(linger) => {}
                }
            }
        }
    }
}

/// Says that nothing more will come, and reads until the peer says so too.
async fn forget_rest(socket: &mut TcpStream) {
    if socket.shutdown().await.is_ok() {
        let _ = tokio::io::copy(&mut socket.take(LINGER_BYTES), &mut tokio::io::sink()).await;
    }
}

fn shown_certificate(stream: &TlsStream<TimedIo>) -> Option<ClientCertificate> {
    let chain = stream.get_ref().1.peer_certificates()?;
    chain.first().map(|leaf| ClientCertificate(Arc::from(leaf.as_ref())))
}

/// Runs single HTTP/2 requests of a connection, each of which keeps the connection's seat taken.
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
