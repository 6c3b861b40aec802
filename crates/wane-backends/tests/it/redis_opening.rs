//! Opening a store on redis: what is refused, what is warned of, and in which words.

use std::io::{Read, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use wane::clock::SystemClock;
use wane_backends::OpenError;
use wane_backends::redis::{RedisSettings, RedisStore};

use crate::harness::redis::{fresh_settings, listed_url};
use crate::harness::redis_server::{Server, free_port};

const SECRET: &str = "canary-secret";

async fn opening(url: &str) -> Result<RedisStore, OpenError> {
    RedisStore::connect(fresh_settings(url), SystemClock::shared()).await
}

/// The error of opening `url`, which came in time and tells no secret.
async fn refusal(url: &str) -> OpenError {
    let clock = SystemClock::shared();
    let before = clock.monotonic();
    let error = opening(url).await.expect_err("it must not open");
    let took = clock.monotonic() - before;
    assert!(took < Duration::from_secs(6), "after {took:?}: {error}");
    let told = format!("{error} {error:?}");
    assert!(!told.contains(SECRET), "{told}");
    error
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_the_right_one_is_taken() {
    if listed_url().is_none() {
        return;
    }
    let server = Server::start(&["--requirepass", SECRET]);
    let at = format!("127.0.0.1:{}", server.port());
    for url in [
        format!("redis://{at}"),
        format!("redis://:wrong-{SECRET}@{at}"),
        format!("redis://nobody:{SECRET}@{at}"),
    ] {
        let error = refusal(&url).await;
        let OpenError::Refused { address, check, .. } = &error else { panic!("{error:?}") };
        assert_eq!((address, *check), (&at, "user and password in the URL"), "{error}");
    }
    opening(&format!("redis://:{SECRET}@{at}")).await.unwrap();
    opening(&format!("redis://default:{SECRET}@{at}/3")).await.unwrap();
}

#[tokio::test]
async fn a_host_that_does_not_answer_is_unreachable() {
    let free = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let silent = free.local_addr().unwrap();
    let error = refusal(&format!("redis://{silent}")).await;
    assert!(matches!(error, OpenError::Unreachable { .. }), "it is silent: {error:?}");
    drop(free);
    for url in [format!("redis://{silent}"), "redis://no.such.host.invalid".to_owned()] {
        let error = refusal(&url).await;
        assert!(matches!(error, OpenError::Unreachable { .. }), "{error:?}");
        assert!(error.to_string().contains(&url["redis://".len()..]), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_redis_is_refused() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let serving = std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut request = [0; 1_024];
        let read = client.read(&mut request).unwrap();
        client.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").unwrap();
        read
    });
    let error = refusal(&format!("redis://{address}")).await;
    assert!(matches!(error, OpenError::Refused { .. }), "{error:?}");
    assert!(serving.join().unwrap() > 0);
}

/// TLS towards a server that speaks none.
#[tokio::test]
async fn tls_where_there_is_none_does_not_open() {
    if listed_url().is_none() {
        return;
    }
    let server = Server::start(&[]);
    let error = refusal(&format!("rediss://:{SECRET}@127.0.0.1:{}", server.port())).await;
    let told = matches!(error, OpenError::Refused { .. } | OpenError::Unreachable { .. });
    assert!(told, "{error:?}");
}

/// A server that speaks TLS is trusted by its authority, and by nothing else.
#[tokio::test]
async fn tls_needs_the_authority_of_the_server() {
    if listed_url().is_none() {
        return;
    }
    let files = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let path = |name: &str| files.path().join(name).display().to_string();
    let (certificate, secret) = (path("certificate.pem"), path("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&secret, made.signing_key.serialize_pem()).unwrap();
    let port = free_port().to_string();
    let _server = Server::start(&[
        "--tls-port",
        &port,
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &secret,
        "--tls-ca-cert-file",
        &certificate,
        "--tls-auth-clients",
        "no",
    ]);
    opening(&format!("rediss://127.0.0.1:{port}?ca={certificate}")).await.unwrap();
    let error = refusal(&format!("rediss://127.0.0.1:{port}")).await;
    let OpenError::Refused { check, .. } = &error else { panic!("{error:?}") };
    assert!(check.contains("certificate"), "{error}");
    let error = refusal(&format!("redis://127.0.0.1:{port}")).await;
    println!("without TLS: {error}");
}

#[tokio::test]
async fn a_replica_is_refused() {
    if listed_url().is_none() {
        return;
    }
    let server = Server::start(&["--replicaof", "127.0.0.1", "1"]);
    let error = refusal(&server.url()).await;
    assert!(matches!(error, OpenError::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("master"), "{error}");
}

#[tokio::test]
async fn hosts_that_form_no_cluster_are_refused() {
    if listed_url().is_none() {
        return;
    }
    let server = Server::start(&[]);
    let error = refusal(&format!("{},127.0.0.1:1", server.url())).await;
    assert!(matches!(error, OpenError::Refused { .. }), "{error:?}");
    assert!(error.to_string().contains("cluster"), "{error}");
}

/// Everything that was logged on this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What opening `url` logs.
async fn logged(url: &str) -> String {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_max_level(tracing::Level::INFO)
        .with_writer(move || writer.clone())
        .finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    opening(url).await.expect("an answer");
    let logged = log.0.lock().clone();
    String::from_utf8(logged).expect("an answer")
}

#[tokio::test]
async fn a_server_that_may_forget_is_warned_of() {
    if listed_url().is_none() {
        return;
    }
    let sound = Server::start(&[]);
    assert_eq!(logged(&sound.url()).await, "");
    let server = Server::start(&["--appendonly", "no", "--maxmemory-policy", "allkeys-lru"]);
    let told = logged(&server.url()).await;
    let address = format!("127.0.0.1:{}", server.port());
    for word in ["WARN", "maxmemory-policy noeviction", "appendonly yes", &address] {
        assert!(told.contains(word), "{word}: {told}");
    }
    let lazy = Server::start(&["--appendfsync", "no"]);
    let told = logged(&lazy.url()).await;
    assert!(told.contains("WARN") && told.contains("appendfsync always"), "{told}");
}

/// Managed servers let nobody see their settings: that is said, and no reason to fail.
#[tokio::test]
async fn a_user_who_may_not_see_settings_can_open() {
    if listed_url().is_none() {
        return;
    }
    let server = Server::start(&[]);
    let mut connection = server.connection();
    let rule = format!(">{SECRET}");
    redis::cmd("ACL")
        .arg(&["SETUSER", "app", "on", &rule, "resetkeys", "~test-*", "-@all", "+@read", "+@write"])
        .arg(&["+@scripting", "+@connection", "+info", "+time"])
        .exec(&mut connection)
        .unwrap();
    let url = format!("redis://app:{SECRET}@127.0.0.1:{}", server.port());
    let told = logged(&url).await;
    assert!(told.contains("appendfsync") && !told.contains("WARN"), "{told}");
    assert!(!told.contains(SECRET), "{told}");
}

/// A first start on two nodes at once writes down one layout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_nodes_may_open_a_new_store_at_once() {
    let Some(url) = listed_url() else { return };
    let settings: RedisSettings = fresh_settings(&url);
    let opening = (0..8).map(|_| RedisStore::connect(settings.clone(), SystemClock::shared()));
    for opened in futures_util::future::join_all(opening).await {
        opened.unwrap();
    }
    crate::harness::redis::Keys::new(&url, &settings.prefix).remove();
}
