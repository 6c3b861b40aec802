//! The schema: a keyspace, two tables of records, and a row that says how they are laid out.
//!
//! Made where it is missing, looked at otherwise: a user who may not create anything can open what
//! an operator made. All statements go to the node with the least id, which carries them out one
//! after the other, so that processes that start at the same time do not make a table twice under
//! two ids. Then all nodes that can be reached must agree, and each must list the tables, before the
//! store is used: a node shows the tables that another process makes a moment before it tells of a new
//! schema, and until then all agree on the old one.
//!
//! Invariant: the layout row is written once, by a conditional statement. Whoever finds another
//! version or another replication there does not open the store.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use scylla::client::session::Session;
use scylla::errors::{DbError, ExecutionError, RequestAttemptError};
use scylla::policies::load_balancing::{
    LoadBalancingPolicy, NodeIdentifier, SingleTargetLoadBalancingPolicy,
};
use scylla::response::query_result::QueryRowsResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::Consistency;
use scylla::statement::unprepared::Statement;
use tokio::time::timeout;
use wane::clock::SharedClock;
use wane::store::BoxError;

use super::CassandraSettings;
use super::session::OPENING;
use crate::OpenError;

/// The layout that this program reads and writes.
const VERSION: i32 = 1;

/// How often the layout is looked for and noted before giving up: others may be doing the same, and a
/// node may not use yet what it lists.
const NOTES: usize = 20;

/// A pause before looking again.
const PAUSE: Duration = Duration::from_millis(100);

/// Records of every keyspace but one. They are renewed, so levels suit them and windows do not.
pub(super) const RECORDS: &str = "records";

/// The log of the pull stream: written once, expiring in the order of writing, so that whole files
/// expire together.
pub(super) const STREAM_LOG: &str = "stream_log";

/// How the tables are laid out.
const LAYOUT: &str = "layout";

const RECORD_COLUMNS: &str =
    "p blob, c blob, v blob, exp bigint, fence blob, op blob, PRIMARY KEY (p, c)";

/// The tables, their columns and how their files are merged.
const TABLES: [(&str, &str, &str); 3] = [
    (RECORDS, RECORD_COLUMNS, "{'class': 'LeveledCompactionStrategy'}"),
    (
        STREAM_LOG,
        RECORD_COLUMNS,
        "{'class': 'TimeWindowCompactionStrategy', 'compaction_window_unit': 'DAYS', \
         'compaction_window_size': 1}",
    ),
    (
        LAYOUT,
        "name text PRIMARY KEY, version int, storage text",
        "{'class': 'LeveledCompactionStrategy'}",
    ),
];

/// Makes what is missing, and refuses what was laid out otherwise.
pub(super) async fn prepare(
    session: &Session,
    settings: &CassandraSettings,
    clock: &SharedClock,
) -> Result<(), OpenError> {
    let nodes = connected_nodes(session);
    let schema = Schema { session, settings, clock, first: nodes.first().cloned() };
    schema.make_keyspace().await?;
    schema.make_tables().await?;
    let agreed = session.await_schema_agreement().await;
    agreed.map_err(|error| schema.unreachable(error.into()))?;
    for node in nodes {
        schema.await_tables(node).await?;
    }
    schema.check_layout().await
}

/// Sends a statement to one node.
type ToNode = Arc<dyn LoadBalancingPolicy>;

/// The nodes that can be reached, the one with the least id first.
fn connected_nodes(session: &Session) -> Vec<ToNode> {
    let cluster = session.get_cluster_state();
    let nodes = cluster.get_nodes_info().iter().filter(|node| node.is_connected());
    let mut ids: Vec<_> = nodes.map(|node| node.host_id).collect();
    ids.sort_unstable();
    let to_node = |id| SingleTargetLoadBalancingPolicy::new(NodeIdentifier::HostId(id), None);
    ids.into_iter().map(|id| to_node(id) as ToNode).collect()
}

struct Schema<'a> {
    session: &'a Session,
    settings: &'a CassandraSettings,
    clock: &'a SharedClock,
    /// Where the schema is changed.
    first: Option<ToNode>,
}

impl Schema<'_> {
    async fn make_keyspace(&self) -> Result<(), OpenError> {
        let CassandraSettings { replication, keyspace, .. } = self.settings;
        let found = "SELECT replication FROM system_schema.keyspaces WHERE keyspace_name = ?";
        let found = self.answered(self.statement(found, self.first.clone()), (keyspace,)).await?;
        let found = found.maybe_first_row::<(HashMap<String, String>,)>();
        let Some((found,)) = found.map_err(|error| self.refused(error.into()))? else {
            let options = replication.options();
            return self
                .run(&format!(
                    "CREATE KEYSPACE IF NOT EXISTS {keyspace} WITH replication = {options}"
                ))
                .await;
        };
        let class = found.get("class").map(String::as_str).unwrap_or_default();
        if class.ends_with(replication.strategy()) {
            return Ok(());
        }
        Err(self.mismatch(format!(
            "keyspace {keyspace} is replicated by {class}, and {} needs {}; open it as the backend \
             that it was made for, or name another keyspace",
            replication.name(),
            replication.strategy()
        )))
    }

    async fn make_tables(&self) -> Result<(), OpenError> {
        let keyspace = &self.settings.keyspace;
        let names = self.listed_tables(self.first.clone()).await?;
        for (table, columns, compaction) in TABLES {
            if !names.contains(table) {
                let made = format!(
                    "CREATE TABLE IF NOT EXISTS {keyspace}.{table} ({columns}) \
                     WITH compaction = {compaction}"
                );
                self.run(&made).await?;
            }
        }
        Ok(())
    }

    /// The tables that a node knows of.
    async fn listed_tables(&self, node: Option<ToNode>) -> Result<BTreeSet<String>, OpenError> {
        let listed = "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?";
        let listed = self.statement(listed, node);
        let listed = self.answered(listed, (&self.settings.keyspace,)).await?;
        let names = listed.rows::<(String,)>().map_err(|error| self.refused(error.into()))?;
        let names: Result<_, _> = names.map(|row| row.map(|(name,)| name)).collect();
        names.map_err(|error| self.refused(error.into()))
    }

    /// Waits until a node knows all tables.
    async fn await_tables(&self, node: ToNode) -> Result<(), OpenError> {
        let look = async {
            loop {
                let names = self.listed_tables(Some(Arc::clone(&node))).await?;
                if TABLES.iter().all(|(table, ..)| names.contains(*table)) {
                    return Ok(());
                }
                self.pause().await;
            }
        };
        let unheard = |_| self.unreachable("a node does not hear of the tables".into());
        timeout(OPENING, look).await.map_err(unheard)?
    }

    /// Notes the layout where none is noted, and compares it where one is.
    async fn check_layout(&self) -> Result<(), OpenError> {
        let mut failure = None;
        let look = async {
            for _ in 0..NOTES {
                match self.noted_layout().await {
                    Ok(Some(found)) => return Some(found),
                    Ok(None) => failure = self.note_layout().await.err(),
                    Err(error) => failure = Some(error),
                }
                if failure.is_some() {
                    self.pause().await;
                }
            }
            None
        };
        match timeout(OPENING, look).await {
            Ok(Some(found)) => self.compare(found),
            Ok(None) | Err(_) => {
                Err(failure.unwrap_or_else(|| self.unreachable("the layout was not noted".into())))
            }
        }
    }

    /// Real time passes at an opening, whatever the clock of the store says.
    async fn pause(&self) {
        drop(timeout(PAUSE, self.clock.sleep(PAUSE)).await);
    }

    async fn noted_layout(&self) -> Result<Option<(i32, String)>, OpenError> {
        let keyspace = &self.settings.keyspace;
        let noted =
            format!("SELECT version, storage FROM {keyspace}.{LAYOUT} WHERE name = 'store'");
        let mut noted = Statement::new(noted);
        noted.set_consistency(Consistency::Serial);
        let noted = self.answered(noted, ()).await?;
        noted.maybe_first_row().map_err(|error| self.refused(error.into()))
    }

    async fn note_layout(&self) -> Result<(), OpenError> {
        let CassandraSettings { replication, keyspace, .. } = self.settings;
        let note = format!(
            "UPDATE {keyspace}.{LAYOUT} SET version = ?, storage = ? WHERE name = 'store' \
             IF version = null AND storage = null"
        );
        // Applied or refused: what stands there is read again.
        self.answered(Statement::new(note), (VERSION, replication.name())).await.map(|_| ())
    }

    fn compare(&self, (version, storage): (i32, String)) -> Result<(), OpenError> {
        let (keyspace, name) = (&self.settings.keyspace, self.settings.replication.name());
        if (version, storage.as_str()) == (VERSION, name) {
            return Ok(());
        }
        Err(self.mismatch(format!(
            "keyspace {keyspace} was made by {storage} with layout {version}, and this is {name} \
             with layout {VERSION}; open it as it was made, or name another keyspace"
        )))
    }

    async fn answered(
        &self,
        statement: Statement,
        values: impl SerializeRow,
    ) -> Result<QueryRowsResult, OpenError> {
        let result = self.session.query_unpaged(statement, values).await;
        let result = result.map_err(|error| self.failed(error))?;
        result.into_rows_result().map_err(|error| self.refused(error.into()))
    }

    async fn run(&self, text: &str) -> Result<(), OpenError> {
        let result = self.session.query_unpaged(self.statement(text, self.first.clone()), ()).await;
        result.map(|_| ()).map_err(|error| self.failed(error))
    }

    fn statement(&self, text: &str, node: Option<ToNode>) -> Statement {
        let mut statement = Statement::new(text);
        // A node knows the schema by itself.
        statement.set_consistency(Consistency::One);
        // Making a table takes a node under load some seconds.
        statement.set_request_timeout(Some(OPENING));
        statement.set_load_balancing_policy(node);
        statement
    }

    /// A node that says no means it; one that cannot may be able to later.
    fn failed(&self, error: ExecutionError) -> OpenError {
        let said_no = matches!(
            error,
            ExecutionError::LastAttemptError(RequestAttemptError::DbError(
                DbError::SyntaxError
                    | DbError::Invalid
                    | DbError::ConfigError
                    | DbError::AlreadyExists { .. }
                    | DbError::AuthenticationError
                    | DbError::Unauthorized,
                _
            ))
        );
        if said_no { self.refused(error.into()) } else { self.unreachable(error.into()) }
    }

    fn refused(&self, source: BoxError) -> OpenError {
        let (backend, address) = (self.settings.replication.name(), self.settings.address());
        let check = "what the user may create, and for cas3 that the datacenters dc1 and dc2 exist";
        OpenError::Refused { backend, address, check, source }
    }

    fn unreachable(&self, source: BoxError) -> OpenError {
        let (backend, address) = (self.settings.replication.name(), self.settings.address());
        let check = "that a majority of the nodes runs and that they reach each other";
        OpenError::Unreachable { backend, address, check, source }
    }

    fn mismatch(&self, reason: String) -> OpenError {
        let (backend, address) = (self.settings.replication.name(), self.settings.address());
        OpenError::Mismatch { backend, address, reason }
    }
}
