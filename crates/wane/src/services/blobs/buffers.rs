//! The memory of chunks on their way in, used again.
//!
//! A chunk is filled by one thread and freed by another, megabytes later. What an allocator gives
//! back to the system by then comes back as new pages, each of which has to be cleared. So a few
//! buffers are kept, and a chunk that was written gives its own back.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::Mutex;

use super::chunks::CHUNK;

/// Buffers that are kept, at most: 6.5 MB.
const KEPT: usize = 64;

/// Buffers that nobody uses.
#[derive(Debug, Default)]
pub(super) struct Buffers {
    free: Mutex<Vec<Vec<u8>>>,
}

impl Buffers {
    /// An empty buffer with room for a chunk.
    pub(super) fn take(&self) -> Vec<u8> {
        self.free.lock().pop().unwrap_or_else(|| Vec::with_capacity(CHUNK))
    }

    /// The bytes of `filled`, whose memory comes back with the last of them.
    pub(super) fn lend(self: &Arc<Self>, filled: Vec<u8>) -> Bytes {
        Bytes::from_owner(Lent { filled, owner: Arc::downgrade(self) })
    }
}

struct Lent {
    filled: Vec<u8>,
    owner: Weak<Buffers>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.filled
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let Some(buffers) = self.owner.upgrade() else { return };
        let mut buffer = std::mem::take(&mut self.filled);
        buffer.clear();
        let mut free = buffers.free.lock();
        if free.len() < KEPT {
            free.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_comes_back_once_nobody_has_its_bytes() {
        let buffers = Arc::new(Buffers::default());
        let mut buffer = buffers.take();
        buffer.extend_from_slice(b"chunk");
        let memory = buffer.as_ptr();
        let bytes = buffers.lend(buffer);
        let part = bytes.slice(1..3);
        drop(bytes);
        assert!(buffers.free.lock().is_empty(), "it is still in use");
        assert_eq!(part, &b"hu"[..]);
        drop(part);
        let again = buffers.take();
        assert_eq!(again.as_ptr(), memory);
        assert!(again.is_empty() && again.capacity() >= CHUNK);
    }

    #[test]
    fn no_more_are_kept_than_a_few() {
        let buffers = Arc::new(Buffers::default());
        let lent: Vec<_> = (0..2 * KEPT).map(|_| buffers.lend(buffers.take())).collect();
        drop(lent);
        assert_eq!(buffers.free.lock().len(), KEPT);
        let last = buffers.lend(buffers.take());
        drop(buffers);
        drop(last);
    }
}
