//! Ranges of clusterings.
//!
//! - A range takes exactly the bounds that are legal clusterings, and holds exactly what lies at or
//!   after its start and before its end; an empty end is no end.
//! - The range of a prefix holds exactly the clusterings that begin with it.
//! - What is left from a start on holds what the range held, from there on.

use wane::store::{ClusteringRange, StoreError};

use super::limits::is_legal_clustering;
use crate::Input;
use crate::input::KEY_LENGTHS;

/// Makes the range of a prefix.
pub type Prefix = fn(Vec<u8>) -> Result<ClusteringRange, StoreError>;

/// The contract's ranges.
pub fn target(bytes: &[u8]) {
    check(ClusteringRange::prefix, bytes);
}

/// The properties of ranges, with those of a prefix made by `prefix`.
pub fn check(prefix: Prefix, bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let start = input.text(&KEY_LENGTHS);
    let end = near(&mut input, &start);
    let clustering = near(&mut input, &start);

    let with_prefix = prefix(start.clone());
    assert_eq!(with_prefix.is_ok(), is_legal_clustering(&start), "prefix {start:?}");
    if let Ok(range) = with_prefix {
        let held = range.contains(&clustering);
        assert_eq!(held, clustering.starts_with(&start), "{clustering:?} of prefix {start:?}");
    }

    let range = ClusteringRange::new(start.clone(), end.clone());
    let legal = is_legal_clustering(&start) && is_legal_clustering(&end);
    assert_eq!(range.is_ok(), legal, "{start:?} to {end:?}");
    let Ok(range) = range else { return };
    let held = start <= clustering && (end.is_empty() || clustering < end);
    assert_eq!(range.contains(&clustering), held, "{clustering:?} in {range:?}");

    let from = near(&mut input, &clustering);
    let left = range.starting_at(from.clone());
    let held = from <= clustering && (end.is_empty() || clustering < end);
    assert_eq!(left.contains(&clustering), held, "{clustering:?} in {left:?}");
}

/// A byte string that shares its start with `text`, or any.
fn near(input: &mut Input<'_>, text: &[u8]) -> Vec<u8> {
    let mut near = text.to_vec();
    match input.byte() % 6 {
        0 => near.extend(input.text(&[1, 2])),
        1 => near.truncate(input.place(text.len() + 1)),
        2 => add_one(&mut near),
        3 => near.push(0),
        4 if !text.is_empty() => near[input.place(text.len())] ^= input.byte(),
        _ => near = input.text(&KEY_LENGTHS),
    }
    near
}

/// Adds one to the byte string read as a number; after all 0xFF come all zeroes.
fn add_one(text: &mut [u8]) {
    for byte in text.iter_mut().rev() {
        *byte = byte.wrapping_add(1);
        if *byte != 0 {
            return;
        }
    }
}
