//! The typed client against a real server: every call, every kind of answer, plain and over TLS.

use std::time::Duration;

use wane::clock::SystemClock;
use wane::services::app_ttl::Renewal;
use wane::services::apps::{AppName, LimitsChange, Scope};
use wane_server::client::{
    BatchOperation, ChangeKind, Client, ClientError, Endpoint, Notice, ScanRange, Secret, Trust,
};

use crate::server::Server;

const MINUTE: Duration = Duration::from_secs(60);

fn client(url: &str, key: &str, trust: Trust) -> Client {
    let endpoint = Endpoint { url: url.to_owned(), key: Some(Secret::from(key)), trust };
    Client::new(&endpoint, SystemClock::shared()).unwrap()
}

fn clients(server: &Server) -> (Client, Client) {
    let main = client(&format!("http://{}", server.http), &server.key, Trust::PublicRoots);
    let admin = client(&format!("http://{}", server.admin), &server.admin_key, Trust::PublicRoots);
    (main, admin)
}

fn demo() -> AppName {
    AppName::new("demo", "app").unwrap()
}

#[tokio::test]
async fn every_call_of_app_ttl_gets_its_typed_answer() {
    let server = Server::on_file();
    let (main, _) = clients(&server);
    main.readyz().await.unwrap();
    let ttl = main.app_ttl(&demo());
    let expires_at = ttl.insert("a/b", b"\x00\xFF", MINUTE).await.unwrap();
    let entry = ttl.get("a/b").await.unwrap();
    assert_eq!((&*entry.value, entry.expires_at), (&b"\x00\xFF"[..], Some(expires_at)));
    assert_eq!(&*ttl.get_bytes("a/b").await.unwrap(), b"\x00\xFF");
    let refused = ttl.insert("a/b", b"other", MINUTE).await.unwrap_err();
    let ClientError::Refused { current: Some(current), .. } = refused else { panic!("{refused}") };
    assert_eq!(&*current.value, b"\x00\xFF");
    let kept = ttl.swap("a/b", b"\x00\xFF", b"text", Renewal::Keep).await.unwrap();
    assert_eq!(kept, Some(expires_at));
    assert!(ttl.touch("a/b", 2 * MINUTE).await.unwrap() > expires_at);
    ttl.set("a/c", b"v", MINUTE).await.unwrap();
    let first = ScanRange { prefix: "a/".into(), after: None, limit: Some(1) };
    let page = ttl.scan(&first).await.unwrap();
    assert_eq!((&*page.items[0].key, page.next.as_deref()), ("a/b", Some("a/b")));
    assert!(ttl.compare_and_delete("a/c", b"wrong").await.is_err());
    ttl.compare_and_delete("a/c", b"v").await.unwrap();
    ttl.delete("a/c").await.unwrap();
    assert!(matches!(ttl.get("a/c").await.unwrap_err(), ClientError::Absent));
    let too_long = ttl.insert(&"k".repeat(1_025), b"v", MINUTE).await.unwrap_err();
    let ClientError::Problem { code, .. } = too_long else { panic!("{too_long}") };
    assert_eq!(code, "key_too_long");
    let answers = ttl.batch(&[BatchOperation::Get { key: "a/b".into() }]).await.unwrap();
    assert!(answers[0].is_ok());
}

#[tokio::test]
async fn a_watch_hears_what_others_do() {
    let server = Server::in_memory();
    let (main, _) = clients(&server);
    let ttl = main.app_ttl(&demo());
    let mut watch = ttl.watch("w:", None).await.unwrap();
    ttl.insert("w:1", b"one", Duration::from_millis(100)).await.unwrap();
    for kind in [ChangeKind::Inserted, ChangeKind::Expired] {
        let Notice::Event(event) = watch.next().await.unwrap() else { panic!("a gap") };
        assert_eq!((event.kind, &*event.key, &*event.value), (kind, "w:1", &b"one"[..]));
    }
}

#[tokio::test]
async fn an_operator_makes_limits_and_revokes() {
    let server = Server::in_memory();
    let (main, admin) = clients(&server);
    let admin = admin.admin();
    let name = AppName::new("acme", "two").unwrap();
    let made = admin.create_app(&name).await.unwrap();
    assert!(matches!(admin.create_app(&name).await, Err(ClientError::Refused { .. })));
    let change = LimitsChange { max_keys: Some(Some(1)), ..LimitsChange::default() };
    assert_eq!(admin.set_limits(&name, &change).await.unwrap().max_keys(), 1);
    let listed = admin.list_apps(None).await.unwrap();
    assert_eq!(listed.apps.len(), 2);
    let second = admin.add_key(&name, &[Scope::Read]).await.unwrap();
    let url = main.url().to_owned();
    let reader = client(&url, second.reveal(), Trust::PublicRoots);
    let denied = reader.app_ttl(&name).set("k", b"v", MINUTE).await.unwrap_err();
    assert!(matches!(denied, ClientError::Problem { status: 403, .. }), "{denied}");
    admin.revoke_key(&name, second.id()).await.unwrap();
    let gone = reader.app_ttl(&name).get("k").await.unwrap_err();
    assert!(matches!(gone, ClientError::Problem { status: 401, .. }), "{gone}");
    let foreign = client(&url, made.key.reveal(), Trust::PublicRoots);
    assert!(matches!(foreign.app_ttl(&demo()).get("k").await, Err(ClientError::Absent)));
}

#[tokio::test]
async fn tls_is_spoken_with_an_authority_that_is_trusted() {
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (cert, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let flags = ["--tls-cert", cert.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    let server = Server::with(&[&flags[..], &["--storage", "mem"]].concat());
    let url = format!("https://{}", server.http);
    let trusting = client(&url, &server.key, Trust::CaFile(cert.clone()));
    trusting.app_ttl(&demo()).insert("k", b"v", MINUTE).await.unwrap();
    let wary = client(&url, &server.key, Trust::PublicRoots);
    let error = wary.app_ttl(&demo()).get("k").await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error}");
}
