//! Bodies of type multipart/mixed (RFC 2046): taken apart, every byte of a part as it came.
//!
//! Strict where two readings are possible: a body must begin with its boundary, end with the closing
//! one, and have nothing but white space behind it. The line break in front of a boundary belongs to
//! the boundary, so that a message may end in line breaks of its own. Heads of parts are looked at
//! only as far as they could make the part something else than a plain message.

use bytes::Bytes;

/// The longest boundary, by the RFC.
const MAX_BOUNDARY: usize = 70;

/// The longest head of a part, in bytes.
const MAX_HEAD: usize = 8 << 10;

/// What is wrong with a body, for its sender.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Malformed(String);

fn malformed<T>(reason: impl Into<String>) -> Result<T, Malformed> {
    Err(Malformed(reason.into()))
}

/// The boundary that a `Content-Type` of multipart/mixed names.
pub(super) fn boundary(content_type: &str) -> Result<String, Malformed> {
    let mut found = None;
    for parameter in parameters(content_type)? {
        let (name, value) = parameter;
        if name.eq_ignore_ascii_case("boundary") && found.replace(value).is_some() {
            return malformed("Content-Type: give one boundary");
        }
    }
    let Some(boundary) = found else {
        return malformed("Content-Type: multipart/mixed needs a boundary");
    };
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || b"'()+_,-./:=? ".contains(&byte);
    let fits = (1..=MAX_BOUNDARY).contains(&boundary.len()) && !boundary.ends_with(' ');
    if !fits || !boundary.bytes().all(is_legal) {
        let reason = "Content-Type: the boundary may have 1 to 70 letters, digits and '()+_,-./:=?";
        return malformed(reason);
    }
    Ok(boundary)
}

/// The parameters of a `Content-Type`, quotes taken off.
fn parameters(content_type: &str) -> Result<Vec<(&str, String)>, Malformed> {
    let mut found = Vec::new();
    let mut rest = content_type.split_once(';').map_or("", |(_, rest)| rest);
    loop {
        rest = rest.trim_start_matches([' ', '\t', ';']);
        if rest.is_empty() {
            return Ok(found);
        }
        let Some((name, behind)) = rest.split_once('=') else {
            return malformed("Content-Type: give parameters as NAME=VALUE");
        };
        let value;
        (value, rest) = match behind.strip_prefix('"') {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let end = behind.find([';', ' ', '\t']).unwrap_or(behind.len());
                (behind[..end].to_owned(), &behind[end..])
            }
        };
        found.push((name.trim(), value));
    }
}

/// The text up to the closing quote, and what is behind it.
fn unquoted(quoted: &str) -> Result<(String, &str), Malformed> {
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Ok((value, &quoted[at + 1..])),
            '\\' => value.extend(letters.next().map(|(_, escaped)| escaped)),
            other => value.push(other),
        }
    }
    malformed("Content-Type: a quote is not closed")
}

/// The parts of a body, up to `most` of them. No byte is copied.
pub(super) fn parts(body: &Bytes, boundary: &str, most: usize) -> Result<Vec<Bytes>, Malformed> {
    let delimiter = format!("\r\n--{boundary}");
    let mut at = match body.strip_prefix(&delimiter.as_bytes()[2..]) {
        Some(rest) => body.len() - rest.len(),
        None => return malformed("the body does not begin with its boundary, two dashes in front"),
    };
    let mut parts = Vec::new();
    loop {
        let rest = &body[at..];
        if let Some(behind) = rest.strip_prefix(b"--") {
            let is_blank = behind.iter().all(u8::is_ascii_whitespace);
            return if is_blank { Ok(parts) } else { malformed("there are bytes behind the end") };
        }
        let Some(begin) = line_end(rest) else {
            return malformed("a boundary is not followed by a line break");
        };
        if parts.len() == most {
            return malformed(format!("it has more than {most} parts; send 1 to {most} messages"));
        }
        let begin = at + begin;
        // A head may be empty, and then the part's delimiter may follow at once.
        let Some(end) = find(&body[begin - 2..], delimiter.as_bytes()) else {
            return malformed("the closing boundary is missing: the body broke off");
        };
        let end = begin - 2 + end;
        let content = begin + head(body.get(begin..end).unwrap_or_default())?;
        parts.push(body.slice(content..end.max(content)));
        at = end + delimiter.len();
    }
}

/// Where the line ends that only white space may be on, line break included.
fn line_end(rest: &[u8]) -> Option<usize> {
    let blank = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    rest[blank..].starts_with(b"\r\n").then_some(blank + 2)
}

/// How long the head of a part is, the empty line behind it included.
fn head(part: &[u8]) -> Result<usize, Malformed> {
    let (lines, length) = if part.starts_with(b"\r\n") {
        (&part[..0], 2)
    } else {
        match find(&part[..part.len().min(MAX_HEAD + 4)], b"\r\n\r\n") {
            Some(end) => (&part[..end], end + 4),
            None => return malformed("a part has no empty line behind its head, or a long one"),
        }
    };
    // A line that begins with white space belongs to the one before.
    let begins_field =
        |line: &&[u8]| !line.is_empty() && !line.starts_with(b" ") && !line.starts_with(b"\t");
    for line in lines.split(|byte| *byte == b'\n').filter(begins_field) {
        check_field(line.strip_suffix(b"\r").unwrap_or(line))?;
    }
    Ok(length)
}

/// Fields that would make the part something else than a plain message are refused.
fn check_field(line: &[u8]) -> Result<(), Malformed> {
    let Some(colon) = line.iter().position(|byte| *byte == b':') else {
        return malformed("a line in the head of a part has no colon");
    };
    let name = String::from_utf8_lossy(&line[..colon]).trim().to_ascii_lowercase();
    let value = String::from_utf8_lossy(&line[colon + 1..]).trim().to_ascii_lowercase();
    let essence = value.split(';').next().unwrap_or_default().trim();
    match &*name {
        "content-type" if essence != "application/xml" && essence != "text/xml" => {
            malformed("the parts must be application/xml")
        }
        "content-transfer-encoding" if !matches!(essence, "binary" | "8bit" | "7bit") => {
            malformed("send the parts as they are, without Content-Transfer-Encoding")
        }
        "content-encoding" => malformed("compress the whole body, not its parts"),
        _ => Ok(()),
    }
}

/// Where `needle` begins.
fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(haystack, needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken_apart(body: &str) -> Result<Vec<Bytes>, Malformed> {
        parts(&Bytes::copy_from_slice(body.as_bytes()), "b", 3)
    }

    #[test]
    fn parts_are_the_bytes_between_their_head_and_the_next_boundary() {
        let body = "--b\r\nContent-Type: application/xml\r\n\r\n<a>\r\n</a>\r\n\r\n\
                    --b \r\n\r\nx\n--bold\n\r\n--b--\r\n";
        assert_eq!(taken_apart(body).unwrap(), ["<a>\r\n</a>\r\n", "x\n--bold\n"]);
        assert_eq!(taken_apart("--b\r\n\r\n\r\n--b--").unwrap(), [""], "an empty part");
        assert_eq!(taken_apart("--b--").unwrap(), [""; 0]);
        let folded = "--b\r\nContent-Type: text/xml;\r\n charset=utf-8\r\n\r\nx\r\n--b--";
        assert_eq!(taken_apart(folded).unwrap(), ["x"]);
    }

    #[test]
    fn what_has_two_readings_is_refused() {
        for body in [
            "",
            "preamble\r\n--b\r\n\r\nx\r\n--b--",
            "--b",
            "--b\r\n",
            "--b\r\n\r\nx",
            "--b\r\n\r\nx\r\n--b",
            "--b\r\n\r\nx\r\n--b-",
            "--b\r\n\r\nx\n--b--",
            "--b\n\nx\r\n--b--",
            "--b\r\n--b--",
            "--b\r\nno colon\r\n\r\nx\r\n--b--",
            "--b\r\n\r\nx\r\n--b--more",
            "--b\r\n\r\nx\r\n--bold\r\n\r\ny\r\n--b--",
            "--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\nx\r\n--b--",
            "--b\r\nContent-Transfer-Encoding: base64\r\n\r\neA==\r\n--b--",
            "--b\r\nContent-Encoding: gzip\r\n\r\nx\r\n--b--",
        ] {
            assert!(taken_apart(body).is_err(), "{body:?}");
        }
        let long = format!("--b\r\nX: {}\r\n\r\nx\r\n--b--", "y".repeat(MAX_HEAD));
        assert!(taken_apart(&long).is_err());
    }

    #[test]
    fn no_more_parts_are_taken_than_asked_for() {
        let body = |count| format!("{}--b--", "--b\r\n\r\nx\r\n".repeat(count));
        assert_eq!(taken_apart(&body(3)).unwrap().len(), 3);
        assert!(taken_apart(&body(4)).is_err());
    }

    #[test]
    fn a_boundary_is_read_from_the_type() {
        for (given, expected) in [
            ("multipart/mixed; boundary=abc", "abc"),
            ("multipart/mixed;charset=x;boundary=\"a b'c\"; x=y", "a b'c"),
            ("multipart/mixed; BOUNDARY=\"a\\:b\"", "a:b"),
        ] {
            assert_eq!(boundary(given).unwrap(), expected, "{given}");
        }
        let long = format!("multipart/mixed; boundary={}", "x".repeat(71));
        for given in [
            "multipart/mixed",
            "multipart/mixed; boundary=",
            "multipart/mixed; boundary=\"open",
            "multipart/mixed; boundary=a; boundary=b",
            "multipart/mixed; boundary=a@b",
            "multipart/mixed; boundary",
            &long,
        ] {
            assert!(boundary(given).is_err(), "{given}");
        }
    }
}
