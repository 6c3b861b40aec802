//! Problems as XML, by appendix A of RFC 7807.
//!
//! Members are elements of its namespace, members of members are elements in them, and items of a
//! list are elements called `i`. Invariant: what is written is well-formed XML 1.0 whatever a problem
//! repeats of a request, and reads back as the same text: characters that XML cannot hold are told
//! as U+FFFD, and a carriage return, which readers would drop, as a reference.

use serde_json::Value as Json;

const NAMESPACE: &str = "urn:ietf:rfc:7807";

/// The document of a problem's body.
pub(super) fn written(body: &Json) -> String {
    let mut xml =
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<problem xmlns=\"{NAMESPACE}\">");
    write_content(&mut xml, body);
    xml.push_str("</problem>\n");
    xml
}

fn write_content(xml: &mut String, value: &Json) {
    match value {
        Json::Null => {}
        Json::Bool(_) | Json::Number(_) => xml.push_str(&value.to_string()),
        Json::String(text) => write_text(xml, text),
        Json::Array(items) => items.iter().for_each(|item| write_element(xml, "i", item)),
        Json::Object(members) => {
            members.iter().for_each(|(name, value)| write_element(xml, &element(name), value));
        }
    }
}

fn write_element(xml: &mut String, name: &str, value: &Json) {
    xml.push('<');
    xml.push_str(name);
    xml.push('>');
    write_content(xml, value);
    xml.push_str("</");
    xml.push_str(name);
    xml.push('>');
}

/// A member's name as that of an element: ours are letters, and anything else becomes `_`.
fn element(name: &str) -> String {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let legal: String = name.chars().map(|c| if is_legal(c) { c } else { '_' }).collect();
    match legal.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        true => legal,
        false => format!("_{legal}"),
    }
}

fn write_text(xml: &mut String, text: &str) {
    for letter in text.chars() {
        match letter {
            '&' => xml.push_str("&amp;"),
            '<' => xml.push_str("&lt;"),
            '>' => xml.push_str("&gt;"),
            '"' => xml.push_str("&quot;"),
            '\'' => xml.push_str("&apos;"),
            '\r' => xml.push_str("&#13;"),
            '\t' | '\n' | ' '..='\u{fffd}' | '\u{10000}'.. => xml.push(letter),
            _ => xml.push('\u{fffd}'),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::campaigns::{assert_caught, assert_holds};

    #[test]
    fn members_are_elements() {
        let body = json!({
            "type": "urn:wane:elsewhere", "status": 421, "region": "r2", "more": null,
            "list": [1, true, {"a": "b"}], "1st name": "x",
        });
        let xml = written(&body);
        assert!(xml.starts_with(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<problem xmlns=\"urn:ietf:rfc:7807\"><"
        ));
        for part in [
            "<type>urn:wane:elsewhere</type>",
            "<status>421</status>",
            "<region>r2</region>",
            "<more></more>",
            "<list><i>1</i><i>true</i><i><a>b</a></i></list>",
            "<_1st_name>x</_1st_name>",
        ] {
            assert!(xml.contains(part), "{part} is not in {xml}");
        }
        assert!(xml.ends_with("</problem>\n"));
    }

    /// The text of an element, read by the rules of XML 1.0; none where that is not well-formed.
    fn read_text(xml: &str) -> Option<String> {
        let mut text = String::new();
        let mut rest = xml;
        while let Some(letter) = rest.chars().next() {
            rest = &rest[letter.len_utf8()..];
            match letter {
                '<' | '>' => return None,
                '&' => {
                    let (name, behind) = rest.split_once(';')?;
                    text.push(match name {
                        "amp" => '&',
                        "lt" => '<',
                        "gt" => '>',
                        "quot" => '"',
                        "apos" => '\'',
                        "#13" => '\r',
                        _ => return None,
                    });
                    rest = behind;
                }
                // Readers make a line feed of it.
                '\r' => text.push('\n'),
                '\t' | '\n' => text.push(letter),
                '\0'..' ' | '\u{fffe}' | '\u{ffff}' => return None,
                other => text.push(other),
            }
        }
        Some(text)
    }

    const SEEDS: [&str; 5] = [
        "<a href=\"x\">'&amp;'</a>",
        "]]>\r\n\t\u{0}\u{b}\u{1f}\u{7f}",
        "\u{e9}\u{fffe}\u{ffff}\u{10ffff}",
        "</detail><code>forged</code>",
        "<!-- --><?x?><![CDATA[",
    ];

    fn check(write: fn(&mut String, &str), bytes: &[u8]) {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        let mut xml = String::new();
        write(&mut xml, text);
        let illegal = |c: char| {
            matches!(c, '\0'..' ' | '\u{fffe}' | '\u{ffff}') && !matches!(c, '\t' | '\n' | '\r')
        };
        let expected = text.replace(illegal, "\u{fffd}");
        assert_eq!(read_text(&xml), Some(expected), "does not read back");
    }

    #[test]
    fn whatever_is_repeated_reads_back_as_it_was() {
        assert_holds(&SEEDS, |bytes| check(write_text, bytes));
    }

    /// The control: a writer that leaves line breaks as they are.
    #[test]
    fn a_writer_that_forgets_a_letter_is_caught() {
        fn careless(xml: &mut String, text: &str) {
            let mut whole = String::new();
            write_text(&mut whole, text);
            xml.push_str(&whole.replace("&#13;", "\r"));
        }
        assert_caught(&SEEDS, |bytes| check(careless, bytes), "does not read back");
    }
}
