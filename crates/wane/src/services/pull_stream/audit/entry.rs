//! One thing that happened to a stream, as the audit keeps it.

use serde::{Deserialize, Serialize};

use crate::services::pull_stream::reader::Client;
use crate::services::pull_stream::token::TokenHash;

/// What was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Action {
    /// A reader took a slot.
    Start,
    /// A reader used a token.
    Next,
    /// A reader gave its slot back.
    End,
    /// A slot was ended whose reader had gone.
    Expire,
    /// The policy of an institution was set.
    Policy,
    /// Messages were put under a legal hold.
    Hold,
    /// A legal hold was ended.
    Release,
    /// A replay was asked for, or read from.
    Replay,
    /// Messages were copied to the archive.
    Archive,
    /// It was said which regions serve the institution.
    Region,
    /// The other region took over.
    Failover,
}

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum Verdict {
    /// Messages were delivered.
    Delivered,
    /// There were none.
    Empty,
    /// The same messages were delivered again.
    Replayed,
    /// It was done.
    Done,
    /// The token is not one of ours.
    Tampered,
    /// The token or its lease is over.
    Expired,
    /// The token is another institution's.
    Foreign,
    /// The token is older than the last one.
    OutOfOrder,
    /// The token is newer than any that was issued.
    Ahead,
    /// All slots are taken.
    TooManyReaders,
    /// The slot was given back before.
    Gone,
    /// There is nothing of that name, or nothing in that range.
    Absent,
    /// What was asked for breaks a rule.
    Invalid,
    /// Another region serves the institution.
    Elsewhere,
    /// It was begun and failed.
    Failed,
    /// It was done, but for rows of the log that cannot be read, or with them as they are.
    Damaged,
}

/// An entry of the audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    /// Unix milliseconds.
    pub at: u64,
    /// Who says it was.
    pub who: Client,
    /// What was done.
    pub action: Action,
    /// What came of it.
    pub verdict: Verdict,
    /// The slot, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<u8>,
    /// How many messages were delivered or, where a slot was ended, requeued.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub messages: u64,
    /// Calls like it that came before it and have no entry: those of strangers are noted once a
    /// second.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unnoted: u64,
    /// Why, in the words of who asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The hash of the token that was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::services::pull_stream) used: Option<TokenHash>,
    /// The hash of the token that was issued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::services::pull_stream) issued: Option<TokenHash>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl AuditEntry {
    /// The hash of the token that was used, as text.
    pub fn used_hash(&self) -> Option<String> {
        self.used.map(String::from)
    }

    /// The hash of the token that was issued, as text.
    pub fn issued_hash(&self) -> Option<String> {
        self.issued.map(String::from)
    }
}
