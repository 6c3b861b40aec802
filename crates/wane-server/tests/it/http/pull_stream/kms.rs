//! Keys that KMS keeps closed, as operators turn them on: the server goes on without it, and says so.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

use super::*;
use crate::moto::Moto;
use crate::wait;

/// A new key of KMS.
fn new_key(kms: SocketAddr) -> String {
    let mut stream = TcpStream::connect(kms).unwrap();
    let scope = "Credential=tests/20260101/us-east-1/kms/aws4_request";
    write!(
        stream,
        "POST / HTTP/1.1\r\nHost: {kms}\r\nConnection: close\r\nContent-Length: 2\r\n\
         Content-Type: application/x-amz-json-1.1\r\nX-Amz-Target: TrentService.CreateKey\r\n\
         Authorization: AWS4-HMAC-SHA256 {scope}, SignedHeaders=host, Signature=none\r\n\r\n{{}}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").expect("an answer of HTTP");
    let made: Json = serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"));
    made["KeyMetadata"]["KeyId"].as_str().expect("its id").to_owned()
}

fn wane_with(kms: SocketAddr) -> Command {
    let mut command = crate::server::wane();
    command.env("AWS_ENDPOINT_URL_KMS", format!("http://{kms}"));
    command
}

fn warning(streams: &Streams) -> Json {
    let ready = streams.server.ask("GET", "/readyz", "");
    assert_eq!(ready.status, 200, "{}", ready.body);
    ready.json()["warning"].clone()
}

#[test]
fn a_server_whose_kms_goes_away_goes_on_and_says_so_and_does_not_start_without_it() {
    let Some(moto) = Moto::start() else { return };
    let (kms, home) = (moto.address(), tempfile::tempdir().unwrap());
    let keys = format!("kms:{}", new_key(kms));
    let flags = ["--stream-keys", &keys, SHORT_HOLD[0], SHORT_HOLD[1]];
    let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = Server::start_as(wane_with(kms), anywhere, home.path(), &flags);
    let streams = Streams::of(server);
    streams.push_numbers(0..25);
    let first = streams.start();
    let up = |streams: &Streams| streams.metric("wane_stream_key_service_up", "");
    assert_eq!((up(&streams), warning(&streams)), (Some(1.0), Json::Null));

    // Another server of the same store has the same keys.
    let Streams { server, producer, reader } = streams;
    server.kill();
    let server = Server::start_as(wane_with(kms), anywhere, home.path(), &flags);
    let streams = Streams { server, producer, reader };
    let second = streams.after(&first);
    assert_eq!(second.messages.len(), 10, "a token of before is good");

    drop(moto);
    let third = streams.after(&second);
    assert_eq!(third.messages.len(), 5, "nobody needs KMS for that");
    let is_told = (0..120).any(|_| {
        wait(Duration::from_millis(500));
        up(&streams) == Some(0.0)
    });
    assert!(is_told, "KMS is away");
    let warning = warning(&streams);
    assert!(warning.as_str().is_some_and(|told| told.contains("key service")), "{warning}");
    let log = streams.server.log();
    assert!(log.contains("the keys of pull streams stay as they were"), "{log}");
    streams.end(&third);

    streams.server.kill();
    let ended = wane_with(kms)
        .args(["serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"])
        .args(flags)
        .arg("--data")
        .arg(home.path())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success(), "it started: {said}");
    assert!(said.contains("are closed, and cannot be opened"), "{said}");
    assert!(said.contains("WANE_STREAM_KEYS"), "{said}");
}
