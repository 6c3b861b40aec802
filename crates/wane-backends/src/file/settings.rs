//! What can be set of a file store.

use std::path::PathBuf;

use crate::OpenError;

/// The least and the most memory for young records.
const LEAST_YOUNG: usize = 16 << 20;
const MOST_YOUNG: usize = 1 << 40;

/// The option of a URL that says how much.
const YOUNG_BYTES: &str = "young_bytes";

/// What can be set of a store whose directory is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSettings {
    /// Bytes of memory for records that have not reached the tree, and of log that is kept for them.
    /// Writers are slowed down before there are more. More of it lets more records expire before they
    /// cost the tree anything, and opening after a crash takes longer.
    young_bytes: usize,
}

impl Default for FileSettings {
    fn default() -> Self {
        Self { young_bytes: 256 << 20 }
    }
}

impl FileSettings {
    /// So many bytes for young records, from 16 MiB to 1 TiB.
    pub fn with_young_bytes(self, young_bytes: usize) -> Result<Self, OpenError> {
        if (LEAST_YOUNG..=MOST_YOUNG).contains(&young_bytes) {
            return Ok(Self { young_bytes });
        }
        let reason = format!("{YOUNG_BYTES} is outside of {LEAST_YOUNG} to {MOST_YOUNG}");
        Err(OpenError::BadUrl { backend: "file", reason })
    }

    /// So few bytes that no segment grows and each is soon written over, for the proofs.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn with_few_young_bytes(self, young_bytes: usize) -> Self {
        Self { young_bytes }
    }

    /// Bytes for young records.
    #[must_use]
    pub fn young_bytes(&self) -> usize {
        self.young_bytes
    }

    /// Takes `DIRECTORY?young_bytes=N` apart. A question mark that no option follows belongs to the
    /// directory.
    pub(crate) fn from_place(place: &str) -> Result<(PathBuf, Self), OpenError> {
        let options = place.rsplit_once('?').filter(|(_, options)| options.contains('='));
        let Some((directory, option)) = options else {
            return Ok((place.into(), Self::default()));
        };
        let value = option.strip_prefix(YOUNG_BYTES).and_then(|rest| rest.strip_prefix('='));
        let bad = |reason| OpenError::BadUrl { backend: "file", reason };
        let value = value.ok_or_else(|| bad(format!("it has no option {option:?}")))?;
        let bytes = value.parse().map_err(|_| bad(format!("{YOUNG_BYTES} is not a number")))?;
        Ok((directory.into(), Self::default().with_young_bytes(bytes)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_directory_and_may_have_an_option() {
        let place = |place| FileSettings::from_place(place).unwrap();
        let young = |bytes| FileSettings::default().with_young_bytes(bytes).unwrap();
        assert_eq!(place("/data"), ("/data".into(), FileSettings::default()));
        assert_eq!(place("/data?young_bytes=33554432"), ("/data".into(), young(32 << 20)));
        assert_eq!(place("/what?").0, PathBuf::from("/what?"));
        assert_eq!(place("/what??young_bytes=33554432"), ("/what?".into(), young(32 << 20)));
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_could_be() {
        for (place, says) in [
            ("/data?young_byte=1", "no option"),
            ("/data?young_bytes=many", "not a number"),
            ("/data?young_bytes=1", "outside of 16777216 to"),
            ("/data?young_bytes=1099511627777", "outside of"),
        ] {
            let refused = FileSettings::from_place(place).unwrap_err().to_string();
            assert!(refused.contains(says), "{place}: {refused}");
        }
    }
}
