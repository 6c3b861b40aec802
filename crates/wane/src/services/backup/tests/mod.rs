//! Backup and restoration over memory: what goes in comes out, and nothing else ever does.

mod damage;
mod elections;
mod lives;
mod trips;

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::Arc;

use super::format::{FrameFill, FrameKind, Header, Trailer, encode_preamble};
use super::*;
use crate::clock::ManualClock;
use crate::store::{
    Fence, Key, Life, MemoryStore, PageLimit, Record, Row, Store, Timestamp, Ttl, Value, Write,
};
use sha2::{Digest, Sha256};

const DAY: u64 = 24 * 60 * 60 * 1_000;

/// A store and the clock that it goes by.
struct Fixture {
    clock: Arc<ManualClock>,
    store: MemoryStore,
}

impl Fixture {
    fn new(seed: u64) -> Self {
        let clock = ManualClock::seeded(seed);
        let store = MemoryStore::new(clock.clone()).expect("a thread for the sweeper");
        Self { clock, store }
    }

    /// An empty store on the same clock.
    fn beside(&self) -> MemoryStore {
        MemoryStore::new(self.clock.clone()).expect("a thread for the sweeper")
    }

    async fn put(&self, name: &str, life: Life, fence: u64) {
        let write = Write::new(value(name.as_bytes()), life).fenced(Fence(fence));
        assert!(self.store.put(&key(name), write).await.unwrap().is_applied());
    }

    async fn bytes(&self) -> Vec<u8> {
        collect(self.begin().await).await
    }

    async fn begin(&self) -> Backup<MemoryStore> {
        Backup::begin(self.store.clone(), &*self.clock, "mem").await.unwrap()
    }

    /// Restores the bytes into an empty store on the same clock.
    async fn restore(&self, bytes: &[u8]) -> (MemoryStore, Result<Restored, BackupError>) {
        let store = self.beside();
        let restored = restore(&store, &*self.clock, &mut Cursor::new(bytes), |_| ()).await;
        (store, restored)
    }
}

fn key(name: &str) -> Key {
    Key::new(b"tests", name.as_bytes()).unwrap()
}

fn value(bytes: &[u8]) -> Value {
    Value::copy_from_slice(bytes).unwrap()
}

fn lasting(millis: u64) -> Life {
    Life::For(Ttl::from_millis(millis).unwrap())
}

async fn collect(mut backup: Backup<impl Store>) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(chunk) = backup.next().await {
        bytes.extend_from_slice(&chunk.unwrap());
        assert_eq!(backup.progress().bytes, bytes.len() as u64);
    }
    assert!(backup.next().await.is_none(), "an ended backup has nothing more");
    bytes
}

async fn verified(bytes: &[u8], now: Timestamp) -> Result<Summary, BackupError> {
    verify(&mut ReadChunks::new(bytes), now, |_| ()).await
}

async fn contents(store: &impl Store) -> BTreeMap<Key, Record> {
    let mut rows = BTreeMap::new();
    let mut page = store.scan(None, PageLimit::MAX).await.unwrap();
    loop {
        rows.extend(page.rows.drain(..).map(|row| (row.key, row.record)));
        let Some(next) = page.next else { return rows };
        page = store.scan(Some(next), PageLimit::MAX).await.unwrap();
    }
}

/// A backup written by hand, from frames that need not make sense.
struct Forged {
    bytes: Vec<u8>,
    records: u64,
}

impl Forged {
    fn new(created_at: Timestamp) -> Self {
        let mut forged = Self { bytes: encode_preamble().to_vec(), records: 0 };
        forged.frame(FrameFill::header(&Header { created_at, backend: "forged".into() }));
        forged
    }

    fn frame(&mut self, frame: FrameFill) {
        let sealed = frame.seal(self.bytes.len() as u64);
        self.bytes.extend(sealed);
    }

    fn record(
        mut self,
        name: &str,
        text: &[u8],
        expires_at: Option<Timestamp>,
        fence: u64,
    ) -> Self {
        let record = Record { value: value(text), expires_at, fence: Fence(fence) };
        let mut frame = FrameFill::new(FrameKind::Records);
        frame.push(&Row { key: key(name), record });
        self.frame(frame);
        self.records += 1;
        self
    }

    fn end(mut self) -> Vec<u8> {
        let digest = Sha256::digest(&self.bytes).into();
        let records = self.records;
        self.frame(FrameFill::trailer(&Trailer { records, digest }));
        self.bytes
    }
}
