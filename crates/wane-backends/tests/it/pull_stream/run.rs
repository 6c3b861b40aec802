//! A run: producers and readers of one institution over two nodes that may vanish and come back.
//!
//! Whoever gets no answer asks the other node, with the same token. Producers go on with the next
//! messages: what became of those without an answer is seen when they are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use wane::clock::SharedClock;
use wane::services::pull_stream::{
    Batch, Client, Ispb, MAX_READERS, Message, PullStreamError, Pulled, Reader, Refusal,
    StreamStatus,
};

use super::account::{Account, Made, Session};
use super::stage::{Stream, is_fault, many, single};

/// How long a run may take. Machines may have other things to do.
const LONGEST: Duration = Duration::from_secs(240);

/// A node, or none while it is gone.
struct Node {
    stream: Mutex<Option<Stream>>,
    /// Changed when it goes: whoever is in a call hears nothing any more.
    gone: watch::Sender<()>,
}

/// What the tasks of a run share.
pub(super) struct Run {
    pub(super) ispb: Ispb,
    pub(super) account: Mutex<Account>,
    nodes: [Node; 2],
    clock: SharedClock,
    began: Duration,
    last_batch: Mutex<Duration>,
    /// Within this, what readers that are gone had comes again.
    quiet: Duration,
    /// Set when what readers and nodes were to suffer has happened.
    pub(super) has_suffered: AtomicBool,
    producing: AtomicUsize,
}

/// What became of a call.
enum Heard {
    Answer(Pulled),
    Refused(Refusal),
    Nothing,
}

impl Run {
    /// A run over nodes with leases of that length.
    pub(super) fn new(
        ispb: Ispb,
        nodes: [Stream; 2],
        lease: Duration,
        clock: SharedClock,
    ) -> Arc<Self> {
        let nodes = nodes
            .map(|stream| Node { stream: Mutex::new(Some(stream)), gone: watch::Sender::new(()) });
        let began = clock.monotonic();
        Arc::new(Self {
            ispb,
            account: Mutex::default(),
            nodes,
            clock,
            began,
            last_batch: Mutex::new(began),
            quiet: lease * 3 + Duration::from_secs(2),
            has_suffered: AtomicBool::new(false),
            producing: AtomicUsize::new(0),
        })
    }

    /// Ends all that the node does, whatever it is at.
    pub(super) fn vanish(&self, node: usize) {
        *self.nodes[node].stream.lock() = None;
        self.nodes[node].gone.send_replace(());
    }

    pub(super) fn come(&self, node: usize, stream: Stream) {
        *self.nodes[node].stream.lock() = Some(stream);
    }

    /// Asks a node; `None` where it has no answer.
    async fn call<T, F>(
        &self,
        node: usize,
        ask: impl FnOnce(Stream) -> F,
    ) -> Option<Result<T, PullStreamError>>
    where
        F: Future<Output = Result<T, PullStreamError>>,
    {
        let node = &self.nodes[node % 2];
        let mut gone = node.gone.subscribe();
        let stream = node.stream.lock().clone()?;
        let answer = tokio::select! {
            biased;
            _ = gone.changed() => return None,
            answer = ask(stream) => answer,
        };
        Some(answer).filter(|answer| !answer.as_ref().is_err_and(is_fault))
    }

    async fn rest(&self) {
        self.clock.sleep(Duration::from_millis(20)).await;
    }

    /// Whether something is wrong, or it takes too long.
    pub(super) fn has_failed(&self) -> bool {
        let is_late = self.clock.monotonic() - self.began > LONGEST;
        is_late || self.account.lock().has_failed()
    }

    /// Whether all that was taken in was read, or nothing more comes.
    fn is_over(&self) -> bool {
        let is_quiet = self.clock.monotonic() - *self.last_batch.lock() > self.quiet;
        let is_read = || is_quiet || self.account.lock().open().is_empty();
        let is_done = self.producing.load(Ordering::SeqCst) == 0;
        self.has_failed() || (is_done && is_read())
    }

    /// Sends so many batches, goes on until all have suffered, and sends half as many again.
    pub(super) async fn produce(self: Arc<Self>, producer: usize, batches: usize) {
        let (mut number, mut sent, mut since) = (0, 0, 0);
        while (sent < batches || since < batches / 2) && !self.has_failed() {
            let count = 1 + (sent * 7 + producer) % 10;
            let numbers = number + 1..=number + count;
            number += count;
            let made: Vec<_> = numbers.map(|number| Made { producer, number }).collect();
            self.send(producer, &made).await;
            sent += 1;
            since += usize::from(self.has_suffered.load(Ordering::SeqCst));
            self.clock.sleep(Duration::from_millis(2)).await;
        }
        self.producing.fetch_sub(1, Ordering::SeqCst);
    }

    /// A producer is about to begin.
    pub(super) fn expect_producer(&self) {
        self.producing.fetch_add(1, Ordering::SeqCst);
    }

    async fn send(&self, producer: usize, made: &[Made]) {
        let bodies: Vec<_> = made.iter().map(|made| body(*made)).collect();
        let messages = bodies.iter().map(|bytes| Message::new(bytes.clone()).expect("it is short"));
        let batch = Batch::new(messages.collect()).expect("ten at most");
        for (bytes, made) in bodies.iter().zip(made) {
            self.account.lock().make(bytes.clone(), *made);
        }
        let ispb = self.ispb;
        let ask = |stream: Stream| async move { stream.ingest(ispb, batch).await };
        match self.call(producer, ask).await {
            Some(Ok(ids)) => {
                let mut account = self.account.lock();
                ids.into_iter().zip(bodies).for_each(|(id, bytes)| account.take_in(id, bytes));
            }
            Some(Err(error)) => self.account.lock().refused(&format!("an ingest: {error:?}")),
            None => {
                self.account.lock().unheard(None, 0);
                self.rest().await;
            }
        }
    }

    async fn ask(
        &self,
        node: usize,
        token: Option<&str>,
        reader: &Reader,
        session: &mut Session,
    ) -> Heard {
        let (ispb, began) = (self.ispb, self.account.lock().step());
        let ask = |stream: Stream| async move {
            match token {
                None => stream.start(ispb, reader).await,
                Some(token) => stream.next(ispb, token, reader).await,
            }
        };
        match self.call(node, ask).await {
            Some(Ok(pulled)) => {
                self.account.lock().note(session, token, began, &pulled);
                if pulled.batch.is_some() {
                    *self.last_batch.lock() = self.clock.monotonic();
                }
                Heard::Answer(pulled)
            }
            Some(Err(PullStreamError::Refused(refusal))) => {
                // It may have been carried out, and its lease have ended before it was answered.
                if refusal == Refusal::Expired {
                    self.account.lock().unheard(token, began);
                }
                Heard::Refused(refusal)
            }
            Some(Err(error)) => {
                self.account.lock().refused(&format!("{error:?}"));
                Heard::Nothing
            }
            None => {
                self.account.lock().unheard(token, began);
                Heard::Nothing
            }
        }
    }

    /// Reads until all is over, or dies with its so many-th batch.
    pub(super) async fn read(self: Arc<Self>, number: usize, dies_with: Option<usize>) {
        let reader = if number.is_multiple_of(3) { single() } else { many() };
        let (mut node, mut batches) = (number, 0);
        let (mut session, mut token) = (Session::new(), None::<String>);
        while !self.is_over() {
            match self.ask(node, token.as_deref(), &reader, &mut session).await {
                Heard::Answer(pulled) => {
                    batches += usize::from(pulled.batch.is_some());
                    if dies_with.is_some_and(|last| batches >= last) {
                        return;
                    }
                    token = Some(pulled.next);
                }
                Heard::Refused(Refusal::TooManyReaders { .. }) if token.is_none() => {
                    self.clock.sleep(Duration::from_millis(100)).await;
                }
                // It took too long, and its slot is another's.
                Heard::Refused(Refusal::Expired) => {
                    (session, token) = (Session::new(), None);
                }
                Heard::Refused(refusal) => self.account.lock().refused(&format!("{refusal:?}")),
                Heard::Nothing => {
                    node += 1;
                    self.rest().await;
                }
            }
        }
        if let Some(token) = token {
            self.end(node, &token, &reader.client).await;
        }
    }

    async fn end(&self, mut node: usize, token: &str, client: &Client) {
        let ispb = self.ispb;
        while !self.has_failed() {
            let began = self.account.lock().step();
            let ask = |stream: Stream| async move { stream.end(ispb, token, client).await };
            match self.call(node, ask).await {
                Some(Ok(())) => return self.account.lock().acknowledge(token),
                // An answer that was lost said so first, or its lease has ended.
                Some(Err(PullStreamError::Refused(Refusal::Gone | Refusal::Expired))) => {
                    return self.account.lock().unheard(Some(token), began);
                }
                Some(Err(error)) => self.account.lock().refused(&format!("an end: {error:?}")),
                None => {
                    self.account.lock().unheard(Some(token), began);
                    node += 1;
                    self.rest().await;
                }
            }
        }
    }

    async fn status(&self) -> Option<StreamStatus> {
        let ispb = self.ispb;
        self.call(0, |stream: Stream| async move { stream.status(ispb).await }).await?.ok()
    }

    /// Looks on: there are never more readers than there may be.
    pub(super) async fn look_on(self: Arc<Self>) {
        while !self.is_over() {
            if let Some(status) = self.status().await
                && status.live_readers > MAX_READERS
            {
                self.account.lock().refused(&format!("too many readers: {status:?}"));
            }
            self.clock.sleep(Duration::from_millis(200)).await;
        }
    }

    /// Reads what is left once all others have gone, and says what is wrong with it all. Returns how
    /// many messages there were.
    pub(super) async fn settle(&self, stream: &Stream) -> Result<usize, String> {
        let reader = many();
        let (mut session, mut token) = (Session::new(), None::<String>);
        self.come(0, stream.clone());
        loop {
            if self.has_failed() {
                let open = self.account.lock().open().len();
                self.account.lock().settled()?;
                return Err(format!("not over after {LONGEST:?}: {open} messages are open"));
            }
            match self.ask(0, token.as_deref(), &reader, &mut session).await {
                Heard::Answer(pulled) => {
                    let is_empty = pulled.batch.is_none();
                    token = Some(pulled.next);
                    // Others that died may have batches until their leases have ended.
                    if is_empty && self.status().await.as_ref().is_some_and(is_idle) {
                        break;
                    }
                }
                Heard::Refused(Refusal::Expired | Refusal::TooManyReaders { .. }) => {
                    (session, token) = (Session::new(), None);
                    self.rest().await;
                }
                Heard::Refused(refusal) => self.account.lock().refused(&format!("{refusal:?}")),
                Heard::Nothing => self.rest().await,
            }
        }
        if let Some(token) = token {
            self.end(0, &token, &reader.client).await;
        }
        self.account.lock().settled()
    }
}

fn is_idle(status: &StreamStatus) -> bool {
    status.in_flight == 0 && status.requeued == 0
}

fn body(Made { producer, number }: Made) -> Vec<u8> {
    let filling = "signature\r\n".repeat(number % 7);
    format!("<Envelope><AppHdr>{producer} {number}</AppHdr>{filling}</Envelope>").into_bytes()
}
