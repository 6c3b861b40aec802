//! What is wrong with settings, said so that the operator knows where to look and what to write.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody gave one.
    Default,
    /// A line of the settings file.
    File {
        /// The file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// A variable of the environment.
    Environment(String),
    /// A flag.
    Flag(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => write!(f, "default"),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Environment(variable) => write!(f, "environment {variable}"),
            Self::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}

/// One thing that is wrong. Fix it and start again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every field is named in its message")]
pub enum Problem {
    /// The settings file cannot be read.
    #[error("cannot read the settings in {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },

    /// The settings file is not TOML.
    #[error("{origin}: {reason}")]
    NotToml { origin: Origin, reason: String },

    /// Nothing has this name.
    #[error(
        "{name:?} ({origin}) is no setting; {}",
        match nearest {
            Some(nearest) => format!("is {nearest} meant?"),
            None => "wane serve --help lists them all".to_owned(),
        }
    )]
    UnknownName { name: String, origin: Origin, nearest: Option<String> },

    /// The value is not legal for this setting.
    #[error("{setting} ({origin}) is {value}; {advice}")]
    Invalid { setting: &'static str, origin: Origin, value: String, advice: String },

    /// Other machines could reach a port that does not speak TLS.
    #[error(
        "{setting} is {address}, which other machines may reach, and there is no TLS: set tls_cert \
         and tls_key, or listen on 127.0.0.1, or set insecure if something in front does TLS"
    )]
    Exposed { setting: &'static str, address: SocketAddr },

    /// A setting is of no use without another.
    #[error("{setting} is set, but {missing} is not; set {missing} too, or leave {setting} out")]
    Incomplete { setting: &'static str, missing: &'static str },

    /// Passwords for development where other machines could try them.
    #[error(
        "dev_users is set, and {reason}, so that other machines may reach it: listen on 127.0.0.1 with \
         nothing in front, or leave dev_users out and tell how people of each application sign in"
    )]
    ExposedUsers { reason: String },

    /// The times of pull streams are not in order.
    #[error(
        "stream_hold_ms is {hold}, stream_lease_ms is {lease} and stream_token_ms is {token}; give a \
         hold that is shorter than the lease, and a lease that is shorter than the token"
    )]
    UntimelyStream { hold: u128, lease: u128, token: u128 },

    /// Two ports at one address.
    #[error("listen and admin_listen are both {address}; give each a port of its own")]
    SameAddress { address: SocketAddr },
}

/// Everything that is wrong with the settings, a line each.
#[derive(Debug, thiserror::Error)]
pub struct SettingsError {
    /// At least one.
    pub problems: Vec<Problem>,
}

impl fmt::Display for SettingsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let line_break = if index == 0 { "" } else { "\n" };
            write!(f, "{line_break}{problem}")?;
        }
        Ok(())
    }
}

/// Below this, two names have little more in common than some letters.
const ALIKE: f64 = 0.8;

/// The name of `right` that is most like `wrong`, if any is.
pub(super) fn nearest(wrong: &str, right: impl Iterator<Item = String>) -> Option<String> {
    let plain = |name: &str| {
        let name = name.to_ascii_lowercase().replace('-', "_");
        // What all variables share says nothing about how alike two of them are.
        name.strip_prefix("wane_").unwrap_or(&name).to_owned()
    };
    let wrong = plain(wrong);
    let likeness = |name: String| (strsim::jaro_winkler(&wrong, &plain(&name)), name);
    right
        .map(likeness)
        .filter(|(alike, _)| *alike >= ALIKE)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, name)| name)
}
