//! Where a list of the audit goes on: a place in each chain, as text that is good for one question.
//!
//! The text ends in a hash of the question and the places. So what was cut or mistyped, or was given
//! for another institution, region or span of time, is refused instead of leading somewhere. It is no
//! secret and no permission: whoever may ask may ask for everything.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use super::listing::Span;
use crate::services::pull_stream::PullStreamError;
use crate::services::pull_stream::log::Place;

/// Bytes of the hash that the text ends in.
const CHECK: usize = 8;

/// Bytes of the places: a row and an index for each chain.
const PLACES: usize = 4 * 8;

/// A row that no chain reaches.
const ROW_LIMIT: u64 = 1 << 53;

/// The next entry of a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Spot {
    pub(super) row: u64,
    pub(super) index: u64,
}

/// The text for these spots, transitions first.
pub(super) fn write(place: Place<'_>, span: Span, spots: [Spot; 2]) -> String {
    let places: Vec<u8> =
        spots.iter().flat_map(|spot| [spot.row, spot.index]).flat_map(u64::to_be_bytes).collect();
    let check = check(place, span, &places);
    URL_SAFE_NO_PAD.encode([&places[..], &check].concat())
}

/// The spots that the text names, if it was given for this question.
pub(super) fn read(place: Place<'_>, span: Span, text: &str) -> Result<[Spot; 2], PullStreamError> {
    spots(place, span, text).ok_or_else(|| PullStreamError::Invalid {
        field: "after",
        reason: "give what the page before had as next, with the same institution and times".into(),
    })
}

fn spots(place: Place<'_>, span: Span, text: &str) -> Option<[Spot; 2]> {
    let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
    let (places, told) = bytes.split_at_checked(PLACES)?;
    if told != check(place, span, places) {
        return None;
    }
    let mut numbers = places.chunks_exact(8).map(|chunk| {
        chunk.try_into().map(u64::from_be_bytes).ok().filter(|number| *number < ROW_LIMIT)
    });
    let mut spot = || Some(Spot { row: numbers.next()??, index: numbers.next()?? });
    Some([spot()?, spot()?])
}

fn check(place: Place<'_>, span: Span, places: &[u8]) -> [u8; CHECK] {
    let Span { from, to } = span;
    let hash = Sha256::new()
        .chain_update(b"wane audit\0")
        .chain_update([place.region.len() as u8])
        .chain_update(place.region)
        .chain_update(place.ispb.as_bytes())
        .chain_update(from.to_be_bytes())
        .chain_update(to.to_be_bytes())
        .chain_update(places)
        .finalize();
    std::array::from_fn(|at| hash[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Span = Span { from: 5, to: 7 };
    const SPOTS: [Spot; 2] = [Spot { row: 3, index: 1 }, Spot { row: 1 << 40, index: 0 }];

    fn place<'a>(region: &'a str, ispb: &str) -> Place<'a> {
        Place { region, ispb: ispb.parse().unwrap() }
    }

    #[test]
    fn a_text_is_good_for_the_question_that_it_was_given_for() {
        let here = place("local", "00000208");
        let text = write(here, SPAN, SPOTS);
        assert_eq!(read(here, SPAN, &text).unwrap(), SPOTS);
        let other_places = [place("local", "00000209"), place("loca", "00000208")];
        assert!(other_places.iter().all(|other| read(*other, SPAN, &text).is_err()));
        for other in [Span { from: 4, to: 7 }, Span { from: 5, to: u64::MAX }] {
            assert!(read(here, other, &text).is_err());
        }
    }

    #[test]
    fn no_changed_text_is_taken() {
        let here = place("local", "00000208");
        let text = write(here, SPAN, SPOTS);
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'B' { b'C' } else { b'B' };
            let changed = String::from_utf8(changed).unwrap();
            assert!(read(here, SPAN, &changed).is_err(), "{changed}");
            assert!(read(here, SPAN, &text[..at]).is_err(), "cut at {at}");
        }
        for added in ["A", "AAAA", "=", " "] {
            assert!(read(here, SPAN, &format!("{text}{added}")).is_err(), "{added:?}");
        }
        let beyond = [Spot { row: ROW_LIMIT, index: 0 }, SPOTS[1]];
        assert!(read(here, SPAN, &write(here, SPAN, beyond)).is_err());
    }
}
