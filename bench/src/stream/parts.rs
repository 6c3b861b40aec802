//! The parts of a multipart body, each with its id and its message of [`MESSAGE`] bytes.
//!
//! Lengths are known, so that messages are stepped over and not searched. Whatever does not lie where
//! it should is an error: a body that was cut or put together wrongly is noticed.

use super::message::MESSAGE;
use crate::BoxError;

/// More than the head of a part takes.
const HEAD: usize = 300;

/// Ids and messages of a body, in order.
pub(super) fn parts(body: &[u8]) -> Result<Vec<(&str, &[u8])>, BoxError> {
    let line = body.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let delimiter = Some(line).filter(|line| line.starts_with(b"--") && line.len() < HEAD);
    let delimiter = delimiter.ok_or("a body without a boundary")?;
    let (mut found, mut rest) = (Vec::new(), body);
    loop {
        rest = rest.strip_prefix(delimiter).ok_or("a part does not begin where it should")?;
        if rest == b"--\r\n" {
            return Ok(found);
        }
        let near = &rest[..rest.len().min(HEAD)];
        let head = near.windows(4).position(|window| window == b"\r\n\r\n");
        let (head, after) = rest.split_at(head.ok_or("a part without a head")? + 4);
        let (message, after) = after.split_at_checked(MESSAGE).ok_or("a message was cut")?;
        found.push((id_of(head)?, message));
        rest = after.strip_prefix(b"\r\n").ok_or("a message is longer than it was")?;
    }
}

fn id_of(head: &[u8]) -> Result<&str, BoxError> {
    let mut lines = std::str::from_utf8(head)?.split("\r\n");
    let id = lines.find_map(|line| line.strip_prefix("PI-ResourceId: "));
    Ok(id.ok_or("a part without its id")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(lengths: &[usize]) -> Vec<u8> {
        let mut body = Vec::new();
        for (index, length) in lengths.iter().enumerate() {
            let head = "Content-Type: application/xml;charset=utf-8\r\nPI-ResourceId: id";
            body.extend(format!("--pi-1\r\n{head}{index}\r\n\r\n").into_bytes());
            body.extend(vec![b'x'; *length]);
            body.extend(b"\r\n");
        }
        body.extend(b"--pi-1--\r\n");
        body
    }

    #[test]
    fn ids_and_messages_are_found_in_order() {
        let body = body(&[MESSAGE; 3]);
        let parts = parts(&body).unwrap();
        assert_eq!(parts.iter().map(|(id, _)| *id).collect::<Vec<_>>(), ["id0", "id1", "id2"]);
        assert!(parts.iter().all(|(_, message)| message.len() == MESSAGE));
    }

    #[test]
    fn bodies_that_are_cut_or_wrong_are_noticed() {
        let whole = body(&[MESSAGE; 2]);
        for length in [0, 10, 100, MESSAGE + 50, whole.len() - 1] {
            assert!(parts(&whole[..length]).is_err(), "{length} bytes of {}", whole.len());
        }
        assert!(parts(&body(&[MESSAGE, MESSAGE - 1])).is_err());
        assert!(parts(&body(&[MESSAGE + 1])).is_err());
        assert!(parts(&[&whole[..], b"x"].concat()).is_err());
    }
}
