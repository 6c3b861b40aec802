//! Backup: a whole store as a stream of bytes, and back into an empty one, whole or refused.
//!
//! [`Backup`] walks the store page by page and yields chunks, for a file or for the body of a
//! response; it holds one page and one frame, whatever the size of the store. [`verify`] and
//! [`restore`] read such bytes and accept exactly what was written: a flipped bit, a missing end, a
//! foreign tail or a later version is a [`BackupError`] that names the byte.
//!
//! ```text
//! backup    preamble | header frame | record frames, any number | trailer frame
//! preamble  magic [8] | version u32 | crc u32
//! frame     kind u8 | length u32 | payload [length] | crc u32
//! header    created at u64 | store format u32 | backend length u8 | backend
//! records   one or more of:
//!           flags u8 | partition length u16 | clustering length u16 | value length u32
//!           | [expiry u64] [fence u64] | partition | clustering | value
//! trailer   records u64 | sha-256 [32] of all bytes before the trailer frame
//! ```
//!
//! Numbers are big-endian, instants are Unix milliseconds. A frame's checksum covers its own offset
//! as well, so that a frame that was moved, doubled or left out is as damaged as one with a flipped
//! bit. No frame is longer than the longest record, so a reader needs no more memory than that.
//!
//! What a backup shows: memory and file are scanned as they were at one moment. On shared stores it
//! holds every record that lives throughout; one that changes meanwhile may be there in several
//! states, of which the last one counts.
//!
//! Expiries are absolute and go on while the bytes lie on a shelf: what has expired by then is not
//! restored. Fences are kept. Restoring lifts the clock to the time of the backup, as opening a
//! durable store does, so that a clock behind it cannot revive anything.
//!
//! | file | what |
//! |---|---|
//! | `format` | the bytes: frames, header, records, trailer |
//! | `writing` | a store to bytes |
//! | `decoder` | bytes to records, without any input of its own |
//! | `chunks` | where bytes come from |
//! | `verifying` | what a backup holds, once all of it was read |
//! | `restoring` | bytes to a store |
//!
//! Not here: files, directories and progress bars, which are the command line's.

mod chunks;
mod decoder;
mod error;
mod format;
mod restoring;
#[cfg(test)]
mod tests;
mod verifying;
mod writing;

pub use chunks::{Chunks, ReadChunks};
pub use error::BackupError;
pub use format::{FORMAT_VERSION, STORE_FORMAT};
pub use restoring::{Restored, restore, restore_stream};
pub use verifying::{Summary, Verifier, verify};
pub use writing::Backup;

/// How far a backup, a verification or a restoration has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Records so far.
    pub records: u64,
    /// Bytes of the backup so far.
    pub bytes: u64,
}
