//! Downloads: whole and compared, across lost connections, and never other bytes unnoticed.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use wane::clock::ManualClock;
use wane::services::blobs::Sha256Sum;

use super::{EXPIRES, ID, PATH, blobs, blobs_at, id};
use crate::client::tests::stage::{Play, Raw, case};
use crate::client::{ClientError, Download, Received};

const MILK: &str = "milk and so on";

fn head(status: &str, more: &str) -> String {
    let sum = STANDARD.encode(Sha256Sum::of(MILK.as_bytes()).0);
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain\r\nexpires: {EXPIRES}\r\n\
         repr-digest: sha-256=:{sum}:\r\nconnection: close\r\n{more}\r\n\r\n"
    )
}

fn whole() -> String {
    format!("{}{MILK}", head("200 OK", &format!("content-length: {}", MILK.len())))
}

fn part(from: usize) -> String {
    let (size, rest) = (MILK.len(), &MILK[from..]);
    let more = format!(
        "content-length: {}\r\ncontent-range: bytes {from}-{}/{size}",
        rest.len(),
        size - 1
    );
    format!("{}{rest}", head("206 Partial Content", &more))
}

async fn read(download: &mut Download) -> Result<String, ClientError> {
    let mut bytes = Vec::new();
    while let Some(piece) = download.chunk().await? {
        bytes.extend_from_slice(&piece);
    }
    Ok(String::from_utf8(bytes).unwrap())
}

#[tokio::test]
async fn a_download_is_what_was_uploaded() {
    let (raw, url) = Raw::start(vec![Play::Say(whole())]).await;
    let mut download = blobs(&url).download(id()).await.unwrap();
    assert_eq!(download.details().size, MILK.len() as u64);
    assert_eq!(read(&mut download).await.unwrap(), MILK);
    assert_eq!(download.chunk().await.unwrap(), None, "the end stays the end");
    let request = raw.heard.lock()[0].clone();
    assert!(request.starts_with(&format!("get {PATH}/{ID} http/1.1\r\n").to_lowercase()));
    assert!(!request.contains("\r\nrange:"), "{request}");
}

/// Wherever it is cut, the rest is asked for, on the condition that it is of the same bytes.
#[tokio::test]
async fn a_download_cut_at_any_byte_goes_on() {
    let tag = String::from(Sha256Sum::of(MILK.as_bytes())).to_lowercase();
    let begin = whole().len() - MILK.len();
    for cut in 0..MILK.len() {
        let scripts = vec![Play::Say(whole()[..begin + cut].into()), Play::Say(part(cut))];
        let (raw, url) = Raw::start(scripts).await;
        let mut download = blobs(&url).download(id()).await.unwrap();
        assert_eq!(read(&mut download).await.unwrap(), MILK, "cut at {cut}");
        let request = raw.heard.lock()[1].clone();
        assert!(request.contains(&format!("\r\nrange: bytes={cut}-\r\n")), "{request}");
        assert!(request.contains(&format!("\r\nif-range: \"{tag}\"\r\n")), "{request}");
    }
}

#[tokio::test]
async fn a_server_that_sends_the_whole_again_is_understood() {
    let begin = whole().len() - MILK.len();
    let scripts = vec![Play::Say(whole()[..begin + 5].into()), Play::Say(whole())];
    let (_raw, url) = Raw::start(scripts).await;
    let mut download = blobs(&url).download(id()).await.unwrap();
    assert_eq!(read(&mut download).await.unwrap(), MILK);
}

#[tokio::test]
async fn bytes_that_are_here_are_not_asked_for() {
    let (raw, url) = Raw::start(vec![Play::Say(whole()), Play::Say(part(5))]).await;
    let blobs = blobs(&url);
    let details = blobs.download(id()).await.unwrap().details().clone();
    let mut received = Received::default();
    received.add(&MILK.as_bytes()[..5]);
    let mut download = blobs.download_on(details.clone(), received.clone());
    assert_eq!(read(&mut download).await.unwrap(), MILK[5..]);

    received.add(&MILK.as_bytes()[5..]);
    let mut download = blobs.download_on(details, received);
    assert_eq!(read(&mut download).await.unwrap(), "", "nothing is missing");
    assert_eq!(raw.heard.lock().len(), 2);
}

/// The control of every test here: bytes that differ in one bit are noticed.
#[tokio::test]
async fn other_bytes_are_noticed() {
    let (_raw, url) = Raw::start(vec![Play::Say(whole().replace("milk", "silk"))]).await;
    let mut download = blobs(&url).download(id()).await.unwrap();
    assert_eq!(case(&read(&mut download).await.unwrap_err()), "digest");

    let (_raw, url) = Raw::start(vec![Play::Say(whole()), Play::Say(part(4))]).await;
    let blobs = blobs(&url);
    let details = blobs.download(id()).await.unwrap().details().clone();
    let mut received = Received::default();
    received.add(b"silk");
    let mut download = blobs.download_on(details, received);
    assert_eq!(case(&read(&mut download).await.unwrap_err()), "digest");
}

#[tokio::test]
async fn a_part_of_something_else_is_refused() {
    let begin = whole().len() - MILK.len();
    let sum = |bytes: &[u8]| STANDARD.encode(Sha256Sum::of(bytes).0);
    let other_sum = part(4).replace(&sum(MILK.as_bytes()), &sum(b"silk"));
    let other_size = part(4).replace("/14", "/15");
    let too_far = part(4).replace("bytes 4-", "bytes 5-");
    let unsaid = part(4).replace("content-range", "x-content-range");
    for wrong in [other_sum, other_size, too_far, unsaid] {
        let scripts = vec![Play::Say(whole()[..begin + 4].into()), Play::Say(wrong.clone())];
        let (_raw, url) = Raw::start(scripts).await;
        let mut download = blobs(&url).download(id()).await.unwrap();
        assert_eq!(case(&read(&mut download).await.unwrap_err()), "protocol", "{wrong}");
    }
}

/// Another request would take another download.
#[tokio::test]
async fn a_numbered_download_is_not_resumed() {
    for left in ["0", "2"] {
        let numbered =
            whole().replace("expires:", &format!("blob-downloads-left: {left}\r\nexpires:"));
        let (raw, url) = Raw::start(vec![Play::Say(numbered[..numbered.len() - 3].into())]).await;
        let mut download = blobs(&url).download(id()).await.unwrap();
        let error = read(&mut download).await.unwrap_err();
        let ClientError::Spent { left: said, .. } = error else { panic!("{error}") };
        assert_eq!(said.to_string(), left);
        assert_eq!(raw.heard.lock().len(), 1);
    }
}

#[tokio::test]
async fn silence_is_a_lost_connection() {
    let clock = ManualClock::seeded(1);
    let begin = whole().len() - MILK.len();
    let scripts = vec![Play::Stay(whole()[..begin + 4].into()), Play::Say(part(4))];
    let (raw, url) = Raw::start(scripts).await;
    let mut download = blobs_at(&url, clock.clone()).download(id()).await.unwrap();
    let read = tokio::spawn(async move { read(&mut download).await.unwrap() });
    raw.arrived.notified().await;
    while !read.is_finished() {
        clock.advance(Duration::from_secs(30));
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(read.await.unwrap(), MILK);
}

/// Connections that bring nothing are not made for ever.
#[tokio::test]
async fn a_server_that_always_breaks_is_given_up() {
    let clock = ManualClock::seeded(1);
    let begin = whole().len() - MILK.len();
    let empty = Play::Say(whole()[..begin].into());
    let (raw, url) = Raw::start(vec![empty; 30]).await;
    let mut download = blobs_at(&url, clock.clone()).download(id()).await.unwrap();
    let read = tokio::spawn(async move { read(&mut download).await.unwrap_err() });
    while !read.is_finished() {
        clock.advance(Duration::from_secs(5));
        tokio::task::yield_now().await;
    }
    assert_eq!(case(&read.await.unwrap()), "unreachable");
    assert_eq!(raw.heard.lock().len(), 11);
}
