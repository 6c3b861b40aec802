//! Tokens that are not ours, or not now: the exact status, one body for all that is wrong with a
//! signature, and a state that nothing of it changes.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use serde_json::Value as Json;

use super::wire::{Call, Pulled, Reply};
use super::{ISPB, MANY, OTHER, Streams, reader_of, start};

/// The key that tokens are signed with, known here so that tokens can be forged.
const SECRET: &[u8] = b"sixty-four bytes that only the server and this test know of.....";

/// A server whose key is known, and a reader with a batch in its hands.
struct Forge {
    streams: Streams,
    good: Pulled,
    header: Json,
    payload: Json,
}

impl Forge {
    fn new() -> Self {
        let keys = format!("k1:{}", STANDARD.encode(SECRET));
        let streams = Streams::with(&["--stream-keys", &keys]);
        streams.push_numbers(0..30);
        let good = streams.after(&streams.start());
        let part = |place| {
            let part = good.token().split('.').nth(place).unwrap();
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
        };
        let (header, payload) = (part(0), part(1));
        Self { streams, good, header, payload }
    }

    /// A token of these texts, signed as the server does.
    fn signed(&self, header: &str, payload: &str) -> String {
        let head = URL_SAFE_NO_PAD.encode(header);
        let signed = format!("{head}.{}", URL_SAFE_NO_PAD.encode(payload));
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac(ring::hmac::HMAC_SHA512, &signed)))
    }

    /// The payload with a field changed, under the right header, signed.
    fn claiming(&self, field: &str, value: impl Into<Json>) -> String {
        let value = value.into();
        let parts: Vec<_> = self.good.token().split('.').collect();
        let text = URL_SAFE_NO_PAD.decode(parts[1]).unwrap();
        let text = String::from_utf8(text).unwrap();
        let before = format!("{field:?}:{}", self.payload[field]);
        assert!(text.contains(&before), "{before} is not in {text}");
        let header = String::from_utf8(URL_SAFE_NO_PAD.decode(parts[0]).unwrap()).unwrap();
        self.signed(&header, &text.replace(&before, &format!("{field:?}:{value}")))
    }

    fn ask(&self, method: &str, token: &str) -> Reply {
        let path = format!("/api/v1/out/{ISPB}/stream/{token}");
        self.streams.ask(method, &path, &[MANY])
    }

    /// Fails unless the token is refused with this, and changes nothing.
    #[track_caller]
    fn refused(&self, name: &str, token: &str, status: u16, code: &str) {
        let before = self.streams.standing();
        for method in ["GET", "DELETE"] {
            let reply = self.ask(method, token);
            assert_eq!(reply.problem(), (status, code.into()), "{method}, {name}: {token}");
            assert_eq!(reply.header("pi-pull-next"), None, "{name}");
        }
        assert_eq!(self.streams.standing(), before, "{name}");
    }
}

fn mac(algorithm: ring::hmac::Algorithm, signed: &str) -> Vec<u8> {
    let key = ring::hmac::Key::new(algorithm, SECRET);
    ring::hmac::sign(&key, signed.as_bytes()).as_ref().to_vec()
}

/// Everything that is wrong with a signature, by its name.
fn unsigned(forge: &Forge) -> Vec<(&'static str, String)> {
    let token = forge.good.token();
    let [header, payload, signature]: [&str; 3] =
        token.split('.').collect::<Vec<_>>().try_into().unwrap();
    let kid = forge.header["kid"].as_str().unwrap();
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap();
    let raw = URL_SAFE_NO_PAD.decode(signature).unwrap();
    let head =
        |alg: &str, kid: &str| format!(r#"{{"alg":"{alg}","typ":"PI-PULL-NEXT","kid":"{kid}"}}"#);
    let with_head = |head: &str| forge.signed(head, &text);
    let with_payload = |payload: &str| format!("{header}.{payload}.{signature}");
    let with_mac = |algorithm, alg: &str| {
        let signed = format!("{}.{payload}", URL_SAFE_NO_PAD.encode(head(alg, kid)));
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac(algorithm, &signed)))
    };
    let unsigned_head = URL_SAFE_NO_PAD.encode(head("none", kid));
    let changed = URL_SAFE_NO_PAD.encode(text.replace(ISPB, OTHER));
    vec![
        ("another institution, not signed", with_payload(&changed)),
        ("a changed header", format!("{}.{payload}.{signature}", flipped(header, 5))),
        ("a changed payload", with_payload(&flipped(payload, 5))),
        ("a changed signature", format!("{header}.{payload}.{}", flipped(signature, 5))),
        ("the signature of nothing", format!("{header}.{payload}.{}", "A".repeat(86))),
        ("no signature", format!("{header}.{payload}.")),
        ("no signature and no dot", format!("{header}.{payload}")),
        ("a header alone", header.to_owned()),
        ("cut by one", token[..token.len() - 1].to_owned()),
        ("cut in half", token[..token.len() / 2].to_owned()),
        ("begun late", token[1..].to_owned()),
        ("bits behind the signature", format!("{header}.{payload}.{}", loose(signature))),
        ("padding", format!("{header}.{payload}.{}", URL_SAFE.encode(&raw))),
        ("padding of all parts", format!("{header}=.{payload}=.{signature}==")),
        ("the other alphabet", reencoded(token)),
        ("hexadecimal", format!("{header}.{payload}.{}", hex(&raw))),
        ("a letter more", format!("{token}A")),
        ("a dot more", format!("{token}.")),
        ("a part more", format!("{token}.AAAA")),
        ("a part before", format!("AAAA.{token}")),
        ("a line break", format!("{token}%0A")),
        ("a space", format!("{token}%20")),
        ("a zero byte", format!("{token}%00")),
        ("a byte that is no text", format!("{token}%FF")),
        ("twice", format!("{token}{token}")),
        ("alg none, not signed", format!("{unsigned_head}.{payload}.")),
        ("alg none, signed", with_head(&head("none", kid))),
        ("alg None", with_head(&head("None", kid))),
        ("alg HS256, claimed", with_head(&head("HS256", kid))),
        ("alg HS256, done", with_mac(ring::hmac::HMAC_SHA256, "HS256")),
        ("alg HS384, done", with_mac(ring::hmac::HMAC_SHA384, "HS384")),
        ("HS256 behind HS512", with_mac(ring::hmac::HMAC_SHA256, "HS512")),
        ("alg RS256", with_head(&head("RS256", kid))),
        ("alg hs512", with_head(&head("hs512", kid))),
        ("an unknown kid", with_head(&head("HS512", "k2"))),
        ("an empty kid", with_head(&head("HS512", ""))),
        ("a path as kid", with_head(&head("HS512", "../../dev/null"))),
        ("no kid", with_head(r#"{"alg":"HS512","typ":"PI-PULL-NEXT"}"#)),
        ("another type", with_head(&head("HS512", kid).replace("PI-PULL-NEXT", "JWT"))),
        ("spaces in the header", with_head(&head("HS512", kid).replace(':', ": "))),
        ("a key in the header", with_head(&head("HS512", kid).replace('}', r#","jwk":{}}"#))),
        ("no JSON", forge.signed(&head("HS512", kid), "nothing")),
        ("an empty payload", forge.signed(&head("HS512", kid), "")),
        ("a field more", forge.signed(&head("HS512", kid), &text.replace('}', r#","a":1}"#))),
        ("a changed place, signed", forge.claiming("cursor_offset", "0.0")),
        ("a later expiry, signed", forge.claiming("exp", 4_000_000_000_u64)),
        ("a thread that is a text", forge.claiming("thread", "0")),
        ("far too long", "A".repeat(3_000)),
        ("a word", "token".to_owned()),
        ("two dots", "a..b".to_owned()),
    ]
}

/// Another letter at this place.
fn flipped(part: &str, place: usize) -> String {
    let mut bytes = part.as_bytes().to_vec();
    bytes[place] = if bytes[place] == b'A' { b'B' } else { b'A' };
    String::from_utf8(bytes).unwrap()
}

/// The same bytes with bits set that no byte has: the last letter has four of them to spare.
fn loose(part: &str) -> String {
    const LETTERS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let (rest, last) = part.split_at(part.len() - 1);
    let place = LETTERS.iter().position(|letter| *letter == last.as_bytes()[0]).unwrap();
    assert_eq!(place % 16, 0, "canonical");
    format!("{rest}{}", char::from(LETTERS[place + 1]))
}

/// Each part in the standard alphabet, which differs in two letters, and with its padding.
fn reencoded(token: &str) -> String {
    let parts = token.split('.').map(|part| {
        let bytes = URL_SAFE_NO_PAD.decode(part).unwrap();
        let (plain, padded) = (STANDARD_NO_PAD.encode(&bytes), STANDARD.encode(&bytes));
        let text = if plain == part { padded } else { plain };
        text.replace('/', "%2F").replace('+', "%2B")
    });
    parts.collect::<Vec<_>>().join(".")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn whatever_is_wrong_with_a_token_is_one_answer_and_changes_nothing() {
    let forge = Forge::new();
    let mut bodies = Vec::new();
    for (name, token) in unsigned(&forge) {
        forge.refused(name, &token, 401, "invalid_token");
        let reply = forge.ask("GET", &token);
        bodies.push((name, reply.lasting_head(), reply.body));
    }
    let (_, head, body) = bodies[0].clone();
    for (name, other_head, other) in &bodies {
        assert!(*other == body, "{name} is told: {}", String::from_utf8_lossy(other));
        assert_eq!(*other_head, head, "{name}");
    }
    assert_eq!(forge.streams.after(&forge.good).messages.len(), 10, "the good one is still good");
}

/// Control: the forge signs as the server does, or nothing above would tell anything.
#[test]
fn a_forged_token_that_is_right_in_all_is_taken() {
    let forge = Forge::new();
    let same = forge.claiming("ispb", ISPB);
    assert_eq!(same, forge.good.token());
    assert_eq!(forge.ask("GET", &same).status, 200);
}

#[test]
fn a_signed_token_of_another_time_or_stream_is_told_what_it_is() {
    let forge = Forge::new();
    let sequence = forge.payload["cursor_seq"].as_u64().unwrap();
    let epoch = forge.payload["epoch"].as_u64().unwrap();
    let past = crate::wall_clock() / 1_000 - 1;
    forge.refused("expired", &forge.claiming("exp", past), 401, "token_expired");
    forge.refused("long expired", &forge.claiming("exp", 0), 401, "token_expired");
    let ahead = forge.claiming("cursor_seq", sequence + 1);
    forge.refused("of the future", &ahead, 400, "token_out_of_order");
    let far_ahead = forge.claiming("cursor_seq", u64::MAX);
    forge.refused("of the far future", &far_ahead, 400, "token_out_of_order");
    let other = forge.claiming("ispb", OTHER);
    forge.refused("of another institution", &other, 403, "forbidden");
    let threads = [(5, 401), (6, 401), (255, 401)];
    for (thread, status) in threads {
        let token = forge.claiming("thread", thread);
        assert_eq!(forge.ask("GET", &token).status, status, "thread {thread}");
        assert_eq!(forge.ask("DELETE", &token).status, 410, "thread {thread}");
    }
    let renewed = forge.claiming("epoch", epoch + 1);
    let reply = forge.ask("GET", &renewed);
    assert_eq!(reply.problem(), (401, "token_expired".into()), "of another reader of the slot");
    assert_eq!(forge.ask("DELETE", &renewed).problem(), (410, "gone".into()));
    assert_eq!(forge.streams.after(&forge.good).messages.len(), 10, "the good one is still good");
}

/// A real token of another institution's stream, at both places where it could be tried.
#[test]
fn a_token_of_another_institution_is_foreign() {
    let streams = Streams::new();
    let (server, key) = (&streams.server, reader_of(&streams.server, OTHER));
    let theirs = Pulled::of(Call::new("GET", &start(OTHER)).key(&key).send(server.http));
    let before = streams.standing();
    let crossed = theirs.next.replace(OTHER, ISPB);
    assert_eq!(streams.ask("GET", &crossed, &[]).problem(), (403, "forbidden".into()));
    assert_eq!(streams.ask("DELETE", &crossed, &[]).problem(), (403, "forbidden".into()));
    assert_eq!(streams.ask("GET", &theirs.next, &[]).problem(), (403, "forbidden".into()));
    assert_eq!(streams.standing(), before);
    let call = Call::new("DELETE", &theirs.next).key(&key);
    assert_eq!(call.send(server.http).status, 200, "theirs goes on as it was");
}

#[test]
fn an_institution_has_one_spelling() {
    let streams = Streams::new();
    let token = streams.start().token().to_owned();
    let before = streams.standing();
    for ispb in ["1234567", "123456789", "1234567a", "+1234567", "1234567%20", "%D9%A1", "12-45678"]
    {
        for path in [start(ispb), format!("/api/v1/out/{ispb}/stream/{token}")] {
            let reply = streams.ask("GET", &path, &[]);
            assert_eq!(reply.problem(), (400, "invalid_request".into()), "{path}");
        }
        let call = Call::new("POST", &super::inbox(ispb)).key(&streams.producer);
        let reply = call.header("content-type: application/xml").body(b"<a/>");
        let reply = reply.send(streams.server.http);
        assert_eq!(reply.problem(), (400, "invalid_request".into()), "{ispb}");
        for (method, what, body) in
            [("GET", "streams", ""), ("GET", "policies", ""), ("PUT", "policies", "{}")]
        {
            let path = format!("/api/v1/admin/{what}/{ispb}");
            let answer = streams.server.administer(method, &path, body);
            let told = (answer.status, answer.code());
            assert_eq!(told, (400, "invalid_request".into()), "{method} {path}");
        }
    }
    assert_eq!(streams.standing(), before);
}
