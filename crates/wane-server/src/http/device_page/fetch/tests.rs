//! What an issuer cannot make us do: call elsewhere, follow, read without end, wait without end.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};

use wane::clock::SystemClock;

use super::*;

/// A server that answers every connection with these bytes, then waits to be left.
fn answering(bytes: Vec<u8>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut asked) = (stream.unwrap(), [0; 1_024]);
            if stream.read(&mut asked).unwrap_or(0) > 0 {
                drop(stream.write_all(&bytes));
                drop(stream.read(&mut asked));
            }
        }
    });
    address
}

async fn fetched(url: &str, issuer: &str) -> Result<Answer, FetchError> {
    let request = Request::builder().uri(url).body(Vec::new()).unwrap();
    Fetcher::new(SystemClock::shared()).fetch(request, issuer).await
}

/// An issuer on the network must not have us talk to what listens on this machine.
#[tokio::test]
async fn an_issuer_over_tls_cannot_name_this_machine_in_the_clear() {
    let right = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_vec();
    let url = format!("http://{}/keys", answering(right));
    let refused = fetched(&url, "https://accounts.example").await;
    assert!(matches!(refused, Err(FetchError::NotSafe { .. })));
    let answer = fetched(&url, "http://127.0.0.1:8080").await.unwrap();
    assert_eq!(answer.body, b"{}", "the control: an issuer on this machine");
    assert!(may_name("https://a.example", "https://keys.example/x"));
    assert!(!may_name("http://127.0.0.1", "http://keys.example/x"));
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_none() {
    for (size, is_taken) in [(LARGEST, true), (LARGEST + 1, false)] {
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n");
        let bytes = [head.into_bytes(), vec![b'x'; size]].concat();
        let url = format!("http://{}/", answering(bytes));
        assert_eq!(fetched(&url, "http://127.0.0.1").await.is_ok(), is_taken, "{size}");
    }
}

#[tokio::test]
async fn no_redirect_is_followed() {
    let secret = answering(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret".to_vec());
    let away =
        format!("HTTP/1.1 302 Found\r\nlocation: http://{secret}/\r\ncontent-length: 0\r\n\r\n");
    let url = format!("http://{}/", answering(away.into_bytes()));
    let answer = fetched(&url, "http://127.0.0.1").await.unwrap();
    assert_eq!((answer.status.as_u16(), answer.body.len()), (302, 0));
}

/// The deadline holds for the whole answer, not only for its head.
#[tokio::test]
async fn an_answer_that_does_not_end_is_given_up() {
    let clock = wane::clock::ManualClock::seeded(1);
    let fetcher = Fetcher::new(clock.clone());
    let half = b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\nhalf".to_vec();
    let url = format!("http://{}/", answering(half));
    let request = Request::builder().uri(url).body(Vec::new()).unwrap();
    let waiting = fetcher.fetch(request, "http://127.0.0.1");
    let passing = async {
        for _ in 0..PATIENCE.as_secs() + 1 {
            tokio::task::yield_now().await;
            clock.advance(Duration::from_secs(1));
        }
        std::future::pending::<()>().await
    };
    tokio::select! {
        answer = waiting => {
            let error = answer.map(|_| ()).unwrap_err().to_string();
            assert!(error.contains("nothing within 10 s"), "{error}");
        }
        () = passing => {}
    }
}
