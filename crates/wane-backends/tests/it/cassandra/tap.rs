//! A tap on the connections to one node: it loses the answer to one request, or the request.
//!
//! The request is known by bytes that only it holds, so nothing is left to chance. Where the tap has
//! a certificate it ends TLS, so that a node without TLS seems to speak it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf, split};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

/// What is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// The request arrives; the connection ends instead of an answer.
    Answer,
    /// The connection ends before the request arrives.
    Request,
    /// The request arrives; the connection stays open and says nothing any more.
    Silence,
}

type Armed = Arc<Mutex<Option<(Vec<u8>, Loss)>>>;

pub(super) struct Tap {
    pub(super) address: SocketAddr,
    armed: Armed,
    _accepting: JoinSet<()>,
}

impl Tap {
    /// Listens on the node's own address: the driver keeps the port that it was given.
    pub(super) async fn before(node: &str, tls: Option<TlsAcceptor>) -> Self {
        let node: SocketAddr = node.parse().expect("an address");
        let listener = TcpListener::bind((node.ip(), 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let armed = Armed::default();
        let mut accepting = JoinSet::new();
        accepting.spawn(accept(listener, node, tls, Arc::clone(&armed)));
        Self { address, armed, _accepting: accepting }
    }

    /// Loses what belongs to the next request that holds `mark`.
    pub(super) fn arm(&self, mark: &[u8], loss: Loss) {
        *self.armed.lock() = Some((mark.to_vec(), loss));
    }

    /// Whether the armed request came by.
    pub(super) fn struck(&self) -> bool {
        self.armed.lock().is_none()
    }
}

async fn accept(listener: TcpListener, node: SocketAddr, tls: Option<TlsAcceptor>, armed: Armed) {
    let mut carried = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        let (tls, armed) = (tls.clone(), Arc::clone(&armed));
        carried.spawn(async move {
            let Ok(node) = TcpStream::connect(node).await else { return };
            match tls {
                None => carry(client, node, armed).await,
                Some(tls) => {
                    if let Ok(client) = tls.accept(client).await {
                        carry(client, node, armed).await;
                    }
                }
            }
        });
    }
}

async fn carry(client: impl AsyncRead + AsyncWrite, node: TcpStream, armed: Armed) {
    let (from_client, to_client) = split(client);
    let (from_node, to_node) = split(node);
    let (ends, mute) = (AtomicBool::new(false), AtomicBool::new(false));
    // Either way ending ends the connection.
    tokio::select! {
        () = requests(from_client, to_node, &armed, (&ends, &mute)) => {}
        () = answers(from_node, to_client, (&ends, &mute)) => {}
    }
}

async fn requests<R: AsyncRead>(
    mut from: ReadHalf<R>,
    mut to: WriteHalf<TcpStream>,
    armed: &Armed,
    (ends, mute): (&AtomicBool, &AtomicBool),
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        let chunk = &buffer[..read];
        match struck(armed, chunk) {
            Some(Loss::Request) => return,
            Some(Loss::Answer) => ends.store(true, Ordering::SeqCst),
            Some(Loss::Silence) => mute.store(true, Ordering::SeqCst),
            None => {}
        }
        if to.write_all(chunk).await.is_err() {
            return;
        }
    }
}

async fn answers<W: AsyncWrite>(
    mut from: ReadHalf<TcpStream>,
    mut to: WriteHalf<W>,
    (ends, mute): (&AtomicBool, &AtomicBool),
) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut buffer).await {
        if ends.load(Ordering::SeqCst) {
            return;
        }
        if mute.load(Ordering::SeqCst) {
            continue;
        }
        let carried = async {
            to.write_all(&buffer[..read]).await?;
            to.flush().await
        };
        if carried.await.is_err() {
            return;
        }
    }
}

fn struck(armed: &Armed, chunk: &[u8]) -> Option<Loss> {
    let mut armed = armed.lock();
    let (mark, loss) = armed.as_ref()?;
    let found = chunk.windows(mark.len()).any(|window| window == mark.as_slice());
    let loss = found.then_some(*loss);
    if found {
        *armed = None;
    }
    loss
}
