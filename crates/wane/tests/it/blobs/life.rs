//! One absolute expiry for every part: nothing before the commit, nothing from the expiry on.

use std::time::Duration;

use wane::services::blobs::{BlobsError, NewBlob};

use super::{CHUNK, Setup, WORKSPACE, content, download, is_state, setup, upload};

/// A BLOB with a life of a minute.
fn short_lived() -> NewBlob {
    NewBlob { ttl: "60s".parse().expect("a legal life"), ..NewBlob::default() }
}

async fn states(setup: &Setup) -> usize {
    setup.rows().await.iter().filter(|row| is_state(row)).count()
}

#[tokio::test]
async fn nothing_is_readable_before_the_commit() {
    let setup = setup();
    let mut upload = setup.blobs.begin(WORKSPACE, short_lived()).await.unwrap();
    for _ in 0..5 {
        upload.write(&content(CHUNK, 1)).await.unwrap();
        assert_eq!(states(&setup).await, 0, "without a state there is no BLOB");
    }
    let id = upload.finish().await.unwrap().id;
    assert_eq!(states(&setup).await, 1);
    assert!(setup.is_there(id).await);
}

#[tokio::test]
async fn a_blob_is_there_up_to_its_expiry_exactly_and_then_nothing_of_it_is() {
    let setup = setup();
    let uploaded = upload(&setup.blobs, short_lived(), &content(CHUNK * 3, 2), CHUNK).await;
    let id = uploaded.unwrap().id;
    setup.clock.advance(Duration::from_millis(59_999));
    assert!(setup.is_there(id).await);
    assert!(download(&setup.blobs, id).await.unwrap().is_some());
    let open = setup.blobs.open(WORKSPACE, id).await.unwrap().unwrap();
    setup.clock.advance(Duration::from_millis(1));
    assert!(!setup.is_there(id).await);
    assert!(!setup.blobs.delete(WORKSPACE, id).await.unwrap(), "expired is absent");
    let late = open.read_all().next().await;
    assert!(matches!(late, Err(BlobsError::Expired)), "{late:?}");
    setup.assert_empty().await;
    assert_eq!(setup.blobs.usage().await.unwrap().blobs, 0);
}

/// The life counts from the beginning of the upload, so that all parts end together.
#[tokio::test]
async fn every_part_ends_at_the_same_instant() {
    let setup = setup();
    let mut upload = setup.blobs.begin(WORKSPACE, short_lived()).await.unwrap();
    for _ in 0..4 {
        upload.write(&content(CHUNK, 3)).await.unwrap();
        setup.clock.advance(Duration::from_secs(5));
    }
    let expires_at = upload.expires_at();
    assert_eq!(upload.finish().await.unwrap().expires_at, expires_at);
    let rows = setup.rows().await;
    assert_eq!(rows.len(), 6, "four chunks, the state and the row of the index");
    assert!(rows.iter().all(|row| row.record.expires_at == Some(expires_at)));
}

#[tokio::test]
async fn a_download_that_the_expiry_overtakes_fails() {
    let setup = setup();
    let uploaded = upload(&setup.blobs, short_lived(), &content(CHUNK * 3, 4), CHUNK).await;
    let blob = setup.blobs.open(WORKSPACE, uploaded.unwrap().id).await.unwrap().unwrap();
    let mut reading = blob.read_all();
    assert!(reading.next().await.unwrap().is_some());
    setup.clock.advance(Duration::from_secs(60));
    assert!(matches!(reading.next().await, Err(BlobsError::Expired)), "though it was read ahead");
    assert!(matches!(reading.next().await, Err(BlobsError::Ended)));
}

#[tokio::test]
async fn a_slow_upload_does_not_outlive_its_expiry() {
    let setup = setup();
    let mut upload = setup.blobs.begin(WORKSPACE, short_lived()).await.unwrap();
    upload.write(&content(CHUNK * 2, 5)).await.unwrap();
    setup.clock.advance(Duration::from_secs(60));
    assert!(matches!(upload.write(b"late").await, Err(BlobsError::Expired)));
    assert!(matches!(upload.write(b"late").await, Err(BlobsError::Ended)));
    assert!(matches!(upload.finish().await, Err(BlobsError::Ended)));
    let mut upload = setup.blobs.begin(WORKSPACE, short_lived()).await.unwrap();
    upload.write(b"in time").await.unwrap();
    setup.clock.advance(Duration::from_secs(60));
    assert!(matches!(upload.finish().await, Err(BlobsError::Expired)));
    setup.assert_empty().await;
}
