//! Logs: one line for each event on standard error, for people or for programs.

use std::io::{IsTerminal, stderr};

use tracing_subscriber::EnvFilter;

use crate::settings::{LogFormat, Settings};

/// Starts logging. A second call changes nothing.
pub fn start(settings: &Settings) {
    let filter = EnvFilter::new(settings.log_filter.as_str());
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(stderr);
    let is_colored = stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let started = match settings.log_format {
        LogFormat::Text => lines.with_ansi(is_colored).try_init(),
        LogFormat::Json => lines.json().try_init(),
    };
    // Somebody else's subscriber, in tests, is as good.
    drop(started);
}
