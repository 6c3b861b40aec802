//! `wane stream replay`: an operator orders a replay and is told its path; the institution reads it
//! by that path, to its end.
//!
//! A batch is kept before the next one is asked for. Whatever ends the reading, the path to go on at
//! is told: a replay can be read on as long as it lives, and the same path gives the same batch.

use std::path::PathBuf;

use chrono::DateTime;
use clap::Args;
use serde_json::Map;
use wane::clock::SharedClock;
use wane::services::pull_stream::{Client, Form, Reader};
use wane::store::Timestamp;

use super::pull::pause_after;
use super::sink::Sink;
use super::stop::Stop;
use super::{IspbFlag, StreamCommandError};
use crate::cli::failure::Failure;
use crate::cli::output::{Output, shown_text};
use crate::client::{Admin, ClientError, PullStream, PullToken, Pulled, Remedy};

/// Calls that are made again before it ends.
const ATTEMPTS: u32 = 10;

/// What is given by who orders a replay, and not by who reads it.
const ORDER: [&str; 3] = ["from", "to", "reason"];

#[derive(Debug, Args)]
pub(super) struct ReplayArguments {
    #[command(flatten)]
    pub(super) who: IspbFlag,
    /// Messages that came in from then on: Unix milliseconds, or as 2026-11-16T09:00:00Z
    #[arg(long, value_name = "T", value_parser = moment, required_unless_present = "read")]
    from: Option<Timestamp>,
    /// Messages that came in before then
    #[arg(long, value_name = "T", value_parser = moment, required_unless_present = "read")]
    to: Option<Timestamp>,
    /// Why, for the audit
    #[arg(long, value_name = "TEXT", required_unless_present = "read")]
    reason: Option<String>,
    /// Read the replay at this path, as it was printed, with the key of the institution
    #[arg(long, value_name = "PATH", conflicts_with_all = ORDER)]
    read: Option<String>,
    /// With --read: write each message to a file of this directory [standard output]
    #[arg(long, value_name = "DIR", conflicts_with_all = ORDER)]
    out: Option<PathBuf>,
    /// With --read: who reads, for the audit
    #[arg(long, value_name = "NAME", value_parser = Client::new, conflicts_with_all = ORDER)]
    client_id: Option<Client>,
}

impl ReplayArguments {
    /// Whether it is the institution that calls, and not the operator.
    pub(super) fn reads(&self) -> bool {
        self.read.is_some()
    }
}

/// A moment as people write it.
fn moment(text: &str) -> Result<Timestamp, String> {
    let written = || DateTime::parse_from_rfc3339(text).ok()?.timestamp_millis().try_into().ok();
    let millis = text.parse().ok().or_else(written);
    let advice = || "give Unix milliseconds, or a time such as 2026-11-16T09:00:00Z".to_owned();
    millis.map(Timestamp::from_unix_millis).ok_or_else(advice)
}

/// Orders a replay, and prints where it is read.
pub(super) async fn order(
    arguments: &ReplayArguments,
    admin: &Admin,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let ReplayArguments { who, from: Some(from), to: Some(to), reason: Some(reason), .. } =
        arguments
    else {
        // The parser asks for each of them.
        return Ok(());
    };
    let started = match admin.replay(who.ispb, *from..*to, reason).await {
        Err(ClientError::Absent) => return Err(StreamCommandError::NothingToReplay.into()),
        started => started?,
    };
    if output.is_json {
        let millis = started.expires_at.as_unix_millis();
        let object =
            [("start".to_owned(), started.start.into()), ("expiresAt".to_owned(), millis.into())];
        return Ok(output.json(Map::from_iter(object))?);
    }
    output.line(&shown_text(&started.start))?;
    let left = output.left(Some(started.expires_at));
    Ok(output.note(&format!("the institution can read it there for {left}"))?)
}

/// Reads a replay to its end.
pub(super) async fn read(
    arguments: &ReplayArguments,
    stream: &PullStream,
    clock: SharedClock,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let path = arguments.read.as_deref().unwrap_or_default();
    let token = stream.replay_token(path).ok_or_else(|| Failure::Usage {
        what: format!("{} is not the path of a replay of {}", shown_text(path), stream.ispb()),
        advice: "give it as `wane stream replay` printed it, from /api/v1/out on".into(),
    })?;
    let sink = Sink::open(stream.ispb(), arguments.out.as_deref(), None)?;
    let stop = Stop::listen();
    let stop =
        stop.map_err(|error| Failure::failed("cannot hear signals", &error, "start it anew"))?;
    let client = arguments.client_id.clone().unwrap_or_default();
    let reader = Reader { client, form: Form::MULTIPART };
    let mut reading = Reading { stream, reader, token, stop, clock, attempts: 0 };
    let read = reading.run(&sink, output).await;
    if read.is_err() || reading.stop.is_asked() {
        let path = stream.replay_path(&reading.token);
        output.note(&format!("go on with --read {path}"))?;
    }
    read
}

/// A replay that is being read.
struct Reading<'a> {
    stream: &'a PullStream,
    reader: Reader,
    /// What comes next is asked for with it.
    token: PullToken,
    stop: Stop,
    clock: SharedClock,
    /// How often a call is made again: never, until the server has answered once.
    attempts: u32,
}

impl Reading<'_> {
    async fn run(&mut self, sink: &Sink<'_>, output: &mut Output<'_>) -> Result<(), Failure> {
        loop {
            let Self { stream, reader, token, stop, clock, attempts } = self;
            let pulled = tokio::select! {
                biased;
                () = stop.asked() => return Ok(()),
                pulled = next(stream, token, reader, (clock, *attempts)) => pulled?,
            };
            *attempts = ATTEMPTS;
            if pulled.messages.is_empty() {
                return Ok(());
            }
            sink.take(&pulled.messages, &mut self.stop, output).await?;
            self.token = pulled.next;
        }
    }
}

/// The next batch, over calls that failed and may be made again.
async fn next(
    stream: &PullStream,
    token: &PullToken,
    reader: &Reader,
    (clock, most): (&SharedClock, u32),
) -> Result<Pulled, Failure> {
    let mut attempts = 0;
    loop {
        let error = match stream.replay_next(token, reader).await {
            Ok(pulled) => return Ok(pulled),
            Err(error) => error,
        };
        if matches!(error, ClientError::Absent) {
            return Err(StreamCommandError::ReplayGone.into());
        }
        attempts += 1;
        match Remedy::of(&error) {
            Remedy::Again(least) | Remedy::Wait(least) if attempts <= most => {
                clock.sleep(pause_after(attempts).max(least)).await;
            }
            Remedy::Again(_) | Remedy::Wait(_) if most > 0 => {
                return Err(StreamCommandError::Lost { source: error }.into());
            }
            Remedy::Again(_) | Remedy::Wait(_) | Remedy::Anew | Remedy::Nothing => {
                return Err(error.into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_milliseconds_or_a_time_of_day() {
        for (text, millis) in [
            ("0", 0),
            ("1794819600000", 1_794_819_600_000),
            ("2026-11-16T09:00:00Z", 1_794_819_600_000),
            ("2026-11-16T06:00:00.5-03:00", 1_794_819_600_500),
        ] {
            assert_eq!(moment(text).unwrap().as_unix_millis(), millis, "{text}");
        }
        for text in ["", "-1", "yesterday", "2026-11-16", "1969-12-31T23:59:59Z", "1.5"] {
            assert!(moment(text).unwrap_err().contains("Unix milliseconds"), "{text}");
        }
    }
}
