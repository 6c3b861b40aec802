//! BLOBs on a DynamoDB that is too busy for chunks, as it is beyond a megabyte a second for a
//! partition: an upload takes longer, and is whole.

use wane::services::ClusterAppId;
use wane::services::blobs::{BlobLimits, Blobs, BlobsError, NewBlob};
use wane::services::sequencer::WorkspaceId;

use super::front::Fault;
use super::unclear::Pair;

const WORKSPACE: WorkspaceId = WorkspaceId(1);
const BUSY: Fault = Fault::Answer(400, "ProvisionedThroughputExceededException");

/// Four chunks and a bit.
fn content() -> Vec<u8> {
    (0..4 * 102_400 + 9).map(|at: u32| at.to_be_bytes()[2] ^ at.to_be_bytes()[3]).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_whose_chunks_are_throttled_is_whole() {
    let Some(pair) = Pair::listed().await else { return };
    let blobs = Blobs::new(pair.store.clone(), pair.clock.clone());
    let blobs = blobs.of(ClusterAppId(1), BlobLimits::default());
    pair.front.next_times(12, "UpdateItem", &BUSY);
    let bytes = content();
    let mut upload = blobs.begin(WORKSPACE, NewBlob::default()).await.expect("it begins");
    for piece in bytes.chunks(16_384) {
        upload.write(piece).await.expect("it is taken in the end");
    }
    let id = upload.finish().await.expect("it is whole").id;
    let blob = blobs.open(WORKSPACE, id).await.expect("an answer").expect("it is there");
    let (mut reading, mut back) = (blob.read_all(), Vec::new());
    while let Some(piece) = reading.next().await.expect("it is read") {
        back.extend_from_slice(&piece);
    }
    assert!(back == bytes);
    pair.end().await;
}

/// One that stays too busy is told of, and leaves nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_whose_chunks_stay_throttled_fails_in_bounded_time() {
    let Some(pair) = Pair::listed().await else { return };
    let service = Blobs::new(pair.store.clone(), pair.clock.clone());
    let blobs = service.of(ClusterAppId(1), BlobLimits::default());
    let mut upload = blobs.begin(WORKSPACE, NewBlob::default()).await.expect("it begins");
    pair.front.next_times(8, "UpdateItem", &BUSY);
    upload.write(b"abc").await.expect("it is buffered");
    let began = pair.clock.monotonic();
    let told = upload.finish().await;
    assert!(matches!(told, Err(BlobsError::Store(_))), "{told:?}");
    assert!((pair.clock.monotonic() - began).as_secs() < 10);
    service.settle().await;
    assert_eq!(service.left_to_expiry(), 0);
    pair.end().await;
}
