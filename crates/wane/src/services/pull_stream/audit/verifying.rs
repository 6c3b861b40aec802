//! Checking that nothing of a chain was changed, moved, taken out or cut off, and naming what was.
//!
//! A row holds the hash of the one before, so that a row that was changed is given away by the one
//! behind it. Where two do not fit, the row behind them decides which of the two it is: the one that
//! it vouches for is as it was written. The last rows are compared with what is known elsewhere: how
//! far the chain reached with which hash, and entries that were on their way then.
//!
//! Not here: a chain that was written anew from a row on, together with what is known of it
//! elsewhere in the store. Hashes of rows that somebody else keeps tell of that: see `listing`.

use serde::{Deserialize, Serialize};

use super::AuditEntry;
use super::chain::{Chain, RowHash};
use super::reading::{Found, MISPLACED, UNREADABLE, broken, rows};
use crate::services::pull_stream::PullStreamError;
use crate::services::pull_stream::log::Place;
use crate::services::pull_stream::record::Riding;
use crate::store::Store;

const MISSING: &str = "it is missing";
const CHANGED: &str = "it was changed: the row behind it follows another one";
const EMPTY: &str = "there is nothing in it";
const ASTRAY: &str = "it does not follow the row before it";
const REPLACED: &str = "another row is known to have stood in its place";
const CUT_OFF: &str = "it is missing: the chain is cut off here";
const NEVER_SENT: &str = "it does not hold the entries that were on their way to it";

/// What a check found: the chain is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditCheck {
    /// How many rows there are.
    pub rows: u64,
    /// How many entries they have.
    pub entries: u64,
}

/// What a part of a check found: both chains are whole, as far as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditChecked {
    /// The chains that it came to, and how much of each it has seen.
    pub chains: Vec<(Chain, AuditCheck)>,
    /// What to go on after; `None` where it has seen all.
    pub next: Option<String>,
}

/// How far a check of a chain is: up to there it is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(in super::super) struct Reached {
    pub(super) rows: u64,
    pub(super) entries: u64,
    /// The hash of the last row.
    pub(super) prev: RowHash,
}

impl Reached {
    /// What was seen.
    pub(in super::super) fn check(&self) -> AuditCheck {
        AuditCheck { rows: self.rows, entries: self.entries }
    }
}

/// What is known of the end of a chain from elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in super::super) struct Ending {
    /// Rows that it has at least.
    pub(super) rows: u64,
    /// The hash of the last of them.
    last: RowHash,
    /// The entries that come next, as far as they are known.
    coming: Vec<AuditEntry>,
}

impl Ending {
    pub(super) fn new(rows: u64, last: RowHash) -> Self {
        Self { rows, last, coming: Vec::new() }
    }
}

impl From<Riding> for Ending {
    fn from(riding: Riding) -> Self {
        Self { rows: riding.row, last: riding.prev, coming: riding.entries }
    }
}

/// Reads a chain on from where a check is, about so many rows of it, or to its end. How far it is then,
/// and whether that is the end.
///
/// It rests before what is known of the end from elsewhere, and where no row is doubted: how far it is
/// says all that it needs to go on.
pub(in super::super) async fn verify<S: Store>(
    store: &S,
    place: Place<'_>,
    (chain, ending): (Chain, Ending),
    from: Reached,
    most_rows: u64,
) -> Result<(Reached, bool), PullStreamError> {
    if from.rows > 0 && from.rows >= ending.rows {
        return Err(broken(chain, ending.rows, CUT_OFF));
    }
    let mut walk = Walk::new(chain, ending, from);
    loop {
        let rows = rows(store, place, chain, walk.check.rows).await?;
        if rows.is_empty() {
            return walk.end().map(|reached| (reached, true));
        }
        for found in rows {
            walk.step(&found)?;
            if walk.check.rows - from.rows >= most_rows && walk.may_rest() {
                return Ok((walk.reached(), false));
            }
        }
    }
}

/// A check under way.
struct Walk {
    chain: Chain,
    ending: Ending,
    check: AuditCheck,
    /// The hash of the row before.
    prev: RowHash,
    /// Whether that row is known to be as it was written.
    is_known: bool,
    /// Whether it does not fit the one before it: one of the two was changed.
    is_doubted: bool,
    /// Of the entries that come next, how many were seen.
    seen: usize,
}

impl Walk {
    fn new(chain: Chain, ending: Ending, from: Reached) -> Self {
        let (check, prev, is_known) = (from.check(), from.prev, from.rows == 0);
        Self { chain, ending, check, prev, is_known, is_doubted: false, seen: 0 }
    }

    fn may_rest(&self) -> bool {
        !self.is_doubted && self.check.rows < self.ending.rows
    }

    fn reached(&self) -> Reached {
        Reached { rows: self.check.rows, entries: self.check.entries, prev: self.prev }
    }

    fn step(&mut self, found: &Found) -> Result<(), PullStreamError> {
        let at = self.check.rows;
        let row = found.row.as_ref().filter(|row| found.number == at && row.row == at);
        let fits = row.is_some_and(|row| row.prev == self.prev);
        if self.is_doubted {
            return self.broken(if fits { at - 2 } else { at - 1 }, CHANGED);
        }
        let Some(row) = row else {
            let reason = match (found.number == at, &found.row) {
                (false, _) => MISSING,
                (true, None) => UNREADABLE,
                (true, Some(_)) => MISPLACED,
            };
            return self.broken(at, reason);
        };
        if row.entries.is_empty() {
            return self.broken(at, EMPTY);
        }
        if !fits && self.is_known {
            return self.broken(at, ASTRAY);
        }
        (self.is_doubted, self.is_known) = (!fits, false);
        self.prev = found.hash;
        self.check.rows += 1;
        self.check.entries += row.entries.len() as u64;
        if self.check.rows > self.ending.rows {
            self.expect(at, &row.entries)?;
        }
        if self.check.rows != self.ending.rows {
            return Ok(());
        }
        self.is_known = true;
        match (self.is_doubted, self.ending.last == self.prev) {
            (false, true) => Ok(()),
            (false, false) => self.broken(at, REPLACED),
            (true, true) => self.broken(at - 1, CHANGED),
            (true, false) => self.broken(at, CHANGED),
        }
    }

    /// Entries that were on their way when the check began have arrived as they were.
    fn expect(&mut self, at: u64, entries: &[AuditEntry]) -> Result<(), PullStreamError> {
        let coming = self.ending.coming.get(self.seen..).unwrap_or_default();
        let as_sent = coming.iter().zip(entries).all(|(sent, there)| sent == there);
        self.seen += entries.len();
        self.is_known = self.seen <= self.ending.coming.len();
        if as_sent { Ok(()) } else { self.broken(at, NEVER_SENT) }
    }

    fn end(self) -> Result<Reached, PullStreamError> {
        if self.is_doubted {
            return self.broken(self.check.rows - 2, CHANGED);
        }
        if self.check.rows < self.ending.rows {
            return self.broken(self.check.rows, CUT_OFF);
        }
        Ok(self.reached())
    }

    fn broken<T>(&self, row: u64, reason: &str) -> Result<T, PullStreamError> {
        Err(broken(self.chain, row, reason))
    }
}
