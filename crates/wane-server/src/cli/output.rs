//! What people and programs get to see: aligned tables and lines, or one JSON object per answer.
//!
//! What others wrote (keys, values, words of a server) is shown with its control characters
//! escaped: nobody's value moves the cursor of a terminal. Only `ttl get`, and
//! `stream pull` where no terminal is, write what they got as it is.

use std::ffi::{OsStr, OsString};
use std::io;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, ValueEnum};
use serde_json::{Map, Value};
use wane::store::Timestamp;

use super::{Surroundings, lifetime};

/// Characters of a value that a table shows.
const WIDEST_VALUE: usize = 60;

const BOLD: &str = "\x1b[1m";
const RED: &str = "\x1b[1;31m";
const PLAIN: &str = "\x1b[0m";

/// How answers are printed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(super) struct OutputFlags {
    /// Print one JSON object per answer
    #[arg(long, global = true)]
    pub(super) json: bool,

    /// When to use colour; NO_COLOR turns it off unless this says always
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(super) color: Color,
}

/// When to use colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Color {
    Auto,
    Always,
    Never,
}

impl Color {
    /// Whether a stream gets colours.
    pub(super) fn is_on(self, is_terminal: bool, surroundings: &Surroundings) -> bool {
        match self {
            Self::Always => true,
            Self::Never => false,
            Self::Auto => {
                let is_dumb =
                    surroundings.variable("TERM").is_some_and(|it| it == OsStr::new("dumb"));
                is_terminal && !is_dumb && surroundings.variable("NO_COLOR").is_none()
            }
        }
    }
}

/// Where the answers of one command go.
pub(super) struct Output<'a> {
    surroundings: &'a mut Surroundings,
    is_colored: bool,
    pub(super) is_json: bool,
}

impl<'a> Output<'a> {
    pub(super) fn new(flags: &OutputFlags, surroundings: &'a mut Surroundings) -> Self {
        let is_colored = flags.color.is_on(surroundings.out_is_terminal, surroundings);
        Self { surroundings, is_colored, is_json: flags.json }
    }

    /// Prints an answer in the form that was asked for.
    pub(super) fn answer(&mut self, json: Map<String, Value>, line: &str) -> io::Result<()> {
        if self.is_json {
            return self.json(json);
        }
        writeln!(self.surroundings.out, "{line}")
    }

    pub(super) fn json(&mut self, object: Map<String, Value>) -> io::Result<()> {
        writeln!(self.surroundings.out, "{}", Value::Object(object))?;
        self.surroundings.out.flush()
    }

    /// Prints bytes as they are; on a terminal the line is ended after them.
    pub(super) fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.surroundings.out.write_all(bytes)?;
        if self.surroundings.out_is_terminal {
            self.surroundings.out.write_all(b"\n")?;
        }
        Ok(())
    }

    pub(super) fn line(&mut self, line: &str) -> io::Result<()> {
        writeln!(self.surroundings.out, "{line}")?;
        self.surroundings.out.flush()
    }

    pub(super) fn table(&mut self, table: &Table) -> io::Result<()> {
        self.surroundings.out.write_all(table.layout(self.is_colored).as_bytes())
    }

    /// Says something beside the answer.
    pub(super) fn note(&mut self, note: &str) -> io::Result<()> {
        writeln!(self.surroundings.err, "{note}")
    }

    /// Prints bytes exactly as they are.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.surroundings.out.write_all(bytes)
    }

    /// Standard input.
    pub(super) fn input(&mut self) -> &mut dyn io::Read {
        &mut *self.surroundings.input
    }

    /// Standard input, to be read elsewhere. There is nothing in it afterwards.
    pub(super) fn take_input(&mut self) -> Box<dyn io::Read + Send> {
        std::mem::replace(&mut self.surroundings.input, Box::new(io::empty()))
    }

    /// Whether a person reads the answers.
    pub(super) fn is_terminal(&self) -> bool {
        self.surroundings.out_is_terminal
    }

    /// A variable of the environment that is set to something.
    pub(super) fn variable(&self, name: &str) -> Option<OsString> {
        self.surroundings.variable(name)
    }

    /// Now, by our own clock.
    pub(super) fn now(&self) -> Timestamp {
        self.surroundings.clock.now()
    }

    /// What is left until `expires_at`, by our own clock.
    pub(super) fn left(&self, expires_at: Option<Timestamp>) -> String {
        left(expires_at.map(|end| self.surroundings.clock.now().until(end)))
    }
}

/// Rows under a head, each column as wide as its widest cell.
#[derive(Debug, Default)]
pub(super) struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(super) fn new(head: &[&'static str]) -> Self {
        Self { head: head.to_vec(), rows: Vec::new() }
    }

    pub(super) fn push(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn layout(&self, is_colored: bool) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column));
            let widest = cells.map(|cell| cell.chars().count()).max().unwrap_or(0);
            widest.max(self.head.get(column).map_or(0, |name| name.len()))
        };
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0).max(self.head.len());
        let widths: Vec<_> = (0..columns).map(width).collect();
        let mut text = String::new();
        if !self.head.is_empty() {
            let (on, off) = if is_colored { (BOLD, PLAIN) } else { ("", "") };
            let names: Vec<_> = self.head.iter().map(ToString::to_string).collect();
            text += &format!("{on}{}{off}\n", aligned(&names, &widths));
        }
        for row in &self.rows {
            text += &aligned(row, &widths);
            text.push('\n');
        }
        text
    }
}

fn aligned(cells: &[String], widths: &[usize]) -> String {
    let padded = cells.iter().zip(widths).map(|(cell, &width)| format!("{cell:width$}"));
    padded.collect::<Vec<_>>().join("  ").trim_end().to_owned()
}

/// A value as a table shows it.
pub(super) fn shown_value(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => shortened(&shown_text(text)),
        Err(_) => shortened(&format!("base64:{}", STANDARD.encode(bytes))),
    }
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= WIDEST_VALUE {
        return text.to_owned();
    }
    let kept: String = text.chars().take(WIDEST_VALUE - 3).collect();
    format!("{kept}...")
}

/// Text of others with everything escaped that a terminal acts on or that turns its order.
pub(super) fn shown_text(text: &str) -> String {
    let turns = |c| matches!(c, '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let shown = |c: char| match c {
        '\n' | '\r' | '\t' => c.escape_default().to_string(),
        _ if c.is_control() || turns(c) => c.escape_unicode().to_string(),
        _ => c.to_string(),
    };
    text.chars().map(shown).collect()
}

/// What is left of a life, or that there is no end.
pub(super) fn left(remaining: Option<Duration>) -> String {
    remaining.map_or_else(|| "never".into(), lifetime::shown)
}

/// Puts a value into an object in the form that it travels in.
pub(super) fn put_value(object: &mut Map<String, Value>, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert("value".into(), text.into()),
        Err(_) => object.insert("valueBase64".into(), STANDARD.encode(bytes).into()),
    };
}

/// Puts an expiry into an object, `null` for none.
pub(super) fn put_expiry(object: &mut Map<String, Value>, expires_at: Option<Timestamp>) {
    let millis = expires_at.map(Timestamp::as_unix_millis);
    object.insert("expiresAt".into(), millis.into());
}

/// The word before an error.
pub(super) fn error_word(is_colored: bool) -> String {
    if is_colored { format!("{RED}error:{PLAIN}") } else { "error:".into() }
}
