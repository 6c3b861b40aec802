//! Temporary BLOBs: whole or not at all (B1), gone when aborted (B2), unguessable (B3), and within
//! their quota while they stream (B4).

mod ahead;
mod cuts;
mod downloads;
mod faults;
mod life;
mod quota;
mod resumable;
mod tapped;
mod whole;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use wane::clock::{Clock as _, ManualClock, SharedClock};
use wane::services::ClusterAppId;
use wane::services::blobs::{AppBlobs, BlobLimits, Blobs, BlobsError, NewBlob, Suuid, Uploaded};
use wane::services::sequencer::WorkspaceId;
use wane::store::{Life, Outcome, PageLimit, Row, Store, Value, Write};

use self::tapped::Tapped;
use crate::{InnerStore, inner_store, manual_clock};

const APP: ClusterAppId = ClusterAppId(3);
const WORKSPACE: WorkspaceId = WorkspaceId(42);
const CHUNK: usize = 102_400;

/// Sizes around the borders of chunks.
const SIZES: [usize; 5] = [0, 1, CHUNK - 1, CHUNK, CHUNK + 1];

/// BLOBs over a store that a test can tap, and their clock.
struct Setup {
    service: Blobs<Tapped<InnerStore>>,
    blobs: AppBlobs<Tapped<InnerStore>>,
    store: Tapped<InnerStore>,
    clock: Arc<ManualClock>,
}

fn setup() -> Setup {
    setup_with(BlobLimits::default())
}

fn setup_with(limits: BlobLimits) -> Setup {
    let (manual, clock) = manual_clock();
    let store = Tapped::new(inner_store(Arc::clone(&clock)));
    let service = Blobs::new(store.clone(), clock);
    let blobs = service.of(APP, limits);
    Setup { service, blobs, store, clock: manual }
}

impl Setup {
    fn shared_clock(&self) -> SharedClock {
        self.clock.clone()
    }

    /// Every live row of the store.
    async fn rows(&self) -> Vec<Row> {
        self.service.settle().await;
        live_rows(&self.store.inner).await
    }

    async fn assert_empty(&self) {
        let rows = self.rows().await;
        assert!(rows.is_empty(), "left: {} rows, like {:?}", rows.len(), rows[0].record.value);
    }

    async fn upload(&self, bytes: &[u8]) -> Uploaded {
        upload(&self.blobs, NewBlob::default(), bytes, 65_537).await.expect("it is taken")
    }

    async fn is_there(&self, id: Suuid) -> bool {
        let info = self.blobs.info(WORKSPACE, id).await.expect("it answers");
        let opened = self.blobs.open(WORKSPACE, id).await.expect("it answers");
        assert_eq!(info.is_some(), opened.is_some());
        info.is_some()
    }
}

async fn live_rows<S: Store>(store: &S) -> Vec<Row> {
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let page = store.scan(after, PageLimit::MAX).await.expect("it can be scanned");
        rows.extend(page.rows);
        after = page.next;
        if after.is_none() {
            return rows;
        }
    }
}

/// Bytes that differ everywhere.
fn content(size: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; size];
    ManualClock::seeded(seed).fill_random(&mut bytes);
    bytes
}

async fn upload<S: Store>(
    blobs: &AppBlobs<S>,
    blob: NewBlob,
    bytes: &[u8],
    piece: usize,
) -> Result<Uploaded, BlobsError> {
    let mut upload = blobs.begin(WORKSPACE, blob).await?;
    for piece in bytes.chunks(piece) {
        upload.write(piece).await?;
    }
    upload.finish().await
}

/// All bytes of a BLOB; `None` where there is none.
async fn download<S: Store>(blobs: &AppBlobs<S>, id: Suuid) -> Result<Option<Vec<u8>>, BlobsError> {
    let Some(blob) = blobs.open(WORKSPACE, id).await? else { return Ok(None) };
    let (mut reading, mut bytes) = (blob.read_all(), Vec::new());
    while let Some(piece) = reading.next().await? {
        assert!(!piece.is_empty() && piece.len() <= CHUNK);
        bytes.extend_from_slice(&piece);
    }
    Ok(Some(bytes))
}

/// The bytes of the partition of a state: keyspace, app, workspace and id.
const STATE_PARTITION: usize = 48;

fn is_state(row: &Row) -> bool {
    row.key.partition().len() == STATE_PARTITION
}

fn is_chunk(partition: &[u8]) -> bool {
    partition.len() == STATE_PARTITION + 4
}

/// The id of the BLOB that a state row is about.
fn id_of(row: &Row) -> Suuid {
    let text = URL_SAFE_NO_PAD.encode(&row.key.partition()[16..]);
    text.parse().expect("32 bytes are an id")
}

fn says(row: &Row, text: &str) -> bool {
    String::from_utf8_lossy(&row.record.value).contains(text)
}

#[track_caller]
fn assert_invalid<T>(result: Result<T, BlobsError>, named: &str) {
    match result {
        Err(BlobsError::Invalid { field, .. }) => assert_eq!(field, named),
        Err(error) => panic!("{error:?}"),
        Ok(_) => panic!("it is taken"),
    }
}

/// Writes nonsense over a row.
async fn broken_put<S: Store>(store: &S, row: &Row) -> Outcome {
    let nonsense = Value::new("nonsense").expect("short enough");
    store.put(&row.key, Write::new(nonsense, Life::Permanent)).await.expect("it is written")
}
