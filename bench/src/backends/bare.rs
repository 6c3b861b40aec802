//! The same writes without the store: one statement, one script, one call, as the driver has them.
//!
//! Nothing is decided or looked for here: an answer is an answer. Keys, values and conditions are
//! those that the store sends.

use std::time::Duration;

use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::{AttributeValue, ReturnValuesOnConditionCheckFailure};
use redis::aio::MultiplexedConnection;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::statement::prepared::PreparedStatement;
use scylla::statement::{Consistency, SerialConsistency};
use wane::clock::{SharedClock, SystemClock};

use super::{LIFE, VALUE};
use crate::BoxError;

/// The partition of an app that nobody else writes to.
const PARTITION: [u8; 8] = [0, 0, 0, 4, 0, 0, 0, 2];

const OPERATION: [u8; 16] = [9; 16];

fn row(number: u64) -> Vec<u8> {
    format!("r{number:x}").into_bytes()
}

/// The insert script of the store, called by its crate.
pub(super) struct BareRedis {
    connection: MultiplexedConnection,
    script: redis::Script,
    keys: [String; 4],
}

impl BareRedis {
    pub(super) async fn connect(url: &str, run: &str) -> Result<Self, BoxError> {
        let connection = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        let script = redis::Script::new(concat!(
            "#!lua\n",
            include_str!("../../../crates/wane-backends/src/redis/lua/record.lua"),
            include_str!("../../../crates/wane-backends/src/redis/lua/write.lua"),
            include_str!("../../../crates/wane-backends/src/redis/lua/insert.lua"),
        ));
        script.prepare_invoke().load_async(&mut connection.clone()).await?;
        let keys = ["p:r", "p:c", "p:x", "due"].map(|key| format!("{run}-bare:{{00}}:{key}"));
        Ok(Self { connection, script, keys })
    }

    pub(super) async fn insert(&self, number: u64) -> Result<(), BoxError> {
        let mut call = self.script.prepare_invoke();
        for key in &self.keys {
            call.key(key);
        }
        call.arg(&PARTITION[..]).arg(row(number)).arg(&OPERATION[..]);
        call.arg(format!("f{}", LIFE.as_millis())).arg(&[0_u8; 8][..]).arg(VALUE);
        let answer: Vec<i64> = call.invoke_async(&mut self.connection.clone()).await?;
        if answer.first() == Some(&1) { Ok(()) } else { Err("the script refused".into()) }
    }
}

/// The insert statement of the store, sent by its driver.
pub(super) struct BareCassandra {
    session: Session,
    insert: PreparedStatement,
    clock: SharedClock,
}

impl BareCassandra {
    pub(super) async fn connect(hosts: &str, keyspace: &str) -> Result<Self, BoxError> {
        let profile = ExecutionProfile::builder()
            .consistency(Consistency::Quorum)
            .serial_consistency(Some(SerialConsistency::Serial))
            .request_timeout(Some(Duration::from_secs(3)))
            .build();
        let session = SessionBuilder::new()
            .known_nodes(hosts.split(','))
            .default_execution_profile_handle(profile.into_handle())
            .build()
            .await?;
        let insert = format!(
            "UPDATE {keyspace}.records USING TTL ? SET v = ?, exp = ?, fence = ?, op = ? \
             WHERE p = ? AND c = ? IF v = null AND exp = null AND fence = null AND op != ?"
        );
        let insert = session.prepare(insert).await?;
        Ok(Self { session, insert, clock: SystemClock::shared() })
    }

    pub(super) async fn insert(&self, number: u64) -> Result<(), BoxError> {
        let expiry = self.clock.now().as_unix_millis() + LIFE.as_millis() as u64;
        let values = (
            LIFE.as_secs() as i32 + 60,
            VALUE,
            expiry as i64,
            None::<&[u8]>,
            &OPERATION[..],
            &PARTITION[..],
            row(number),
            &[1_u8; 16][..],
        );
        let answer = self.session.execute_unpaged(&self.insert, values).await?;
        let answer = answer.into_rows_result()?;
        if answer.rows_num() == 1 { Ok(()) } else { Err("the statement did not answer".into()) }
    }
}

/// The conditional put of the store, sent by the SDK.
pub(super) struct BareDynamodb {
    client: aws_sdk_dynamodb::Client,
    table: String,
    clock: SharedClock,
}

impl BareDynamodb {
    pub(super) fn connect(endpoint: &str, table: &str) -> Self {
        let tls = aws_smithy_http_client::tls::Provider::Rustls(
            aws_smithy_http_client::tls::rustls_provider::CryptoMode::Ring,
        );
        let http = aws_smithy_http_client::Builder::new().tls_provider(tls).build_https();
        let config = aws_sdk_dynamodb::Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .http_client(http)
            .endpoint_url(endpoint)
            .region(Region::new("us-east-1"))
            .credentials_provider(Credentials::new("local", "local", None, None, "bench"))
            .retry_config(RetryConfig::disabled())
            .build();
        let client = aws_sdk_dynamodb::Client::from_conf(config);
        Self { client, table: table.to_owned(), clock: SystemClock::shared() }
    }

    pub(super) async fn insert(&self, number: u64) -> Result<(), BoxError> {
        let now = self.clock.now().as_unix_millis();
        let (expiry, bytes) =
            (now + LIFE.as_millis() as u64, |bytes: &[u8]| AttributeValue::B(Blob::new(bytes)));
        self.client
            .put_item()
            .table_name(&self.table)
            .item("p", bytes(&PARTITION))
            .item("c", bytes(&row(number)))
            .item("v", bytes(VALUE))
            .item("exp", AttributeValue::N(expiry.to_string()))
            .item("fence", AttributeValue::N("0".into()))
            .item("op", bytes(&OPERATION))
            .item("ttl", AttributeValue::N((expiry / 1_000 + 61).to_string()))
            .condition_expression("attribute_not_exists(exp) OR exp <= :now")
            .expression_attribute_values(":now", AttributeValue::N(now.to_string()))
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await?;
        Ok(())
    }
}
