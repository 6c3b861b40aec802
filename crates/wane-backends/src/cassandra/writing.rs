//! One write: the usual case in one statement, any case over what was seen, doubt looked into.
//!
//! Flow: `change` waits for the partition's turn; `attempt` tries the shortcut of the operation;
//! where that does not fit, `settle` decides by what stands there and writes over exactly that, as
//! often as others come between. Only a definite refusal is ever followed by another statement.
//!
//! A write that has its turn goes on to its end in a task of its own, also where its caller is gone:
//! the partition is then not in doubt, and nobody meets it half-way.

use std::time::Duration;

use scylla::errors::ExecutionError;
use scylla::response::query_result::QueryResult;
use scylla::serialize::row::SerializeRow;
use scylla::statement::prepared::PreparedStatement;
use tokio::time::timeout;
use wane::store::{
    Change, Condition, Current, Effect, Fence, Key, Life, MAX_VALUE, Outcome, Record, Step,
    StoreError, Timestamp, Write,
};

use super::CassandraStore;
use super::doubt::is_certainly_unapplied;
use super::row::{Cells, Columns, OperationId, Seen, expiry, stamp};

/// How often a write starts over because another one came between its look and its statement.
const ROUNDS: usize = 64;

/// How long an unclear write is looked for, how long one look may take, and the pause before
/// another, as broken connections are made anew.
const SEARCH: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(50);

/// What became of a conditional statement.
pub(super) enum Verdict {
    Applied,
    /// With the columns that the condition named.
    Refused(Seen),
}

/// What became of a shortcut.
enum Attempt {
    Done(Outcome),
    /// It did not fit, and this stood in the way at this time, where the statement tells.
    Over(Option<(Seen, Timestamp)>),
}

impl CassandraStore {
    pub(super) async fn change(
        &self,
        key: &Key,
        change: Change<'_>,
    ) -> Result<Outcome, StoreError> {
        let turn = self.inner.turns.alone(key.partition()).await;
        let turn = turn.map_err(|error| self.unavailable(error))?;
        let (store, key, change) = (self.clone(), key.clone(), change.into_owned());
        let changed = tokio::spawn(async move {
            let outcome = store.change_in_turn(&key, change).await;
            drop(turn);
            outcome
        });
        changed.await.unwrap_or_else(|ended| Err(self.unknown(ended)))
    }

    /// Carries out a change while no other call of this process touches the partition.
    pub(super) async fn change_in_turn(
        &self,
        key: &Key,
        change: Change<'_>,
    ) -> Result<Outcome, StoreError> {
        match self.attempt(key, &change).await? {
            Attempt::Done(outcome) => Ok(outcome),
            Attempt::Over(seen) => self.settle(key, &change, seen).await,
        }
    }

    /// Tries the statement that fits the usual case of this operation.
    async fn attempt(&self, key: &Key, change: &Change<'_>) -> Result<Attempt, StoreError> {
        let Effect::Write(write) = change.effect() else {
            // A delete reports the expiry of what it removes, so it has to look first.
            return Ok(Attempt::Over(None));
        };
        if write.life == Life::Keep || is_beyond_any_value(change.condition()) {
            return Ok(Attempt::Over(None));
        }
        let now = self.now();
        let Some(record) = usual_record(change, now) else { return Ok(Attempt::Over(None)) };
        let op = self.next_operation();
        let told = match change.condition() {
            Condition::Absent => self.try_insert(key, &record, now, op).await?,
            Condition::Always => self.try_put(key, write, &record, now, op).await?,
            Condition::Equals(expected) => {
                self.try_swap(key, (write, expected), &record, now, op).await?
            }
        };
        Ok(match told {
            Verdict::Applied => Attempt::Done(Outcome::Applied { expires_at: record.expires_at }),
            // The condition of a put does not name the value.
            Verdict::Refused(_) if *change.condition() == Condition::Always => Attempt::Over(None),
            Verdict::Refused(seen) => Attempt::Over(Some((seen, now))),
        })
    }

    async fn try_insert(
        &self,
        key: &Key,
        record: &Record,
        now: Timestamp,
        op: OperationId,
    ) -> Result<Verdict, StoreError> {
        let Cells { ttl, v, exp, fence, op } = Cells::of(record, false, now, op);
        let (p, c) = (key.partition(), key.clustering());
        let statement = &self.inner.statements.of(p).insert;
        self.submit(key, op, statement, (ttl, v, exp, fence, op, p, c, op)).await
    }

    async fn try_put(
        &self,
        key: &Key,
        write: &Write,
        record: &Record,
        now: Timestamp,
        op: OperationId,
    ) -> Result<Verdict, StoreError> {
        let Cells { ttl, v, exp, fence, op } = Cells::of(record, false, now, op);
        let (p, c) = (key.partition(), key.clustering());
        let table = self.inner.statements.of(p);
        if write.fence == Fence::NONE {
            return self.submit(key, op, &table.put, (ttl, v, exp, fence, op, p, c, op)).await;
        }
        let limit = stamp(write.fence);
        let values = (ttl, v, exp, fence, op, p, c, limit, op);
        self.submit(key, op, &table.fenced_put, values).await
    }

    async fn try_swap(
        &self,
        key: &Key,
        (write, expected): (&Write, &[u8]),
        record: &Record,
        now: Timestamp,
        op: OperationId,
    ) -> Result<Verdict, StoreError> {
        let Cells { ttl, v, exp, fence, op } = Cells::of(record, false, now, op);
        let (p, c, alive) = (key.partition(), key.clustering(), expiry(now));
        let table = self.inner.statements.of(p);
        if write.fence == Fence::NONE {
            let values = (ttl, v, exp, fence, op, p, c, expected, alive, op);
            return self.submit(key, op, &table.swap, values).await;
        }
        let limit = stamp(write.fence);
        let values = (ttl, v, exp, fence, op, p, c, expected, alive, limit, op);
        self.submit(key, op, &table.fenced_swap, values).await
    }

    /// Decides the change by what stands there, and writes over exactly that.
    async fn settle(
        &self,
        key: &Key,
        change: &Change<'_>,
        mut seen: Option<(Seen, Timestamp)>,
    ) -> Result<Outcome, StoreError> {
        for _ in 0..ROUNDS {
            // Judged by the time before the look: a record that another process renews meanwhile
            // is live all the time.
            let (stands, now) = match seen.take() {
                Some(seen) => seen,
                None => {
                    let now = self.now();
                    (self.look(key).await?, now)
                }
            };
            let current = stands.live(now);
            let step = change.clone().decide(current.map(Current::from), now);
            let over_stamp = stands.is_stamped();
            let op = self.next_operation();
            let cells = match &step {
                Step::Store(record) => Cells::of(record, over_stamp, now, op),
                Step::Remove(_) => Cells::of_deleted(over_stamp, op),
                Step::Refuse => {
                    return Ok(Outcome::Refused { current: stands.into_live(now) });
                }
            };
            let Cells { ttl, v, exp, fence, op } = cells;
            let (p, c) = (key.partition(), key.clustering());
            let statement = &self.inner.statements.of(p).exact;
            let values = (ttl, v, exp, fence, op, p, c, stands.op);
            if let Verdict::Applied = self.submit(key, op, statement, values).await? {
                return Ok(step.outcome(|| None));
            }
        }
        Err(self.unavailable(format!("others changed the record {ROUNDS} times meanwhile")))
    }

    /// Sends a conditional statement, once, and finds out what became of it.
    async fn submit(
        &self,
        key: &Key,
        op: OperationId,
        statement: &PreparedStatement,
        values: impl SerializeRow,
    ) -> Result<Verdict, StoreError> {
        let answer = self.inner.session.execute_unpaged(statement, values).await;
        self.verdict(key, op, answer).await
    }

    /// Reads the answer to a conditional statement, or looks for the write where there is none.
    pub(super) async fn verdict(
        &self,
        key: &Key,
        op: OperationId,
        answer: Result<QueryResult, ExecutionError>,
    ) -> Result<Verdict, StoreError> {
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) if is_certainly_unapplied(&error) => return Err(self.unavailable(error)),
            Err(error) => return self.resolve(key, op, error.to_string()).await,
        };
        let rows = match answer.into_rows_result() {
            Ok(rows) => rows,
            Err(error) => return self.resolve(key, op, error.to_string()).await,
        };
        let columns = match rows.first_row::<Columns<'_>>() {
            Ok(columns) => columns,
            Err(error) => return self.resolve(key, op, error.to_string()).await,
        };
        if columns.applied == Some(true) {
            return Ok(Verdict::Applied);
        }
        let seen = Seen::decode(key, &columns)?;
        // Whatever sent it twice: the first time it was applied.
        Ok(if seen.op == Some(op) { Verdict::Applied } else { Verdict::Refused(seen) })
    }

    /// Looks for a write that ended in doubt. Its id proves it; nothing proves the contrary, for
    /// another writer may have come after it, or it may arrive yet.
    async fn resolve(
        &self,
        key: &Key,
        op: OperationId,
        doubt: String,
    ) -> Result<Verdict, StoreError> {
        let search = async {
            loop {
                // A look changes nothing, so it may be repeated.
                if let Ok(Ok(seen)) = timeout(LOOK, self.look(key)).await {
                    return seen.op == Some(op);
                }
                // Also where the clock stands still.
                drop(timeout(PAUSE, self.inner.clock.sleep(PAUSE)).await);
            }
        };
        if let Ok(true) = timeout(SEARCH, search).await {
            return Ok(Verdict::Applied);
        }
        Err(self.unknown(doubt))
    }
}

/// Whether the condition holds for no legal value: nothing so long is sent.
fn is_beyond_any_value(condition: &Condition<'_>) -> bool {
    matches!(condition, Condition::Equals(expected) if expected.len() > MAX_VALUE)
}

/// The record that the change leaves in the case that its shortcut is for: no stamp in the way,
/// and the condition met.
fn usual_record(change: &Change<'_>, now: Timestamp) -> Option<Record> {
    let met = match change.condition() {
        Condition::Absent | Condition::Always => None,
        Condition::Equals(value) => Some(Current { value, expires_at: None, fence: Fence::NONE }),
    };
    match change.clone().decide(met, now) {
        Step::Store(record) => Some(record),
        Step::Remove(_) | Step::Refuse => None,
    }
}
