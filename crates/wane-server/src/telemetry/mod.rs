//! Logs: one line for each event on standard error, for people or for programs.

mod access;
mod line_sink;

pub(crate) use access::Access;
pub use line_sink::LogWriter;

use std::io::{self, IsTerminal, stderr};

use tracing_subscriber::fmt;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::settings::{LogFormat, Settings};

/// Starts logging, for as long as what is returned lives.
pub fn start(settings: &Settings) -> io::Result<LogWriter> {
    let (sink, writer) = line_sink::start(stderr())?;
    let is_colored = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    access::start(sink.clone(), settings.log_format, is_colored);
    let filtered = tracing_subscriber::registry().with(settings.log_filter.targets());
    let lines = fmt::layer().with_writer(sink);
    let started = match settings.log_format {
        LogFormat::Text => filtered.with(lines.with_ansi(is_colored)).try_init(),
        LogFormat::Json => filtered.with(lines.json()).try_init(),
    };
    // Somebody else's subscriber, in tests, is as good.
    drop(started);
    Ok(writer)
}
