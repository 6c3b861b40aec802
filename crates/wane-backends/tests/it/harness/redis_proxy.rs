//! A way to the server that loses answers or requests when told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What happens to the bytes of connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Way {
    /// They pass.
    Open = 0,
    /// Requests arrive, answers do not.
    NoAnswers = 1,
    /// Requests do not arrive.
    NoRequests = 2,
}

/// A port on which the server is reached as the test wants.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    task: tokio::task::JoinHandle<()>,
}

struct Shared {
    way: AtomicU8,
    lost: AtomicUsize,
    /// Each change cuts the connections that stand.
    cuts: watch::Sender<u64>,
}

impl Proxy {
    pub(crate) async fn before(server: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a free port");
        let port = listener.local_addr().expect("its number").port();
        let cuts = watch::Sender::new(0);
        let (way, lost) = (AtomicU8::new(Way::Open as u8), AtomicUsize::new(0));
        let shared = Arc::new(Shared { way, lost, cuts });
        let of_task = Arc::clone(&shared);
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&of_task).connect(client, server));
            }
        });
        Self { port, shared, task }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn set(&self, way: Way) {
        self.shared.way.store(way as u8, Ordering::SeqCst);
    }

    /// Ends every connection that stands; those made later pass.
    pub(crate) fn cut(&self) {
        self.set(Way::Open);
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Pieces that were lost so far.
    pub(crate) fn lost(&self) -> usize {
        self.shared.lost.load(Ordering::SeqCst)
    }

    /// Waits until more was lost.
    pub(crate) async fn lost_more_than(&self, before: usize) {
        while self.lost() <= before {
            tokio::task::yield_now().await;
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
        self.cut();
    }
}

impl Shared {
    async fn connect(self: Arc<Self>, mut client: TcpStream, server: u16) {
        let mut cuts = self.cuts.subscribe();
        let Ok(mut server) = TcpStream::connect(("127.0.0.1", server)).await else { return };
        let (mut request, mut answer) = (vec![0; 65_536], vec![0; 65_536]);
        loop {
            let passed = tokio::select! {
                _ = cuts.changed() => return,
                read = client.read(&mut request) => {
                    self.pass(read, &request, &mut server, Way::NoRequests).await
                }
                read = server.read(&mut answer) => {
                    self.pass(read, &answer, &mut client, Way::NoAnswers).await
                }
            };
            if passed.is_none() {
                return;
            }
        }
    }

    /// Hands on what was read, unless it is what gets lost; `None` at the end.
    async fn pass(
        &self,
        read: std::io::Result<usize>,
        bytes: &[u8],
        to: &mut TcpStream,
        losing: Way,
    ) -> Option<()> {
        let count = read.ok().filter(|count| *count > 0)?;
        if self.way.load(Ordering::SeqCst) == losing as u8 {
            self.lost.fetch_add(1, Ordering::SeqCst);
            return Some(());
        }
        to.write_all(&bytes[..count]).await.ok()
    }
}
