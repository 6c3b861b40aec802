//! Bodies that arrive in pieces: what comes back does not depend on how the bytes came.
//!
//! Over HTTP/1.1 each piece is written and flushed by itself, and with an unknown length it is a
//! chunk of its own. Over HTTP/2 each piece is a frame, or several where it is too large for one.

use std::sync::Arc;

use axum::http::Request;
use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufStream};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::server::PATIENCE;

/// How the length of a body is told.
#[derive(Debug, Clone, Copy)]
enum Length {
    /// Beforehand, in the head.
    Announced,
    /// By its end.
    Open,
}

/// Sizes of BLOBs, each with the size of the pieces that it comes in.
fn cases() -> Vec<(usize, usize)> {
    let sizes = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 20 * MIB];
    let large = [16_384, 65_537];
    let mut cases: Vec<_> =
        sizes.iter().flat_map(|size| large.map(|piece| (*size, piece))).collect();
    cases.extend([(2_000, 1), (1, 1)]);
    cases
}

/// Each case with each kind of length.
fn each_case() -> impl Iterator<Item = (Vec<u8>, usize, Length)> {
    let lengths = [Length::Announced, Length::Open];
    cases()
        .into_iter()
        .flat_map(move |(size, piece)| lengths.map(|length| (sample(size), piece, length)))
}

/// A connection that speaks HTTP/1.1, one request after another.
struct Http1<S> {
    stream: BufStream<S>,
    key: String,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Http1<S> {
    fn over(stream: S, site: &Site) -> Self {
        Self { stream: BufStream::new(stream), key: site.server.key.clone() }
    }

    async fn upload(&mut self, bytes: &[u8], piece: usize, length: Length) -> (u16, Vec<u8>) {
        let told = match length {
            Length::Announced => format!("content-length: {}", bytes.len()),
            Length::Open => "transfer-encoding: chunked".to_owned(),
        };
        self.head("POST", "tblobs", &told).await;
        for piece in bytes.chunks(piece) {
            if let Length::Open = length {
                self.send(format!("{:x}\r\n", piece.len()).as_bytes()).await;
            }
            self.send(piece).await;
            if let Length::Open = length {
                self.send(b"\r\n").await;
            }
            self.stream.flush().await.unwrap();
        }
        if let Length::Open = length {
            self.send(b"0\r\n\r\n").await;
        }
        self.answer().await
    }

    async fn download(&mut self, id: &str) -> (u16, Vec<u8>) {
        self.head("GET", &format!("tblobs/{id}"), "accept: */*").await;
        self.answer().await
    }

    async fn head(&mut self, method: &str, what: &str, line: &str) {
        let first = format!("{method} {WORKSPACE}/{what} HTTP/1.1\r\nhost: test\r\n");
        let rest = format!("authorization: Bearer {}\r\n{line}\r\n\r\n", self.key);
        self.send(format!("{first}{rest}").as_bytes()).await;
        self.stream.flush().await.unwrap();
    }

    async fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).await.unwrap();
    }

    async fn answer(&mut self) -> (u16, Vec<u8>) {
        self.stream.flush().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(self.stream.read_u8().await.unwrap());
        }
        let head = String::from_utf8(head).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = header(&head, "content-length").unwrap_or_else(|| panic!("no length: {head}"));
        let mut body = vec![0; length.parse().unwrap()];
        self.stream.read_exact(&mut body).await.unwrap();
        (status, body)
    }
}

/// A connection that speaks HTTP/2.
struct Http2 {
    sender: SendRequest<axum::body::Body>,
    /// Where the site is, for the target of a request.
    origin: String,
    key: String,
}

impl Http2 {
    async fn over<S>(stream: S, site: &Site) -> Self
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let io = TokioIo::new(stream);
        let (sender, connection) = handshake(TokioExecutor::new(), io).await.unwrap();
        tokio::spawn(connection);
        let origin = format!("http://{}", site.server.http);
        Self { sender, origin, key: site.server.key.clone() }
    }

    async fn upload(&mut self, bytes: &[u8], piece: usize, length: Length) -> (u16, Vec<u8>) {
        let pieces: Vec<_> = bytes.chunks(piece).map(Bytes::copy_from_slice).collect();
        let frames = pieces.into_iter().map(|piece| Ok::<_, io::Error>(Frame::data(piece)));
        let body = axum::body::Body::new(StreamBody::new(stream::iter(frames)));
        let told = matches!(length, Length::Announced).then_some(bytes.len());
        self.ask("POST", "tblobs", told, body).await
    }

    async fn download(&mut self, id: &str) -> (u16, Vec<u8>) {
        self.ask("GET", &format!("tblobs/{id}"), None, axum::body::Body::empty()).await
    }

    async fn ask(
        &mut self,
        method: &str,
        what: &str,
        length: Option<usize>,
        body: axum::body::Body,
    ) -> (u16, Vec<u8>) {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{WORKSPACE}/{what}", self.origin))
            .header("authorization", format!("Bearer {}", self.key));
        if let Some(length) = length {
            request = request.header("content-length", length);
        }
        let answer = self.sender.send_request(request.body(body).unwrap()).await.unwrap();
        let status = answer.status().as_u16();
        (status, answer.into_body().collect().await.unwrap().to_bytes().to_vec())
    }
}

async fn connected(site: &Site) -> TcpStream {
    let stream = TcpStream::connect(site.server.http).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

async fn secured(site: &Site, protocol: &str) -> TlsStream<TcpStream> {
    let mut roots = RootCertStore::empty();
    let certificate = site.certificate.as_ref().unwrap();
    roots.add(CertificateDer::from_pem_file(certificate).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let stream = connected(site).await;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(protocol.as_bytes()));
    stream
}

/// Sends every case over one connection and compares what comes back over it.
macro_rules! assert_comes_back {
    ($connection:expr) => {
        let mut connection = $connection;
        for (bytes, piece, length) in each_case() {
            let case = format!("{} bytes in pieces of {piece}, {length:?}", bytes.len());
            let sent = timeout(PATIENCE, connection.upload(&bytes, piece, length)).await;
            let (status, made) = sent.unwrap_or_else(|_| panic!("no answer to {case}"));
            assert_eq!(status, 201, "{case}: {}", String::from_utf8_lossy(&made));
            let back = timeout(PATIENCE, connection.download(&id_in(&made))).await;
            let (status, back) = back.unwrap_or_else(|_| panic!("no download of {case}"));
            assert_eq!(status, 200, "{case}");
            assert_same(&back, &bytes);
        }
    };
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_over_http1_come_back_whole() {
    let site = Site::on_file();
    assert_comes_back!(Http1::over(connected(&site).await, &site));
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_over_http1_and_tls_come_back_whole() {
    let site = Site::with_tls();
    assert_comes_back!(Http1::over(secured(&site, "http/1.1").await, &site));
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_over_http2_come_back_whole() {
    let site = Site::on_file();
    assert_comes_back!(Http2::over(connected(&site).await, &site).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn pieces_over_http2_and_tls_come_back_whole() {
    let site = Site::with_tls();
    assert_comes_back!(Http2::over(secured(&site, "h2").await, &site).await);
}

/// The answer is out before the body is in; a client that keeps to HTTP/2 hears it all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_under_way_is_heard_over_http2() {
    let site = Site::in_memory();
    site.limit_blobs_to(MIB);
    let mut connection = Http2::over(connected(&site).await, &site).await;
    for length in [Length::Announced, Length::Open] {
        let sent = timeout(PATIENCE, connection.upload(&sample(4 * MIB), 16_384, length)).await;
        let (status, problem) = sent.unwrap();
        let problem: Json = serde_json::from_slice(&problem).unwrap();
        assert_eq!((status, &problem["code"]), (413, &"too_large".into()), "{length:?}");
    }
    // The connection is as good as before.
    assert_eq!(connection.upload(&sample(MIB), 16_384, Length::Open).await.0, 201);
}
