//! Disguised event ids: an application must not count the events of others.
//!
//! Events of the whole store share one counter, and an application that sees its gaps sees how much
//! happens elsewhere. So each application gets the numbers through a permutation of its own: a
//! Feistel network of four rounds, keyed by a secret of this process. Ids of an earlier process turn
//! into numbers that nobody knows, and resuming from one is a gap, as it would be anyway.

use sha2::{Digest, Sha256};

use super::ClusterAppId;

const ROUNDS: u8 = 4;

/// The permutation of one application.
#[derive(Debug, Clone, Copy)]
pub(super) struct Disguise {
    secret: u64,
    app: ClusterAppId,
}

impl Disguise {
    pub(super) fn new(secret: u64, app: ClusterAppId) -> Self {
        Self { secret, app }
    }

    /// The id that the application sees.
    pub(super) fn put_on(self, id: u64) -> u64 {
        let (mut left, mut right) = ((id >> 32) as u32, id as u32);
        for round in 0..ROUNDS {
            (left, right) = (right, left ^ self.mix(round, right));
        }
        u64::from(left) << 32 | u64::from(right)
    }

    /// The id that it stands for.
    pub(super) fn take_off(self, id: u64) -> u64 {
        let (mut left, mut right) = ((id >> 32) as u32, id as u32);
        for round in (0..ROUNDS).rev() {
            (left, right) = (right ^ self.mix(round, left), left);
        }
        u64::from(left) << 32 | u64::from(right)
    }

    fn mix(self, round: u8, half: u32) -> u32 {
        let mut hash = Sha256::new();
        hash.update(self.secret.to_be_bytes());
        hash.update(self.app.0.to_be_bytes());
        hash.update([round]);
        hash.update(half.to_be_bytes());
        let hash = hash.finalize();
        u32::from_be_bytes([hash[0], hash[1], hash[2], hash[3]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_on_comes_off() {
        let disguise = Disguise::new(7, ClusterAppId(1));
        for id in [0, 1, 2, 1 << 32, u64::MAX, 1_794_755_726_417_000] {
            assert_eq!(disguise.take_off(disguise.put_on(id)), id);
        }
    }

    #[test]
    fn neighbours_are_far_apart_and_differ_between_applications() {
        let (one, two) = (Disguise::new(7, ClusterAppId(1)), Disguise::new(7, ClusterAppId(2)));
        for id in 1_000..1_100 {
            assert!(one.put_on(id).abs_diff(one.put_on(id + 1)) > 1 << 20);
            assert_ne!(one.put_on(id), two.put_on(id));
        }
    }
}
