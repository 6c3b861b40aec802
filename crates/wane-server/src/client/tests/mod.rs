//! The client against servers that play what a test tells them, faults included.

mod answers;
mod blobs;
mod devices;
mod events;
mod faults;
mod forms;
mod hostile_streams;
mod setup;
pub(crate) mod stage;
pub(crate) mod streams;
