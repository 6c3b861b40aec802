//! The hash index: from a key to its slot, without a lock for readers.
//!
//! Keys are divided over segments by hash. A segment publishes a [`View`]: an open-addressed table
//! of atomic words and the chunks of slots they point into. Readers load the view and probe; the
//! words only ever change from empty to an entry, from an entry to a tombstone and back to an
//! entry, so a probe sees every key that was there throughout. What a word says is a hint: the
//! slot, under its own lock, has the key.
//!
//! Writers that add or remove a key hold the segment's lock. Growing, shrinking and adding chunks
//! publish a new view; a reader on the old one ends as if it had been a little earlier.
//!
//! Lock order: slot, then segment; a vacant slot's lock may be taken within the segment's, as
//! whoever holds the lock of a vacant slot waits for nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arc_swap::ArcSwap;
use parking_lot::{Mutex, MutexGuard};

use super::slot::{Slot, SlotState};

/// Slots that are allocated and freed together: with their reference count, 8 KiB to the byte.
const CHUNK: usize = 63;

/// A chunk without entries.
const ALL_FREE: u64 = (1 << CHUNK) - 1;

/// The smallest table of a segment.
const SMALLEST: usize = 16;

const SEGMENT_BITS: u32 = 5;

/// Parts of the index that change independently.
pub(super) const SEGMENTS: usize = 1 << SEGMENT_BITS;

/// A slot's place: the segment in the low bits, the slot within it above.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SlotId(u32);

impl SlotId {
    fn new(segment: usize, index: u32) -> Self {
        Self(index << SEGMENT_BITS | segment as u32)
    }

    #[cfg(test)]
    pub(super) fn numbered(number: u32) -> Self {
        Self(number)
    }

    fn segment(self) -> usize {
        self.0 as usize % SEGMENTS
    }

    fn index(self) -> u32 {
        self.0 >> SEGMENT_BITS
    }
}

const EMPTY: u32 = 0;
const TOMBSTONE: u32 = 1;

/// Of a word, the slot's index plus two; the rest is a tag from the hash.
const INDEX_BITS: u32 = 21;

/// Chunks that a segment can have. All segments together hold about 67 million records.
const MOST_CHUNKS: usize = ((1 << INDEX_BITS) - 2) / CHUNK;

fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32 >> INDEX_BITS
}

fn word(hash: u64, index: u32) -> u32 {
    tag(hash) << INDEX_BITS | (index + 2)
}

fn index_of(word: u32) -> u32 {
    (word & ((1 << INDEX_BITS) - 1)) - 2
}

/// The part of a hash that says where its words begin.
fn home(hash: u64) -> u32 {
    (hash >> SEGMENT_BITS) as u32
}

/// Where to begin in a table of any length: multiplication spreads homes evenly.
fn start(home: u32, len: usize) -> usize {
    ((u64::from(home) * len as u64) >> 32) as usize
}

type Chunk = [Slot; CHUNK];

/// What a segment looks like to readers.
#[derive(Debug)]
struct View {
    words: Arc<[AtomicU32]>,
    chunks: Vec<Option<Arc<Chunk>>>,
}

impl View {
    /// The places to look for a hash with this home, in order.
    fn places(&self, home: u32) -> impl Iterator<Item = usize> + use<> {
        let len = self.words.len();
        let start = start(home, len);
        (start..len).chain(0..start)
    }

    /// The first place where a word for this home can be put.
    fn vacancy(&self, home: u32) -> Option<usize> {
        let is_vacant = |place: &usize| self.words[*place].load(Ordering::Relaxed) <= TOMBSTONE;
        self.places(home).find(is_vacant)
    }

    fn slot(&self, index: u32) -> Option<&Slot> {
        let index = index as usize;
        self.chunks.get(index / CHUNK)?.as_ref().map(|chunk| &chunk[index % CHUNK])
    }
}

/// The index over all keys.
#[derive(Debug)]
pub(super) struct Points {
    segments: Box<[Segment]>,
}

#[derive(Debug)]
struct Segment {
    view: ArcSwap<View>,
    books: Mutex<Books>,
}

/// What writers know of a segment.
#[derive(Debug, Default)]
struct Books {
    /// By chunk, which of its slots are free.
    free: Vec<u64>,
    /// By slot, where its words begin: a rebuilt table must not have to ask the slots.
    homes: Vec<u32>,
    /// No chunk below this one has a free slot.
    first_free: usize,
    entries: usize,
    tombstones: usize,
}

impl Books {
    /// Takes the first free slot, in a chunk that has one.
    fn take_free(&mut self) -> u32 {
        let free = &mut self.free[self.first_free];
        let within = free.trailing_zeros();
        *free &= !(1 << within);
        (self.first_free * CHUNK) as u32 + within
    }
}

impl Points {
    pub(super) fn new() -> Self {
        Self { segments: (0..SEGMENTS).map(|_| Segment::new()).collect() }
    }

    /// Hands each slot that may hold a key with this hash to `find`, until it returns something.
    #[inline]
    pub(super) fn find<T>(
        &self,
        hash: u64,
        mut find: impl FnMut(SlotId, &Slot) -> Option<T>,
    ) -> Option<T> {
        let number = hash as usize % SEGMENTS;
        let view = self.segments[number].view.load();
        let (words, tag) = (&view.words[..], tag(hash));
        let start = start(home(hash), words.len());
        // A plain loop: every look-up goes through here.
        let mut place = start;
        loop {
            let word = words[place].load(Ordering::Acquire);
            if word == EMPTY {
                return None;
            }
            if word >> INDEX_BITS == tag && word != TOMBSTONE {
                let index = index_of(word);
                let slot = view.slot(index);
                if let Some(found) = slot.and_then(|slot| find(SlotId::new(number, index), slot)) {
                    return Some(found);
                }
            }
            place = if place + 1 == words.len() { 0 } else { place + 1 };
            if place == start {
                return None;
            }
        }
    }

    /// Hands the slot to `visit`, unless it is gone.
    pub(super) fn visit<T>(&self, id: SlotId, visit: impl FnOnce(&Slot) -> T) -> Option<T> {
        self.segments[id.segment()].view.load().slot(id.index()).map(visit)
    }

    /// The right to add and remove keys with this hash.
    pub(super) fn change(&self, hash: u64) -> SegmentChange<'_> {
        let number = hash as usize % SEGMENTS;
        let segment = &self.segments[number];
        SegmentChange { segment, number, books: segment.books.lock() }
    }

    /// How many slots there are, vacant ones included.
    pub(super) fn slots(&self) -> usize {
        let chunks = |segment: &Segment| segment.view.load().chunks.iter().flatten().count();
        self.segments.iter().map(chunks).sum::<usize>() * CHUNK
    }

    /// Bytes allocated for tables and slots.
    pub(super) fn allocated_bytes(&self) -> usize {
        let words = |segment: &Segment| segment.view.load().words.len();
        let words: usize = self.segments.iter().map(words).sum();
        words * size_of::<AtomicU32>() + self.slots() * (size_of::<Slot>() + size_of::<u32>())
    }

    /// Returns memory that is no longer needed, one segment at a time.
    pub(super) fn tidy(&self) {
        for (number, segment) in self.segments.iter().enumerate() {
            SegmentChange { segment, number, books: segment.books.lock() }.tidy();
        }
    }

    /// The ids of all slots, vacant ones included, segment by segment.
    pub(super) fn all_ids(&self) -> impl Iterator<Item = SlotId> {
        self.segments.iter().enumerate().flat_map(|(number, segment)| {
            let slots = segment.view.load().chunks.len() * CHUNK;
            (0..slots as u32).map(move |index| SlotId::new(number, index))
        })
    }
}

impl Segment {
    fn new() -> Self {
        let view = View { words: empty_words(SMALLEST), chunks: Vec::new() };
        Self { view: ArcSwap::from_pointee(view), books: Mutex::default() }
    }
}

fn empty_words(len: usize) -> Arc<[AtomicU32]> {
    (0..len).map(|_| AtomicU32::new(EMPTY)).collect()
}

/// A segment whose keys can be added and removed.
#[derive(Debug)]
pub(super) struct SegmentChange<'a> {
    segment: &'a Segment,
    number: usize,
    books: MutexGuard<'a, Books>,
}

impl SegmentChange<'_> {
    /// Takes a vacant slot, lists it under `hash`, and lets `fill` fill it. `false`: there is none.
    ///
    /// It is listed first, under its lock. A reader on an old word may get to the slot another way,
    /// and must not see the record before everyone can.
    pub(super) fn add(&mut self, hash: u64, fill: impl FnOnce(SlotId, &mut SlotState)) -> bool {
        if !self.make_room() {
            return false;
        }
        let index = self.books.take_free();
        let view = self.segment.view.load();
        let place = view.vacancy(home(hash));
        let (Some(slot), Some(place)) = (view.slot(index), place) else { return false };
        let mut state = slot.lock();
        let replaced = view.words[place].swap(word(hash, index), Ordering::AcqRel);
        fill(SlotId::new(self.number, index), &mut state);
        self.books.homes[index as usize] = home(hash);
        self.books.entries += 1;
        self.books.tombstones -= usize::from(replaced == TOMBSTONE);
        true
    }

    /// Takes the slot off the list and gives it back. The caller has emptied it.
    ///
    /// `true` means that the segment now holds memory that [`Points::tidy`] would return.
    pub(super) fn remove(&mut self, hash: u64, id: SlotId) -> bool {
        let view = self.segment.view.load();
        let listed = word(hash, id.index());
        let is_listed = |place: &usize| view.words[*place].load(Ordering::Relaxed) == listed;
        if let Some(place) = view.places(home(hash)).find(is_listed) {
            view.words[place].store(TOMBSTONE, Ordering::Release);
            self.books.entries -= 1;
            self.books.tombstones += 1;
        }
        let chunk = id.index() as usize / CHUNK;
        self.books.free[chunk] |= 1 << (id.index() as usize % CHUNK);
        self.books.first_free = self.books.first_free.min(chunk);
        self.books.free[chunk] == ALL_FREE || self.is_oversized(&view)
    }

    fn is_oversized(&self, view: &View) -> bool {
        view.words.len() > SMALLEST && self.books.entries < view.words.len() / 8
    }

    /// Returns the memory of chunks without entries and of a table grown too large.
    fn tidy(&mut self) {
        let view = self.segment.view.load();
        if self.is_oversized(&view) {
            self.rebuild(&view);
        }
        let is_empty = |(free, chunk): (&u64, &Option<_>)| *free == ALL_FREE && chunk.is_some();
        if self.books.free.iter().zip(&view.chunks).any(is_empty) {
            self.drop_chunks();
        }
    }

    /// Sees to it that a table and a chunk have room for one more, unless the segment is full.
    fn make_room(&mut self) -> bool {
        let view = self.segment.view.load();
        let used = self.books.entries + self.books.tombstones + 1;
        if used * 8 > view.words.len() * 7 {
            self.rebuild(&view);
        }
        while self.books.free.get(self.books.first_free).is_some_and(|free| *free == 0) {
            self.books.first_free += 1;
        }
        let chunk = self.books.first_free;
        let view = self.segment.view.load();
        if view.chunks.get(chunk).is_none_or(Option::is_none) {
            if chunk >= MOST_CHUNKS {
                return false;
            }
            self.add_chunk(&view, chunk);
        }
        true
    }

    /// Publishes a table of a fitting size without tombstones.
    #[cold]
    fn rebuild(&mut self, view: &View) {
        let len = (self.books.entries * 3 / 2).max(SMALLEST);
        let next = View { words: empty_words(len), chunks: view.chunks.clone() };
        let words = view.words.iter().map(|word| word.load(Ordering::Relaxed));
        for word in words.filter(|word| *word > TOMBSTONE) {
            let home = self.books.homes[index_of(word) as usize];
            let vacancy = next.vacancy(home);
            vacancy.into_iter().for_each(|at| next.words[at].store(word, Ordering::Relaxed));
        }
        self.books.tombstones = 0;
        self.segment.view.store(Arc::new(next));
    }

    /// Kept out of its callers, which would have to make room on the stack for a whole chunk.
    #[cold]
    #[inline(never)]
    fn add_chunk(&mut self, view: &View, chunk: usize) {
        let mut chunks = view.chunks.clone();
        let slots: Arc<Chunk> = Arc::new(std::array::from_fn(|_| Slot::default()));
        if chunk == chunks.len() {
            chunks.push(Some(slots));
            self.books.free.push(ALL_FREE);
            self.books.homes.resize(chunks.len() * CHUNK, 0);
        } else {
            chunks[chunk] = Some(slots);
        }
        self.segment.view.store(Arc::new(View { words: Arc::clone(&view.words), chunks }));
    }

    /// Lets go of chunks without entries, and of the room for those after the last one.
    fn drop_chunks(&mut self) {
        let view = self.segment.view.load();
        let kept = |(chunk, free): (&Option<_>, &u64)| chunk.clone().filter(|_| *free != ALL_FREE);
        let mut chunks: Vec<_> = view.chunks.iter().zip(&self.books.free).map(kept).collect();
        while chunks.last().is_some_and(Option::is_none) {
            chunks.pop();
        }
        chunks.shrink_to_fit();
        self.books.free.truncate(chunks.len());
        self.books.free.shrink_to_fit();
        self.books.homes.truncate(chunks.len() * CHUNK);
        self.books.homes.shrink_to_fit();
        self.books.first_free = self.books.first_free.min(chunks.len());
        self.segment.view.store(Arc::new(View { words: Arc::clone(&view.words), chunks }));
    }
}
