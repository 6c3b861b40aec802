//! What failed, in two lines: what happened, and what to do. And the exit code that says it to
//! programs.

use std::io;
use std::time::Duration;

use serde_json::{Map, Value};

use super::Surroundings;
use super::backup::BackupCommandError;
use super::blobs::BlobCommandError;
use super::connection::{Listener, Place};
use super::devices::DeviceCommandError;
use super::output::{
    OutputFlags, error_word, left, put_expiry, put_value, shown_text, shown_value,
};
use super::streams::StreamCommandError;
use crate::client::{ClientError, Current, EndpointError};

/// How a command line went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exit {
    /// Done.
    Done,
    /// Failed; nothing was applied.
    Failed,
    /// Wrong usage; nothing was applied.
    Usage,
    /// A condition did not hold; nothing was applied.
    Refused,
    /// No such live entry, application or key.
    Absent,
    /// The write may or may not have been applied.
    Unknown,
    /// As a command ended that was run.
    Of(u8),
}

impl Exit {
    /// The number for the operating system.
    pub fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Absent => 4,
            Self::Unknown => 5,
            Self::Of(code) => code,
        }
    }
}

/// Why a command did not do what it was asked for.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server, or the way to it.
    Client(ClientError),
    /// What was given is wrong.
    Usage { what: String, advice: String },
    /// Anything else.
    Failed { what: String, advice: String },
    /// A store or a backup here, not at a server.
    Store(BackupCommandError),
    /// A file here, on its way to or from a server.
    Blob(BlobCommandError),
    /// Device login, in its ordinary course.
    Device(DeviceCommandError),
    /// Messages here, on their way to or from a server.
    Stream(Box<StreamCommandError>),
    /// The answer cannot be written.
    Output(io::Error),
}

impl From<BackupCommandError> for Failure {
    fn from(error: BackupCommandError) -> Self {
        Self::Store(error)
    }
}

impl From<BlobCommandError> for Failure {
    fn from(error: BlobCommandError) -> Self {
        Self::Blob(error)
    }
}

impl From<DeviceCommandError> for Failure {
    fn from(error: DeviceCommandError) -> Self {
        Self::Device(error)
    }
}

impl From<StreamCommandError> for Failure {
    fn from(error: StreamCommandError) -> Self {
        Self::Stream(Box::new(error))
    }
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        Self::Client(error)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

impl From<EndpointError> for Failure {
    fn from(error: EndpointError) -> Self {
        let what = error.to_string();
        match error {
            EndpointError::Url { .. } => {
                Self::Usage { what, advice: "give a URL such as http://127.0.0.1:8628".into() }
            }
            EndpointError::Key => {
                Self::Usage { what, advice: "give the key as it was made".into() }
            }
            EndpointError::Ca { .. } => {
                Self::Failed { what, advice: "give a PEM file with --ca or WANE_CA".into() }
            }
            EndpointError::Identity { .. } => Self::Failed {
                what,
                advice: "give PEM files, the certificate with --cert and its key with --key-file"
                    .into(),
            },
        }
    }
}

impl Failure {
    pub(super) fn failed(what: &str, error: &io::Error, advice: &str) -> Self {
        Self::Failed { what: format!("{what}: {error}"), advice: advice.into() }
    }

    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Client(error) => exit_of(error),
            Self::Usage { .. } => Exit::Usage,
            Self::Store(error) => match error.exit_code() {
                3 => Exit::Refused,
                4 => Exit::Absent,
                _ => Exit::Failed,
            },
            Self::Blob(error) => error.exit(),
            Self::Device(error) => error.exit(),
            Self::Stream(error) => error.exit(),
            // Whoever read the answer has read enough.
            Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Done,
            Self::Failed { .. } | Self::Output(_) => Exit::Failed,
        }
    }

    fn what(&self) -> String {
        match self {
            Self::Client(ClientError::Absent) => "absent: nothing live has that name".into(),
            Self::Client(error) => error.to_string(),
            Self::Usage { what, .. } | Self::Failed { what, .. } => what.clone(),
            Self::Store(error) => error.to_string(),
            Self::Blob(error) => error.to_string(),
            Self::Device(error) => error.to_string(),
            Self::Stream(error) => error.to_string(),
            Self::Output(error) => format!("cannot write the answer: {error}"),
        }
    }

    fn advice(&self, place: Option<&Place>, surroundings: &Surroundings) -> String {
        match self {
            Self::Client(error) => advice_on(error, place, surroundings),
            Self::Usage { advice, .. } | Self::Failed { advice, .. } => advice.clone(),
            Self::Store(_) => "nothing was changed".into(),
            Self::Blob(error) => error.advice().into(),
            Self::Device(error) => error.advice().into(),
            Self::Stream(error) => match error.advice() {
                Ok(advice) => advice,
                Err(error) => advice_on(error, place, surroundings),
            },
            Self::Output(_) => "make room, or send the answer elsewhere".into(),
        }
    }

    /// The failure as an answer for programs.
    fn json(&self) -> Map<String, Value> {
        let (code, status) = match self {
            Self::Client(error) => code_of(error),
            Self::Usage { .. } => ("usage", None),
            Self::Device(error) => {
                let (code, status) = error.code();
                (code, Some(status))
            }
            Self::Stream(error) => match error.client_error() {
                Some(error) => code_of(error),
                None => (code_of_exit(error.exit()), None),
            },
            Self::Store(_) | Self::Blob(_) => (code_of_exit(self.exit()), None),
            Self::Failed { .. } | Self::Output(_) => ("failed", None),
        };
        let mut object = Map::from_iter([
            ("code".to_owned(), code.into()),
            ("status".to_owned(), status.into()),
            ("detail".to_owned(), self.what().into()),
        ]);
        if let Self::Stream(error) = self {
            object.extend(error.members());
        }
        if let Self::Client(ClientError::Contested { standing, .. }) = self {
            let remaining = u64::try_from(standing.remaining.as_millis()).unwrap_or(u64::MAX);
            object.extend([
                ("holder".to_owned(), standing.holder.as_deref().into()),
                ("token".to_owned(), standing.token.get().into()),
                ("remainingMillis".to_owned(), remaining.into()),
            ]);
        }
        if let Self::Client(ClientError::Refused { current, .. }) = self {
            let current = current.as_ref().map(|Current { value, expires_at }| {
                let mut current = Map::new();
                put_value(&mut current, value);
                put_expiry(&mut current, *expires_at);
                Value::Object(current)
            });
            object.insert("current".into(), current.into());
        }
        object
    }
}

/// The name and the status under which a server says it.
fn code_of(error: &ClientError) -> (&str, Option<u16>) {
    match error {
        ClientError::Refused { .. } | ClientError::Contested { .. } => ("refused", Some(409)),
        ClientError::Absent => ("absent", Some(404)),
        ClientError::UnknownOutcome { .. } => ("unknown_outcome", None),
        ClientError::Problem { code, status, .. } => (&**code, Some(*status)),
        ClientError::Unreachable { .. } => ("unreachable", None),
        ClientError::Protocol { .. } => ("protocol", None),
        ClientError::DigestMismatch { .. } => ("digest_mismatch", None),
        ClientError::Source { .. } | ClientError::Spent { .. } => ("failed", None),
    }
}

fn code_of_exit(exit: Exit) -> &'static str {
    match exit {
        Exit::Refused => "refused",
        Exit::Absent => "absent",
        Exit::Unknown => "unknown_outcome",
        Exit::Usage => "usage",
        Exit::Done | Exit::Failed | Exit::Of(_) => "failed",
    }
}

pub(super) fn exit_of(error: &ClientError) -> Exit {
    match error {
        ClientError::Refused { .. } | ClientError::Contested { .. } => Exit::Refused,
        ClientError::Absent => Exit::Absent,
        ClientError::UnknownOutcome { .. } => Exit::Unknown,
        ClientError::Problem { code, status, .. } => match (&**code, *status) {
            ("stale_token" | "token_out_of_order", _) => Exit::Refused,
            (_, 400 | 415) => Exit::Usage,
            ("gone", _) => Exit::Absent,
            _ => Exit::Failed,
        },
        ClientError::Unreachable { .. }
        | ClientError::Protocol { .. }
        | ClientError::Source { .. }
        | ClientError::DigestMismatch { .. }
        | ClientError::Spent { .. } => Exit::Failed,
    }
}

fn advice_on(error: &ClientError, place: Option<&Place>, surroundings: &Surroundings) -> String {
    let listener = place.map_or(Listener::Public, |place| place.listener);
    let flag = match listener {
        Listener::Public => "--url or WANE_URL",
        Listener::Admin => "--admin-url or WANE_ADMIN_URL",
    };
    match error {
        ClientError::Refused { current: Some(Current { value, expires_at }), .. } => {
            let remaining = expires_at.map(|end| surroundings.clock.now().until(end));
            let (value, left) = (shown_value(value), left(remaining));
            format!("there stands {value}, left: {left}; read it and decide anew")
        }
        ClientError::Contested { standing, .. } => match &standing.holder {
            Some(holder) => {
                let (holder, left) = (shown_text(holder), left(Some(standing.remaining)));
                format!(
                    "it is held by {holder}, token {}, left: {left}; --wait waits",
                    standing.token
                )
            }
            None => format!("nobody holds it, last token {}; campaign", standing.token),
        },
        ClientError::Refused { current: None, .. } if listener == Listener::Public => {
            "nothing live is there; insert it with `wane ttl insert`".into()
        }
        ClientError::Refused { .. } => "look at `wane app list` and decide anew".into(),
        ClientError::Absent => {
            "it may have expired; check the name, --app, --workspace for BLOBs, and the key".into()
        }
        ClientError::Unreachable { url, .. } if url.starts_with("https") => format!(
            "is the server running, and is its certificate of an authority in --ca or a public \
             one? name another server with {flag}"
        ),
        ClientError::Unreachable { .. } => {
            format!("is the server running? start one with `wane serve`, or name it with {flag}")
        }
        ClientError::UnknownOutcome { .. } => "read what is there before deciding".into(),
        ClientError::Protocol { .. } => {
            format!("is this the address of a wane server? name it with {flag}")
        }
        ClientError::Source { .. } => "nothing was kept; put it again".into(),
        ClientError::DigestMismatch { .. } => "do not use it; get it again".into(),
        ClientError::Spent { left: 0, .. } => {
            "downloads of this BLOB were numbered and it is gone; have it put again".into()
        }
        ClientError::Spent { .. } => {
            "each transfer takes one download, so it is not resumed; get it again".into()
        }
        ClientError::Problem { code, retry_after, .. } => {
            advice_on_problem(code, *retry_after, place.map(|place| &*place.key_origin))
        }
    }
}

fn advice_on_problem(code: &str, retry_after: Option<Duration>, origin: Option<&str>) -> String {
    let origin = origin.unwrap_or("nowhere");
    let moment = match retry_after {
        Some(pause) => format!("in {} s", pause.as_secs()),
        None => "in a moment".into(),
    };
    match code {
        "unauthorized" => format!("the key came from {origin}; give one that is live"),
        "forbidden" => format!("the key came from {origin}; give one with the scope for this"),
        "limited" => format!("try again {moment}, or have an operator raise the limits"),
        "unavailable" => format!("nothing was applied; try again {moment}"),
        "gone" => {
            "its life was over before the transfer was; put it again, with a longer one".into()
        }
        "too_large" => "send less, or have an operator raise the limits".into(),
        "stale_token" => "somebody else leads by now; campaign again".into(),
        "audit_broken" => {
            "keep the store as it is, and compare it with exports and backups from before".into()
        }
        "invalid_token" | "token_out_of_order" => {
            "pull again, from the start; what was not acknowledged comes again".into()
        }
        "invalid_client" => {
            "register it with `wane app client add`, or give its secret with --client-secret-file or \
             WANE_CLIENT_SECRET"
                .into()
        }
        "invalid_scope" => {
            "ask for scopes that the client may have, or for none to get all of them".into()
        }
        _ if retry_after.is_some() => format!("try again {moment}"),
        _ => "correct it and try again; `wane help` shows the forms".into(),
    }
}

/// Prints a failure and says how the run ends.
pub(super) fn print(
    failure: &Failure,
    place: Option<&Place>,
    flags: &OutputFlags,
    surroundings: &mut Surroundings,
) -> Exit {
    let exit = failure.exit();
    if exit == Exit::Done {
        return exit;
    }
    let key = place.and_then(|place| place.key.as_ref());
    let masked = |text: &str| key.map_or_else(|| text.to_owned(), |key| key.masked(text));
    let is_colored = flags.color.is_on(surroundings.err_is_terminal, surroundings);
    let what = shown_text(&masked(&failure.what()));
    let advice = shown_text(&masked(&failure.advice(place, surroundings)));
    // Where standard error is gone too, the exit code is all that can be said.
    let _said = writeln!(surroundings.err, "{} {what}\n{advice}", error_word(is_colored));
    if flags.json {
        let object = masked(&Value::Object(failure.json()).to_string());
        let _said = writeln!(surroundings.out, "{object}").and_then(|()| surroundings.out.flush());
    }
    exit
}

/// Prints what the parser says: help and version are answers, the rest is wrong usage.
pub(super) fn print_usage(error: &clap::Error, surroundings: &mut Surroundings) -> Exit {
    let text = error.render();
    if error.use_stderr() {
        let _said = write!(surroundings.err, "{text}");
        return Exit::Usage;
    }
    match write!(surroundings.out, "{text}").and_then(|()| surroundings.out.flush()) {
        Ok(()) => Exit::Done,
        Err(error) => Failure::Output(error).exit(),
    }
}
