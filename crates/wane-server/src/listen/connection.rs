//! One connection, from being accepted to being closed.
//!
//! ```text
//! accepted -> TLS handshake -> HTTP (http1, http2) -> lingering -> closed
//! ```
//!
//! Whatever the connection's task waits for, it is [attended](Connection::attend): when a limit may
//! have been reached, `patience` is asked for a verdict. A connection that ends while its peer may
//! still be sending lingers: it says that it is done, then reads and forgets for a moment. Closing at
//! once would make the kernel send a reset, which can destroy the answer (413, 431) before the peer
//! has read it, and which a request that crosses the end of a kept connection would meet instead of a
//! close. Only HTTP/1 needs the former: an HTTP/2 request is ended by frames of its own.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::{BoxError, Router};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::server::TlsStream;
use wane::clock::SharedClock;

use super::ListenLimits;
use super::clock_timer::ClockTimer;
use super::connections::Seat;
use super::exchange::{Client, Exchanges};
use super::patience::{Patience, Verdict};
use super::rewound::Rewound;
use super::timed_io::TimedIo;
use super::tls::{Certificates, ClientCertificate};

/// How long a connection lingers.
const LINGER: Duration = Duration::from_secs(2);

/// How much a connection that lingers reads.
const LINGER_BYTES: u64 = 64 * 1024 * 1024;

/// How long one lingers that was told to finish: what crosses its end is a request at most.
const LINGER_TOLD: Duration = Duration::from_millis(250);

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
    /// Told to finish: it takes no more requests.
    finishing: bool,
}

/// How the protocol ended.
pub(super) enum End {
    /// By itself, or because it was `told` to finish.
    Done { result: Result<(), BoxError>, told: bool },
    /// By us.
    Cut(&'static str),
}

/// What came of waiting.
pub(super) enum Attended<T> {
    /// What was waited for.
    Done(T),
    /// The connection is to take no more requests. Told once.
    Finish,
    /// Its time is over.
    Cut(&'static str),
}

impl Connection {
    pub(super) fn new(
        host: Arc<Host>,
        peer: SocketAddr,
        seat: Seat,
        closing: watch::Receiver<bool>,
    ) -> Self {
        Self { host, peer, seat, closing, finishing: false }
    }

    pub(super) async fn serve(mut self, socket: TcpStream) {
        let patience = Patience::new(Arc::clone(&self.host.clock), Arc::clone(&self.host.limits));
        let io = TimedIo::new(socket, Arc::clone(&patience));
        let end = match self.host.certificates.clone() {
            None => self.converse(io.clone(), None, &patience).await,
            // Boxed, as most of it is gone once the handshake is over.
            Some(certificates) => match Box::pin(self.handshake(&certificates, io.clone())).await {
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
    ) -> Result<Box<TlsStream<TimedIo>>, End> {
        let mut closing = self.closing.clone();
        tokio::select! {
            stream = certificates.acceptor().accept(io) => match stream {
                Ok(stream) => Ok(Box::new(stream)),
                Err(error) => Err(self.done(Err(error))),
            },
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
        let exchanges = Exchanges::new(self.host.router.clone(), client, patience);
        let mut io = Rewound::new(io);
        match self.attend(patience, io.begins_with(super::http2::PREFACE)).await {
            Attended::Done(Ok(true)) => self.converse_in_http2(io, exchanges, patience).await,
            Attended::Done(Ok(false)) => self.converse_in_http1(io, exchanges, patience).await,
            Attended::Done(Err(error)) => self.done(Err(error)),
            Attended::Finish => self.done(Ok::<_, BoxError>(())),
            Attended::Cut(reason) => End::Cut(reason),
        }
    }

    /// Waits for `work`, unless the connection's time is over or it is told to finish before.
    pub(super) async fn attend<T>(
        &mut self,
        patience: &Patience,
        work: impl Future<Output = T>,
    ) -> Attended<T> {
        let mut work = pin!(work);
        loop {
            let wait = match patience.verdict() {
                Verdict::Wait(wait) => wait,
                Verdict::Cut(reason) => return Attended::Cut(reason),
                Verdict::Finish => {
                    self.finishing = true;
                    return Attended::Finish;
                }
            };
            tokio::select! {
                biased;
                done = work.as_mut() => return Attended::Done(done),
                _ = self.closing.wait_for(|closing| *closing), if !self.finishing => {
                    self.finishing = true;
                    return Attended::Finish;
                }
                () = self.host.clock.sleep(wait) => {}
            }
        }
    }

    /// Whether it was told to take no more requests.
    pub(super) fn is_finishing(&self) -> bool {
        self.finishing
    }

    /// The end of a connection that ended by itself, or when told to.
    pub(super) fn done(&self, result: Result<(), impl Into<BoxError>>) -> End {
        End::Done { result: result.map_err(Into::into), told: self.finishing }
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
