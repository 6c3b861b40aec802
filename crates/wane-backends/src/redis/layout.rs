//! Names of keys: where a partition lives, and how to read its name back.
//!
//! A partition has three keys: `PREFIX:{BUCKET}:PARTITION:r` holds its records, `:c` their order,
//! `:x` their expiries. Partitions share 256 buckets, and each bucket has one more key,
//! `PREFIX:{BUCKET}:due`: which of its partitions the sweeper must look at, and when.
//!
//! Invariant: all keys that one script touches have one hash tag, the bucket, so that a cluster
//! keeps them on one server. The bytes of a partition stand outside of the tag and are
//! percent-encoded, so that no byte of them can pass for one.

use std::fmt::Write as _;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
use wane::store::Partition;

/// How many buckets there are. Part of the layout: another number is another layout.
pub(super) const BUCKETS: u16 = 256;

/// How many slots a cluster has.
const SLOTS: u16 = 16_384;

/// Bytes of a partition that stand for themselves.
const PLAIN: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~').remove(b'/');

/// The names of one store's keys.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    prefix: String,
}

/// Where a partition lives.
#[derive(Debug)]
pub(super) struct Place {
    /// Records, order, expiries, and the due partitions of its bucket: what scripts have as KEYS.
    pub(super) keys: [String; 4],
    /// The slot of all of them in a cluster.
    pub(super) slot: u16,
}

impl Layout {
    /// Names that begin with `prefix`, which has neither braces nor wildcards.
    pub(super) fn new(prefix: String) -> Self {
        Self { prefix }
    }

    /// Where `partition` lives.
    pub(super) fn place(&self, partition: &[u8]) -> Place {
        let bucket = bucket_of(partition);
        let encoded = percent_encode(partition, PLAIN);
        let mut base = String::with_capacity(self.prefix.len() + partition.len() * 2 + 16);
        // Writing to a string cannot fail.
        let _ = write!(base, "{}:{{{bucket:02x}}}:{encoded}", self.prefix);
        let [records, order, expiries] = ["r", "c", "x"].map(|part| [&base, ":", part].concat());
        let (due, slot) = self.due(bucket);
        Place { keys: [records, order, expiries, due], slot }
    }

    /// The due partitions of a bucket, and their slot.
    pub(super) fn due(&self, bucket: u16) -> (String, u16) {
        (format!("{}:{{{bucket:02x}}}:due", self.prefix), bucket_slot(bucket))
    }

    /// The key that says how the store is laid out.
    pub(super) fn version(&self) -> String {
        format!("{}:layout", self.prefix)
    }

    /// What the names of all records' keys match.
    pub(super) fn pattern(&self) -> String {
        format!("{}:{{*}}:*:r", self.prefix)
    }

    /// The partition whose records' key this is. Only a name that [`place`](Self::place) gives has one.
    pub(super) fn partition_of(&self, key: &[u8]) -> Option<Partition> {
        let rest = key.strip_prefix(self.prefix.as_bytes())?.strip_prefix(b":{")?;
        let encoded = rest.get(4..)?.strip_suffix(b":r")?;
        let partition = Partition::stored(percent_decode(encoded).collect::<Vec<_>>()).ok()?;
        (self.place(partition.as_bytes()).keys[0].as_bytes() == key).then_some(partition)
    }
}

fn bucket_of(partition: &[u8]) -> u16 {
    crc16(partition) % BUCKETS
}

fn bucket_slot(bucket: u16) -> u16 {
    slot_of(format!("{{{bucket:02x}}}").as_bytes())
}

/// The slot of a key in a cluster: of what stands between its first braces, or of all of it.
pub(super) fn slot_of(key: &[u8]) -> u16 {
    let tag = key.iter().position(|byte| *byte == b'{').and_then(|open| {
        let inside = &key[open + 1..];
        inside.iter().position(|byte| *byte == b'}').map(|close| &inside[..close])
    });
    crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(key)) % SLOTS
}

/// CRC-16/XMODEM, which is how Redis spreads keys.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc: u16, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of the cluster specification and of `CLUSTER KEYSLOT`.
    #[test]
    fn slots_are_those_of_redis() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        for (key, slot) in [
            ("foo", 12_182),
            ("{user1000}.following", slot_of(b"user1000")),
            ("foo{}{bar}", slot_of(b"foo{}{bar}")),
            ("foo{{bar}}zap", slot_of(b"{bar")),
            ("foo{bar}{zap}", 5_061),
            ("bar", 5_061),
        ] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    /// Braces, slashes, percent signs and every other byte in a partition.
    fn partitions() -> impl Iterator<Item = Vec<u8>> {
        let odd: [&[u8]; 8] =
            [b"{", b"}", b"{}", b"}{x}", b"%7B", b"a:r", b"{00}:a:r", b"plain/name"];
        let bytes = (0..=255_u8).map(|byte| vec![byte]);
        let long = [vec![0; 1_024], vec![0xFF; 1_024], vec![b'{'; 1_024]];
        odd.into_iter().map(<[u8]>::to_vec).chain(bytes).chain(long)
    }

    #[test]
    fn every_key_of_a_partition_is_in_one_slot() {
        let layout = Layout::new("wane".into());
        for partition in partitions() {
            let place = layout.place(&partition);
            for key in &place.keys {
                assert_eq!(slot_of(key.as_bytes()), place.slot, "{key}");
            }
        }
    }

    #[test]
    fn every_partition_is_read_back_from_its_key() {
        let layout = Layout::new("wane".into());
        for partition in partitions() {
            let key = &layout.place(&partition).keys[0];
            let back = layout.partition_of(key.as_bytes()).unwrap();
            assert_eq!(back.as_bytes(), partition, "{key}");
        }
    }

    #[test]
    fn other_keys_are_no_partitions() {
        let layout = Layout::new("wane".into());
        let name = layout.place(b"ab").keys[0].clone();
        assert!(layout.partition_of(name.as_bytes()).is_some());
        let bucket = &name[6..8];
        for key in [
            "wane:layout".to_owned(),
            name.replace(":r", ":c"),
            name.replace("wane", "other"),
            name.replace(bucket, "zz"),
            name.replace("ab", "%61b"),
            name.replace("ab", ""),
            format!("wane:{{{bucket}}}:r"),
            "wane:{".to_owned(),
        ] {
            assert!(layout.partition_of(key.as_bytes()).is_none(), "{key}");
        }
    }

    /// Small numbers and short names, as services have them, fill the buckets evenly enough.
    #[test]
    fn buckets_are_filled_evenly() {
        let mut filled = vec![0; usize::from(BUCKETS)];
        for number in 0..25_600_u32 {
            filled[usize::from(bucket_of(&number.to_be_bytes()))] += 1;
        }
        assert!(filled.iter().all(|count| (50..200).contains(count)), "{filled:?}");
    }
}
