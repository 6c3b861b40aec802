//! Command lines as they are typed, against servers that play their part.

mod audit;
mod blobs;
mod commands;
mod devices;
mod layout;
mod places;
mod streams;
mod usage;

use std::collections::HashMap;
use std::ffi::OsString;
use std::io::{self, Cursor, Write};
use std::sync::Arc;

use clap::Parser;
use parking_lot::Mutex;
use wane::clock::{ManualClock, SharedClock};

use super::{Arguments, Command, Exit, Surroundings, ask, run};
use crate::client::tests::stage::KEY;

/// A stream that a test reads afterwards.
#[derive(Clone, Default)]
struct Paper(Arc<Mutex<Vec<u8>>>);

impl Paper {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().clone()).unwrap()
    }
}

impl Write for Paper {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A desk to type at: what is around a command line, and what it printed.
#[derive(Default)]
struct Desk {
    env: HashMap<&'static str, OsString>,
    input: Vec<u8>,
    out: Paper,
    err: Paper,
    is_terminal: bool,
    columns: Option<u16>,
    /// One that stands still, unless given.
    clock: Option<SharedClock>,
}

impl Desk {
    /// A desk where the server and the key are known.
    fn at(url: &str) -> Self {
        let env = [("WANE_URL", url), ("WANE_ADMIN_URL", url), ("WANE_KEY", KEY)];
        let env = env.into_iter().map(|(name, value)| (name, value.into())).collect();
        Self { env, ..Self::default() }
    }

    fn surroundings(&self) -> Surroundings {
        let env = self.env.clone();
        Surroundings {
            env: Box::new(move |name| env.get(name).cloned()),
            input: Box::new(Cursor::new(self.input.clone())),
            out: Box::new(self.out.clone()),
            err: Box::new(self.err.clone()),
            out_is_terminal: self.is_terminal,
            err_is_terminal: self.is_terminal,
            err_columns: self.columns,
            clock: self.clock.clone().unwrap_or_else(|| ManualClock::seeded(1)),
        }
    }

    /// Types a line that asks no server.
    fn types(&self, line: &str) -> Exit {
        run(format!("wane {line}").split_whitespace(), &mut self.surroundings())
    }

    /// Types a line that asks a server.
    async fn asks(&self, line: &str) -> Exit {
        self.asks_with(&line.split_whitespace().collect::<Vec<_>>()).await
    }

    async fn asks_with(&self, words: &[&str]) -> Exit {
        Self::asks_in(words, self.surroundings()).await
    }

    /// The same in other surroundings.
    async fn asks_in(words: &[&str], mut surroundings: Surroundings) -> Exit {
        let words = ["wane"].iter().chain(words);
        let Arguments { connection, output, command } = Arguments::try_parse_from(words).unwrap();
        let Command::Remote(command) = command else { panic!("{command:?} asks no server") };
        ask(command, connection, &output, &mut surroundings).await
    }
}
