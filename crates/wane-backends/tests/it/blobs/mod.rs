//! Temporary BLOBs on every backend: whole or not at all (B1), gone when aborted (B2), and within
//! their quota while they stream (B4), from two nodes where the store is shared.
//!
//! A case is written once and runs on every backend of the run, on its real time. `noted` notes
//! every key that is written, so that a case can ask what is left; told to, it lies, which is what
//! the controls are made of: a store that loses a chunk, that removes nothing or that swaps without
//! looking must turn the cases red.

mod at_once;
mod cluster;
mod controls;
mod downloads;
mod killed;
mod life;
mod nodes;
mod noted;
mod outage;
mod raw;
mod resumable;
mod stage;
mod whole;

use wane::clock::{Clock as _, ManualClock};
use wane::services::blobs::{AppBlobs, Blob, BlobTtl, BlobsError, NewBlob, Suuid, Uploaded};
use wane::services::sequencer::WorkspaceId;
use wane::store::{Key, Store};

const WORKSPACE: WorkspaceId = WorkspaceId(42);
const CHUNK: usize = 102_400;

/// A life that no case outlives.
const LONG: &str = "10m";

fn living(ttl: &str) -> NewBlob {
    NewBlob { ttl: ttl.parse::<BlobTtl>().expect("a legal life"), ..NewBlob::default() }
}

fn announced(bytes: &[u8]) -> NewBlob {
    NewBlob { length: Some(bytes.len() as u64), ..living(LONG) }
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
    upload_in_turns(blobs, blob, bytes, &[piece]).await
}

/// Uploads in pieces of several sizes by turns.
async fn upload_in_turns<S: Store>(
    blobs: &AppBlobs<S>,
    blob: NewBlob,
    mut bytes: &[u8],
    pieces: &[usize],
) -> Result<Uploaded, BlobsError> {
    let mut upload = blobs.begin(WORKSPACE, blob).await?;
    for piece in pieces.iter().cycle() {
        if bytes.is_empty() {
            break;
        }
        let (now, later) = bytes.split_at(bytes.len().min(*piece));
        upload.write(now).await?;
        bytes = later;
    }
    upload.finish().await
}

/// All bytes of a BLOB that was opened.
async fn read<S: Store>(blob: Blob<S>) -> Result<Vec<u8>, BlobsError> {
    let (mut reading, mut bytes) = (blob.read_all(), Vec::new());
    while let Some(piece) = reading.next().await? {
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

/// All bytes of a BLOB; `None` where there is none.
async fn download<S: Store>(blobs: &AppBlobs<S>, id: Suuid) -> Result<Option<Vec<u8>>, BlobsError> {
    match blobs.open(WORKSPACE, id).await? {
        Some(blob) => read(blob).await.map(Some),
        None => Ok(None),
    }
}

/// The bytes of the partition of a state: keyspace, app, workspace and id.
const STATE_PARTITION: usize = 48;

fn is_state(key: &Key) -> bool {
    key.partition().len() == STATE_PARTITION
}

/// The number of the chunk at this key; `None` where no chunk is.
fn chunk_number(key: &Key) -> Option<u32> {
    let is_chunk = key.partition().len() == STATE_PARTITION + size_of::<u32>();
    key.clustering().try_into().ok().filter(|_| is_chunk).map(u32::from_be_bytes)
}
