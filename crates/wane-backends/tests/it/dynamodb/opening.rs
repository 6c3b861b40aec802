//! Opening: created once however many nodes start, refused where the table is another's, and told
//! in bounded time what to check.

use std::time::Duration;

use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType,
    ScalarAttributeType,
};
use wane::clock::SystemClock;
use wane::store::Store;
use wane_backends::dynamodb::{DynamodbSettings, DynamodbStore};
use wane_backends::{OpenError, ServerClock};

use super::front::{Fault, Front};
use super::unclear::{permanent, row};
use crate::harness::dynamodb::Server;

async fn open(url: &str) -> Result<DynamodbStore, OpenError> {
    DynamodbStore::connect(DynamodbSettings::from_url(url)?, SystemClock::shared()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_start_at_once_share_one_table() {
    let Some(server) = Server::listed() else { return };
    let url = server.url(&server.endpoint);
    let nodes = (0..6).map(|_| {
        let url = url.clone();
        tokio::spawn(async move { open(&url).await })
    });
    for (at, node) in nodes.collect::<Vec<_>>().into_iter().enumerate() {
        let store = node.await.unwrap().unwrap();
        let inserted = store.insert_if_not_exists(&row("one"), permanent("v")).await.unwrap();
        assert_eq!(inserted.is_applied(), at == 0, "node {at}");
    }
    let described = server.client.describe_table().table_name(&server.table).send().await.unwrap();
    let billing = described.table.unwrap().billing_mode_summary.unwrap().billing_mode;
    assert_eq!(billing, Some(BillingMode::PayPerRequest));
    let cleaning = server.client.describe_time_to_live().table_name(&server.table).send().await;
    let cleaning = cleaning.unwrap().time_to_live_description.unwrap();
    assert_eq!(cleaning.attribute_name.as_deref(), Some("ttl"));
    server.remove_table().await;
}

async fn create(server: &Server, keys: &[(&str, KeyType, ScalarAttributeType)]) {
    let mut creating = server.client.create_table().table_name(&server.table);
    for (name, role, kind) in keys {
        let key = KeySchemaElement::builder().attribute_name(*name).key_type(role.clone());
        let attribute =
            AttributeDefinition::builder().attribute_name(*name).attribute_type(kind.clone());
        creating = creating
            .key_schema(key.build().expect("name and role"))
            .attribute_definitions(attribute.build().expect("name and type"));
    }
    creating.billing_mode(BillingMode::PayPerRequest).send().await.expect("a new table");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_with_other_keys_is_refused_and_left_alone() {
    use KeyType::{Hash, Range};
    use ScalarAttributeType::{B, S};
    for keys in [
        &[("p", Hash, B)][..],
        &[("p", Hash, S), ("c", Range, B)],
        &[("p", Hash, B), ("sort", Range, B)],
        &[("c", Hash, B), ("p", Range, B)],
    ] {
        let Some(server) = Server::listed() else { return };
        create(&server, keys).await;
        let error = open(&server.url(&server.endpoint)).await.unwrap_err();
        assert!(matches!(error, OpenError::Mismatch { .. }), "{keys:?}: {error}");
        let told = error.to_string();
        assert!(told.contains(&server.table) && told.contains("p HASH and c RANGE"), "{told}");
        server.remove_table().await;
    }
}

/// Where services may not create tables, an operator makes one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_with_the_right_keys_is_taken() {
    let Some(server) = Server::listed() else { return };
    let binary = ScalarAttributeType::B;
    create(&server, &[("p", KeyType::Hash, binary.clone()), ("c", KeyType::Range, binary)]).await;
    let store = open(&server.url(&server.endpoint)).await.unwrap();
    assert!(store.put(&row("k"), permanent("v")).await.unwrap().is_applied());
    server.remove_table().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_of_another_format_is_refused() {
    let Some(server) = Server::listed() else { return };
    let url = server.url(&server.endpoint);
    open(&url).await.unwrap();
    for format in [AttributeValue::N("2".into()), AttributeValue::S("1".into())] {
        let binary = |bytes: &[u8]| AttributeValue::B(bytes.to_vec().into());
        let mark = server.client.put_item().table_name(&server.table);
        let mark = mark.item("p", binary(b"wane")).item("c", binary(b"\0\x01format"));
        mark.item("format", format).send().await.unwrap();
        let error = open(&url).await.unwrap_err();
        assert!(matches!(error, OpenError::Mismatch { .. }), "{error}");
        assert!(error.to_string().contains("format"), "{error}");
    }
    server.remove_table().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_is_not_let_in_is_told_what_to_check() {
    let Some(server) = Server::listed() else { return };
    let front = Front::before(&server.endpoint).await;
    for (operation, code, check) in [
        ("DescribeTable", "AccessDeniedException", "credentials"),
        ("DescribeTable", "UnrecognizedClientException", "credentials"),
        ("CreateTable", "AccessDeniedException", "credentials"),
        ("CreateTable", "LimitExceededException", "table"),
        ("DescribeTimeToLive", "AccessDeniedException", "credentials"),
        ("GetItem", "AccessDeniedException", "credentials"),
        ("PutItem", "AccessDeniedException", "credentials"),
    ] {
        front.next(operation, Fault::Answer(400, code));
        let error = open(&server.url(&front.endpoint)).await.unwrap_err();
        assert!(matches!(error, OpenError::Refused { .. }), "{operation}: {error}");
        let told = error.to_string();
        for part in ["dynamodb at ", &front.endpoint, &server.table, code, check] {
            assert!(told.contains(part), "{operation}: {told}");
        }
        assert!(!told.contains("wanelocal"), "{told}");
    }
    front.assert_done();
    server.remove_table().await;
}

/// Neither a port that nobody listens on nor one that never answers holds a start up for long.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_endpoint_that_does_not_answer_is_unreachable_in_time() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let clock = SystemClock::shared();
    for endpoint in [silent.local_addr().unwrap().to_string(), closed.to_string()] {
        let url = format!(
            "dynamodb://id:canary@/wane?region=eu-west-1&timeout_ms=500&endpoint=http%3A%2F%2F{}",
            endpoint.replace(':', "%3A")
        );
        let started = clock.monotonic();
        let error = open(&url).await.unwrap_err();
        assert!(clock.monotonic() - started < Duration::from_secs(5));
        assert!(matches!(error, OpenError::Unreachable { .. }), "{error}");
        let told = error.to_string();
        assert!(told.contains(&endpoint) && told.contains("; check "), "{told}");
        assert!(!told.contains("canary"), "{told}");
    }
}

/// Whoever runs this may have credentials, or a machine that gives them: then nobody answers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_credentials_are_told_in_time() {
    let clock = SystemClock::shared();
    let started = clock.monotonic();
    let endpoint = "http%3A%2F%2F127.0.0.1%3A9";
    let url = format!("dynamodb:///wane?region=eu-west-1&timeout_ms=500&endpoint={endpoint}");
    let told = open(&url).await.unwrap_err().to_string();
    assert!(clock.monotonic() - started < Duration::from_secs(20), "{told}");
    assert!(told.starts_with("dynamodb at http://127.0.0.1:9 (table wane) "), "{told}");
    let has_some = std::env::vars().any(|(name, _)| name.starts_with("AWS_"));
    assert!(has_some || told.contains("check AWS_ACCESS_KEY_ID"), "{told}");
}

/// A region that is none has no host.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_region_is_unreachable_and_named() {
    let clock = SystemClock::shared();
    let started = clock.monotonic();
    let error =
        open("dynamodb://id:secret@/wane?region=nowhere-1&timeout_ms=500").await.unwrap_err();
    assert!(clock.monotonic() - started < Duration::from_secs(10));
    let told = error.to_string();
    assert!(matches!(error, OpenError::Unreachable { .. }), "{told}");
    assert!(told.contains("nowhere-1") && told.contains("region"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_time_of_the_server_is_told_to_the_second() {
    let Some(server) = Server::listed() else { return };
    let clock = SystemClock::shared();
    let store = server.connect(clock.clone()).await;
    for _ in 0..3 {
        let before = clock.now();
        let told = store.server_time().await.unwrap();
        let after = clock.now();
        assert_eq!(told.not_before.until(told.not_after), Duration::from_millis(999));
        // One machine: the second told is one of those that passed meanwhile.
        assert!(told.not_before <= after && told.not_after >= before, "{before:?} {told:?}");
    }
    server.remove_table().await;
}
