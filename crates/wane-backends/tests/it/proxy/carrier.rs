//! One connection through the proxy: two ways, each read, judged, held back and written on.
//!
//! What was judged to pass arrives even where the sender has gone meanwhile: a request that was
//! given up still reaches the server, late.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{broadcast, mpsc};
use wane::clock::SharedClock;

use super::rules::{Ending, Fate, Judge, Way};

/// The largest chunk.
const CHUNK: usize = 64 * 1024;

/// What a connection is carried with.
#[derive(Debug)]
pub(super) struct Carrier {
    pub(super) judge: Arc<Judge>,
    pub(super) clock: SharedClock,
    pub(super) cuts: broadcast::Receiver<Ending>,
}

/// A chunk and the moment before which it is not passed on.
type Held = (Duration, Vec<u8>);

impl Carrier {
    /// Carries both ways until both have ended, or the connection is cut.
    pub(super) async fn carry(mut self, mut client: TcpStream, mut server: TcpStream) {
        self.judge.count(|counts| counts.connections += 1);
        let ending = {
            let (from_client, to_client) = client.split();
            let (from_server, to_server) = server.split();
            let (judge, clock) = (&*self.judge, &self.clock);
            let requests = Lane { judge, clock, way: Way::ToServer };
            let answers = Lane { judge, clock, way: Way::ToClient };
            let both = async {
                tokio::try_join!(
                    requests.run(from_client, to_server),
                    answers.run(from_server, to_client)
                )
            };
            tokio::select! {
                ended = both => ended.err(),
                cut = cut_for_good(&mut self.cuts) => Some(cut),
            }
        };
        let Some(ending) = ending else { return };
        self.judge.count(|counts| counts.cut += 1);
        if ending == Ending::Reset {
            for stream in [&client, &server] {
                stream.set_zero_linger().expect("an open socket takes the option");
            }
        }
    }
}

/// Waits for a cut that ends the connection.
async fn cut_for_good(cuts: &mut broadcast::Receiver<Ending>) -> Ending {
    loop {
        match cuts.recv().await {
            Ok(Ending::Silence) => {}
            Ok(ending) => return ending,
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// One way of a connection.
#[derive(Debug)]
struct Lane<'a> {
    judge: &'a Judge,
    clock: &'a SharedClock,
    way: Way,
}

impl Lane<'_> {
    /// Runs until the sender hangs up, or with how the connection shall end.
    async fn run(self, from: ReadHalf<'_>, to: WriteHalf<'_>) -> Result<(), Ending> {
        let (queue, held) = mpsc::unbounded_channel();
        let (read, to) = tokio::join!(self.read(from, queue), self.write(held, to));
        if let (Ok(()), Some(mut to)) = (read, to) {
            // A side that is gone cannot be hung up on.
            drop(to.shutdown().await);
        }
        read
    }

    async fn read(
        &self,
        mut from: ReadHalf<'_>,
        queue: mpsc::UnboundedSender<Held>,
    ) -> Result<(), Ending> {
        let mut chunk = vec![0; CHUNK];
        let mut heard = true;
        loop {
            // Whoever resets a connection has hung up as well.
            let size = from.read(&mut chunk).await.unwrap_or(0);
            if size == 0 {
                return Ok(());
            }
            if !heard {
                continue;
            }
            match self.judge.fate(self.way) {
                Fate::Pass(delay) => {
                    // Written to a side that is gone: nothing to be done about it.
                    drop(queue.send((self.clock.monotonic() + delay, chunk[..size].to_vec())));
                }
                Fate::Lose(ending) => {
                    self.judge.count(|counts| match self.way {
                        Way::ToServer => counts.lost_requests += 1,
                        Way::ToClient => counts.lost_answers += 1,
                    });
                    match ending {
                        Ending::Silence => heard = false,
                        Ending::Reset | Ending::Close => return Err(ending),
                    }
                }
            }
        }
    }

    /// Writes what is held, and returns the way unless the other side is gone.
    async fn write<'b>(
        &self,
        mut held: mpsc::UnboundedReceiver<Held>,
        mut to: WriteHalf<'b>,
    ) -> Option<WriteHalf<'b>> {
        while let Some((due, chunk)) = held.recv().await {
            let wait = due.saturating_sub(self.clock.monotonic());
            if !wait.is_zero() {
                self.judge.count(|counts| counts.delayed += 1);
                self.clock.sleep(wait).await;
            }
            if to.write_all(&chunk).await.is_err() {
                return None;
            }
            self.judge.count(|counts| match self.way {
                Way::ToServer => counts.requests += 1,
                Way::ToClient => counts.answers += 1,
            });
        }
        Some(to)
    }
}
