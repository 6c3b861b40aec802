//! The end of serving: what is under way is finished, what does not end is cut.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn requests_under_way_are_answered_and_their_connections_closed() {
    let server = Server::start(limits_of(SOON)).await;
    let address = server.address;
    let (mut working, mut idle, mut silent) =
        (server.connect().await, server.connect().await, server.connect().await);
    idle.send(ROOT).await;
    idle.answer().await;
    working.send(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await;
    server.until_open(3).await;
    // Until the request has been read: there is nothing to see that by.
    pause(LIMIT / 2).await;

    let stopping = tokio::spawn(server.stop());
    assert!(idle.closed().await < LIMIT, "an idle connection closes at once");
    assert!(silent.closed().await < LIMIT, "so does one that never spoke");
    assert!(TcpStream::connect(address).await.is_err(), "nothing more is accepted");
    assert_eq!(working.answer().await, (200, "slow".into()));
    working.closed().await;
    assert_eq!(stopping.await.unwrap(), Drained { cut: 0 });
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_end_in_time_is_cut_and_counted() {
    let server = Server::start(limits()).await;
    let mut stuck = [server.connect().await, server.connect().await];
    for client in &mut stuck {
        client.send(b"GET /for-ever HTTP/1.1\r\nHost: x\r\n\r\n").await;
    }
    server.until_waiting(2).await;
    let seen = Arc::clone(&server.seen);

    let took = stopwatch();
    assert_eq!(server.stop().await, Drained { cut: 2 });
    assert_at_limit(took(), LIMIT);
    assert_eq!(seen.waiting.load(Ordering::SeqCst), 0, "requests outlived the server");
    for client in &mut stuck {
        client.closed().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_connections_ends_at_once() {
    let server = Server::start(limits()).await;
    let took = stopwatch();
    assert_eq!(server.stop().await, Drained { cut: 0 });
    assert!(took() < LIMIT);
}
