//! Byte strings that are short nearly always: kept in place up to `N` bytes, shared beyond.
//!
//! Keys are made for every request and compared at every look-up. In place they cost no
//! allocation to make and no cache miss to compare.

use std::cmp::Ordering;
use std::sync::Arc;

/// An immutable byte string of up to `N` bytes in place, or of any length on the heap.
///
/// With `N` two less than a multiple of eight nothing is lost to padding.
#[derive(Debug, Clone)]
pub(super) enum InlineBytes<const N: usize> {
    Here { len: u8, bytes: [u8; N] },
    Heap(Arc<[u8]>),
}

impl<const N: usize> InlineBytes<N> {
    /// The two parts, joined.
    #[inline]
    pub(super) fn join(front: &[u8], back: &[u8]) -> Self {
        Self::join_three(front, &[], back)
    }

    /// The three parts, joined.
    #[inline]
    pub(super) fn join_three(front: &[u8], middle: &[u8], back: &[u8]) -> Self {
        let head = front.len() + middle.len();
        let len = head + back.len();
        if len > N || len > usize::from(u8::MAX) {
            return Self::Heap(front.iter().chain(middle).chain(back).copied().collect());
        }
        let mut bytes = [0; N];
        bytes[..front.len()].copy_from_slice(front);
        bytes[front.len()..head].copy_from_slice(middle);
        bytes[head..len].copy_from_slice(back);
        Self::Here { len: len as u8, bytes }
    }

    /// Bytes that the string takes outside of itself.
    pub(super) fn bytes_outside(&self) -> usize {
        match self {
            Self::Here { .. } => 0,
            Self::Heap(bytes) => bytes.len(),
        }
    }

    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Here { len, bytes } => &bytes[..usize::from(*len)],
            Self::Heap(bytes) => bytes,
        }
    }
}

impl<const N: usize> From<&[u8]> for InlineBytes<N> {
    fn from(bytes: &[u8]) -> Self {
        Self::join(bytes, &[])
    }
}

impl<const N: usize> PartialEq for InlineBytes<N> {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl<const N: usize> Eq for InlineBytes<N> {}

impl<const N: usize> PartialOrd for InlineBytes<N> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<const N: usize> Ord for InlineBytes<N> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_slice().cmp(other.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_length_comes_back_whole() {
        for len in [0, 1, 29, 30, 31, 255, 256, 2_048] {
            let bytes: Vec<u8> = (0..len).map(|number| number as u8).collect();
            for split in [0, len / 2, len] {
                let joined = InlineBytes::<30>::join(&bytes[..split], &bytes[split..]);
                assert_eq!(joined.as_slice(), bytes);
                assert_eq!(matches!(joined, InlineBytes::Heap(_)), len > 30);
            }
        }
    }

    #[test]
    fn nothing_is_lost_to_padding() {
        assert_eq!(size_of::<InlineBytes<30>>(), 32);
        assert_eq!(size_of::<InlineBytes<38>>(), 40);
    }
}
