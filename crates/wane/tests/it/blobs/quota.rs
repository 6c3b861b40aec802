//! Quotas while streaming (B4): sizes, bytes and numbers, counted across restarts.

use std::time::Duration;

use wane::services::blobs::{BlobLimits, Blobs, BlobsError, BlobsSettings, NewBlob, Usage};

use super::tapped::Tap;
use super::{APP, CHUNK, WORKSPACE, content, setup, setup_with, upload};

const SIZE: u64 = CHUNK as u64;

fn limits(max_size: u64, max_blobs: u64, max_total_bytes: u64) -> BlobLimits {
    BlobLimits { max_size, max_blobs, max_total_bytes, ..BlobLimits::default() }
}

#[tokio::test]
async fn a_blob_that_grows_too_large_is_refused_while_it_streams() {
    let setup = setup_with(limits(SIZE * 3, 10, SIZE * 100));
    let mut upload = setup.blobs.begin(WORKSPACE, NewBlob::default()).await.unwrap();
    upload.write(&content(CHUNK * 3, 1)).await.unwrap();
    let over = upload.write(b"x").await;
    assert!(matches!(over, Err(BlobsError::TooLarge { limit }) if limit == SIZE * 3), "{over:?}");
    assert!(matches!(upload.write(b"x").await, Err(BlobsError::Ended)));
    setup.assert_empty().await;
    setup.upload(&content(CHUNK * 3, 1)).await;
}

#[tokio::test]
async fn what_is_announced_too_large_is_refused_before_anything_is_written() {
    let setup = setup_with(limits(SIZE, 10, SIZE * 100));
    let blob = NewBlob { length: Some(SIZE + 1), ..NewBlob::default() };
    setup.store.turn(Tap::Nothing);
    let refused = setup.blobs.begin(WORKSPACE, blob.clone()).await;
    assert!(matches!(refused, Err(BlobsError::TooLarge { .. })));
    let refused = setup.blobs.create(WORKSPACE, blob).await;
    assert!(matches!(refused, Err(BlobsError::TooLarge { .. })));
    assert_eq!(setup.store.calls(), 0);
}

#[tokio::test]
async fn uploads_at_once_share_the_bytes_of_the_application() {
    let setup = setup_with(limits(SIZE * 10, 10, SIZE * 4));
    let mut one = setup.blobs.begin(WORKSPACE, NewBlob::default()).await.unwrap();
    let mut two = setup.blobs.begin(WORKSPACE, NewBlob::default()).await.unwrap();
    one.write(&content(CHUNK * 2, 1)).await.unwrap();
    two.write(&content(CHUNK * 2, 1)).await.unwrap();
    let over = one.write(b"x").await;
    let Err(BlobsError::OverQuota { what: "bytes", held, limit }) = over else {
        panic!("{over:?}");
    };
    assert_eq!((held, limit), (SIZE * 4, SIZE * 4));
    two.write(&content(CHUNK * 2, 1)).await.expect("what the other gave back is free");
    two.finish().await.unwrap();
    assert_eq!(setup.blobs.usage().await.unwrap(), Usage { blobs: 1, bytes: SIZE * 4 });
    let announced = NewBlob { length: Some(1), ..NewBlob::default() };
    let refused = setup.blobs.begin(WORKSPACE, announced).await;
    assert!(matches!(refused, Err(BlobsError::OverQuota { what: "bytes", .. })));
}

#[tokio::test]
async fn the_number_of_blobs_is_limited_and_freed_by_deletion_and_by_expiry() {
    let setup = setup_with(limits(SIZE, 2, SIZE * 100));
    let first = setup.upload(b"a").await.id;
    let short = NewBlob { ttl: "60s".parse().unwrap(), ..NewBlob::default() };
    upload(&setup.blobs, short.clone(), b"b", 1).await.unwrap();
    let refused = setup.blobs.begin(WORKSPACE, NewBlob::default()).await;
    assert!(matches!(refused, Err(BlobsError::OverQuota { what: "blobs", held: 2, limit: 2 })));
    assert!(setup.blobs.delete(WORKSPACE, first).await.unwrap());
    upload(&setup.blobs, short, b"c", 1).await.expect("one was deleted");
    setup.clock.advance(Duration::from_secs(60));
    assert_eq!(setup.blobs.usage().await.unwrap(), Usage::default());
    setup.upload(b"d").await;
}

/// After a restart the index tells what is held: resumable uploads with all they announced.
#[tokio::test]
async fn what_is_held_is_counted_anew_after_a_restart() {
    let setup = setup();
    for size in [1, CHUNK, CHUNK * 2] {
        setup.upload(&content(size, 1)).await;
    }
    let blob = NewBlob { length: Some(1_000), ..NewBlob::default() };
    setup.blobs.create(WORKSPACE, blob).await.unwrap();
    let held = setup.blobs.usage().await.unwrap();
    assert_eq!(held, Usage { blobs: 4, bytes: 1_001 + SIZE * 3 });
    let restarted = Blobs::new(setup.store.clone(), setup.shared_clock());
    let blobs = restarted.of(APP, limits(SIZE, 4, SIZE * 100));
    assert_eq!(blobs.usage().await.unwrap(), held);
    let refused = blobs.begin(WORKSPACE, NewBlob::default()).await;
    assert!(matches!(refused, Err(BlobsError::OverQuota { what: "blobs", .. })));
}

/// Nodes that share a store hear of each other's BLOBs at the interval of their counts.
#[tokio::test]
async fn another_node_is_counted_in_time() {
    let setup = setup();
    let interval = Duration::from_secs(10);
    let settings = BlobsSettings { recount: Some(interval), ..BlobsSettings::default() };
    let other = Blobs::with_settings(setup.store.clone(), setup.shared_clock(), settings);
    let other = other.of(APP, BlobLimits::default());
    assert_eq!(other.usage().await.unwrap(), Usage::default());
    let id = setup.upload(&content(CHUNK, 1)).await.id;
    setup.clock.advance(interval);
    assert_eq!(other.usage().await.unwrap(), Usage { blobs: 1, bytes: SIZE });
    assert!(setup.blobs.delete(WORKSPACE, id).await.unwrap());
    setup.clock.advance(interval);
    assert_eq!(other.usage().await.unwrap(), Usage::default());
}
