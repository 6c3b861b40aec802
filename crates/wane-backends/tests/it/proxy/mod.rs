//! A TCP proxy on loopback between a backend and its server, for what networks do to answers.
//!
//! It carries bytes and knows no protocol. [`Rules`] say what becomes of them and can be changed
//! while connections are open: they are held back, lost, or lost with the connection. A chunk is
//! what one read returned: for a caller that waits for each answer, a request or an answer.
//!
//! Invariant: bytes reach the other side whole and in order up to the first loss, and nothing
//! follows a loss on the same way of the same connection. A protocol that matches answers by their
//! order is therefore never handed the wrong one: the proxy loses answers, it does not lie.
//!
//! [`Counts`] tell what was done, so that a test of faults can show that there were any. The proxy
//! ends with its handle, and so do its connections.

mod carrier;
mod rules;
mod tests;

pub(crate) use rules::{Chance, Counts, Ending, Rules};

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, watch};
use tokio::task::JoinSet;
use wane::clock::{SharedClock, SystemClock};

use carrier::Carrier;
use rules::Judge;

/// How often a port is asked for again that was given up to refuse connections.
const REBIND: Duration = Duration::from_millis(5);

/// A proxy at work.
#[derive(Debug)]
pub(crate) struct Proxy {
    address: SocketAddr,
    judge: Arc<Judge>,
    rules: watch::Sender<Rules>,
    cuts: broadcast::Sender<Ending>,
    /// The accepting task and all that it began: dropped, they end.
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// Listens on a free port and carries everything to `server`. Chances come from `seed`.
    pub(crate) async fn before(server: SocketAddr, seed: u64) -> Self {
        // On the server's own address: drivers that learn the address of a node keep the port that
        // they were given, and so come back here.
        let listener = TcpListener::bind((server.ip(), 0)).await.expect("a free port");
        Self::at(listener, server, seed)
    }

    /// One before each of the nodes of a cluster, which have addresses of their own and share a port.
    pub(crate) async fn before_all(servers: &[SocketAddr], seed: u64) -> Vec<Self> {
        let listeners = loop {
            let mut listeners: Vec<TcpListener> = Vec::new();
            for server in servers {
                let first = listeners.first().map(|first| first.local_addr());
                let port = first.map_or(0, |first| first.expect("a bound address").port());
                listeners.extend(TcpListener::bind((server.ip(), port)).await);
            }
            if listeners.len() == servers.len() {
                break listeners;
            }
        };
        let seeds = seed..;
        let each = listeners.into_iter().zip(servers).zip(seeds);
        each.map(|((listener, server), seed)| Self::at(listener, *server, seed)).collect()
    }

    fn at(listener: TcpListener, server: SocketAddr, seed: u64) -> Self {
        let address = listener.local_addr().expect("a bound address");
        let (rules, watched) = watch::channel(Rules::PASS);
        let (cuts, _) = broadcast::channel(16);
        let judge = Arc::new(Judge::seeded(seed, watched.clone()));
        let door = Door {
            address,
            server,
            judge: Arc::clone(&judge),
            rules: watched,
            cuts: cuts.clone(),
            clock: SystemClock::shared(),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(door.accept(listener));
        Self { address, judge, rules, cuts, _tasks: tasks }
    }

    /// Where to connect instead of to the server.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// From here on these rules hold, for open connections too. New connections are refused or
    /// taken once this returns.
    pub(crate) async fn set(&self, rules: Rules) {
        self.judge.begin(rules);
        self.rules.send_replace(rules);
        let mut door = self.judge.door();
        let shut = door.wait_for(|shut| *shut == rules.refuse);
        drop(shut.await.expect("the proxy is accepting"));
    }

    /// Ends every open connection.
    pub(crate) fn cut(&self, ending: Ending) {
        // Nobody listens where no connection is open.
        drop(self.cuts.send(ending));
    }

    /// What was done so far.
    pub(crate) fn counts(&self) -> Counts {
        self.judge.counts()
    }
}

/// The accepting side.
#[derive(Debug)]
struct Door {
    address: SocketAddr,
    server: SocketAddr,
    judge: Arc<Judge>,
    rules: watch::Receiver<Rules>,
    cuts: broadcast::Sender<Ending>,
    clock: SharedClock,
}

impl Door {
    async fn accept(mut self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        let mut listener = Some(listener);
        loop {
            let refuse = self.rules.borrow_and_update().refuse;
            if refuse {
                // Only a closed port refuses: whoever is accepted has a connection.
                listener = None;
                self.judge.tell_door(true);
                if self.rules.changed().await.is_err() {
                    return;
                }
                continue;
            }
            let open = match listener.take() {
                Some(open) => open,
                None => self.listen_again().await,
            };
            let open = listener.insert(open);
            self.judge.tell_door(false);
            tokio::select! {
                accepted = open.accept() => {
                    if let Ok((client, _)) = accepted {
                        connections.spawn(self.carry(client));
                    }
                }
                changed = self.rules.changed() => if changed.is_err() { return },
                Some(ended) = connections.join_next() => ended.expect("carrying does not fail"),
            }
        }
    }

    async fn listen_again(&self) -> TcpListener {
        loop {
            match TcpListener::bind(self.address).await {
                Ok(listener) => return listener,
                Err(_) => self.clock.sleep(REBIND).await,
            }
        }
    }

    fn carry(&self, client: TcpStream) -> impl Future<Output = ()> + use<> {
        let (judge, clock, server) =
            (Arc::clone(&self.judge), Arc::clone(&self.clock), self.server);
        let cuts = self.cuts.subscribe();
        async move {
            // A server that does not listen is no fault of the proxy: the client is hung up on.
            let Ok(server) = TcpStream::connect(server).await else { return };
            Carrier { judge, clock, cuts }.carry(client, server).await;
        }
    }
}
