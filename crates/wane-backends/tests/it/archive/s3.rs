//! An archive in a bucket: a real server over HTTP, which keeps it in its memory.
//!
//! Credentials come from the environment, so that these run in a process of their own.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;

use bytes::Bytes;
use wane::services::pull_stream::{Archive, ArchiveError};
use wane_backends::ObjectArchive;

use super::{ispb, keeps_what_it_is_given, name};
use crate::harness::moto::Moto;

const ENDPOINT: &str = "WANE_TEST_S3_ENDPOINT";

/// Makes a bucket, as an operator does.
fn make_bucket(address: SocketAddr, bucket: &str) {
    let mut connection = TcpStream::connect(address).expect("it answers");
    let request = format!(
        "PUT /{bucket} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    connection.write_all(request.as_bytes()).expect("it listens");
    let mut answer = String::new();
    connection.read_to_string(&mut answer).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Runs a test of this program again, with credentials and an endpoint.
fn run_there(test: &str, endpoint: &str) {
    let program = std::env::current_exe().expect("it has a path");
    let done = Command::new(program)
        .args([test, "--exact", "--ignored", "--nocapture"])
        .envs([("AWS_ACCESS_KEY_ID", "tests"), ("AWS_SECRET_ACCESS_KEY", "tests")])
        .envs([("AWS_REGION", "us-east-1"), (ENDPOINT, endpoint)])
        .output()
        .expect("it runs");
    let told = String::from_utf8_lossy(&done.stdout);
    assert!(told.contains("1 passed"), "{told}{}", String::from_utf8_lossy(&done.stderr));
}

fn archive(place: &str) -> ObjectArchive {
    let endpoint = std::env::var(ENDPOINT).expect("run by another test");
    ObjectArchive::open(place, Some(&endpoint)).expect("a legal place")
}

#[test]
fn a_bucket_keeps_what_it_is_given() {
    let Some(moto) = Moto::start() else { return };
    make_bucket(moto.address(), "archive");
    run_there("archive::s3::in_a_bucket", &format!("http://{}", moto.address()));
}

#[tokio::test]
#[ignore = "run by a_bucket_keeps_what_it_is_given"]
async fn in_a_bucket() {
    for place in ["s3://archive/pix/streams", "s3://archive"] {
        keeps_what_it_is_given(&archive(place)).await.unwrap();
    }
    // What has a prefix is not seen without it, and the reverse.
    let (one, other) = (archive("s3://archive/one"), archive("s3://archive/one-more"));
    one.put(&name(0), Bytes::from_static(b"one's")).await.unwrap();
    assert_eq!(other.list("local", ispb(), 0, 100).await.unwrap(), []);
}

#[test]
fn what_does_not_answer_or_is_not_there_is_unavailable() {
    let Some(moto) = Moto::start() else { return };
    let test = "archive::s3::without_a_bucket";
    run_there(test, &format!("http://{}", moto.address()));
    // Nobody listens there any more.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    run_there(test, &format!("http://{closed}"));
}

#[tokio::test]
#[ignore = "run by what_does_not_answer_or_is_not_there_is_unavailable"]
async fn without_a_bucket() {
    let archive = archive("s3://nowhere/prefix");
    let put = archive.put(&name(0), Bytes::from_static(b"segment")).await;
    assert!(matches!(put, Err(ArchiveError::Unavailable { .. })), "{put:?}");
    let list = archive.list("local", ispb(), 0, 100).await;
    assert!(matches!(list, Err(ArchiveError::Unavailable { .. })), "{list:?}");
}
