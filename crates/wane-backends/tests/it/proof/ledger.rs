//! The ledger: what callers were about to do and what they were told, one line each.
//!
//! It is an append-only file outside of the store under test. A line is one write to the operating
//! system, so that it survives the process that wrote it.

use std::borrow::Borrow;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use wane::store::{Key, Life, Outcome, Record, StoreError, Ttl, Value};

/// The number of a value that no caller wrote.
pub(crate) const FOREIGN: u64 = u64::MAX;

/// The value that is written under `key` with `number`: told apart from all others by its bytes.
pub(crate) fn value(key: &str, number: u64) -> Value {
    // Mostly small, some larger than a page of the file, some too large for the tree.
    let filler = match number % 61 {
        0 => 9_000,
        60 => 90_000,
        1..=9 => 0,
        length => length as usize * 7,
    };
    let letter = char::from(b'a' + (number % 26) as u8).to_string();
    Value::new(format!("{key}#{number}#{}", letter.repeat(filler))).expect("a legal value")
}

/// The key of a store that `key` names: partition and clustering around the first slash.
pub(crate) fn store_key(key: &str) -> Key {
    let (partition, clustering) = key.split_once('/').expect("a slash in the key");
    Key::new(partition.as_bytes(), clustering.as_bytes()).expect("a legal key")
}

/// A record by the number of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) number: u64,
    pub(crate) expires_at: Option<u64>,
    pub(crate) fence: u64,
}

impl Held {
    /// What was found under `key`.
    pub(crate) fn found(key: &str, record: &Record) -> Self {
        let text = String::from_utf8_lossy(&record.value);
        let number = text.split('#').nth(1).and_then(|number| number.parse().ok());
        let number = number.filter(|number| value(key, *number) == record.value);
        Self {
            number: number.unwrap_or(FOREIGN),
            expires_at: record.expires_at.map(|expiry| expiry.as_unix_millis()),
            fence: record.fence.0,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Put,
    Insert,
    Swap,
    Delete,
}

const VERBS: [(Verb, &str); 5] = [
    (Verb::Get, "get"),
    (Verb::Put, "put"),
    (Verb::Insert, "insert"),
    (Verb::Swap, "swap"),
    (Verb::Delete, "delete"),
];

/// What a caller asks for. Numbers stand for values; those that the verb does not need are 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) verb: Verb,
    pub(crate) expected: u64,
    pub(crate) number: u64,
    pub(crate) life: Life,
    pub(crate) fence: u64,
}

/// What a caller was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    Applied {
        expires_at: Option<u64>,
    },
    /// The record that stood in the way, or that a get returned.
    Saw(Option<Held>),
    Unknown,
    Unavailable,
}

impl Answer {
    pub(crate) fn of_write<E: Borrow<StoreError>>(key: &str, outcome: &Result<Outcome, E>) -> Self {
        match outcome {
            Ok(Outcome::Applied { expires_at }) => {
                Self::Applied { expires_at: expires_at.map(|at| at.as_unix_millis()) }
            }
            Ok(Outcome::Refused { current }) => {
                Self::Saw(current.as_ref().map(|record| Held::found(key, record)))
            }
            Err(error) => Self::of_error(error.borrow()),
        }
    }

    pub(crate) fn of_get(key: &str, found: &Result<Option<Record>, StoreError>) -> Self {
        match found {
            Ok(found) => Self::Saw(found.as_ref().map(|record| Held::found(key, record))),
            Err(error) => Self::of_error(error),
        }
    }

    fn of_error(error: &StoreError) -> Self {
        match error {
            StoreError::Unavailable { .. } | StoreError::Corrupt { .. } => Self::Unavailable,
            StoreError::Unknown { .. } => Self::Unknown,
            StoreError::Invalid { .. } | _ => panic!("a legal call was refused: {error}"),
        }
    }
}

/// A line of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// A process has begun, and has yet to open the store.
    Started,
    /// It has opened the store.
    Opened,
    /// It could not, or saw something that cannot be.
    Failed(String),
    Began {
        caller: usize,
        key: String,
        at: u64,
        operation: Operation,
    },
    Ended {
        caller: usize,
        key: String,
        at: u64,
        answer: Answer,
    },
}

/// The ledger while it is written.
#[derive(Debug)]
pub(crate) struct Ledger {
    file: File,
}

impl Ledger {
    pub(crate) fn append_to(path: &Path) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Self { file: file.expect("the ledger opens") }
    }

    pub(crate) fn note(&self, line: &Line) {
        let text = format!("{}\n", encode(line));
        (&self.file).write_all(text.as_bytes()).expect("the ledger is written");
    }
}

/// The complete lines of a ledger.
pub(crate) fn read(path: &Path) -> Vec<Line> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let complete = text.rsplit_once('\n').map_or("", |(complete, _)| complete);
    complete.lines().map(|line| decode(line).unwrap_or_else(|| panic!("{line}"))).collect()
}

fn encode(line: &Line) -> String {
    match line {
        Line::Started => "started".into(),
        Line::Opened => "opened".into(),
        Line::Failed(reason) => format!("failed {}", reason.replace('\n', " ")),
        Line::Began { caller, key, at, operation } => {
            let Operation { verb, expected, number, life, fence } = operation;
            let verb = VERBS.iter().find(|(known, _)| known == verb).expect("a known verb").1;
            let life = match life {
                Life::Permanent => "permanent".to_owned(),
                Life::Keep => "keep".to_owned(),
                Life::For(ttl) => ttl.as_millis().to_string(),
                Life::Until(_) => panic!("callers do not use instants"),
            };
            format!("began {caller} {key} {at} {verb} {expected} {number} {life} {fence}")
        }
        Line::Ended { caller, key, at, answer } => {
            let answer = match answer {
                Answer::Applied { expires_at } => format!("applied {}", encode_expiry(*expires_at)),
                Answer::Saw(None) => "saw-none".to_owned(),
                Answer::Saw(Some(held)) => {
                    let expiry = encode_expiry(held.expires_at);
                    format!("saw {} {expiry} {}", held.number, held.fence)
                }
                Answer::Unknown => "unknown".to_owned(),
                Answer::Unavailable => "unavailable".to_owned(),
            };
            format!("ended {caller} {key} {at} {answer}")
        }
    }
}

fn encode_expiry(expires_at: Option<u64>) -> String {
    expires_at.map_or("never".into(), |expiry| expiry.to_string())
}

fn decode(line: &str) -> Option<Line> {
    let words: Vec<_> = line.split(' ').collect();
    Some(match *words.as_slice() {
        ["started"] => Line::Started,
        ["opened"] => Line::Opened,
        ["failed", ..] => Line::Failed(line.to_owned()),
        ["began", caller, key, at, verb, expected, number, life, fence] => Line::Began {
            caller: caller.parse().ok()?,
            key: key.to_owned(),
            at: at.parse().ok()?,
            operation: Operation {
                verb: VERBS.iter().find(|(_, name)| *name == verb)?.0,
                expected: expected.parse().ok()?,
                number: number.parse().ok()?,
                life: match life {
                    "permanent" => Life::Permanent,
                    "keep" => Life::Keep,
                    millis => Life::For(Ttl::from_millis(millis.parse().ok()?).ok()?),
                },
                fence: fence.parse().ok()?,
            },
        },
        ["ended", caller, key, at, ref answer @ ..] => Line::Ended {
            caller: caller.parse().ok()?,
            key: key.to_owned(),
            at: at.parse().ok()?,
            answer: decode_answer(answer)?,
        },
        _ => return None,
    })
}

fn decode_answer(words: &[&str]) -> Option<Answer> {
    let expiry = |word: &str| match word {
        "never" => Some(None),
        millis => millis.parse().ok().map(Some),
    };
    Some(match *words {
        ["applied", expires_at] => Answer::Applied { expires_at: expiry(expires_at)? },
        ["saw-none"] => Answer::Saw(None),
        ["saw", number, expires_at, fence] => Answer::Saw(Some(Held {
            number: number.parse().ok()?,
            expires_at: expiry(expires_at)?,
            fence: fence.parse().ok()?,
        })),
        ["unknown"] => Answer::Unknown,
        ["unavailable"] => Answer::Unavailable,
        _ => return None,
    })
}

#[test]
fn a_ledger_reads_back_as_it_was_noted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ledger");
    let operation = Operation {
        verb: Verb::Swap,
        expected: 1,
        number: 2,
        life: Life::For(Ttl::from_millis(30).unwrap()),
        fence: 4,
    };
    let held = Held { number: 2, expires_at: Some(99), fence: 4 };
    let ended = |answer| Line::Ended { caller: 3, key: "a/b".into(), at: 6, answer };
    let lines = vec![
        Line::Started,
        Line::Opened,
        Line::Began { caller: 3, key: "a/b".into(), at: 5, operation },
        ended(Answer::Applied { expires_at: Some(36) }),
        ended(Answer::Saw(None)),
        ended(Answer::Saw(Some(held))),
        ended(Answer::Unknown),
        ended(Answer::Unavailable),
    ];
    let ledger = Ledger::append_to(&path);
    lines.iter().for_each(|line| ledger.note(line));
    (&ledger.file).write_all(b"began 3 a/b").unwrap(); // A line that was cut off.
    assert_eq!(read(&path), lines);
}
