//! A row of a chain: its number, the hash of the row before, and entries.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::AuditEntry;
use crate::services::pull_stream::log::Place;
use crate::store::{Key, Life, StoreError, Value, Write};

/// Rows of one partition.
pub(super) const ROWS_PER_RANGE: u64 = 1_024;

/// Which of an institution's chains.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Chain {
    /// Changes of state: starts, tokens that were used and issued, ends.
    Transitions,
    /// Calls that changed nothing, as rejections and retries, and what operators did.
    Remarks,
}

impl Chain {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Transitions, Self::Remarks];

    pub(super) fn letter(self) -> u8 {
        match self {
            Self::Transitions => b't',
            Self::Remarks => b'r',
        }
    }

    /// The name, as it is in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Transitions => "transitions",
            Self::Remarks => "remarks",
        }
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The SHA-256 of a row. The first row follows a row of zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(in super::super) struct RowHash([u8; 32]);

impl From<RowHash> for String {
    fn from(hash: RowHash) -> Self {
        URL_SAFE_NO_PAD.encode(hash.0)
    }
}

impl TryFrom<String> for RowHash {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| "it is not base64url")?;
        bytes.try_into().map(Self).map_err(|_| "it does not have 32 bytes")
    }
}

/// What a row says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ChainRow {
    pub(super) row: u64,
    pub(super) prev: RowHash,
    /// Drawn by its writer, who knows it again; zero where the entries tell.
    #[serde(default)]
    pub(super) nonce: u64,
    pub(super) entries: Vec<AuditEntry>,
}

impl ChainRow {
    /// Reads a row, and its hash.
    pub(super) fn read(key: &Key, value: &[u8]) -> Result<(Self, RowHash), StoreError> {
        let row = serde_json::from_slice(value).map_err(|error| StoreError::Corrupt {
            key: key.clone(),
            reason: format!("it is not a row of the audit: {error}"),
        })?;
        Ok((row, hash_of(key, value)))
    }

    /// The write of the row, and its hash. What is audited is kept for good.
    pub(super) fn write(&self, key: &Key) -> Result<(Write, RowHash), StoreError> {
        let json = serde_json::to_vec(self).map_err(|error| {
            StoreError::invalid("audit", format!("it cannot be written: {error}"))
        })?;
        let hash = hash_of(key, &json);
        Ok((Write::new(Value::new(json)?, Life::Permanent), hash))
    }
}

/// The hash covers where the row lies, so that no row stands for another.
pub(super) fn hash_of(key: &Key, value: &[u8]) -> RowHash {
    let parts = [key.partition(), key.clustering()];
    let hash = parts.into_iter().fold(Sha256::new(), |hash, part| {
        hash.chain_update((part.len() as u64).to_be_bytes()).chain_update(part)
    });
    RowHash(hash.chain_update(value).finalize().into())
}

pub(super) fn row_key(place: Place<'_>, chain: Chain, row: u64) -> Result<Key, StoreError> {
    let partition = place.audit_partition(chain.letter(), row / ROWS_PER_RANGE)?;
    Key::new(partition.as_bytes(), &row.to_be_bytes())
}
