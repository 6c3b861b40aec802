//! The services: what people build on state that expires, each over [`Store`](crate::store::Store)
//! and nothing else.
//!
//! | service | what | keyspace |
//! |---|---|---|
//! | [`app_ttl`] | values with a life, per application | 4 |
//! | [`apps`] | applications, their limits and credentials | 10 |
//! | [`elections`] | leases with fencing tokens | 1 |
//! | [`backup`] | a whole store as a stream of bytes, and back | all |
//! | [`blobs`] | files that disappear on time | 5 |
//! | [`device_auth`] | codes that link a device to somebody (RFC 8628) | 6 |
//! | [`pull_stream`] | messages to institutions, in batches that are acknowledged | 7, 8, 9 |
//! | [`sequences`] | blocks of numbers, by name | 11 |
//! | [`sequencer`] | numbers for the events of a log, each used once | 2, 3 |

pub mod app_ttl;
pub mod apps;
pub mod backup;
pub mod blobs;
pub mod device_auth;
mod drawn;
pub mod elections;
mod names;
pub mod pull_stream;
pub mod sequencer;
pub mod sequences;

pub use names::{MAX_NAME, MAX_NAMES};

use crate::store::Keyspace;

/// The number of an application. It is never given to another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterAppId(pub u32);

impl ClusterAppId {
    /// No application. What lies under it is the server's own, such as the election of who takes
    /// snapshots.
    pub const NONE: Self = Self(0);

    /// The partition that a keyspace has for this application: on the stack, for each call needs it.
    fn partition(self, keyspace: Keyspace) -> [u8; 8] {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&keyspace.prefix());
        bytes[4..].copy_from_slice(&self.0.to_be_bytes());
        bytes
    }
}
