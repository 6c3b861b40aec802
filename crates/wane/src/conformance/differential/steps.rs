//! The steps of a case, and how they are drawn.

use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::select;

use crate::clock::{Clock, ManualClock};
use crate::store::{
    ClusteringRange, Fence, Key, Life, MAX_CLUSTERING, MAX_PARTITION, PageLimit, Partition,
    Timestamp, Ttl, Value, Write,
};

const PARTITIONS: [&[u8]; 5] = [b"p", b"p\0", b"pp", b"\xff", &[b'p'; MAX_PARTITION]];

const CLUSTERINGS: [&[u8]; 11] = [
    b"",
    b"a",
    b"\0",
    b"\xff",
    b"ab",
    b"a\0",
    b"\0\0",
    b"\xff\xff",
    b"b",
    &[b'a'; MAX_CLUSTERING],
    &[b'a'; MAX_CLUSTERING - 1],
];

/// Bounds of ranges: keys, what lies between them, and the open ends.
const BOUNDS: [&[u8]; 8] = [b"", b"a", b"\0", b"\xff", b"ab", b"aa", b"b", b"\0\xff"];

const VALUES: [&[u8]; 4] = [b"a", b"b", b"", b"\0"];

/// Large enough for a handful to fill a page by their bytes.
const LARGE: usize = 250_000;

/// The lives that are drawn, in milliseconds: short ones that expire, the limits, and a year.
const TTLS: [u64; 6] = [1, 2, 10, 1_000, 60_000, Ttl::MAX.as_millis()];

/// A life that is fixed only once its step is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Age {
    /// [`Life::Permanent`]
    Permanent,
    /// [`Life::For`]
    For(Ttl),
    /// [`Life::Until`] the instant this many milliseconds from the step, before it if negative.
    UntilIn(i64),
    /// [`Life::Keep`], also where the contract forbids it.
    Keep,
}

/// One operation of the contract, or a move of the clock.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as the methods of Store and ManualClock are")]
pub enum Step {
    Get(Key),
    GetBatch(Vec<Key>),
    Read(Partition, ClusteringRange, PageLimit),
    Scan(PageLimit),
    Put(Key, Draft),
    PutBatch(Vec<(Key, Draft)>),
    Insert(Key, Draft),
    Swap(Key, Bytes, Draft),
    Delete(Key, Bytes, Fence),
    QueryTtl(Key),
    Advance(Duration),
    SetBack(Duration),
}

/// A write whose life is not fixed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "named as the fields of Write are")]
pub struct Draft {
    pub value: Value,
    pub life: Age,
    pub fence: Fence,
}

/// A step as it is put to both stores.
#[derive(Debug, Clone)]
pub(super) enum Asked {
    Nothing,
    Get(Key),
    GetBatch(Vec<Key>),
    Read(Partition, ClusteringRange, PageLimit),
    Scan(PageLimit),
    Put(Key, Write),
    PutBatch(Vec<(Key, Write)>),
    Insert(Key, Write),
    Swap(Key, Bytes, Write),
    Delete(Key, Bytes, Fence),
    QueryTtl(Key),
}

impl Step {
    /// Moves the clock, or fixes the lives by it.
    pub(super) fn resolve(&self, clock: &ManualClock) -> Asked {
        let now = clock.now();
        match self.clone() {
            Self::Get(key) => Asked::Get(key),
            Self::GetBatch(keys) => Asked::GetBatch(keys),
            Self::Read(partition, range, limit) => Asked::Read(partition, range, limit),
            Self::Scan(limit) => Asked::Scan(limit),
            Self::Put(key, draft) => Asked::Put(key, draft.at(now)),
            Self::PutBatch(drafts) => Asked::PutBatch(
                drafts.into_iter().map(|(key, draft)| (key, draft.at(now))).collect(),
            ),
            Self::Insert(key, draft) => Asked::Insert(key, draft.at(now)),
            Self::Swap(key, expected, draft) => Asked::Swap(key, expected, draft.at(now)),
            Self::Delete(key, expected, fence) => Asked::Delete(key, expected, fence),
            Self::QueryTtl(key) => Asked::QueryTtl(key),
            Self::Advance(duration) => {
                clock.advance(duration);
                Asked::Nothing
            }
            Self::SetBack(duration) => {
                clock.set_back(duration);
                Asked::Nothing
            }
        }
    }
}

impl Draft {
    fn at(self, now: Timestamp) -> Write {
        let life = match self.life {
            Age::Permanent => Life::Permanent,
            Age::For(ttl) => Life::For(ttl),
            Age::UntilIn(millis) => {
                let instant = now.as_unix_millis().saturating_add_signed(millis);
                Life::Until(Timestamp::from_unix_millis(instant))
            }
            Age::Keep => Life::Keep,
        };
        Write { value: self.value, life, fence: self.fence }
    }
}

/// Cases of up to 40 steps.
pub(super) fn cases() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec(step(), 1..=40)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => key().prop_map(Step::Get),
        1 => prop::collection::vec(key(), 0..6).prop_map(Step::GetBatch),
        4 => (partition(), range(), limit()).prop_map(|(p, r, l)| Step::Read(p, r, l)),
        1 => limit().prop_map(Step::Scan),
        4 => (key(), draft(1)).prop_map(|(key, draft)| Step::Put(key, draft)),
        2 => prop::collection::vec((key(), draft(1)), 0..8).prop_map(Step::PutBatch),
        4 => (key(), draft(1)).prop_map(|(key, draft)| Step::Insert(key, draft)),
        6 => (key(), expected(), draft(4)).prop_map(|(k, e, d)| Step::Swap(k, e, d)),
        4 => (key(), expected(), fence()).prop_map(|(k, e, f)| Step::Delete(k, e, f)),
        2 => key().prop_map(Step::QueryTtl),
        5 => jump().prop_map(Step::Advance),
        2 => jump().prop_map(Step::SetBack),
    ]
}

fn key() -> impl Strategy<Value = Key> {
    let join = |(partition, clustering): (&[u8], &[u8])| {
        Key::new(partition, clustering).expect("the drawn keys are legal")
    };
    // Few keys more often than all, so that steps meet.
    prop_oneof![
        3 => (Just(PARTITIONS[0]), select(&CLUSTERINGS[..4])),
        1 => (select(&PARTITIONS[..]), select(&CLUSTERINGS[..])),
    ]
    .prop_map(join)
}

fn partition() -> impl Strategy<Value = Partition> {
    prop_oneof![3 => Just(PARTITIONS[0]), 1 => select(&PARTITIONS[..])]
        .prop_map(|bytes| Partition::new(bytes).expect("the drawn partitions are legal"))
}

fn range() -> impl Strategy<Value = ClusteringRange> {
    let bounds = (select(&BOUNDS[..]), select(&BOUNDS[..])).prop_map(|(start, end)| {
        ClusteringRange::new(start, end).expect("the drawn bounds are legal")
    });
    prop_oneof![Just(ClusteringRange::ALL), bounds]
}

fn limit() -> impl Strategy<Value = PageLimit> {
    let few = (1..4_usize).prop_map(|rows| PageLimit::new(rows).expect("1 to 3 rows are legal"));
    prop_oneof![1 => Just(PageLimit::MAX), 2 => few]
}

fn value() -> impl Strategy<Value = Value> {
    let small = select(&VALUES[..]).prop_map(Bytes::from_static);
    let large = Just(Bytes::from(vec![b'x'; LARGE]));
    prop_oneof![20 => small, 1 => large]
        .prop_map(|bytes| Value::new(bytes).expect("the drawn values are legal"))
}

fn expected() -> impl Strategy<Value = Bytes> {
    prop_oneof![3 => Just(VALUES[0]), 2 => select(&VALUES[..])].prop_map(Bytes::from_static)
}

fn fence() -> impl Strategy<Value = Fence> {
    prop_oneof![6 => Just(Fence::NONE), 3 => (1..4_u64).prop_map(Fence), 1 => Just(Fence(u64::MAX))]
}

/// A write; `keeping` says how often it keeps an expiry, which only a swap may.
fn draft(keeping: u32) -> impl Strategy<Value = Draft> {
    let ttl = select(&TTLS[..]).prop_map(|millis| Ttl::from_millis(millis).expect("legal"));
    let year = Ttl::MAX.as_millis() as i64;
    let life = prop_oneof![
        3 => Just(Age::Permanent),
        6 => ttl.prop_map(Age::For),
        2 => (-3..20_i64).prop_map(Age::UntilIn),
        1 => select(vec![0, year, year + 1]).prop_map(Age::UntilIn),
        keeping => Just(Age::Keep),
    ];
    (value(), life, fence()).prop_map(|(value, life, fence)| Draft { value, life, fence })
}

fn jump() -> impl Strategy<Value = Duration> {
    let lives = TTLS[..5].iter().flat_map(|ttl| [ttl.saturating_sub(1).max(1), *ttl]);
    select(lives.collect::<Vec<_>>()).prop_map(Duration::from_millis)
}
