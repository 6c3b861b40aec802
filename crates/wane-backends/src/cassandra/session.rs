//! The session: connections to the cluster, with every convenience off that could repeat a write.
//!
//! No retries, no speculative execution, nothing marked idempotent: a statement is sent once. A
//! node whose connections are broken is passed over before anything is sent.
//!
//! Statements that write decide at SERIAL, over all datacenters, and commit at QUORUM. The driver
//! would decide at LOCAL_SERIAL, where two datacenters may each find a winner.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use scylla::client::PoolSize;
use scylla::client::execution_profile::ExecutionProfile;
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError, MetadataError,
    NewSessionError,
};
use scylla::policies::load_balancing::DefaultPolicy;
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::statement::{Consistency, SerialConsistency};
use tokio::time::timeout;

use super::CassandraSettings;
use super::routing::SameReplica;
use crate::OpenError;

/// How long a statement may take. A node gives up on its own before that (2 s by default), so
/// what runs out is a node that does not answer at all.
pub(super) const REQUEST: Duration = Duration::from_secs(3);

/// How long the first contact may take, all nodes together.
pub(super) const OPENING: Duration = Duration::from_secs(15);

/// How long one connection may take.
const CONNECTING: Duration = Duration::from_secs(3);

/// How long a node may take to tell of the others; the driver waits a second longer for it.
const METADATA: Duration = Duration::from_secs(2);

/// A silent connection is asked this often whether it lives, and given up after as long again.
const KEEPALIVE: Duration = Duration::from_secs(2);

/// Connections to each node, so that one that breaks does not cut the node off.
const CONNECTIONS: usize = 2;

/// Connects to some node and learns of the others.
pub(super) async fn connect(settings: &CassandraSettings) -> Result<Session, OpenError> {
    let mut builder = SessionBuilder::new()
        .known_nodes(&settings.hosts)
        .default_execution_profile_handle(profile(settings).into_handle())
        .connection_timeout(CONNECTING)
        .hostname_resolution_timeout(Some(CONNECTING))
        .metadata_request_serverside_timeout(METADATA)
        .keepalive_interval(KEEPALIVE)
        .keepalive_timeout(KEEPALIVE)
        .schema_agreement_timeout(OPENING)
        .keyspaces_to_fetch([&settings.keyspace]);
    if let Some(size) = std::num::NonZeroUsize::new(CONNECTIONS) {
        builder = builder.pool_size(PoolSize::PerHost(size));
    }
    if let (Some(user), Some(password)) = (&settings.user, &settings.password) {
        builder = builder.user(user, password);
    }
    if let Some(ca) = &settings.ca {
        builder = over_tls(builder, ca)?;
    }
    let session = match timeout(OPENING, builder.build()).await {
        Ok(Ok(session)) => session,
        Ok(Err(error)) => return Err(not_connected(settings, error)),
        Err(elapsed) => {
            let (backend, address) = (settings.replication.name(), settings.address());
            let check = "the addresses, and whether the port wants TLS";
            return Err(OpenError::Unreachable { backend, address, check, source: elapsed.into() });
        }
    };
    check_datacenter(settings, &session)?;
    Ok(session)
}

/// How every statement is sent.
pub(super) fn profile(settings: &CassandraSettings) -> ExecutionProfile {
    // Any datacenter can serve: decisions span all of them anyway.
    let mut nodes = DefaultPolicy::builder().token_aware(true).permit_dc_failover(true);
    if let Some(datacenter) = &settings.datacenter {
        nodes = nodes.prefer_datacenter(datacenter.clone());
    }
    ExecutionProfile::builder()
        .consistency(Consistency::Quorum)
        .serial_consistency(Some(SerialConsistency::Serial))
        .request_timeout(Some(REQUEST))
        .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
        .speculative_execution_policy(None)
        .load_balancing_policy(Arc::new(SameReplica { below: nodes.build() }))
        .build()
}

#[cfg(feature = "cassandra-tls")]
fn over_tls(builder: SessionBuilder, ca: &Path) -> Result<SessionBuilder, OpenError> {
    Ok(builder.tls_context(Some(super::tls::trusting(ca)?)))
}

#[cfg(not(feature = "cassandra-tls"))]
fn over_tls(_: SessionBuilder, _: &Path) -> Result<SessionBuilder, OpenError> {
    Err(OpenError::NotBuilt { backend: "TLS to Cassandra", feature: "cassandra-tls" })
}

fn check_datacenter(settings: &CassandraSettings, session: &Session) -> Result<(), OpenError> {
    let Some(wanted) = &settings.datacenter else { return Ok(()) };
    let cluster = session.get_cluster_state();
    let nodes = cluster.get_nodes_info().iter();
    let mut known: Vec<&str> = nodes.filter_map(|node| node.datacenter.as_deref()).collect();
    known.sort_unstable();
    known.dedup();
    if known.contains(&wanted.as_str()) {
        return Ok(());
    }
    let source = format!("there is no datacenter {wanted:?}, there are {}", known.join(", "));
    Err(OpenError::Refused {
        backend: settings.replication.name(),
        address: settings.address(),
        check: "the option datacenter",
        source: source.into(),
    })
}

/// What stands in the way of a first connection, told by what the operator can do about it.
fn not_connected(settings: &CassandraSettings, error: NewSessionError) -> OpenError {
    let (backend, address) = (settings.replication.name(), settings.address());
    let mut refusal = None;
    if let NewSessionError::MetadataError(MetadataError::ConnectionPoolError(
        ConnectionPoolError::Broken { last_connection_error },
    )) = &error
    {
        refusal = check_after(last_connection_error);
    }
    let unresolved = matches!(error, NewSessionError::FailedToResolveAnyHostname(_));
    let source = error.into();
    if let Some(check) = refusal {
        return OpenError::Refused { backend, address, check, source };
    }
    let check = match unresolved {
        true => "the host names",
        false => "the addresses, that the nodes run, and whether they want TLS",
    };
    OpenError::Unreachable { backend, address, check, source }
}

/// What to check where a node answers and refuses.
fn check_after(error: &ConnectionError) -> Option<&'static str> {
    if let ConnectionError::IoError(error) = error {
        let untrusted = error.kind() == std::io::ErrorKind::InvalidData;
        return untrusted.then_some(
            "the option ca: who signed the node's certificate, and that it names its address",
        );
    }
    let ConnectionError::ConnectionSetupRequestError(setup) = error else { return None };
    let denied = matches!(
        setup.get_error(),
        ConnectionSetupRequestErrorKind::MissingAuthentication
            | ConnectionSetupRequestErrorKind::DbError(
                DbError::AuthenticationError | DbError::Unauthorized,
                _
            )
    );
    if denied {
        return Some("the user and the password in the URL");
    }
    let told = matches!(setup.get_error(), ConnectionSetupRequestErrorKind::DbError(..));
    told.then_some("that it is Cassandra 4 or later, or ScyllaDB")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A conditional statement that the driver sends again is refused by its own first try.
    #[test]
    fn statements_are_sent_once_and_decided_over_all_datacenters() {
        let settings = CassandraSettings::from_url("cas3://h?datacenter=dc1").unwrap();
        let profile = profile(&settings);
        let retries = profile.get_retry_policy().as_any();
        assert!(retries.is_some_and(|policy| policy.is::<FallthroughRetryPolicy>()));
        assert!(profile.get_speculative_execution_policy().is_none());
        assert_eq!(profile.get_serial_consistency(), Some(SerialConsistency::Serial));
        assert_eq!(profile.get_consistency(), Consistency::Quorum);
        assert_eq!(profile.get_request_timeout(), Some(REQUEST));
    }
}
