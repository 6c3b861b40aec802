//! The audit: who used and was issued which token, in chains of rows that cannot be changed unseen.
//!
//! Each row holds the hash of the one before. An institution has two chains: `Transitions`, whose
//! entries ride in the state record and are written with what they tell of, and `Remarks` for
//! calls that change no state: rejections, and retries that were answered again.
//!
//! Invariant: an entry of a transition is in the record or in the chain from the write on that it
//! tells of, and in the chain once. Rows go to a place that the record names, so that of two nodes
//! that carry entries there one wins, and both go on from what stands there.
//!
//! Flow: `entry` is an entry, `chain` a row and its hash, `draining` carries entries from the record
//! to the chain, `remarking` appends the others. `reading` reads rows, `verifying` checks a chain,
//! `listing` lists the entries of both; `spot` is where a list goes on, and `rest` where a check does.

mod chain;
mod draining;
mod entry;
mod listing;
mod reading;
mod remarking;
mod rest;
mod spot;
mod verifying;

pub(super) use chain::RowHash;
pub(super) use draining::{Drained, drain};
pub(super) use listing::list;
pub(super) use reading::entries;
pub(super) use remarking::{Remark, attend, hinted_end};
pub(super) use rest::Rest;
pub(super) use verifying::{Ending, Reached, verify};

pub use chain::Chain;
pub use entry::{Action, AuditEntry, Verdict};
pub use listing::{AuditListing, AuditQuery, ListedEntry, MAX_LISTED};
pub use reading::AuditPage;
pub use verifying::{AuditCheck, AuditChecked};
