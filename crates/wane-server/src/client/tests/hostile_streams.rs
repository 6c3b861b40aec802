//! Server-sent events under fuzzed bytes: never a panic, and the same events however they are cut.
//!
//! A second reader, which has all lines before it, says which events there are. The controls are
//! readers with the usual mistakes.

use crate::campaigns::{assert_caught, assert_holds};
use crate::client::server_sent::{EventStream, ServerSent};

/// What a stream had, up to where it became unreadable.
#[derive(Debug, Default, PartialEq, Eq)]
struct Heard {
    events: Vec<ServerSent>,
    last_id: Option<String>,
    is_readable: bool,
}

type Listen = fn(&[&[u8]]) -> Heard;

fn listen(chunks: &[&[u8]]) -> Heard {
    let mut stream = EventStream::after(None);
    let is_readable = chunks.iter().all(|chunk| stream.feed(chunk).is_ok());
    let events = std::iter::from_fn(|| stream.pop()).collect();
    Heard { events, last_id: stream.last_id().map(str::to_owned), is_readable }
}

/// The lines that have ended. A carriage return before a line feed is a part of it.
fn lines(bytes: &[u8]) -> Vec<&[u8]> {
    let mut lines = Vec::new();
    let mut start = 0;
    for (at, byte) in bytes.iter().enumerate() {
        let continues = *byte == b'\n' && at > 0 && bytes[at - 1] == b'\r';
        if continues {
            start = at + 1;
        } else if matches!(byte, b'\r' | b'\n') {
            lines.push(&bytes[start..at]);
            start = at + 1;
        }
    }
    lines
}

fn read_again(bytes: &[u8]) -> Heard {
    let mut heard = Heard { is_readable: true, ..Heard::default() };
    let (mut kind, mut data, mut id) = (String::new(), None::<Vec<String>>, None);
    for line in lines(bytes) {
        let Ok(line) = std::str::from_utf8(line) else {
            heard.is_readable = false;
            break;
        };
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
        match field {
            "" if line.is_empty() => {
                heard.last_id = id.clone();
                let kind = Some(std::mem::take(&mut kind)).filter(|kind| !kind.is_empty());
                heard.events.extend(data.take().map(|data: Vec<_>| ServerSent {
                    kind: kind.unwrap_or_else(|| "message".to_owned()),
                    data: data.join("\n"),
                    id: id.clone(),
                }));
            }
            "event" => kind = value,
            "data" => data.get_or_insert_default().push(value),
            "id" if !value.contains('\0') => id = Some(value).filter(|id| !id.is_empty()),
            _ => {}
        }
    }
    heard
}

/// Words that streams are made of: one byte of input names one of them.
fn spelled(bytes: &[u8]) -> Vec<u8> {
    const WORDS: [&[u8]; 12] = [
        b"data: ",
        b"data:",
        b"data",
        b"event: ",
        b"id: ",
        b"id\n",
        b"\n",
        b"\r\n",
        b"\n\n",
        b"\r",
        b": ",
        b"retry: 9\n",
    ];
    let word = |byte: &u8| match byte {
        0x80.. => WORDS[usize::from(*byte) % WORDS.len()].to_vec(),
        byte => vec![*byte],
    };
    bytes.iter().flat_map(word).collect()
}

fn check(listen: Listen, bytes: &[u8]) {
    // The mark at the beginning is tested on its own.
    let spelled = [b":\n", &*spelled(bytes)].concat();
    for stream in [&*spelled, &[b":\n", bytes].concat()] {
        let whole = listen(&[stream]);
        assert_eq!(whole, read_again(stream), "it was heard otherwise");
        let each: Vec<_> = stream.chunks(1).collect();
        assert_eq!(listen(&each), whole, "chunks make a difference");
    }
}

const SEEDS: [&str; 2] =
    ["id: 7\nevent: put\ndata: {}\n\n", "data: a\r\ndata\r\r:x\nid\n\ndata:b\n\n"];

#[test]
fn any_stream_is_heard_alike_however_it_is_cut() {
    assert_holds(&SEEDS, |bytes| check(listen, bytes));
}

#[test]
fn mistakes_of_listening_are_caught() {
    /// Begins a new line with each chunk.
    fn forgets_between(chunks: &[&[u8]]) -> Heard {
        let parts: Vec<_> = chunks.iter().flat_map(|chunk| [*chunk, &b"\n"[..]]).collect();
        if chunks.len() > 1 { listen(&parts) } else { listen(chunks) }
    }
    fn knows_no_carriage_return(chunks: &[&[u8]]) -> Heard {
        let without = chunks.concat().into_iter().filter(|byte| *byte != b'\r');
        listen(&[&without.collect::<Vec<_>>()])
    }
    fn forgets_the_id(chunks: &[&[u8]]) -> Heard {
        Heard { last_id: None, ..listen(chunks) }
    }
    fn panics_on_other_text(chunks: &[&[u8]]) -> Heard {
        let heard = listen(chunks);
        assert!(heard.is_readable, "not UTF-8");
        heard
    }
    assert_caught(&SEEDS, |it| check(forgets_between, it), "chunks make a difference");
    assert_caught(&SEEDS, |it| check(knows_no_carriage_return, it), "it was heard otherwise");
    assert_caught(&SEEDS, |it| check(forgets_the_id, it), "it was heard otherwise");
    assert_caught(&SEEDS, |it| check(panics_on_other_text, it), "not UTF-8");
}
