//! What a watch reports, and the bounded inbox that it is read from.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::board::Board;
use super::regions::Seat;
use crate::store::{Key, Timestamp, Value};

/// What happened to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// An insert was applied.
    Inserted,
    /// A swap was applied.
    Swapped,
    /// A put was applied, or a value was found that nobody had confirmed.
    Put,
    /// A delete was applied.
    Deleted,
    /// The record reached its expiry.
    Expired,
}

/// A change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Grows with every event of the store, also across restarts. Not every number is used.
    pub id: u64,
    /// What happened.
    pub kind: EventKind,
    /// Where.
    pub key: Key,
    /// The value written or, by a delete or an expiry, the one that went.
    pub value: Value,
    /// The expiry of that value.
    pub expires_at: Option<Timestamp>,
}

/// What a watch hears next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// The next change.
    Event(Event),
    /// Changes up to and including `newest` may have been missed: read the range anew. The watch
    /// goes on after it.
    Gap {
        /// The newest event that the gap may hold.
        newest: u64,
    },
}

impl Notice {
    pub(super) fn id(&self) -> u64 {
        match self {
            Self::Event(event) => event.id,
            Self::Gap { newest } => *newest,
        }
    }

    /// About how much memory the notice holds on to.
    pub(super) fn size(&self) -> usize {
        let content = match self {
            Self::Event(event) => event.key.size() + event.value.len(),
            Self::Gap { .. } => 0,
        };
        size_of::<Self>() + content
    }
}

/// How much a [`WatchedStore`](super::WatchedStore) remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchLimits {
    /// Notices that one watch may leave unread before they become a gap.
    pub unread_notices: usize,
    /// Bytes that one watch may leave unread before they become a gap.
    pub unread_bytes: usize,
    /// Events kept for watches that resume, all ranges together.
    pub recent_events: usize,
    /// Bytes kept for watches that resume, all ranges together.
    pub recent_bytes: usize,
    /// How long a range is followed after its last watch ended, so that one can resume.
    pub linger: Duration,
}

impl Default for WatchLimits {
    fn default() -> Self {
        Self {
            unread_notices: 1_024,
            unread_bytes: 4 << 20,
            recent_events: 8_192,
            recent_bytes: 16 << 20,
            linger: Duration::from_secs(60),
        }
    }
}

/// A watch over a range. Dropping it ends it; its range lingers for one that resumes.
#[derive(Debug)]
pub struct Watch {
    board: Arc<Board>,
    seat: Seat,
}

impl Watch {
    pub(super) fn new(board: Arc<Board>, seat: Seat) -> Self {
        Self { board, seat }
    }

    pub(super) fn seat(&self) -> &Seat {
        &self.seat
    }

    /// Waits for the next notice, or returns `None` once the store was closed or dropped.
    ///
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Notice> {
        self.seat.inbox.next().await
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.board.leave(&self.seat);
    }
}

/// The unread notices of one watch.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    unread: Mutex<Unread>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Unread {
    notices: VecDeque<Notice>,
    bytes: usize,
    closed: bool,
}

impl Inbox {
    /// Adds a notice. Where that is too much, a gap takes the place of everything unread.
    pub(super) fn push(&self, notice: Notice, limits: &WatchLimits) {
        let mut unread = self.unread.lock();
        unread.bytes += notice.size();
        let id = notice.id();
        unread.notices.push_back(notice);
        if unread.notices.len() > limits.unread_notices || unread.bytes > limits.unread_bytes {
            let gap = Notice::Gap { newest: id };
            unread.bytes = gap.size();
            unread.notices = VecDeque::from([gap]);
        }
        drop(unread);
        self.arrived.notify_one();
    }

    pub(super) fn close(&self) {
        self.unread.lock().closed = true;
        self.arrived.notify_one();
    }

    async fn next(&self) -> Option<Notice> {
        loop {
            // The permit of a notice that came before is kept: a watch has one reader.
            let arrived = self.arrived.notified();
            if let Some(answer) = self.take() {
                return answer;
            }
            arrived.await;
        }
    }

    /// The next notice, or `Some(None)` where none will come any more.
    fn take(&self) -> Option<Option<Notice>> {
        let mut unread = self.unread.lock();
        let Some(notice) = unread.notices.pop_front() else {
            return unread.closed.then_some(None);
        };
        unread.bytes -= notice.size();
        Some(Some(notice))
    }
}
