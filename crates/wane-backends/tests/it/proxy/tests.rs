//! The proxy before a server that counts and echoes: each rule does what it says, and no more.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use wane::clock::{SharedClock, SystemClock};

use super::{Chance, Ending, Proxy, Rules};

/// Long enough for anything that comes at all.
const PATIENCE: Duration = Duration::from_secs(5);

/// Long enough to tell that nothing comes.
const QUIET: Duration = Duration::from_millis(150);

const HELD_BACK: Duration = Duration::from_millis(200);

/// A server that answers each chunk with itself.
struct Echo {
    address: SocketAddr,
    heard: Arc<AtomicU64>,
    _tasks: JoinSet<()>,
}

impl Echo {
    async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let address = listener.local_addr().expect("a bound address");
        let heard = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&heard);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.expect("a connection");
                connections.spawn(echo(stream, Arc::clone(&counted)));
            }
        });
        Self { address, heard, _tasks: tasks }
    }

    fn heard(&self) -> u64 {
        self.heard.load(Ordering::SeqCst)
    }

    async fn heard_within_patience(&self, chunks: u64) {
        let clock = SystemClock::shared();
        let heard = async {
            while self.heard() < chunks {
                clock.sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, heard).await.expect("the server hears of it");
        assert_eq!(self.heard(), chunks);
    }
}

async fn echo(mut stream: TcpStream, heard: Arc<AtomicU64>) {
    let mut chunk = [0; 64];
    while let Ok(size @ 1..) = stream.read(&mut chunk).await {
        heard.fetch_add(1, Ordering::SeqCst);
        if stream.write_all(&chunk[..size]).await.is_err() {
            return;
        }
    }
}

/// What a client gets back for what it says.
#[derive(Debug, PartialEq, Eq)]
enum Got {
    Answer(String),
    HungUp,
    Reset,
    Nothing,
}

async fn say(client: &mut TcpStream, text: &str, patience: Duration) -> Got {
    if let Err(error) = client.write_all(text.as_bytes()).await {
        return broken(&error);
    }
    hear(client, patience).await
}

async fn hear(client: &mut TcpStream, patience: Duration) -> Got {
    let mut chunk = [0; 64];
    match timeout(patience, client.read(&mut chunk)).await {
        Err(_) => Got::Nothing,
        Ok(Ok(0)) => Got::HungUp,
        Ok(Ok(size)) => Got::Answer(String::from_utf8_lossy(&chunk[..size]).into_owned()),
        Ok(Err(error)) => broken(&error),
    }
}

fn broken(error: &std::io::Error) -> Got {
    let resets = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    assert!(resets.contains(&error.kind()), "{error}");
    Got::Reset
}

fn answer(text: &str) -> Got {
    Got::Answer(text.to_owned())
}

async fn server_and_proxy() -> (Echo, Proxy) {
    let server = Echo::start().await;
    let proxy = Proxy::before(server.address, 1).await;
    (server, proxy)
}

async fn connected(proxy: &Proxy) -> TcpStream {
    let mut client = TcpStream::connect(proxy.address()).await.expect("a connection");
    assert_eq!(say(&mut client, "hello", PATIENCE).await, answer("hello"));
    client
}

#[tokio::test]
async fn without_rules_everything_passes() {
    let (server, proxy) = server_and_proxy().await;
    let mut client = connected(&proxy).await;
    assert_eq!(say(&mut client, "again", PATIENCE).await, answer("again"));
    let counts = proxy.counts();
    assert_eq!((counts.connections, counts.requests, counts.answers), (1, 2, 2));
    assert_eq!(
        (counts.lost_requests, counts.lost_answers, counts.cut, counts.delayed),
        (0, 0, 0, 0)
    );
    assert_eq!(server.heard(), 2);
}

#[tokio::test]
async fn many_connections_are_carried_apart() {
    let (server, proxy) = server_and_proxy().await;
    let mut clients = JoinSet::new();
    for number in 0..100 {
        let address = proxy.address();
        clients.spawn(async move {
            let mut client = TcpStream::connect(address).await.unwrap();
            for round in 0..10 {
                let text = format!("{number} {round}");
                assert_eq!(say(&mut client, &text, PATIENCE).await, Got::Answer(text));
            }
        });
    }
    clients.join_all().await;
    assert_eq!((proxy.counts().connections, server.heard()), (100, 1_000));
}

#[tokio::test]
async fn each_way_is_held_back_on_its_own() {
    let (server, proxy) = server_and_proxy().await;
    let clock: SharedClock = SystemClock::shared();
    let mut client = connected(&proxy).await;
    let both = Rules { delay_requests: HELD_BACK, delay_answers: HELD_BACK, ..Rules::PASS };
    for (rules, reaches_at_once, least) in [
        (Rules { delay_requests: HELD_BACK, ..Rules::PASS }, false, HELD_BACK),
        (Rules { delay_answers: HELD_BACK, ..Rules::PASS }, true, HELD_BACK),
        (both, false, 2 * HELD_BACK),
    ] {
        proxy.set(rules).await;
        let (before, heard) = (clock.monotonic(), server.heard());
        assert_eq!(say(&mut client, "slow", HELD_BACK / 2).await, Got::Nothing);
        assert_eq!(server.heard() > heard, reaches_at_once, "{rules:?}");
        assert_eq!(hear(&mut client, PATIENCE).await, answer("slow"));
        assert!(clock.monotonic() - before >= least, "{rules:?}");
    }
    assert_eq!(proxy.counts().delayed, 4);
}

#[tokio::test]
async fn what_is_held_back_does_not_wait_in_line() {
    let (_server, proxy) = server_and_proxy().await;
    let clock = SystemClock::shared();
    let mut client = connected(&proxy).await;
    proxy.set(Rules { delay_requests: HELD_BACK, ..Rules::PASS }).await;
    let before = clock.monotonic();
    for _ in 0..5 {
        client.write_all(b".").await.unwrap();
        clock.sleep(Duration::from_millis(10)).await;
    }
    let mut answers = [0; 5];
    timeout(PATIENCE, client.read_exact(&mut answers)).await.unwrap().unwrap();
    assert!(clock.monotonic() - before < 4 * HELD_BACK, "each waited for the one before");
}

/// The request is done, and the client is not told.
#[tokio::test]
async fn a_lost_answer_was_given() {
    for (ending, got) in
        [(Ending::Reset, Got::Reset), (Ending::Close, Got::HungUp), (Ending::Silence, Got::Nothing)]
    {
        let (server, proxy) = server_and_proxy().await;
        let mut client = connected(&proxy).await;
        proxy.set(Rules { lose_answers: Chance::Next(1), ending, ..Rules::PASS }).await;
        let patience = if ending == Ending::Silence { QUIET } else { PATIENCE };
        assert_eq!(say(&mut client, "lost", patience).await, got, "{ending:?}");
        server.heard_within_patience(2).await;
        assert_eq!((proxy.counts().lost_answers, proxy.counts().lost_requests), (1, 0));
        assert_eq!(proxy.counts().cut, u64::from(ending != Ending::Silence));
        connected(&proxy).await;
    }
}

/// The server never hears of it.
#[tokio::test]
async fn a_lost_request_never_arrives() {
    for (ending, got) in
        [(Ending::Reset, Got::Reset), (Ending::Close, Got::HungUp), (Ending::Silence, Got::Nothing)]
    {
        let (server, proxy) = server_and_proxy().await;
        let mut client = connected(&proxy).await;
        proxy.set(Rules { lose_requests: Chance::Next(1), ending, ..Rules::PASS }).await;
        let patience = if ending == Ending::Silence { QUIET } else { PATIENCE };
        assert_eq!(say(&mut client, "lost", patience).await, got, "{ending:?}");
        assert_eq!((proxy.counts().lost_requests, proxy.counts().lost_answers), (1, 0));
        connected(&proxy).await;
        assert_eq!(server.heard(), 2, "only both greetings arrived");
    }
}

#[tokio::test]
async fn one_chunk_is_picked_by_its_number() {
    let (_server, proxy) = server_and_proxy().await;
    let mut client = connected(&proxy).await;
    proxy.set(Rules { lose_answers: Chance::Nth(3), ..Rules::PASS }).await;
    assert_eq!(say(&mut client, "first", PATIENCE).await, answer("first"));
    assert_eq!(say(&mut client, "second", PATIENCE).await, answer("second"));
    assert_eq!(say(&mut client, "third", PATIENCE).await, Got::Reset);
    connected(&proxy).await;
    assert_eq!(proxy.counts().lost_answers, 1);
}

/// Otherwise an answer could be taken for that of another question.
#[tokio::test]
async fn nothing_follows_a_loss_on_the_same_connection() {
    let (server, proxy) = server_and_proxy().await;
    let mut client = connected(&proxy).await;
    let ending = Ending::Silence;
    proxy.set(Rules { lose_answers: Chance::Next(1), ending, ..Rules::PASS }).await;
    assert_eq!(say(&mut client, "lost", QUIET).await, Got::Nothing);
    proxy.set(Rules::PASS).await;
    assert_eq!(say(&mut client, "later", QUIET).await, Got::Nothing);
    server.heard_within_patience(3).await;
}

#[tokio::test]
async fn a_half_open_connection_swallows_everything() {
    let (server, proxy) = server_and_proxy().await;
    let mut client = connected(&proxy).await;
    proxy.set(Rules::SILENCE).await;
    assert_eq!(say(&mut client, "anybody?", QUIET).await, Got::Nothing);
    let mut stranger = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(say(&mut stranger, "anybody?", QUIET).await, Got::Nothing);
    assert_eq!((server.heard(), proxy.counts().lost_requests), (1, 2));
    proxy.set(Rules::PASS).await;
    connected(&proxy).await;
}

#[tokio::test]
async fn refused_connections_are_refused_and_open_ones_live_on() {
    let (_server, proxy) = server_and_proxy().await;
    let mut client = connected(&proxy).await;
    proxy.set(Rules { refuse: true, ..Rules::PASS }).await;
    let refused = TcpStream::connect(proxy.address()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(say(&mut client, "still here", PATIENCE).await, answer("still here"));
    proxy.set(Rules::PASS).await;
    connected(&proxy).await;
}

#[tokio::test]
async fn a_cut_ends_every_connection() {
    for (ending, got) in [(Ending::Reset, Got::Reset), (Ending::Close, Got::HungUp)] {
        let (_server, proxy) = server_and_proxy().await;
        let mut clients = [connected(&proxy).await, connected(&proxy).await];
        proxy.cut(ending);
        for client in &mut clients {
            assert_eq!(hear(client, PATIENCE).await, got);
        }
        connected(&proxy).await;
        assert_eq!(proxy.counts().cut, 2);
    }
}

/// A caller that gave up and hung up is still heard.
#[tokio::test]
async fn a_request_arrives_late_after_its_caller_is_gone() {
    let (server, proxy) = server_and_proxy().await;
    let mut client = connected(&proxy).await;
    proxy.set(Rules { delay_requests: HELD_BACK, ..Rules::PASS }).await;
    client.write_all(b"late").await.unwrap();
    SystemClock::shared().sleep(HELD_BACK / 4).await;
    drop(client);
    assert_eq!(server.heard(), 1);
    server.heard_within_patience(2).await;
}

#[tokio::test]
async fn chance_comes_from_the_seed() {
    let lost_by_seed = async |seed| {
        let server = Echo::start().await;
        let proxy = Proxy::before(server.address, seed).await;
        let ending = Ending::Close;
        proxy.set(Rules { lose_answers: Chance::OneIn(3), ending, ..Rules::PASS }).await;
        let mut lost = Vec::new();
        for _ in 0..40 {
            let mut client = TcpStream::connect(proxy.address()).await.unwrap();
            lost.push(say(&mut client, "hello", PATIENCE).await == Got::HungUp);
        }
        assert_eq!(proxy.counts().lost_answers, lost.iter().filter(|lost| **lost).count() as u64);
        lost
    };
    let first = lost_by_seed(1).await;
    let count = first.iter().filter(|lost| **lost).count();
    assert!((5..25).contains(&count), "{count} of 40");
    assert_eq!(first, lost_by_seed(1).await);
    assert_ne!(first, lost_by_seed(2).await);
}

#[tokio::test]
async fn the_proxy_ends_with_its_handle() {
    let (_server, proxy) = server_and_proxy().await;
    let (mut client, address) = (connected(&proxy).await, proxy.address());
    drop(proxy);
    assert!(matches!(hear(&mut client, PATIENCE).await, Got::HungUp | Got::Reset));
    let refused = TcpStream::connect(address).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}
