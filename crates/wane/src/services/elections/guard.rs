//! Guards: a token that must be the newest of its election for a write to go through.
//!
//! The election is read first, then the write carries the token as its fence, and is refused where
//! a higher one has written. What this leaves open: a server that stalls between the two, on a
//! record that the new leader has not written yet, or that was deleted or has expired since.

use super::{AppElections, ElectionsError, Token};
use crate::store::{Fence, Store};

/// The election and the token that a write stands on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guard {
    /// The name of the election.
    pub election: String,
    /// The token that its leader was given.
    pub token: Token,
}

impl<S: Store> AppElections<S> {
    /// The fence for the writes of this leader, or [`ElectionsError::StaleToken`] unless the token
    /// is the newest that the election gave out. An election that nobody has won gave out none.
    pub async fn fence(&self, guard: &Guard) -> Result<Fence, ElectionsError> {
        let current = self.read(&self.key(&guard.election)?).await?;
        match current {
            Some((_, stored)) if stored.token == guard.token => Ok(Fence(guard.token.get())),
            Some(_) | None => Err(ElectionsError::StaleToken {
                election: guard.election.clone(),
                token: guard.token,
            }),
        }
    }
}
