//! BLOBs fill a disk and expire, and new ones are taken.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::sync::Arc;
use std::time::Duration;

use wane::clock::{ManualClock, SharedClock};
use wane::services::ClusterAppId;
use wane::services::blobs::{AppBlobs, BlobLimits, Blobs, BlobsError, NewBlob, Suuid};
use wane::services::sequencer::WorkspaceId;
use wane::store::StoreError;
use wane_backends::file::FileStore;

use super::SOON;
use super::small_disk::{FileSystem, SmallDisk};
use crate::proof::{runtime, wait};

const WORKSPACE: WorkspaceId = WorkspaceId(42);
const SIZE: usize = 1_500_000;

/// Uploads a BLOB, if there is room for it.
async fn upload(blobs: &AppBlobs<FileStore>, ttl: &str) -> Option<Suuid> {
    let new = NewBlob { ttl: ttl.parse().unwrap(), ..NewBlob::default() };
    let uploaded = async {
        let mut upload = blobs.begin(WORKSPACE, new).await?;
        for piece in vec![7; SIZE].chunks(65_537) {
            upload.write(piece).await?;
        }
        upload.finish().await
    };
    match uploaded.await {
        Ok(uploaded) => Some(uploaded.id),
        Err(BlobsError::Store(StoreError::Unavailable { .. })) => None,
        Err(error) => panic!("{error:?}"),
    }
}

async fn is_whole(blobs: &AppBlobs<FileStore>, id: Suuid) -> bool {
    let Some(blob) = blobs.open(WORKSPACE, id).await.unwrap() else { return false };
    let (mut reading, mut read) = (blob.read_all(), 0);
    while let Some(piece) = reading.next().await.unwrap() {
        assert!(piece.iter().all(|byte| *byte == 7));
        read += piece.len();
    }
    read == SIZE
}

#[test]
fn a_disk_full_of_blobs_that_expire_takes_new_ones() {
    let Some(disk) = SmallDisk::of(FileSystem::Tmpfs, 48) else { return };
    let clock = ManualClock::seeded(1);
    let shared_clock = || Arc::clone(&clock) as SharedClock;
    let runtime = runtime();
    runtime.block_on(async {
        let store = FileStore::create(&disk.data(), shared_clock()).unwrap();
        let limits = BlobLimits { max_ttl_seconds: 365 * 24 * 60 * 60, ..BlobLimits::default() };
        let blobs = Blobs::new(store, shared_clock()).of(ClusterAppId(1), limits);
        let lasting = upload(&blobs, "30d").await.expect("an empty disk has room");
        for round in 1..=2 {
            let (mut uploaded, mut refused) = (0, 0);
            while refused < 8 {
                if upload(&blobs, "1d").await.is_some() {
                    uploaded += 1;
                } else {
                    refused += 1;
                    clock.advance(Duration::from_secs(61));
                }
            }
            assert!(uploaded > 15, "only {uploaded} BLOBs filled the disk");
            clock.advance(Duration::from_secs(25 * 60 * 60));
            let mut is_taken = false;
            for _ in 0..SOON {
                clock.advance(Duration::from_secs(1));
                wait(Duration::from_millis(2));
                is_taken = is_taken || upload(&blobs, "1d").await.is_some();
            }
            assert!(is_taken, "round {round}: still full after {uploaded} BLOBs have expired");
            assert!(is_whole(&blobs, lasting).await);
        }
    });
}
