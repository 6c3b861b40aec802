//! The state record of a BLOB: JSON, so that later versions read it.
//!
//! It says what the BLOB is, how far its upload has come, and how often it can still be had. Only a
//! record with the status `complete` makes a BLOB: all others are absent to whoever asks for one.
//!
//! Invariant: no two writers write the same record by chance, for every step that takes something
//! carries a `nonce` of its own. So whoever finds its record in the store has written it.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::sums::Sums;
use super::{BlobInfo, BlobsError, DeleteSecret, NewBlob, Sha256Sum, Suuid};
use crate::store::{Life, Timestamp, Value, Write};

/// How far a BLOB has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) enum Status {
    /// Some of its bytes have come.
    Uploading,
    /// All of it is there.
    Complete,
    /// The last download has begun.
    Spent,
    /// It was removed, or its upload failed, while a write of it may yet arrive.
    Removed,
}

/// How far a resumable upload has come.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Progress {
    /// Bytes that are kept.
    pub(super) offset: u64,
    /// The number of the append that has the upload; the fence of its chunks.
    pub(super) epoch: u64,
    /// What the sum must be in the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) expected_sha256: Option<Sha256Sum>,
}

/// What the record says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Stored {
    pub(super) status: Status,
    name: String,
    content_type: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(super) note: String,
    /// All its bytes; those announced where not all have come.
    pub(super) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) sha256: Option<Sha256Sum>,
    /// What a download is compared with. Older records have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) crc32: Option<u32>,
    created_at: u64,
    expires_at: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) downloads_left: Option<u32>,
    delete_secret_sha256: Sha256Sum,
    nonce: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) upload: Option<Progress>,
    /// A write that made this record may yet arrive: where the record goes, a tombstone stays.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(super) lingers: bool,
    /// What a later version wrote beside it, kept while nodes of both serve.
    #[serde(flatten)]
    more: Map<String, Json>,
}

fn is_false(lingers: &bool) -> bool {
    !lingers
}

impl Stored {
    /// The record of an upload that begins.
    pub(super) fn begun(blob: &NewBlob, secret: &DeleteSecret, now: Timestamp, nonce: u64) -> Self {
        Self {
            status: Status::Uploading,
            name: blob.name.clone(),
            content_type: blob.content_type.clone(),
            note: blob.note.clone(),
            size: blob.length.unwrap_or(0),
            sha256: None,
            crc32: None,
            created_at: now.as_unix_millis(),
            expires_at: now.after(blob.ttl.ttl()).as_unix_millis(),
            downloads_left: blob.downloads,
            delete_secret_sha256: secret.hash(),
            nonce,
            upload: None,
            lingers: false,
            more: Map::new(),
        }
    }

    pub(super) fn read(value: &[u8]) -> Result<Self, BlobsError> {
        serde_json::from_slice(value)
            .map_err(|error| BlobsError::Broken { reason: format!("its state record: {error}") })
    }

    /// The write of it. It ends when every other part does.
    pub(super) fn write(&self) -> Result<Write, BlobsError> {
        let json = serde_json::to_vec(self)
            .map_err(|error| BlobsError::Broken { reason: format!("its state record: {error}") })?;
        Ok(Write::new(Value::new(json)?, Life::Until(self.expires_at())))
    }

    pub(super) fn expires_at(&self) -> Timestamp {
        Timestamp::from_unix_millis(self.expires_at)
    }

    /// The whole BLOB.
    pub(super) fn completed(self, size: u64, sums: Sums) -> Self {
        let (sha256, crc32) = (Some(sums.sha256), Some(sums.crc32));
        Self { status: Status::Complete, size, sha256, crc32, upload: None, ..self }
    }

    /// What stands in the way of whatever comes late.
    pub(super) fn tombstone(self) -> Self {
        let (name, note) = (String::new(), String::new());
        Self { status: Status::Removed, name, note, upload: None, ..self }
    }

    /// The record once one more download has begun; `None` where any number may.
    pub(super) fn claimed(&self, nonce: u64) -> Option<Self> {
        let left = self.downloads_left?.saturating_sub(1);
        let status = if left == 0 { Status::Spent } else { self.status };
        Some(Self { status, downloads_left: Some(left), nonce, ..self.clone() })
    }

    /// The record once the append with this nonce has the upload.
    pub(super) fn taken(&self, progress: &Progress, nonce: u64) -> Self {
        let progress = Progress { epoch: progress.epoch + 1, ..progress.clone() };
        Self { upload: Some(progress), nonce, ..self.clone() }
    }

    /// The record once the bytes up to `offset` are kept.
    pub(super) fn kept(&self, progress: &Progress, offset: u64) -> Self {
        Self { upload: Some(Progress { offset, ..progress.clone() }), ..self.clone() }
    }

    /// How far the upload has come; `None` where it is none.
    pub(super) fn progress(&self) -> Option<&Progress> {
        self.upload.as_ref().filter(|_| self.status == Status::Uploading)
    }

    pub(super) fn has_secret(&self, secret: &DeleteSecret) -> bool {
        secret.has_hash(&self.delete_secret_sha256)
    }

    /// What it is to whoever asks for a BLOB; `None` where it is none.
    pub(super) fn info(&self, id: Suuid) -> Option<BlobInfo> {
        let sha256 = self.sha256.filter(|_| self.status == Status::Complete)?;
        Some(BlobInfo {
            id,
            name: self.name.clone(),
            content_type: self.content_type.clone(),
            size: self.size,
            sha256,
            created_at: Timestamp::from_unix_millis(self.created_at),
            expires_at: self.expires_at(),
            downloads_left: self.downloads_left,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock as _, ManualClock};

    fn stored() -> Stored {
        let clock = ManualClock::seeded(1);
        let secret = DeleteSecret::draw(&*clock);
        let blob = NewBlob { downloads: Some(2), ..NewBlob::default() };
        Stored::begun(&blob, &secret, clock.now(), 7)
            .completed(3, Sums { sha256: Sha256Sum::of(b"abc"), crc32: 7 })
    }

    #[test]
    fn what_a_later_version_wrote_is_kept() {
        let mut json: Map<String, Json> =
            serde_json::from_slice(&stored().write().unwrap().value).unwrap();
        json.insert("colour".into(), "red".into());
        let read = Stored::read(&serde_json::to_vec(&json).unwrap()).unwrap();
        let claimed = read.claimed(8).unwrap().write().unwrap().value;
        assert!(String::from_utf8_lossy(&claimed).contains("\"colour\":\"red\""));
    }

    #[test]
    fn claims_count_down_and_the_last_one_spends() {
        let id = Suuid::from_bytes([0; 32]);
        let one = stored().claimed(8).unwrap();
        assert_eq!((one.status, one.downloads_left), (Status::Complete, Some(1)));
        let none = one.claimed(9).unwrap();
        assert_eq!((none.status, none.downloads_left), (Status::Spent, Some(0)));
        assert!(one.info(id).is_some());
        assert!(none.info(id).is_none(), "nobody else gets it");
        assert!(Stored { downloads_left: None, ..one }.claimed(1).is_none());
    }

    #[test]
    fn a_record_that_is_none_is_an_error() {
        for value in [&b""[..], b"{}", b"null", b"{\"status\":\"odd\"}"] {
            assert!(matches!(Stored::read(value), Err(BlobsError::Broken { .. })));
        }
    }
}
