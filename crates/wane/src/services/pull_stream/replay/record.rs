//! The record of a replay: which messages it is of, how far it was read, and the tokens of that.
//!
//! JSON, so that later versions read it; what they add is kept. It lives as long as the replay, and
//! everything about the replay is in it, so that any node can answer any reader.
//!
//! Pure: nothing is read or written here. A token is numbered: `seq` is the one that was issued
//! last. With it a reader goes on; with the one before it the reader is given what that one was
//! answered, again.
//!
//! Invariant: what was delivered, its form and the token that came with it follow from the record and
//! from rows that never change.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use crate::clock::Clock;
use crate::services::pull_stream::keys::TokenKeys;
use crate::services::pull_stream::message::MAX_BATCH;
use crate::services::pull_stream::reader::Form;
use crate::services::pull_stream::record::{COUNT_LIMIT, Position, Span, messages_in};
use crate::services::pull_stream::token::{self, Claimed, Kind, TokenHash};
use crate::services::pull_stream::{Ispb, Refusal};
use crate::store::{Key, Life, StoreError, Timestamp, Ttl, Value, Write};

/// The format that this version writes.
const FORMAT: u32 = 1;

/// The name of a replay, drawn for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(super) struct ReplayId(pub(super) [u8; 16]);

impl ReplayId {
    pub(super) fn draw(clock: &dyn Clock) -> Self {
        let mut id = [0; 16];
        clock.fill_random(&mut id);
        Self(id)
    }
}

impl From<ReplayId> for String {
    fn from(id: ReplayId) -> Self {
        URL_SAFE_NO_PAD.encode(id.0)
    }
}

impl TryFrom<String> for ReplayId {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| "it is not base64url")?;
        bytes.try_into().map(Self).map_err(|_| "it does not have 16 bytes")
    }
}

/// What a token of a replay says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplayClaims {
    pub(super) ispb: Ispb,
    pub(super) replay: ReplayId,
    /// Grows with each token of a replay.
    pub(super) seq: u64,
    /// Unix seconds from which on the token is good no more.
    pub(super) exp: u64,
    /// Unix seconds.
    pub(super) issued_at: u64,
}

impl Claimed for ReplayClaims {
    const KIND: Kind = Kind::Replay;

    fn ispb(&self) -> Ispb {
        self.ispb
    }

    fn exp(&self) -> u64 {
        self.exp
    }
}

/// Which replay of whom.
#[derive(Debug, Clone, Copy)]
pub(super) struct Named {
    pub(super) ispb: Ispb,
    pub(super) id: ReplayId,
}

/// Messages that are delivered next, and where to go on after them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Portion {
    pub(super) spans: Vec<Span>,
    pub(super) next: Position,
    pub(super) form: Form,
}

/// What a token asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asked {
    /// What comes next.
    More,
    /// What it was answered before.
    Again,
}

/// What the record says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Replay {
    format: u32,
    /// When its messages came in, in Unix milliseconds: half-open.
    from: u64,
    to: u64,
    /// The next message.
    pub(super) position: Position,
    /// The row to end at, which is where the log ended when the replay was asked for; or where it
    /// is known that nothing more of it comes.
    pub(super) end: u64,
    /// The number of the token that was issued last.
    pub(super) seq: u64,
    /// What the token before it was answered, and in which form.
    pub(super) delivered: Vec<Span>,
    pub(super) form: Form,
    /// When the last token was issued and until when all are good, in Unix milliseconds.
    issued_at: u64,
    expires_at: u64,
    kid: String,
    token_hash: Option<TokenHash>,
    /// Of the token before it.
    before_hash: Option<TokenHash>,
    #[serde(flatten)]
    more: Map<String, Json>,
}

impl Replay {
    /// A replay of the messages of a time among these rows, and its first token.
    pub(super) fn new(
        named: Named,
        times: &Range<Timestamp>,
        rows: Range<u64>,
        life: Ttl,
        (keys, now): (&TokenKeys, Timestamp),
    ) -> (Self, String) {
        let mut replay = Self {
            format: FORMAT,
            from: times.start.as_unix_millis(),
            to: times.end.as_unix_millis(),
            position: Position { row: rows.start, index: 0 },
            end: rows.end,
            seq: 0,
            delivered: Vec::new(),
            form: Form::default(),
            issued_at: 0,
            expires_at: now.after(life).as_unix_millis(),
            kid: String::new(),
            token_hash: None,
            before_hash: None,
            more: Map::new(),
        };
        let token = replay.issue(named, keys, now);
        (replay, token)
    }

    pub(super) fn times(&self) -> Range<Timestamp> {
        Timestamp::from_unix_millis(self.from)..Timestamp::from_unix_millis(self.to)
    }

    pub(super) fn expires_at(&self) -> Timestamp {
        Timestamp::from_unix_millis(self.expires_at)
    }

    /// The hash of the token that was issued last.
    pub(super) fn issued(&self) -> Option<TokenHash> {
        self.token_hash
    }

    /// What a token that is signed asks for.
    pub(super) fn asked(&self, seq: u64, hash: TokenHash) -> Result<Asked, Refusal> {
        let (asked, known) = if seq == self.seq {
            (Asked::More, self.token_hash)
        } else if seq + 1 == self.seq {
            (Asked::Again, self.before_hash)
        } else if seq < self.seq {
            return Err(Refusal::OutOfOrder);
        } else {
            return Err(Refusal::Ahead);
        };
        if known.is_some_and(|known| known.is(&hash)) { Ok(asked) } else { Err(Refusal::Tampered) }
    }

    /// The record once a portion was delivered, and the token that came with it.
    pub(super) fn advanced(
        &self,
        named: Named,
        portion: Portion,
        keys: &TokenKeys,
        now: Timestamp,
    ) -> (Self, String) {
        let mut next = self.clone();
        next.delivered = portion.spans;
        next.form = portion.form;
        next.position = portion.next;
        let token = next.issue(named, keys, now);
        (next, token)
    }

    /// The record once it is known that nothing comes any more; `None` where it says so already.
    pub(super) fn exhausted(&self) -> Option<Self> {
        let end = self.position.row;
        (self.end > end).then(|| Self { end, ..self.clone() })
    }

    fn issue(&mut self, named: Named, keys: &TokenKeys, now: Timestamp) -> String {
        self.seq += 1;
        self.issued_at = now.as_unix_millis();
        self.kid = keys.current().kid().to_owned();
        let token = token::issue(keys.current(), &self.claims(named));
        self.before_hash = self.token_hash;
        self.token_hash = Some(TokenHash::of(&token));
        token
    }

    /// The last token, the same each time; `None` where its key is not known here.
    pub(super) fn token(&self, named: Named, keys: &TokenKeys) -> Option<String> {
        Some(token::issue(keys.by_kid(&self.kid)?, &self.claims(named)))
    }

    fn claims(&self, Named { ispb, id }: Named) -> ReplayClaims {
        ReplayClaims {
            ispb,
            replay: id,
            seq: self.seq,
            exp: self.expires_at.div_ceil(1_000),
            issued_at: self.issued_at / 1_000,
        }
    }

    pub(super) fn read(key: &Key, value: &[u8]) -> Result<Self, StoreError> {
        let corrupt = |reason: String| StoreError::Corrupt { key: key.clone(), reason };
        let replay: Self = serde_json::from_slice(value)
            .map_err(|error| corrupt(format!("it is not the record of a replay: {error}")))?;
        if replay.format != FORMAT {
            return Err(corrupt(format!("format {} is not {FORMAT}; upgrade", replay.format)));
        }
        let counts = [replay.position.row, replay.end, replay.seq];
        if counts.iter().any(|count| *count >= COUNT_LIMIT) {
            return Err(corrupt("a number of it is beyond all that are counted".into()));
        }
        let is_batch = messages_in(&replay.delivered) <= MAX_BATCH;
        if !is_batch || !replay.delivered.iter().all(Span::is_legal) {
            return Err(corrupt("it has delivered what no batch can have".into()));
        }
        Ok(replay)
    }

    /// Its first write, which says how long it lives.
    pub(super) fn insertion(&self, life: Ttl) -> Result<Write, StoreError> {
        Ok(Write::new(self.value()?, Life::For(life)))
    }

    /// The write over an earlier one, with what is left of its life.
    pub(super) fn replacement(&self) -> Result<Write, StoreError> {
        Ok(Write::new(self.value()?, Life::Keep))
    }

    fn value(&self) -> Result<Value, StoreError> {
        let json = serde_json::to_vec(self).map_err(|error| {
            StoreError::invalid("replay", format!("it cannot be written: {error}"))
        })?;
        Value::new(json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::pull_stream::keys::TokenKey;
    use crate::services::pull_stream::token::Claims;

    const NOW: Timestamp = Timestamp::from_unix_millis(1_000_000_000_500);

    fn keys(current: &str) -> TokenKeys {
        let key = |kid: &str| TokenKey::new(kid, kid.repeat(32).as_bytes()).unwrap();
        let previous = (current != "a").then(|| key("a"));
        TokenKeys::new(key(current), previous).unwrap()
    }

    fn named() -> Named {
        Named { ispb: "00000208".parse().unwrap(), id: ReplayId([7; 16]) }
    }

    fn replay() -> (Replay, String) {
        let times = Timestamp::from_unix_millis(5)..Timestamp::from_unix_millis(9);
        let life = Ttl::from_secs(60).unwrap();
        Replay::new(named(), &times, 3..8, life, (&keys("a"), NOW))
    }

    fn portion(row: u64) -> Portion {
        let spans = vec![Span { row, index: 0, count: 2 }];
        Portion { spans, next: Position { row: row + 1, index: 0 }, form: Form::MULTIPART }
    }

    #[test]
    fn header_and_payload_are_as_designed() {
        let (_, token) = replay();
        let part = |at: usize| {
            let part = token.split('.').nth(at).unwrap();
            String::from_utf8(URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
        };
        assert_eq!(part(0), r#"{"alg":"HS512","typ":"PI-REPLAY","kid":"a"}"#);
        assert_eq!(
            part(1),
            r#"{"ispb":"00000208","replay":"BwcHBwcHBwcHBwcHBwcHBw","seq":1,"exp":1000000061,"issued_at":1000000000}"#
        );
    }

    /// Both are signed with one key, and neither is good for the other.
    #[test]
    fn a_token_of_one_kind_is_none_of_the_other() {
        let (keys, ispb) = (keys("a"), named().ispb);
        let (_, ours) = replay();
        assert!(token::verify::<ReplayClaims>(&keys, ispb, NOW, &ours).is_ok(), "the control");
        assert_eq!(token::verify::<Claims>(&keys, ispb, NOW, &ours), Err(Refusal::Tampered));
        let of_stream = Claims {
            ispb,
            thread: 0,
            cursor_seq: 1,
            cursor_offset: "-".into(),
            shard: "local:0".into(),
            epoch: 1,
            exp: 2_000_000_000,
            issued_at: 1_000_000_000,
        };
        let theirs = token::issue(keys.current(), &of_stream);
        assert!(token::verify::<Claims>(&keys, ispb, NOW, &theirs).is_ok(), "the control");
        let refused = token::verify::<ReplayClaims>(&keys, ispb, NOW, &theirs);
        assert_eq!(refused, Err(Refusal::Tampered));
    }

    #[test]
    fn the_last_token_goes_on_and_the_one_before_is_answered_again() {
        let (first, one) = replay();
        let hash = TokenHash::of;
        assert_eq!(first.asked(1, hash(&one)), Ok(Asked::More));
        assert_eq!(first.asked(0, hash(&one)), Err(Refusal::Tampered), "none was before it");
        let (second, two) = first.advanced(named(), portion(3), &keys("b"), NOW);
        assert_eq!(second.asked(1, hash(&one)), Ok(Asked::Again));
        assert_eq!(second.asked(2, hash(&two)), Ok(Asked::More));
        assert_eq!(second.asked(2, hash(&one)), Err(Refusal::Tampered), "signed, and never issued");
        assert_eq!(second.asked(1, hash(&two)), Err(Refusal::Tampered));
        assert_eq!(second.asked(3, hash(&two)), Err(Refusal::Ahead));
        let (third, _) = second.advanced(named(), portion(4), &keys("b"), NOW);
        assert_eq!(third.asked(1, hash(&one)), Err(Refusal::OutOfOrder));
        assert_eq!(second.token(named(), &keys("b")), Some(two));
        assert_eq!(second.token(named(), &keys("a")), None, "its key has not come there yet");
    }

    #[test]
    fn what_is_written_is_read_and_what_is_damaged_is_not() {
        let key = Key::new(b"p", b"").unwrap();
        let (record, _) = replay().0.advanced(named(), portion(3), &keys("a"), NOW);
        let written = record.replacement().unwrap().value;
        assert_eq!(Replay::read(&key, &written).unwrap(), record);
        let text = String::from_utf8(written.to_vec()).unwrap();
        for (good, bad) in [
            ("\"format\":1", "\"format\":2"),
            ("\"count\":2", "\"count\":0"),
            ("\"count\":2", "\"count\":11"),
            ("\"row\":4", "\"row\":18446744073709551615"),
            ("\"seq\":2", "\"seq\":\"2\""),
            ("{", "["),
        ] {
            let damaged = text.replace(good, bad);
            assert_ne!(damaged, text, "{good}");
            assert!(Replay::read(&key, damaged.as_bytes()).is_err(), "{bad}");
        }
        let more = text.replacen('{', "{\"later\":7,", 1);
        let kept = Replay::read(&key, more.as_bytes()).unwrap().replacement().unwrap();
        assert!(String::from_utf8_lossy(&kept.value).contains("\"later\":7"));
    }
}
