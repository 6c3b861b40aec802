//! Quotas while streaming (B4) where two nodes serve one application.

use wane::services::blobs::{BlobLimits, BlobsError, NewBlob, Usage};

use super::stage::{RECOUNT, on_every_backend};
use super::{CHUNK, LONG, WORKSPACE, content, living};

const SIZE: u64 = CHUNK as u64;

fn limits(max_blobs: u64, max_total_bytes: u64) -> BlobLimits {
    BlobLimits { max_blobs, max_total_bytes, ..BlobLimits::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_node_takes_counts_on_the_other() {
    on_every_backend(async |it| {
        let other = it.limited(1, limits(2, SIZE * 100));
        assert_eq!(it.ok(other.usage().await), Usage::default(), "{}", it.backend);
        let one = it.upload(&content(CHUNK, 1)).await;
        let length = Some(1_000);
        it.ok(it.node(0).create(WORKSPACE, NewBlob { length, ..living(LONG) }).await);
        let held = Usage { blobs: 2, bytes: SIZE + 1_000 };
        assert_eq!(it.ok(it.node(0).usage().await), held, "{}", it.backend);
        it.clock.sleep(RECOUNT).await;
        assert_eq!(it.ok(other.usage().await), held, "{}", it.backend);
        let refused = other.begin(WORKSPACE, living(LONG)).await;
        let is_full =
            matches!(refused, Err(BlobsError::OverQuota { what: "blobs", held: 2, limit: 2 }));
        assert!(is_full, "{}", it.backend);
        assert!(it.ok(it.node(0).delete(WORKSPACE, one.id).await), "{}", it.backend);
        it.clock.sleep(RECOUNT).await;
        let rest = Usage { blobs: 1, bytes: 1_000 };
        assert_eq!(it.ok(other.usage().await), rest, "{}", it.backend);
        assert_eq!(it.ok(it.restarted().usage().await), rest, "{}: counted anew", it.backend);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_blob_beyond_the_quota_is_refused_while_it_streams() {
    on_every_backend(async |it| {
        let blobs = it.limited(0, limits(10, SIZE * 5));
        it.upload(&content(CHUNK, 2)).await;
        it.clock.sleep(RECOUNT).await;
        let announced = NewBlob { length: Some(SIZE * 5), ..living(LONG) };
        let early = blobs.begin(WORKSPACE, announced).await;
        assert!(
            matches!(early, Err(BlobsError::OverQuota { what: "bytes", .. })),
            "{}",
            it.backend
        );
        let mut upload = it.ok(blobs.begin(WORKSPACE, living(LONG)).await);
        it.ok(upload.write(&content(CHUNK * 4, 3)).await);
        let over = upload.write(b"x").await;
        let is_over = matches!(over, Err(BlobsError::OverQuota { what: "bytes", .. }));
        assert!(is_over, "{}: {over:?}", it.backend);
        assert!(matches!(upload.finish().await, Err(BlobsError::Ended)), "{}", it.backend);
        let left = it.left().await;
        assert_eq!(left.len(), 3, "{}: only the first BLOB is there", it.backend);
        let held = Usage { blobs: 1, bytes: SIZE };
        assert_eq!(it.ok(blobs.usage().await), held, "{}", it.backend);
    })
    .await;
}
