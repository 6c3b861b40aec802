//! Writes: one conditional call each, and what to tell when its answer is not heard.
//!
//! DynamoDB decides. A refusal comes with the item that stood in the way, and the rule of
//! [`Change::decide`] says what it means: the change is refused, or it met the one state that
//! needs another call (see [`Meets`]), which is then made, a bounded number of times. An answer
//! that was not heard is looked for: an item with our operation id says that the write was
//! applied, anything else says nothing.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use aws_sdk_dynamodb::types::ReturnValuesOnConditionCheckFailure::AllOld;
use futures_util::StreamExt;
use wane::store::{Change, Condition, Current, Key, MAX_VALUE, Outcome, Step, StoreError};

use super::BACKEND;
use super::client::Table;
use super::conditions::{Call, Meets, Purpose, Request};
use super::failure::{Failure, Kind, Refusal};
use super::item::{Item, OperationId, is_written_by, item_key, live_record, told_expiry};

/// How often a put may find that the record expired or came back under it.
const ROUNDS: usize = 8;

/// How many rows of a batch are under way at once.
const ROWS_AT_ONCE: usize = 32;

/// How often a row of a batch is sent that DynamoDB is too busy for.
const ROW_ATTEMPTS: u32 = 8;

/// Why a call did not apply.
enum NotApplied {
    /// This item did not meet the condition.
    Refused(Item),
    Failed(Failure),
}

/// Why a change has no outcome.
enum NoOutcome {
    /// DynamoDB was too busy, and nothing was applied.
    Throttled(StoreError),
    Failed(StoreError),
}

impl From<StoreError> for NoOutcome {
    fn from(error: StoreError) -> Self {
        Self::Failed(error)
    }
}

impl From<NoOutcome> for StoreError {
    fn from(reason: NoOutcome) -> Self {
        match reason {
            NoOutcome::Throttled(error) | NoOutcome::Failed(error) => error,
        }
    }
}

impl Table {
    /// Carries out a change, or says why not.
    pub(super) async fn change(
        &self,
        key: &Key,
        change: &Change<'_>,
    ) -> Result<Outcome, StoreError> {
        Ok(self.outcome_of(key, change).await?)
    }

    async fn outcome_of(&self, key: &Key, change: &Change<'_>) -> Result<Outcome, NoOutcome> {
        let mut operation = OperationId::default();
        self.clock.fill_random(&mut operation);
        if let Condition::Equals(expected) = change.condition()
            && expected.len() > MAX_VALUE
        {
            // No record has it, and DynamoDB would not take it as a part of a condition.
            return Ok(Outcome::Refused { current: self.get(key).await? });
        }
        let purpose = Purpose { key, change, operation: &operation };
        let mut meets = Meets::NoStaleStamp;
        for _ in 0..ROUNDS {
            let now = self.clock.now();
            let call = purpose.call(meets, now);
            let expires_at = call.expires_at;
            match self.send(call).await {
                Ok(answer) => {
                    let expires_at = expires_at.or_else(|| told_expiry(&answer));
                    let expires_at = expires_at.ok_or_else(|| tells_no_expiry(key))?;
                    return Ok(Outcome::Applied { expires_at });
                }
                Err(NotApplied::Refused(standing)) => {
                    let current = live_record(key, standing, now)?;
                    let step = change.clone().decide(current.as_ref().map(Current::from), now);
                    if step == Step::Refuse {
                        return Ok(Outcome::Refused { current });
                    }
                    meets = if current.is_some() { Meets::NoStaleStamp } else { Meets::Nothing };
                }
                Err(NotApplied::Failed(failure)) => return self.look_for(purpose, failure).await,
            }
        }
        let source = "the record expired and came back again and again under a put".into();
        Err(StoreError::Unavailable { backend: BACKEND, source }.into())
    }

    async fn send(&self, call: Call) -> Result<Item, NotApplied> {
        let names = call.request.names();
        let names = names.map(|(name, stands_for)| (name.to_owned(), stands_for.to_owned()));
        let names = names.map(|names| HashMap::from([names]));
        match call.request {
            Request::Put(item) => {
                let request = self.client.put_item().table_name(&self.name).set_item(Some(item));
                let sent = request
                    .condition_expression(call.condition)
                    .set_expression_attribute_values(Some(call.values))
                    .return_values_on_condition_check_failure(AllOld)
                    .send()
                    .await;
                sent.map(|_| Item::new()).map_err(not_applied)
            }
            Request::Update { key, expression, answers } => {
                let request = self.client.update_item().table_name(&self.name).set_key(Some(key));
                let sent = request
                    .update_expression(expression)
                    .condition_expression(call.condition)
                    .set_expression_attribute_names(names)
                    .set_expression_attribute_values(Some(call.values))
                    .return_values(answers)
                    .return_values_on_condition_check_failure(AllOld)
                    .send()
                    .await;
                sent.map(|sent| sent.attributes.unwrap_or_default()).map_err(not_applied)
            }
        }
    }

    /// What became of a write that was not answered as it should.
    async fn look_for(&self, purpose: Purpose<'_>, failure: Failure) -> Result<Outcome, NoOutcome> {
        if failure.kind == Kind::Throttled {
            return Err(NoOutcome::Throttled(self.unavailable(&failure)));
        }
        if failure.applied_nothing() {
            return Err(self.unavailable(&failure).into());
        }
        let Purpose { key, operation, .. } = purpose;
        let found = self.item(key).await.ok().flatten();
        let found = found.filter(|item| is_written_by(item, operation));
        match found.as_ref().map(told_expiry) {
            Some(Some(expires_at)) => Ok(Outcome::Applied { expires_at }),
            Some(None) => Err(tells_no_expiry(key).into()),
            None => Err(self.unknown(&failure).into()),
        }
    }

    /// The item of `key`, whatever it is.
    pub(super) async fn item(&self, key: &Key) -> Result<Option<Item>, StoreError> {
        let found = self.reading(|| {
            let request = self.client.get_item().table_name(&self.name);
            request.set_key(Some(item_key(key))).consistent_read(true).send()
        });
        Ok(found.await?.item)
    }
}

fn not_applied<E>(error: aws_sdk_dynamodb::error::SdkError<E>) -> NotApplied
where
    E: Refusal + aws_sdk_dynamodb::error::ProvideErrorMetadata + std::error::Error + 'static,
{
    let failure = Failure::of(&error);
    let aws_sdk_dynamodb::error::SdkError::ServiceError(answer) = error else {
        return NotApplied::Failed(failure);
    };
    match answer.into_err().standing() {
        Some(item) => NotApplied::Refused(item),
        None => NotApplied::Failed(failure),
    }
}

fn tells_no_expiry(key: &Key) -> StoreError {
    StoreError::Corrupt { key: key.clone(), reason: "an item without exp and was".into() }
}

/// The writes of a batch to one key, each with its position.
type Row = (Key, Vec<(usize, Change<'static>)>);

/// What became of a write of a batch; none for one that was not tried any more.
type Answer = (usize, Option<Result<Outcome, StoreError>>);

/// Puts every row. Those of one key follow each other, the others go side by side.
pub(super) async fn put_batch(
    table: &Arc<Table>,
    changes: Vec<(Key, Change<'static>)>,
) -> Result<Vec<Outcome>, StoreError> {
    let mut rows: HashMap<Key, Vec<(usize, Change<'static>)>> = HashMap::new();
    let asked = changes.len();
    for (position, (key, change)) in changes.into_iter().enumerate() {
        rows.entry(key).or_default().push((position, change));
    }
    let failed = Arc::new(AtomicBool::new(false));
    let puts = rows.into_iter().map(|row| put_row(Arc::clone(table), row, Arc::clone(&failed)));
    let puts = futures_util::stream::iter(puts.collect::<Vec<_>>());
    let answers: Vec<Vec<Answer>> = puts.buffer_unordered(ROWS_AT_ONCE).collect().await;
    outcomes(answers.into_iter().flatten(), asked)
}

async fn put_row(table: Arc<Table>, row: Row, failed: Arc<AtomicBool>) -> Vec<Answer> {
    let (key, changes) = row;
    let mut answers = Vec::with_capacity(changes.len());
    for (position, change) in changes {
        if failed.load(Ordering::Relaxed) {
            answers.push((position, None));
            continue;
        }
        let answer = table.put_patiently(&key, &change).await;
        if answer.is_err() {
            failed.store(true, Ordering::Relaxed);
        }
        answers.push((position, Some(answer)));
    }
    answers
}

impl Table {
    /// A put that is sent again where DynamoDB was too busy for it.
    async fn put_patiently(&self, key: &Key, change: &Change<'_>) -> Result<Outcome, StoreError> {
        let mut sent = 0;
        loop {
            sent += 1;
            match self.outcome_of(key, change).await {
                Err(NoOutcome::Throttled(_)) if sent < ROW_ATTEMPTS => self.pause(sent).await,
                outcome => return Ok(outcome?),
            }
        }
    }
}

/// The outcomes by position. Where one is missing the call fails: with `Unavailable` if no row was
/// applied, else with `Unknown`, for a part of the batch is there.
fn outcomes(
    answers: impl Iterator<Item = Answer>,
    asked: usize,
) -> Result<Vec<Outcome>, StoreError> {
    let mut outcomes = vec![None; asked];
    let mut first_error = None;
    let mut applied = false;
    for (position, answer) in answers {
        match answer {
            Some(Ok(outcome)) => {
                applied |= outcome.is_applied();
                outcomes[position] = Some(outcome);
            }
            Some(Err(error)) => {
                applied |= matches!(error, StoreError::Unknown { .. });
                first_error.get_or_insert(error);
            }
            None => {}
        }
    }
    match first_error {
        None => Ok(outcomes.into_iter().flatten().collect()),
        Some(StoreError::Unavailable { backend, source }) if applied => {
            let source = format!("a part of the batch was put: {source}").into();
            Err(StoreError::Unknown { backend, source })
        }
        Some(error) => Err(error),
    }
}
