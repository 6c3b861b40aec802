//! Progress on a terminal: on the standard error, and nothing at all where that is no terminal.

use std::io::IsTerminal;

use indicatif::{HumanCount, ProgressBar, ProgressDrawTarget, ProgressStyle};
use wane::services::backup::Progress;

/// Shows how far a command has come; gone when it is dropped.
#[derive(Debug)]
pub(super) struct Meter {
    bar: ProgressBar,
}

impl Meter {
    /// A meter of `what`, up to `length` bytes where that is known.
    pub(super) fn new(what: &'static str, length: Option<u64>) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden() };
        }
        let bar = ProgressBar::with_draw_target(length, ProgressDrawTarget::stderr());
        let template = match length {
            Some(_) => "{prefix} [{bar:30}] {bytes} of {total_bytes}, {msg} records, {eta} left",
            None => "{prefix} {spinner} {bytes}, {msg} records, {bytes_per_sec}",
        };
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
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
