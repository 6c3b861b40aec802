//! The number of connections is bounded, and counted.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_beyond_the_limit_is_closed_at_once() {
    let server = Server::start(ListenLimits { connections: 2, ..limits() }).await;
    let mut seated = [server.connect().await, server.connect().await];
    for client in &mut seated {
        client.send(ROOT).await;
        assert_eq!(client.answer().await.0, 200);
    }

    let mut refused = server.connect().await;
    assert!(refused.closed().await < LIMIT);
    assert_eq!(server.connections.refused(), 1);
    assert_eq!(server.connections.open(), 2);

    let [first, mut second] = seated;
    second.send(ROOT).await;
    assert_eq!(second.answer().await.0, 200);
    drop(first);
    server.until_open(1).await;
    server.serves_others().await;
    assert_eq!(server.connections.accepted(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_knows_its_peers_address() {
    let server = Server::start(limits()).await;
    let mut client = server.connect().await;
    let own = client.stream.local_addr().unwrap().to_string();
    client.send(b"GET /peer HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(client.answer().await, (200, own));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_address_in_use_is_an_error_that_names_it() {
    let server = Server::start(limits()).await;
    let clock = SystemClock::shared();
    let error = Listener::bind(server.address, None, limits(), clock).await.unwrap_err();
    assert!(error.to_string().contains(&server.address.to_string()), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_that_cannot_work_are_refused_by_name() {
    let broken = [
        ("connections", ListenLimits { connections: 0, ..limits() }),
        ("header_bytes", ListenLimits { header_bytes: 4_096, ..limits() }),
        ("body_rate", ListenLimits { body_rate: 0, ..limits() }),
        ("http2_streams", ListenLimits { http2_streams: 0, ..limits() }),
        ("idle", ListenLimits { idle: Duration::ZERO, ..limits() }),
    ];
    for (name, limits) in broken {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let error = Listener::bind(any, None, limits, SystemClock::shared()).await.unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
    }
}
