//! Which bucket a key is in, and the key with and without it.

use sha2::{Digest, Sha256};

use crate::store::{Key, Keyspace};

/// How many buckets there are: at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Buckets(u16);

impl Buckets {
    /// This many buckets, unless it is none.
    pub(super) fn new(number: u16) -> Option<Self> {
        (number > 0).then_some(Self(number))
    }

    pub(super) fn number(self) -> u16 {
        self.0
    }

    /// Whether rows of this partition, as callers know it or as the backend holds it, are spread.
    pub(super) fn spread(self, partition: &[u8]) -> bool {
        self.0 > 1 && Keyspace::of(partition).is_some_and(Keyspace::has_independent_keys)
    }

    /// The bucket of a row.
    pub(super) fn of(self, clustering: &[u8]) -> u16 {
        let digest: [u8; 32] = Sha256::digest(clustering).into();
        let [a, b, c, d, e, f, g, h, ..] = digest;
        let hash = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
        // Less than the number, which is a u16.
        (hash % u64::from(self.0)) as u16
    }

    /// The key under which the backend holds `key`.
    pub(super) fn stored(self, key: &Key) -> Key {
        if self.spread(key.partition()) {
            return key.in_bucket(self.of(key.clustering()));
        }
        key.clone()
    }

    /// The key that the backend holds as `key`, or none where no key is held as that.
    pub(super) fn original(self, key: &Key) -> Option<Key> {
        if !self.spread(key.partition()) {
            return Some(key.clone());
        }
        let (original, bucket) = key.out_of_bucket()?;
        let is_spread = self.spread(original.partition());
        (is_spread && bucket == self.of(key.clustering())).then_some(original)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(number: u16) -> Buckets {
        Buckets::new(number).unwrap()
    }

    fn key(keyspace: Keyspace, clustering: &[u8]) -> Key {
        Key::new(keyspace.partition(b"rest").unwrap().as_bytes(), clustering).unwrap()
    }

    /// Data that was written must be found by every later version: these numbers never change.
    #[test]
    fn buckets_are_the_same_for_ever() {
        let of = |number, clustering: &[u8]| buckets(number).of(clustering);
        // The first eight bytes of the SHA-256 of nothing: e3b0c44298fc1c14.
        assert_eq!(of(256, b""), 0x14);
        assert_eq!(u64::from(of(65_535, b"")), 0xE3B0_C442_98FC_1C14 % 65_535);
        // And of "abc": ba7816bf8f01cfea.
        assert_eq!(of(256, b"abc"), 0xEA);
        assert_eq!(of(2, b"abc"), 0);
        assert_eq!(u64::from(of(1_000, b"abc")), 0xBA78_16BF_8F01_CFEA % 1_000);
    }

    #[test]
    fn one_bucket_is_the_layout_without_a_spread() {
        for keyspace in Keyspace::ALL {
            let key = key(keyspace, b"row");
            assert_eq!(buckets(1).stored(&key), key);
            assert_eq!(buckets(1).original(&key), Some(key));
        }
    }

    #[test]
    fn a_bucket_is_two_bytes_after_the_partition() {
        let stored = buckets(256).stored(&key(Keyspace::AppTtl, b"abc"));
        assert_eq!(stored.partition(), b"\0\0\0\x04rest\0\xEA");
        assert_eq!(stored.clustering(), b"abc");
    }

    #[test]
    fn only_keyspaces_of_independent_keys_are_spread() {
        let spread: Vec<_> = Keyspace::ALL
            .into_iter()
            .filter(|keyspace| {
                let key = key(*keyspace, b"row");
                let stored = buckets(256).stored(&key);
                assert_eq!(buckets(256).original(&stored), Some(key.clone()));
                stored != key
            })
            .map(|keyspace| keyspace as u32)
            .collect();
        assert_eq!(spread, [1, 4, 6, 11]);
        for partition in [&b"k"[..], b"\0\0\0", b"\0\0\0\0", b"\0\0\0\x0C", b"tests"] {
            let key = Key::new(partition, b"row").unwrap();
            assert_eq!(buckets(256).stored(&key), key);
        }
    }

    /// Rows that were written without the spread must not pass for others.
    #[test]
    fn a_key_outside_of_its_bucket_is_nobodys() {
        let right = buckets(256).stored(&key(Keyspace::Elections, b"row"));
        assert!(buckets(256).original(&right).is_some());
        for wrong in [
            buckets(255).stored(&key(Keyspace::Elections, b"row")),
            Key::new(right.partition(), b"other").unwrap(),
            Key::new(&Keyspace::Elections.prefix(), b"row").unwrap(),
            Key::new(b"\0\0\0\x01\0", b"row").unwrap(),
        ] {
            assert_eq!(buckets(256).original(&wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn keys_fall_evenly() {
        let mut counts = vec![0_u32; 256];
        for number in 0..256_000_u32 {
            counts[usize::from(buckets(256).of(format!("user/{number}").as_bytes()))] += 1;
        }
        let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        // 1,000 each, give or take five standard deviations.
        assert!(*least > 840 && *most < 1_160, "from {least} to {most}");
    }
}
