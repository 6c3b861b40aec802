//! Logs: one line for each event on standard error, for people or for programs.

mod access;
mod line_sink;

pub(crate) use access::Access;
pub use line_sink::LogWriter;

use std::io::{self, IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

use crate::settings::{LogFormat, Settings};

/// Starts logging, for as long as what is returned lives.
pub fn start(settings: &Settings) -> io::Result<LogWriter> {
    let (sink, writer) = line_sink::start(stderr())?;
    let filter = EnvFilter::new(settings.log_filter.as_str());
    let is_colored = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    access::start(sink.clone(), settings.log_format, is_colored);
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(sink);
    let started = match settings.log_format {
        LogFormat::Text => lines.with_ansi(is_colored).try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
    // Somebody else's subscriber, in tests, is as good.
    drop(started);
    Ok(writer)
}
