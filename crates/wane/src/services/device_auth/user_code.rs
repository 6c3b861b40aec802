//! User codes: what a person reads off one screen and types into another.
//!
//! Letters from twenty consonants, so that no words come up and none looks like a digit; drawn
//! without bias; shown in groups. What is typed is normalised before anything else looks at it:
//! case, dashes and blanks make no difference, to the lookup or to the limits.

use std::fmt;

use super::DeviceAuthError;
use crate::clock::Clock;

/// The letters of a user code (RFC 8628, section 6.1).
pub const ALPHABET: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";

/// The most that anybody types for a code, blanks included.
const MOST_TYPED: usize = 128;

/// How many letters codes have: 8 to 20.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserCodeLength(usize);

impl UserCodeLength {
    /// Ten letters: 1.024e13 codes.
    pub const TEN: Self = Self(10);

    /// This many letters, or which numbers are legal.
    pub fn new(letters: usize) -> Result<Self, DeviceAuthError> {
        if (8..=20).contains(&letters) {
            return Ok(Self(letters));
        }
        let reason = format!("{letters} letters are outside of 8 to 20");
        Err(DeviceAuthError::Invalid { field: "userCodeLength", reason })
    }

    /// The number of letters.
    pub fn letters(self) -> usize {
        self.0
    }
}

/// A user code, normalised.
#[derive(Clone, PartialEq, Eq)]
pub struct UserCode(String);

impl UserCode {
    pub(super) fn draw(clock: &dyn Clock, length: UserCodeLength) -> Self {
        /// Bytes from here on would make some letters likelier than others.
        const FAIR: u8 = 240;
        let mut letters = String::with_capacity(length.0);
        while letters.len() < length.0 {
            let mut bytes = [0; 32];
            clock.fill_random(&mut bytes);
            let fair = bytes.into_iter().filter(|byte| *byte < FAIR);
            let drawn = fair.map(|byte| char::from(ALPHABET[usize::from(byte % 20)]));
            letters.extend(drawn.take(length.0 - letters.len()));
        }
        Self(letters)
    }

    /// What was typed, normalised; `None` for what is no code of this length.
    pub(super) fn parse(typed: &str, length: UserCodeLength) -> Option<Self> {
        if typed.len() > MOST_TYPED {
            return None;
        }
        let letters: String =
            typed.chars().filter(|c| !is_filler(*c)).map(|c| c.to_ascii_uppercase()).collect();
        let is_code = letters.len() == length.0 && letters.bytes().all(|b| ALPHABET.contains(&b));
        is_code.then_some(Self(letters))
    }

    /// The code as it is shown: in groups.
    pub fn reveal(&self) -> String {
        let size = if self.0.len().is_multiple_of(5) { 5 } else { 4 };
        let groups: Vec<&str> =
            (0..self.0.len()).step_by(size).filter_map(|at| self.group(at, size)).collect();
        groups.join("-")
    }

    fn group(&self, at: usize, size: usize) -> Option<&str> {
        self.0.get(at..self.0.len().min(at + size))
    }

    pub(super) fn letters(&self) -> &str {
        &self.0
    }
}

/// Blanks, also those without width that are pasted along, and every dash that a keyboard may turn a
/// dash into.
fn is_filler(c: char) -> bool {
    let is_dash = matches!(c, '-' | '\u{2010}'..='\u{2015}' | '\u{2212}' | '\u{AD}');
    let has_no_width = matches!(c, '\u{200B}'..='\u{200F}' | '\u{2060}' | '\u{FEFF}');
    is_dash || has_no_width || c.is_whitespace()
}

impl fmt::Debug for UserCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserCode(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    fn parsed(typed: &str) -> Option<UserCode> {
        UserCode::parse(typed, UserCodeLength::TEN)
    }

    #[test]
    fn case_dashes_and_blanks_make_no_difference() {
        let code = parsed("BCDFGHJKLM").unwrap();
        for typed in [
            "bcdfg-hjklm",
            " BCDFG HJKLM\n",
            "bCdFgHjKlM",
            "B-C-D-F-G-H-J-K-L-M",
            "bcdfg\u{2013}hjklm",
            "bcdfg\u{a0}hjklm",
            "\u{feff}bcdfg\u{200b}-hjklm\u{200e}",
        ] {
            assert_eq!(parsed(typed), Some(code.clone()), "{typed}");
        }
    }

    #[test]
    fn what_is_no_code_is_none() {
        let long = "B".repeat(10_000);
        for typed in ["", "-", "BCDFGHJKL", "BCDFGHJKLMN", "ACDFGHJKLM", "BCDFG.HJKLM", &long] {
            assert_eq!(parsed(typed), None, "{typed:.20}");
        }
        assert_eq!(parsed("\u{131}CDFGHJKLM"), None, "no other alphabet is folded into this one");
    }

    #[test]
    fn codes_are_shown_in_groups_and_read_back() {
        let clock = ManualClock::seeded(1);
        for (letters, shown) in [(8, 9), (9, 11), (10, 11), (12, 14), (15, 17), (20, 23)] {
            let length = UserCodeLength::new(letters).unwrap();
            let code = UserCode::draw(&*clock, length);
            assert_eq!(code.reveal().len(), shown, "{letters}");
            assert_eq!(UserCode::parse(&code.reveal(), length), Some(code));
        }
        assert!(UserCodeLength::new(7).is_err() && UserCodeLength::new(21).is_err());
    }

    /// 200,000 letters: each is drawn 10,000 times, give or take five standard deviations.
    #[test]
    fn every_letter_is_as_likely() {
        let clock = ManualClock::seeded(7);
        let mut seen = [0_i32; 256];
        for _ in 0..20_000 {
            let code = UserCode::draw(&*clock, UserCodeLength::TEN);
            code.letters().bytes().for_each(|letter| seen[usize::from(letter)] += 1);
        }
        for letter in ALPHABET {
            let off = (seen[usize::from(*letter)] - 10_000).abs();
            assert!(off < 500, "{}: off by {off}", char::from(*letter));
        }
    }
}
