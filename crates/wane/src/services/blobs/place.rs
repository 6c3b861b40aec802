//! Where a BLOB lies: the keys of its parts, all in keyspace 5, all numbers big-endian.
//!
//! | part | partition after the keyspace | clustering | value |
//! |---|---|---|---|
//! | state | app u32, workspace u64, id | empty | JSON, see `record` |
//! | chunk | app u32, workspace u64, id, bucket u32 | chunk number u32 | its bytes |
//! | index row | app u32, shard u8 | workspace u64, id | size u64 |
//!
//! The three kinds of partitions have different lengths, so that none is another. The state has a
//! partition of its own: stores that serialise the conditional writes of a partition do not let it
//! wait for chunks. The index says what an application holds, which nothing else does: ids are
//! spread over the whole keyspace. It has shards for the same reason.

use super::Suuid;
use super::chunks::BUCKET;
use crate::services::ClusterAppId;
use crate::services::sequencer::WorkspaceId;
use crate::store::{Key, Keyspace, Partition, StoreError};

/// Shards of the index of an application.
const SHARDS: u8 = 16;

/// Whose BLOB it is, and which.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) app: ClusterAppId,
    pub(super) workspace: WorkspaceId,
    pub(super) id: Suuid,
}

impl Place {
    fn partition(&self) -> Vec<u8> {
        [
            &Keyspace::Blobs.prefix()[..],
            &self.app.0.to_be_bytes(),
            &self.workspace.0.to_be_bytes(),
            self.id.as_bytes(),
        ]
        .concat()
    }

    pub(super) fn state(&self) -> Result<Key, StoreError> {
        Key::new(&self.partition(), b"")
    }

    pub(super) fn chunk(&self, number: u32) -> Result<Key, StoreError> {
        let mut partition = self.partition();
        partition.extend_from_slice(&(number / BUCKET).to_be_bytes());
        Key::new(&partition, &number.to_be_bytes())
    }

    pub(super) fn index_row(&self) -> Result<Key, StoreError> {
        let partition = index(self.app, self.id.as_bytes()[0] % SHARDS);
        let clustering = [&self.workspace.0.to_be_bytes()[..], self.id.as_bytes()].concat();
        Key::new(&partition, &clustering)
    }
}

/// The partitions of the index of an application.
pub(super) fn index_of(
    app: ClusterAppId,
) -> impl Iterator<Item = Result<Partition, StoreError>> + Send {
    (0..SHARDS).map(move |shard| Partition::new(index(app, shard)))
}

/// The id that an index row is about.
pub(super) fn indexed(row: &Key) -> Option<Suuid> {
    let id = row.clustering().get(size_of::<u64>()..)?;
    id.try_into().ok().map(Suuid::from_bytes)
}

fn index(app: ClusterAppId, shard: u8) -> Vec<u8> {
    [&Keyspace::Blobs.prefix()[..], &app.0.to_be_bytes(), &[shard]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_is_as_written_down() {
        let id = Suuid::from_bytes([7; 32]);
        let place = Place { app: ClusterAppId(3), workspace: WorkspaceId(9), id };
        let head = [&[0, 0, 0, 5, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 9][..], &[7; 32]].concat();
        let state = place.state().unwrap();
        assert_eq!((state.partition(), state.clustering()), (&head[..], &b""[..]));
        let last_of_first_bucket = place.chunk(99).unwrap();
        assert_eq!(last_of_first_bucket.partition(), [&head[..], &[0, 0, 0, 0]].concat());
        assert_eq!(last_of_first_bucket.clustering(), [0, 0, 0, 99]);
        let first_of_second = place.chunk(100).unwrap();
        assert_eq!(first_of_second.partition(), [&head[..], &[0, 0, 0, 1]].concat());
        assert_eq!(first_of_second.clustering(), [0, 0, 0, 100]);
        let row = place.index_row().unwrap();
        assert_eq!(row.partition(), [0, 0, 0, 5, 0, 0, 0, 3, 7]);
        assert_eq!(indexed(&row), Some(id));
    }
}
