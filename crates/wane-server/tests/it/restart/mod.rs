//! What outlives the process: everything that was acknowledged, with its expiry, and nothing else.
//!
//! ```text
//! load (callers on connections that they keep) -> ledger (what they were told)
//!                                                 ledger <- sight of the server started again
//! ```

mod killed;
mod ledger;
mod load;
mod started;
mod stopped;
mod warm;

use self::ledger::{Ledger, Sight};
use crate::server::Server;

const CALLERS: usize = 6;

/// The callers' ledgers before anything was told.
fn blank() -> Vec<Ledger> {
    vec![Ledger::default(); CALLERS]
}

/// Fails unless the server holds what the callers were told, and lets them go on from there.
fn check(server: &Server, ledgers: &mut [Ledger]) {
    let sight = Sight::of(server, "load-");
    let wrongs = Ledger::merge(ledgers.to_vec()).contradictions(&sight);
    assert!(wrongs.is_empty(), "{} contradictions:\n{}", wrongs.len(), wrongs.join("\n"));
    ledgers.iter_mut().for_each(|ledger| ledger.settle(&sight));
}
