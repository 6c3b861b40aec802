//! Bodies of one message or of several, as `multipart/mixed` (RFC 2046) has them.
//!
//! Invariant: what is between two boundaries is a message to its last byte, line breaks at its end
//! included. Nothing of it is decoded.

use bytes::Bytes;
use memchr::memmem::find;
use wane::clock::Clock;
use wane::services::pull_stream::{Batch, Delivered, ResourceId, XML};

/// The longest boundary (RFC 2046, section 5.1.1).
const LONGEST_BOUNDARY: usize = 70;

/// The media type and the body of messages that are sent.
pub(super) fn of_batch(batch: &Batch, clock: &dyn Clock) -> (String, Vec<u8>) {
    if let [message] = batch.messages() {
        return (XML.to_owned(), message.as_bytes().to_vec());
    }
    // Drawn after the messages were written: none of them has it, unless by a chance of 2^-128.
    let boundary = format!("wane-{:016x}{:016x}", clock.random_u64(), clock.random_u64());
    let mut body = Vec::new();
    for message in batch.messages() {
        body.extend(format!("--{boundary}\r\nContent-Type: {XML}\r\n\r\n").into_bytes());
        body.extend(message.as_bytes());
        body.extend(b"\r\n");
    }
    body.extend(format!("--{boundary}--\r\n").into_bytes());
    (format!("multipart/mixed; boundary={boundary}"), body)
}

/// The boundary of a multipart type; `None` for the type of one message.
pub(super) fn boundary(media_type: &str) -> Result<Option<String>, String> {
    let mut words = media_type.split(';').map(str::trim);
    let essence = words.next().unwrap_or_default().to_ascii_lowercase();
    if essence == "application/xml" {
        return Ok(None);
    }
    if essence != "multipart/mixed" {
        return Err(format!("messages do not come as {essence:?}"));
    }
    let boundary = words.find_map(|word| {
        let (name, value) = word.split_once('=')?;
        name.eq_ignore_ascii_case("boundary").then(|| value.trim_matches('"').to_owned())
    });
    let is_one = |boundary: &String| (1..=LONGEST_BOUNDARY).contains(&boundary.len());
    boundary.filter(is_one).map(Some).ok_or_else(|| "the parts have no boundary".into())
}

/// The messages of a multipart body.
pub(super) fn parts(body: &Bytes, boundary: &str) -> Result<Vec<Delivered>, String> {
    let broken = || "the parts are not whole".to_owned();
    let delimiter = format!("\r\n--{boundary}").into_bytes();
    // The first delimiter may be at the very beginning, without a line before it.
    let mut rest = match body.strip_prefix(&delimiter[2..]) {
        Some(rest) => body.slice_ref(rest),
        None => after(body, &delimiter).ok_or_else(broken)?.1,
    };
    let mut parts = Vec::new();
    while !rest.starts_with(b"--") {
        let line_end = find(&rest, b"\r\n").ok_or_else(broken)?;
        let is_blank = rest[..line_end].iter().all(|byte| matches!(byte, b' ' | b'\t'));
        if !is_blank {
            return Err(broken());
        }
        let (part, next) = after(&rest.slice(line_end..), &delimiter).ok_or_else(broken)?;
        parts.push(delivered(&part)?);
        rest = next;
    }
    Ok(parts)
}

/// What is before the first `delimiter`, and what is after it.
fn after(bytes: &Bytes, delimiter: &[u8]) -> Option<(Bytes, Bytes)> {
    let place = find(bytes, delimiter)?;
    Some((bytes.slice(..place), bytes.slice(place + delimiter.len()..)))
}

/// A part: the line break after its boundary, its head, a blank line, the message.
fn delivered(part: &Bytes) -> Result<Delivered, String> {
    let (head, bytes) = after(part, b"\r\n\r\n").ok_or("a part has no head")?;
    let head = std::str::from_utf8(&head).map_err(|_| "the head of a part is no text")?;
    let id = head.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is_id = name.eq_ignore_ascii_case("PI-ResourceId");
        is_id.then(|| value.trim().parse::<ResourceId>())
    });
    let id = id.ok_or("a part has no id")?.map_err(|error| error.to_string())?;
    Ok(Delivered { id, bytes })
}

#[cfg(test)]
mod tests {
    use wane::clock::ManualClock;
    use wane::services::pull_stream::Message;

    use super::*;

    const IDS: [&str; 2] = ["UEkA6NSlEABveoWQm6ZBvIfS3ejz/gkU", "UEkA6NSlEACdqLO+ydRP6rUACxYhLDdC"];

    /// A body as servers write it.
    fn written(messages: &[&[u8]]) -> Bytes {
        let mut body = Vec::new();
        for (id, message) in IDS.iter().zip(messages) {
            body.extend(b"--b\r\nContent-Type: application/xml\r\npi-RESOURCEID:  ");
            body.extend([id.as_bytes(), b"\r\n\r\n", message, b"\r\n"].concat());
        }
        body.extend(b"--b--\r\n");
        body.into()
    }

    fn read(body: &Bytes) -> Vec<Vec<u8>> {
        parts(body, "b").unwrap().into_iter().map(|part| part.bytes.to_vec()).collect()
    }

    #[test]
    fn messages_come_out_as_they_went_in() {
        for messages in [
            [&b"<a/>"[..], b"<b>\r\n</b>\n"],
            [b"\r\n\r\n", b"\r\n"],
            [b"\xFF\0\r", b" --b"],
            [b"\r\n--", b"--\r\n"],
            [b"", b"x"],
        ] {
            assert_eq!(read(&written(&messages)), messages, "{messages:?}");
        }
        let body = written(&[b"<a/>", b"<b/>"]);
        let ids: Vec<_> = parts(&body, "b").unwrap().iter().map(|it| it.id.to_string()).collect();
        assert_eq!(ids, IDS);
    }

    #[test]
    fn what_is_before_the_first_boundary_and_after_the_last_is_nothing() {
        let body = written(&[b"<a/>"]);
        let padded = [&b"a preamble\r\n"[..], &body, b"an epilogue"].concat();
        assert_eq!(read(&padded.into()), [b"<a/>"]);
        assert_eq!(read(&Bytes::from_static(b"--b--")), Vec::<Vec<u8>>::new());
        let blank = String::from_utf8(body.to_vec()).unwrap().replace("--b\r\n", "--b \t\r\n");
        assert_eq!(read(&blank.into()), [b"<a/>"], "blanks may follow a boundary");
    }

    #[test]
    fn a_body_that_was_cut_is_none() {
        let whole = written(&[b"<a/>", b"<b/>"]);
        let end = whole.len() - b"--\r\n".len();
        for length in 0..=end {
            assert!(parts(&whole.slice(..length), "b").is_err(), "cut at {length}");
        }
        assert!(parts(&whole, "another").is_err());
        let nameless = Bytes::from_static(b"--b\r\nContent-Type: a/b\r\n\r\n<a/>\r\n--b--");
        assert!(parts(&nameless, "b").is_err());
        let headless = Bytes::from_static(b"--b\r\n<a/>\r\n--b--");
        assert!(parts(&headless, "b").is_err());
    }

    #[test]
    fn boundaries_are_found_in_the_type() {
        for (media_type, expected) in [
            ("application/xml", Ok(None)),
            ("Application/XML;charset=utf-8", Ok(None)),
            ("multipart/mixed; boundary=pi-x_y", Ok(Some("pi-x_y"))),
            ("Multipart/Mixed;charset=a;BOUNDARY=\"a b\"", Ok(Some("a b"))),
            ("multipart/mixed", Err(())),
            ("multipart/mixed; boundary=", Err(())),
            ("multipart/form-data; boundary=b", Err(())),
            ("text/html", Err(())),
            ("", Err(())),
        ] {
            let found = boundary(media_type).map_err(|_| ());
            assert_eq!(found, expected.map(|it| it.map(ToOwned::to_owned)), "{media_type}");
        }
        assert!(boundary(&format!("multipart/mixed; boundary={}", "b".repeat(71))).is_err());
    }

    /// A part for each message, and no boundary twice.
    #[test]
    fn a_batch_is_one_body() {
        let clock = ManualClock::seeded(1);
        let batch = |messages: &[&'static str]| {
            let messages = messages.iter().map(|it| Message::new(*it).unwrap());
            of_batch(&Batch::new(messages.collect()).unwrap(), &*clock)
        };
        assert_eq!(batch(&["<a/>\n"]), (XML.to_owned(), b"<a/>\n".to_vec()));
        let (media_type, body) = batch(&["<a/>", "<b/>\r\n"]);
        let b = boundary(&media_type).unwrap().unwrap();
        let head = format!("--{b}\r\nContent-Type: {XML}\r\n\r\n");
        let expected = format!("{head}<a/>\r\n{head}<b/>\r\n\r\n--{b}--\r\n");
        assert_eq!(String::from_utf8(body).unwrap(), expected);
        assert_ne!(batch(&["<a/>", "<b/>"]).0, media_type);
    }
}
