//! Bodies: what a reader is sent, which follows from the messages alone.
//!
//! The boundary of a multipart body is the id of its first message. Ids are drawn after a message
//! has come, so that no message can hold one.
//!
//! Invariant: the same messages make the same bytes, whenever and wherever they are put together.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;

use super::log::SealedRow;
use super::reader::Form;
use super::record::Span;
use super::resource_id::ResourceId;

/// The type of one message.
pub const XML: &str = "application/xml;charset=utf-8";

/// Compresses what rows are served in, once, when they are sealed.
///
/// - **Deterministic.** The same bytes in are the same bytes out, on every node and in every
///   version that serves the same readers: a retry is answered with what was sent before.
pub trait Gzip: fmt::Debug + Send + Sync + 'static {
    /// The bytes as a gzip member.
    fn compress(&self, plain: &[u8]) -> Vec<u8>;
}

/// A message that is delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    /// Its name, the same each time.
    pub id: ResourceId,
    /// Its bytes, as they came.
    pub bytes: Bytes,
}

/// A batch as it is delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    form: Form,
    messages: Vec<Delivered>,
    /// The body, where the batch is one whole row.
    sealed: Option<Sealed>,
}

/// The body of a whole row.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sealed {
    plain: Bytes,
    gzip: Option<Bytes>,
}

/// What a response consists of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Body {
    /// For `Content-Type`.
    pub content_type: String,
    /// For `PI-ResourceId`, where the body is one message.
    pub resource_id: Option<ResourceId>,
    /// The bytes, not compressed.
    pub plain: Bytes,
    /// The same bytes as they were compressed when the row was sealed. Where there are none, and
    /// the form asks for them, compress `plain` by the same rules.
    pub gzip: Option<Bytes>,
}

impl Delivery {
    /// Puts a batch together from its rows; `None` where one is not among them, or lacks a message.
    pub(super) fn of(form: Form, spans: &[Span], rows: &[(u64, Arc<SealedRow>)]) -> Option<Self> {
        let row_of = |row: u64| rows.iter().find(|(known, _)| *known == row).map(|(_, row)| row);
        let mut messages = Vec::new();
        for span in spans {
            let row = row_of(span.row)?;
            for index in span.index..span.index + span.count {
                let (id, bytes) = row.message(index)?;
                messages.push(Delivered { id, bytes });
            }
        }
        let sealed = match spans {
            [Span { row, index: 0, count }] => row_of(*row).filter(|row| row.count() == *count),
            _ => None,
        };
        let sealed = sealed.map(|row| Sealed { plain: row.body(), gzip: row.gzip() });
        Some(Self { form, messages, sealed })
    }

    /// The form that it is kept in: a retry gets this one, whatever it asks for.
    pub fn form(&self) -> Form {
        self.form
    }

    /// The messages, in order: one to ten, or one.
    pub fn messages(&self) -> &[Delivered] {
        &self.messages
    }

    /// The response.
    pub fn body(&self) -> Body {
        let [first, ..] = &self.messages[..] else {
            return Body {
                content_type: XML.into(),
                resource_id: None,
                plain: Bytes::new(),
                gzip: None,
            };
        };
        if !self.form.multipart {
            let (plain, resource_id) = (first.bytes.clone(), Some(first.id));
            return Body { content_type: XML.into(), resource_id, plain, gzip: None };
        }
        let content_type = format!("multipart/mixed; boundary={}", boundary(first.id));
        let (plain, gzip) = match &self.sealed {
            Some(sealed) => (sealed.plain.clone(), sealed.gzip.clone()),
            None => {
                let parts = self.messages.iter().map(|message| (message.id, &message.bytes[..]));
                let mut body = Vec::new();
                push_multipart(&mut body, parts);
                (body.into(), None)
            }
        };
        Body { content_type, resource_id: None, plain, gzip }
    }
}

fn boundary(first: ResourceId) -> String {
    format!("pi-{}", first.url_safe())
}

/// Adds the multipart body of these messages: where each of them lies, counted from its beginning.
pub(super) fn push_multipart<'a>(
    to: &mut Vec<u8>,
    parts: impl Iterator<Item = (ResourceId, &'a [u8])> + Clone,
) -> Vec<Range<usize>> {
    let Some((first, _)) = parts.clone().next() else { return Vec::new() };
    let (boundary, start) = (boundary(first), to.len());
    let mut places = Vec::new();
    for (id, bytes) in parts {
        let head = format!("--{boundary}\r\nContent-Type: {XML}\r\nPI-ResourceId: {id}\r\n\r\n");
        to.extend_from_slice(head.as_bytes());
        let place = to.len() - start;
        places.push(place..place + bytes.len());
        to.extend_from_slice(bytes);
        to.extend_from_slice(b"\r\n");
    }
    to.extend_from_slice(format!("--{boundary}--\r\n").as_bytes());
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn a_multipart_body_has_one_part_for_each_message() {
        let clock = ManualClock::seeded(1);
        let ids = [ResourceId::draw(&*clock), ResourceId::draw(&*clock)];
        let messages = [&b"<a>\r\n</a>"[..], b"\xFF\n"];
        let mut body = b"before".to_vec();
        let places = push_multipart(&mut body, ids.into_iter().zip(messages));
        let body = body.split_off(b"before".len());
        let boundary = format!("pi-{}", ids[0].url_safe());
        let expected = [
            format!("--{boundary}\r\nContent-Type: application/xml;charset=utf-8\r\n").as_bytes(),
            format!("PI-ResourceId: {}\r\n\r\n<a>\r\n</a>\r\n", ids[0]).as_bytes(),
            format!("--{boundary}\r\nContent-Type: application/xml;charset=utf-8\r\n").as_bytes(),
            format!("PI-ResourceId: {}\r\n\r\n", ids[1]).as_bytes(),
            b"\xFF\n\r\n",
            format!("--{boundary}--\r\n").as_bytes(),
        ]
        .concat();
        assert_eq!(body, expected);
        let found: Vec<_> = places.into_iter().map(|place| &body[place]).collect();
        assert_eq!(found, messages);
    }
}
