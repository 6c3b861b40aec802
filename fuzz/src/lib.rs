//! Fuzzing of what `wane` reads back from disk and of the limits it sets to callers.
//!
//! A [target](targets) is a plain function of bytes that panics where a property breaks. A
//! [`Campaign`] feeds it mutations of a small corpus for a given time, on stable Rust and without
//! instrumentation, and [shrinks](shrink::shrink) what fails.
//!
//! Nothing measures coverage here, so the targets make up for it: they read an [`Input`] as a
//! description (keys, numbers, where to flip a bit), and seal arbitrary bytes with the checksum
//! they need to get past the first check. `libfuzzer/` drives the same functions by coverage.

mod campaign;
mod input;
mod mutation;
mod random;
pub mod shrink;
pub mod targets;

pub use campaign::{Campaign, Failure, Report, Target, execute};
pub use input::Input;
pub use mutation::Mutator;
pub use random::Random;
