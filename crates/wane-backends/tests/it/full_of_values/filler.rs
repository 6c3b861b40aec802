//! One who fills a disk: with large values until none fits, and then with smaller ones.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use wane::clock::{ManualClock, SharedClock};
use wane::store::{Key, Life, Store, StoreError, Ttl, Value, Write};
use wane_backends::file::FileStore;

use crate::proof::{runtime, wait};

/// How long what is filled in lives, and a time after which it does not.
const LIFE: Duration = Duration::from_secs(10 * 24 * 60 * 60);
const BEYOND: Duration = Duration::from_secs(11 * 24 * 60 * 60);

/// The longest that a store waits before it tries again whether something fits.
const LONGEST_TRY: Duration = Duration::from_secs(61);

/// A store on a disk that is filled.
pub(super) struct Filler {
    data: PathBuf,
    store: Option<FileStore>,
    pub(super) clock: Arc<ManualClock>,
    /// The number of the next value, which its key and its bytes are made of.
    pub(super) next: u64,
    kept: Vec<u64>,
}

impl Filler {
    pub(super) fn open(data: &Path) -> Self {
        let clock = ManualClock::seeded(1);
        let mut filler = Self { data: data.into(), store: None, clock, next: 0, kept: Vec::new() };
        filler.reopen();
        filler
    }

    pub(super) fn reopen(&mut self) {
        let clock = Arc::clone(&self.clock) as SharedClock;
        self.store = Some(FileStore::open_or_create(&self.data, clock).unwrap());
    }

    pub(super) fn closed(mut self) -> Self {
        self.store = None;
        self
    }

    pub(super) fn store(&self) -> &FileStore {
        self.store.as_ref().expect("the store is open")
    }

    /// Whether so many values fit that expire.
    pub(super) fn put(&mut self, size: usize, count: u64) -> bool {
        self.put_living(Life::For(Ttl::from_millis(LIFE.as_millis() as u64).unwrap()), size, count)
    }

    fn put_living(&mut self, life: Life, size: usize, count: u64) -> bool {
        let numbers = self.next..self.next + count;
        self.next = numbers.end;
        let rows = numbers.map(|number| (key(number), Write::new(value(number, size), life)));
        match runtime().block_on(self.store().put_batch(rows.collect())) {
            Ok(_) => true,
            Err(StoreError::Unavailable { .. }) => false,
            Err(error) => panic!("{error:?}"),
        }
    }

    /// Writes values that stay.
    pub(super) fn keep(&mut self, count: u64) {
        assert!(self.keeps(count));
    }

    /// Whether values were written that stay.
    pub(super) fn keeps(&mut self, count: u64) -> bool {
        let numbers = self.next..self.next + count;
        let fits = self.put_living(Life::Permanent, 102_400, count);
        if fits {
            self.kept.extend(numbers);
        }
        fits
    }

    /// Fills the disk until not even something small fits. Returns how many large values did.
    pub(super) fn fill(&mut self) -> u64 {
        let mut large = 0;
        for (size, count) in [(102_400, 8), (102_400, 1), (60_000, 1), (6_000, 1), (60, 1)] {
            let mut refused = 0;
            while refused < 3 {
                if !self.put(size, count) {
                    refused += 1;
                    self.clock.advance(LONGEST_TRY);
                } else if size > 100_000 {
                    large += count;
                }
            }
        }
        large
    }

    /// Lets everything expire that does.
    pub(super) fn outlive(&self) {
        self.clock.advance(BEYOND);
    }

    /// The seconds of the store's clock after which large values fit again, if that many suffice.
    pub(super) fn passes_within(&mut self, seconds: u64) -> Option<u64> {
        (0..seconds).find(|_| {
            self.clock.advance(Duration::from_secs(1));
            wait(Duration::from_millis(60));
            self.put(102_400, 8)
        })
    }

    /// Whether everything that is young reaches the tree.
    pub(super) fn flushes(&self) -> bool {
        runtime().block_on(self.store().flush()).is_ok()
    }

    /// Whether there is a value of this number.
    pub(super) fn holds(&self, number: u64) -> bool {
        runtime().block_on(self.store().get(&key(number))).unwrap().is_some()
    }

    /// What stays is there as it was written.
    pub(super) fn check_kept(&self) {
        assert!(!self.kept.is_empty());
        for number in &self.kept {
            let found = runtime().block_on(self.store().get(&key(*number))).unwrap();
            assert_eq!(found.map(|found| found.value), Some(value(*number, 102_400)), "{number}");
        }
    }
}

/// Keys that lie all over the tree.
fn key(number: u64) -> Key {
    let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    Key::new(b"full", &spread.to_be_bytes()).unwrap()
}

fn value(number: u64, size: usize) -> Value {
    Value::new(number.to_be_bytes().repeat(size.div_ceil(8))[..size].to_vec()).unwrap()
}
