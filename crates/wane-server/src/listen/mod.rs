//! The accept loop under the HTTP server: connections, their number, their time and their end.
//!
//! ```text
//! accept -> seat (connections) -> TLS (tls) -> HTTP/1.1 (http1) or HTTP/2 (http2) -> router (exchange)
//!                                    socket (timed_io) -- patience -- request_body
//! ```
//!
//! No client can make another wait: each connection is a task, there are at most
//! [`ListenLimits::connections`] of them, and whoever is silent, drips or does not read is ended
//! when its time is over (the rules are in `patience`). A connection beyond the limit is accepted
//! and closed at once, so that its client learns now and not after a time-out of its own.
//!
//! A connection of HTTP/2 is told by its first bytes, without TLS too. Requests carry their peer's
//! address as axum's `ConnectInfo<SocketAddr>`.
//!
//! Ending: nothing more is accepted, idle connections close, requests under way are answered;
//! what is left after [`ListenLimits::drain`] is cut and counted.
//!
//! Not here: what is asked and answered. Limits of bodies, of rates and of requests under way are
//! the router's.

mod asked_again;
mod clock_timer;
mod connection;
mod connections;
mod error;
mod exchange;
mod http1;
mod http2;
mod limits;
mod patience;
mod request_body;
mod rewound;
mod timed_io;
mod tls;

pub use connections::Connections;
pub use error::ListenError;
pub use limits::ListenLimits;
pub use request_body::BodyStalled;
pub use tls::{Certificates, ClientCertificate, TlsFiles};

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::FutureExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use wane::clock::SharedClock;

use clock_timer::ClockTimer;
use connection::{Connection, Host};
use connections::Seat;

/// The pause after the system refused to give us a connection, as when descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long tasks that were cut may take to go away.
const CUT_GRACE: Duration = Duration::from_secs(1);

/// A bound socket that has not begun to serve.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    certificates: Option<Certificates>,
    limits: Arc<ListenLimits>,
    clock: SharedClock,
    connections: Connections,
}

/// How serving ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Connections that had to be cut because the time to finish was over.
    pub cut: usize,
}

impl Listener {
    /// Binds `addr`, where port 0 means any, and reads the TLS files.
    pub async fn bind(
        addr: SocketAddr,
        tls: Option<TlsFiles>,
        limits: ListenLimits,
        clock: SharedClock,
    ) -> Result<Self, ListenError> {
        limits.check()?;
        let certificates = match tls {
            Some(files) => Some(Certificates::load(files).await?),
            None => None,
        };
        let bound = |source| ListenError::Bind { addr, source };
        let socket = TcpListener::bind(addr).await.map_err(bound)?;
        let address = socket.local_addr().map_err(bound)?;
        let connections = Connections::at_most(limits.connections);
        Ok(Self { socket, address, certificates, limits: Arc::new(limits), clock, connections })
    }

    /// The address with the real port.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Counts for metrics, good while the listener serves and after.
    pub fn connections(&self) -> Connections {
        self.connections.clone()
    }

    /// The certificates in force, to be reloaded; none without TLS.
    pub fn certificates(&self) -> Option<Certificates> {
        self.certificates.clone()
    }

    /// Serves `router` until `shutdown` completes and the connections have ended.
    pub async fn serve(self, router: Router, shutdown: impl Future<Output = ()> + Send) -> Drained {
        let (close, closing) = watch::channel(false);
        let host = Arc::new(Host {
            router,
            certificates: self.certificates.clone(),
            limits: Arc::clone(&self.limits),
            clock: Arc::clone(&self.clock),
            timer: ClockTimer::new(Arc::clone(&self.clock)),
        });
        let mut tasks = Tasks { host, closing, running: JoinSet::new() };
        tokio::select! {
            () = shutdown => {}
            () = self.accept_into(&mut tasks) => {}
            () = self.follow_certificates() => {}
        }
        self.accept_waiting(&mut tasks);
        drop(self.socket);
        close.send_replace(true);
        tasks.drain(&self.connections).await
    }

    /// Never completes: no refusal of the system's lasts.
    async fn accept_into(&self, tasks: &mut Tasks) {
        let mut trouble = Trouble::None;
        loop {
            let accepted = tokio::select! {
                accepted = self.socket.accept() => accepted,
                Some(ended) = tasks.running.join_next() => {
                    report(ended);
                    continue;
                }
            };
            match accepted {
                Ok((socket, peer)) => match self.connections.admit() {
                    Some(seat) => {
                        trouble = Trouble::None;
                        tasks.begin(socket, peer, seat);
                    }
                    None => trouble.full(&self.limits),
                },
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    trouble.refused(&error);
                    self.clock.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Takes the connections that the system has made already. Closing the socket would reset
    /// them; taken, they are told to finish like all others.
    fn accept_waiting(&self, tasks: &mut Tasks) {
        while let Some(Ok((socket, peer))) = self.socket.accept().now_or_never()
            && let Some(seat) = self.connections.admit()
        {
            tasks.begin(socket, peer, seat);
        }
    }

    /// Never completes.
    async fn follow_certificates(&self) {
        match &self.certificates {
            Some(certificates) => certificates.follow(&self.clock).await,
            None => std::future::pending().await,
        }
    }
}

/// The connections being served.
struct Tasks {
    host: Arc<Host>,
    closing: watch::Receiver<bool>,
    running: JoinSet<()>,
}

impl Tasks {
    fn begin(&mut self, socket: TcpStream, peer: SocketAddr, seat: Seat) {
        // A socket that is already dead says so when it is read.
        let _ = socket.set_nodelay(true);
        let host = Arc::clone(&self.host);
        let connection = Connection::new(host, peer, seat, self.closing.clone());
        self.running.spawn(connection.serve(socket));
    }

    async fn drain(mut self, connections: &Connections) -> Drained {
        let clock = &self.host.clock;
        let mut cut = 0;
        tokio::select! {
            () = connections.ended() => {}
            () = clock.sleep(self.host.limits.drain) => {
                cut = connections.open();
                self.running.abort_all();
                tokio::select! {
                    () = connections.ended() => {}
                    () = clock.sleep(CUT_GRACE) => {}
                }
            }
        }
        while let Some(ended) = self.running.try_join_next() {
            report(ended);
        }
        Drained { cut }
    }
}

/// Says what stops connections from being accepted, once until one is accepted again.
#[derive(PartialEq, Eq)]
enum Trouble {
    None,
    Full,
    Refused,
}

impl Trouble {
    fn full(&mut self, limits: &ListenLimits) {
        if std::mem::replace(self, Self::Full) != Self::Full {
            tracing::warn!(
                connections = limits.connections,
                "all connections are taken; more are closed at once"
            );
        }
    }

    fn refused(&mut self, error: &io::Error) {
        if std::mem::replace(self, Self::Refused) != Self::Refused {
            tracing::warn!(
                %error,
                "the system gives no more connections; trying on. Too few descriptors? See ulimit -n"
            );
        }
    }
}

/// Whether only the connection that was about to be accepted is lost.
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a connection's task panicked");
    }
}
