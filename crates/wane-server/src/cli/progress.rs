//! Progress on a terminal: on the standard error, and nothing at all where that is no terminal.

use std::io::IsTerminal;
use std::sync::Arc;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use wane::services::backup::Progress;

/// Shows how far a command has come; gone when it is dropped.
#[derive(Debug)]
pub(super) struct Meter {
    bar: ProgressBar,
}

impl Meter {
    /// A meter of records, up to `length` bytes where that is known.
    pub(super) fn of_records(what: &'static str, length: Option<u64>) -> Self {
        let template = match length {
            Some(_) => "{prefix} [{bar:30}] {bytes} of {total_bytes}, {msg} records, {eta} left",
            None => "{prefix} {spinner} {bytes}, {msg} records, {bytes_per_sec}",
        };
        Self::new(what, length, template)
    }

    /// A meter of bytes, up to `length` where that is known.
    pub(super) fn of_bytes(what: &'static str, length: Option<u64>) -> Self {
        let template = match length {
            Some(_) => "{prefix} [{bar:30}] {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
            None => "{prefix} {spinner} {bytes}, {bytes_per_sec}",
        };
        Self::new(what, length, template)
    }

    /// A meter of a time, in milliseconds.
    pub(super) fn of_time(what: &'static str, length: u64) -> Self {
        Self::new(what, Some(length), "{prefix} [{bar:30}] {percent} %, {msg}")
    }

    /// A meter of things that nobody knows the number of.
    pub(super) fn of_things(what: &'static str) -> Self {
        Self::new(what, None, "{prefix} {spinner} {msg}")
    }

    /// Shows how far it is, and what was done.
    pub(super) fn tell(&self, position: u64, done: String) {
        self.bar.set_position(position);
        self.bar.set_message(done);
    }

    fn new(what: &'static str, length: Option<u64>, template: &str) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden() };
        }
        let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style.progress_chars("=> "));
        }
        bar.set_prefix(what);
        Self { bar }
    }

    pub(super) fn show(&self, progress: Progress) {
        self.bar.set_message(HumanCount(progress.records).to_string());
        self.bar.set_position(progress.bytes);
    }

    /// Bytes that were there before count neither for the speed nor for the time that is left.
    pub(super) fn begin_at(&self, bytes: u64) {
        self.bar.set_position(bytes);
        self.bar.reset_eta();
    }

    /// Counts more bytes.
    pub(super) fn advance(&self, bytes: u64) {
        self.bar.inc(bytes);
    }

    /// What counts bytes that go elsewhere.
    pub(super) fn counter(&self) -> impl Fn(u64) + Send + use<> {
        let bar = self.bar.clone();
        move |bytes| bar.inc(bytes)
    }

    /// What shows how far a transfer has come that goes on elsewhere.
    pub(super) fn listener(&self) -> Arc<dyn Fn(u64) + Send + Sync> {
        let bar = self.bar.clone();
        Arc::new(move |bytes| bar.set_position(bytes))
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
