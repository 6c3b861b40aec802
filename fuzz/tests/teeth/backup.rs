//! The controls of the target `backup`: readers with one rule less, and a layout that is the
//! writer's.
//!
//! Each rule of the reader is taken away in turn. That the target notices shows that it gets as far
//! as that rule.

use std::collections::BTreeMap;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use wane::clock::SystemClock;
use wane::services::backup::{Backup, BackupError, Summary};
use wane::store::{Fence, Key, Keyspace, Life, MemoryStore, Store, Timestamp, Ttl, Value, Write};
use wane_fuzz::Target;
use wane_fuzz::targets::backup::{check, layout, verify};

use crate::assert_caught;

type Said = Result<Summary, BackupError>;

const OTHERWISE: &str = "the layout says otherwise";
const CHUNKS: &str = "chunks make a difference";

fn anything() -> Summary {
    Summary {
        created_at: Timestamp::from_unix_millis(0),
        backend: String::new(),
        records: 0,
        permanent: 0,
        expired: 0,
        bytes: 0,
        keyspaces: BTreeMap::new(),
    }
}

/// What the reader says where it refuses, a rule each.
const RULES: [&str; 20] = [
    "this is no backup",
    "the checksum of its first 16 bytes",
    "backup format has no version 0",
    "backup format at byte 8 is version",
    "the checksum of the frame there",
    "a frame of a kind that cannot come here",
    "store format has no version 0",
    "store format at byte 29 is version",
    "an impossible backend",
    "an impossible length",
    "an impossible frame without records",
    "an impossible flag",
    "365 days ahead",
    "an impossible fence",
    "an impossible key",
    "an impossible value",
    "records and has",
    "the SHA-256 of all that comes before",
    "something follows",
    "bytes, and none has over",
];

/// Accepts what breaks a rule.
fn without<const RULE: usize>(chunks: &[&[u8]], now: Timestamp) -> Said {
    verify(chunks, now).or_else(|error| {
        if error.to_string().contains(RULES[RULE]) { Ok(anything()) } else { Err(error) }
    })
}

macro_rules! assert_each_caught {
    ($($rule:literal)*) => {
        let targets: [Target; RULES.len()] = [$(|bytes| check(without::<$rule>, bytes)),*];
        for (target, rule) in targets.into_iter().zip(RULES) {
            println!("without the rule: {rule}");
            assert_caught(target, OTHERWISE);
        }
    };
}

#[test]
fn a_reader_with_one_rule_less_is_caught() {
    assert_each_caught!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19);
}

#[test]
fn a_reader_that_refuses_or_miscounts_is_caught() {
    fn refuses_records(chunks: &[&[u8]], now: Timestamp) -> Said {
        let said = verify(chunks, now)?;
        if said.records < 3 { Ok(said) } else { Err(BackupError::NotABackup { offset: 0 }) }
    }
    fn expires_late(chunks: &[&[u8]], now: Timestamp) -> Said {
        let before = now.as_unix_millis().saturating_sub(1);
        verify(chunks, Timestamp::from_unix_millis(before))
    }
    fn takes_a_cut(chunks: &[&[u8]], now: Timestamp) -> Said {
        let is_cut = |error: &BackupError| matches!(error, BackupError::Truncated { .. });
        verify(chunks, now)
            .or_else(|error| if is_cut(&error) { Ok(anything()) } else { Err(error) })
    }
    assert_caught(|bytes| check(refuses_records, bytes), OTHERWISE);
    assert_caught(|bytes| check(expires_late, bytes), OTHERWISE);
    assert_caught(|bytes| check(takes_a_cut, bytes), OTHERWISE);
}

#[test]
fn a_reader_that_depends_on_chunks_or_panics_is_caught() {
    fn wants_the_preamble_whole(chunks: &[&[u8]], now: Timestamp) -> Said {
        match chunks {
            [first, _, ..] if first.len() < 16 => Err(BackupError::NotABackup { offset: 0 }),
            _ => verify(chunks, now),
        }
    }
    fn panics_on_little(chunks: &[&[u8]], now: Timestamp) -> Said {
        assert!(chunks.concat().len() > 3, "too little");
        verify(chunks, now)
    }
    assert_caught(|bytes| check(wants_the_preamble_whole, bytes), CHUNKS);
    assert_caught(|bytes| check(panics_on_little, bytes), "too little");
}

/// The answer of a store that answers at once.
fn ready<T>(request: impl Future<Output = T>) -> T {
    match pin!(request).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => answer,
        Poll::Pending => panic!("memory makes nobody wait"),
    }
}

/// The target would prove nothing if its layout were not the writer's.
#[test]
fn the_layout_of_the_target_is_the_writers() {
    let clock = SystemClock::shared();
    let store = MemoryStore::new(clock.clone()).expect("a thread for the sweeper");
    let lives = [Life::Permanent, Life::For(Ttl::from_secs(9_999).expect("a legal TTL"))];
    for number in 0..400_u16 {
        let prefix = Keyspace::ALL[usize::from(number) % Keyspace::ALL.len()].prefix();
        let key = Key::new(&prefix, &number.to_be_bytes()).expect("a legal key");
        let value = Value::new(vec![7; usize::from(number) * 3]).expect("a legal value");
        let write = Write::new(value, lives[usize::from(number) % 2]);
        let put = ready(store.put(&key, write.fenced(Fence(u64::from(number % 3)))));
        assert!(put.expect("memory works").is_applied());
    }
    let mut backup = ready(Backup::begin(store, &*clock, "mem")).expect("memory works");
    let mut bytes = Vec::new();
    while let Some(chunk) = ready(backup.next()) {
        bytes.extend(chunk.expect("memory works"));
    }
    let read = layout::read(&bytes, clock.now()).expect("the layout has what was written");
    assert_eq!((read.records, read.permanent, read.keyspaces.len()), (400, 200, 11));
    assert_eq!(verify(&[&bytes], clock.now()).expect("it is sound"), read);
}
