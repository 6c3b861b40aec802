//! What a backup holds, told once all of it was read and found sound.

use std::collections::BTreeMap;

use super::decoder::{Decoder, Part};
use super::{BackupError, Chunks, Progress};
use crate::store::{Keyspace, Row, Timestamp};

/// What a sound backup holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    /// When it was begun.
    pub created_at: Timestamp,
    /// The backend that it was made from: a label.
    pub backend: String,
    /// Its records. On shared stores a record that changed meanwhile may count more than once.
    pub records: u64,
    /// Those that never expire.
    pub permanent: u64,
    /// Those that have expired by now, and would not be restored.
    pub expired: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Records by the name of their keyspace; `other` are those of none.
    pub keyspaces: BTreeMap<&'static str, u64>,
}

/// Checks a backup as its bytes pass by on their way elsewhere.
#[derive(Debug)]
pub struct Verifier {
    decoder: Decoder,
    now: Timestamp,
    summary: Summary,
}

impl Verifier {
    /// Begins a check. What has expired is told as of `now`.
    pub fn new(now: Timestamp) -> Self {
        let summary = Summary {
            created_at: Timestamp::from_unix_millis(0),
            backend: String::new(),
            records: 0,
            permanent: 0,
            expired: 0,
            bytes: 0,
            keyspaces: BTreeMap::new(),
        };
        Self { decoder: Decoder::new(), now, summary }
    }

    /// Takes the next bytes. After an error all further ones are in vain.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), BackupError> {
        self.decoder.push(bytes);
        while let Some(part) = self.decoder.next()? {
            match part {
                Part::Header(header) => {
                    self.summary.created_at = header.created_at;
                    self.summary.backend = header.backend;
                }
                Part::Records(rows) => rows.iter().for_each(|row| self.count(row)),
            }
        }
        Ok(())
    }

    /// How far it has come.
    pub fn progress(&self) -> Progress {
        self.decoder.progress()
    }

    /// What the backup holds, if the bytes pushed were all of it.
    pub fn finish(mut self) -> Result<Summary, BackupError> {
        self.decoder.finish()?;
        let Progress { records, bytes } = self.decoder.progress();
        self.summary.records = records;
        self.summary.bytes = bytes;
        Ok(self.summary)
    }

    fn count(&mut self, row: &Row) {
        let summary = &mut self.summary;
        summary.permanent += u64::from(row.record.expires_at.is_none());
        summary.expired += u64::from(!row.record.is_live(self.now));
        *summary.keyspaces.entry(keyspace_name(row.key.partition())).or_default() += 1;
    }
}

/// Reads a whole backup and says what it holds; `listen` is told of the progress now and then.
pub async fn verify(
    chunks: &mut impl Chunks,
    now: Timestamp,
    mut listen: impl FnMut(Progress) + Send,
) -> Result<Summary, BackupError> {
    let mut verifier = Verifier::new(now);
    while let Some(chunk) = chunks.next().await {
        verifier.push(&chunk?)?;
        listen(verifier.progress());
    }
    verifier.finish()
}

fn keyspace_name(partition: &[u8]) -> &'static str {
    match Keyspace::of(partition) {
        Some(Keyspace::Elections) => "elections",
        Some(Keyspace::SequencerOffsets) => "sequencer_offsets",
        Some(Keyspace::SequencerNumbers) => "sequencer_numbers",
        Some(Keyspace::AppTtl) => "app_ttl",
        Some(Keyspace::Blobs) => "blobs",
        Some(Keyspace::DeviceAuth) => "device_auth",
        Some(Keyspace::PullStreamLog) => "pull_stream_log",
        Some(Keyspace::PullStreamState) => "pull_stream_state",
        Some(Keyspace::Audit) => "audit",
        Some(Keyspace::Settings) => "settings",
        Some(Keyspace::Sequences) => "sequences",
        None => "other",
    }
}
