//! A hold: what it covers, why, by whom, and how far it is.
//!
//! All holds of a home region lie in one partition, by their ids, which begin with the institution:
//! so they are listed by institution, and those that are not settled are found without a list of
//! institutions.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::settled;
use crate::clock::Clock;
use crate::services::pull_stream::log::{Found, Place};
use crate::services::pull_stream::reader::Client;
use crate::services::pull_stream::{Ispb, PullStreamError};
use crate::store::{
    ClusteringRange, Fence, Key, Keyspace, Life, Outcome, PageLimit, Partition, Store, StoreError,
    Value, Write,
};

/// The longest reason, in bytes.
pub(super) const MAX_REASON: usize = 512;

/// The name of a hold: the institution, `-`, and 16 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HoldId {
    ispb: Ispb,
    number: u64,
}

impl HoldId {
    pub(super) fn draw(ispb: Ispb, clock: &dyn Clock) -> Self {
        Self { ispb, number: clock.random_u64() }
    }

    /// Whose messages are held.
    pub fn ispb(&self) -> Ispb {
        self.ispb
    }
}

impl fmt::Display for HoldId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{:016x}", self.ispb, self.number)
    }
}

impl FromStr for HoldId {
    type Err = PullStreamError;

    fn from_str(text: &str) -> Result<Self, PullStreamError> {
        let invalid = || PullStreamError::Invalid {
            field: "holdId",
            reason: "give the id of a hold, such as 00000208-0123456789abcdef".into(),
        };
        let (ispb, number) = text.split_once('-').ok_or_else(invalid)?;
        let is_plain = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if number.len() != 16 || !number.bytes().all(is_plain) {
            return Err(invalid());
        }
        let number = u64::from_str_radix(number, 16).map_err(|_| invalid())?;
        Ok(Self { ispb: ispb.parse().map_err(|_| invalid())?, number })
    }
}

impl TryFrom<String> for HoldId {
    type Error = PullStreamError;

    fn try_from(text: String) -> Result<Self, PullStreamError> {
        text.parse()
    }
}

impl From<HoldId> for String {
    fn from(id: HoldId) -> Self {
        id.to_string()
    }
}

/// How far a hold is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum HoldState {
    /// Rows are being put under it, or may yet come in.
    Placing,
    /// All rows that it covers are under it.
    Placed,
    /// Rows are being let go.
    Releasing,
    /// They were let go. It is looked through once more, for what somebody who was placing it put
    /// under it meanwhile, and then forgotten.
    Released,
}

/// A legal hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Hold {
    /// Its name.
    pub id: HoldId,
    /// The first moment that it covers, in Unix milliseconds.
    pub from: u64,
    /// The first moment after it.
    pub to: u64,
    /// Why, in the words of who asked for it.
    pub reason: String,
    /// Who asked for it.
    pub who: Client,
    /// When.
    pub placed_at: u64,
    /// Rows of the log that are under it.
    pub rows: u64,
    /// Those of them that cannot be read. They are kept as they are.
    #[serde(default)]
    pub damaged: u64,
    /// The first of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_damaged: Option<u64>,
    /// How far it is.
    pub state: HoldState,
    /// When it was released.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) released_at: Option<u64>,
    /// The row to go on with.
    pub(super) next_row: u64,
}

impl Hold {
    /// Notes which of these rows cannot be read.
    pub(super) fn note_damaged(&mut self, rows: &[Found]) {
        for row in rows.iter().filter(|found| found.readable().is_none()).map(Found::row) {
            self.damaged += 1;
            self.first_damaged = self.first_damaged.or(Some(row));
        }
    }
}

/// A hold as it stands in the store.
#[derive(Debug, Clone)]
pub(super) struct Standing {
    pub(super) hold: Hold,
    key: Key,
    value: Value,
}

impl Standing {
    /// Writes a new hold.
    pub(super) async fn begin<S: Store>(
        store: &S,
        place: Place<'_>,
        hold: Hold,
    ) -> Result<Self, PullStreamError> {
        let key = key(place.region, &hold.id)?;
        let value = written(&hold)?;
        let write = Write::new(value.clone(), Life::Permanent);
        let outcome = store.insert_if_not_exists(&key, write).await;
        let is_ours = settled(store, &key, outcome, |record| {
            record.is_some_and(|record| record.value == value)
        });
        if !is_ours.await? {
            // The number is another hold's, once in many lives of the universe.
            return Err(PullStreamError::Contended);
        }
        Ok(Self { hold, key, value })
    }

    pub(super) async fn of<S: Store>(
        store: &S,
        place: Place<'_>,
        id: &HoldId,
    ) -> Result<Option<Self>, StoreError> {
        let key = key(place.region, id)?;
        store.get(&key).await?.map(|record| Self::read(key, record.value)).transpose()
    }

    fn read(key: Key, value: Value) -> Result<Self, StoreError> {
        let hold = serde_json::from_slice(&value).map_err(|error| StoreError::Corrupt {
            key: key.clone(),
            reason: format!("it is not a hold: {error}"),
        })?;
        Ok(Self { hold, key, value })
    }

    /// Writes how far it is: `None` where somebody else has changed it.
    pub(super) async fn changed<S: Store>(
        self,
        store: &S,
        hold: Hold,
    ) -> Result<Option<Self>, StoreError> {
        let value = written(&hold)?;
        let write = Write::new(value.clone(), Life::Permanent);
        let outcome = store.compare_and_swap(&self.key, &self.value, write).await;
        let stands = settled(store, &self.key, outcome, |record| {
            record.is_some_and(|record| record.value == value)
        });
        Ok(stands.await?.then_some(Self { hold, value, ..self }))
    }

    /// Removes it, unless somebody else has changed it.
    pub(super) async fn end<S: Store>(self, store: &S) -> Result<bool, StoreError> {
        let outcome = store.compare_and_delete(&self.key, &self.value, Fence::NONE).await;
        // Gone is gone, whoever did it.
        let is_gone = matches!(outcome, Ok(Outcome::Refused { current: None }));
        Ok(is_gone || settled(store, &self.key, outcome, |record| record.is_none()).await?)
    }
}

/// The holds of an institution that are not released.
pub(super) async fn holds_in<S: Store>(
    store: &S,
    place: Place<'_>,
) -> Result<Vec<Standing>, StoreError> {
    let from = format!("{}-", place.ispb).into_bytes();
    // The character after `-`.
    let to = format!("{}.", place.ispb).into_bytes();
    let holds = read(store, place.region, ClusteringRange::new(from, to)?).await?;
    let mut holds = holds.into_iter().collect::<Result<Vec<_>, _>>()?;
    holds.retain(|standing| standing.hold.state != HoldState::Released);
    Ok(holds)
}

/// The holds of all institutions of a home region, or what is wrong with one.
pub(super) async fn all_of<S: Store>(
    store: &S,
    region: &str,
) -> Result<Vec<Result<Standing, StoreError>>, StoreError> {
    read(store, region, ClusteringRange::new(Vec::new(), Vec::new())?).await
}

async fn read<S: Store>(
    store: &S,
    region: &str,
    range: ClusteringRange,
) -> Result<Vec<Result<Standing, StoreError>>, StoreError> {
    let partition = partition(region)?;
    let (mut holds, mut rest) = (Vec::new(), Some(range));
    while let Some(range) = rest {
        let page = store.read(&partition, &range, PageLimit::new(256)?).await?;
        for row in page.rows {
            holds.push(Standing::read(row.key, row.record.value));
        }
        rest = page.rest;
    }
    Ok(holds)
}

fn partition(region: &str) -> Result<Partition, StoreError> {
    // Names of regions have up to 32 bytes: no institution's partition begins with a zero.
    Keyspace::PullStreamState.partition(&[b"\0holds:", region.as_bytes()].concat())
}

fn key(region: &str, id: &HoldId) -> Result<Key, StoreError> {
    Key::new(partition(region)?.as_bytes(), id.to_string().as_bytes())
}

fn written(hold: &Hold) -> Result<Value, StoreError> {
    let json = serde_json::to_vec(hold)
        .map_err(|error| StoreError::invalid("hold", format!("it cannot be written: {error}")))?;
    Value::new(json)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn an_id_reads_as_it_is_written_and_other_texts_are_none() {
        let clock = ManualClock::seeded(3);
        let id = HoldId::draw("00000208".parse().unwrap(), &*clock);
        assert_eq!(id.to_string().parse::<HoldId>().unwrap(), id);
        for other in [
            "",
            "00000208",
            "00000208-",
            "0000020-0123456789abcdef",
            "00000208-0123456789ABCDEF",
            "00000208-0123456789abcde",
            "00000208-+123456789abcdef",
            "00000208-0123456789abcdef-",
        ] {
            assert!(other.parse::<HoldId>().is_err(), "{other}");
        }
    }
}
