//! What there is to know of the oldest of the young generations, for when it reaches the tree.

use std::sync::Arc;

use wane::store::Timestamp;

use crate::file::young::Generation;

/// The oldest of the young generations.
#[derive(Debug)]
pub(in crate::file) struct Oldest {
    /// The oldest sealed one.
    pub(in crate::file) sealed: Option<Arc<Generation>>,
    /// How many are sealed.
    pub(in crate::file) count: usize,
    /// When its first row came, sealed or not; `None` where nothing is young.
    pub(in crate::file) since: Option<Timestamp>,
    /// Whether it has held a large value.
    pub(in crate::file) has_large: bool,
    /// When something was last logged.
    pub(in crate::file) last: Timestamp,
}
