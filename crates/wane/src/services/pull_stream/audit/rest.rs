//! Where a check of the audit goes on: how far it is, as text that is good for one institution.
//!
//! The text ends in a hash of the institution and of what it says. So what was cut or mistyped, or was
//! given for another institution or region, is refused instead of leading somewhere. It is no secret:
//! whoever would skip rows need not check them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::verifying::{AuditCheck, Reached};
use crate::services::pull_stream::PullStreamError;
use crate::services::pull_stream::log::Place;
use crate::store::StoreError;

/// Bytes of the hash that the text ends in.
const CHECK: usize = 8;

/// How far a check of both chains is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(in super::super) struct Rest {
    /// The chains that are whole, in their order.
    pub(in super::super) done: Vec<AuditCheck>,
    /// How far the next one is.
    pub(in super::super) reached: Reached,
}

impl Rest {
    pub(in super::super) fn write(&self, place: Place<'_>) -> Result<String, StoreError> {
        let json = serde_json::to_vec(self)
            .map_err(|error| StoreError::invalid("audit", error.to_string()))?;
        Ok(URL_SAFE_NO_PAD.encode([&json[..], &check(place, &json)].concat()))
    }

    /// What the text says, if it was given for this institution.
    pub(in super::super) fn read(place: Place<'_>, text: &str) -> Result<Self, PullStreamError> {
        let read = || {
            let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
            let (json, told) = bytes.split_last_chunk::<CHECK>()?;
            serde_json::from_slice(json).ok().filter(|_| *told == check(place, json))
        };
        read().ok_or_else(|| PullStreamError::Invalid {
            field: "after",
            reason: "give what the answer before had as next, with the same institution".into(),
        })
    }
}

fn check(place: Place<'_>, json: &[u8]) -> [u8; CHECK] {
    let hash = Sha256::new()
        .chain_update(b"wane audit check\0")
        .chain_update([place.region.len() as u8])
        .chain_update(place.region)
        .chain_update(place.ispb.as_bytes())
        .chain_update(json)
        .finalize();
    std::array::from_fn(|at| hash[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_good_for_its_institution_and_no_changed_one_is_taken() {
        let here = Place { region: "local", ispb: "00000208".parse().unwrap() };
        let done = vec![AuditCheck { rows: 7, entries: 9 }];
        let rest = Rest { done, reached: Reached { rows: 3, entries: 4, ..Reached::default() } };
        let text = rest.write(here).unwrap();
        assert_eq!(Rest::read(here, &text).unwrap(), rest);
        assert!(Rest::read(Place { region: "other", ..here }, &text).is_err());
        assert!(Rest::read(Place { ispb: "00000209".parse().unwrap(), ..here }, &text).is_err());
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'B' { b'C' } else { b'B' };
            assert!(Rest::read(here, &String::from_utf8(changed).unwrap()).is_err(), "{at}");
            assert!(Rest::read(here, &text[..at]).is_err(), "cut at {at}");
        }
    }
}
