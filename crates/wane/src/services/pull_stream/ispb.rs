//! [`Ispb`]: the number of an institution, eight digits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::PullStreamError;

/// The number of an institution in the payment system: exactly eight digits, zeros included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ispb([u8; 8]);

impl Ispb {
    /// The digits.
    pub fn as_str(&self) -> &str {
        // Digits alone are in it, which are always UTF-8.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    pub(super) fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

impl FromStr for Ispb {
    type Err = PullStreamError;

    fn from_str(text: &str) -> Result<Self, PullStreamError> {
        match <[u8; 8]>::try_from(text.as_bytes()) {
            Ok(digits) if digits.iter().all(u8::is_ascii_digit) => Ok(Self(digits)),
            Ok(_) | Err(_) => Err(PullStreamError::Invalid {
                field: "ispb",
                reason: "give exactly eight digits, such as 00000208".into(),
            }),
        }
    }
}

impl TryFrom<String> for Ispb {
    type Error = PullStreamError;

    fn try_from(text: String) -> Result<Self, PullStreamError> {
        text.parse()
    }
}

impl From<Ispb> for String {
    fn from(ispb: Ispb) -> Self {
        ispb.as_str().to_owned()
    }
}

impl fmt::Display for Ispb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Ispb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_digits_are_a_number_and_nothing_else_is() {
        assert_eq!("00000208".parse::<Ispb>().unwrap().as_str(), "00000208");
        for wrong in
            ["", "0000020", "000002080", "0000020a", " 0000208", "+0000208", "0000020\u{664}"]
        {
            assert!(wrong.parse::<Ispb>().is_err(), "{wrong:?}");
        }
    }
}
