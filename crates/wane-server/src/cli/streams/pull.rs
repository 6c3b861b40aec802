//! `wane stream pull`: batches are kept, then acknowledged by asking for more, and the slot is
//! given back in the end.
//!
//! ```text
//! ask -> sink (files, command, standard output) -> ask, which acknowledges -> .. -> end
//!  |      |
//!  |      failed: given back without an acknowledgement
//!  failed: asked again with the same token, or started anew, as `Remedy` says
//! ```
//!
//! Invariant: nothing is acknowledged that was not kept whole. Asked to stop, it keeps what came
//! and ends; a call that waits for messages is dropped, and what it may have been given is requeued
//! by the end.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use wane::clock::SharedClock;
use wane::services::pull_stream::{Client, Delivered, Form, Reader};

use super::sink::Sink;
use super::stop::Stop;
use super::{IspbFlag, StreamCommandError};
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Output, shown_text};
use crate::client::{ClientError, Ending, PullStream, Reading, Remedy};

/// The pause before a first call is made again; it doubles up to `LONGEST_PAUSE`.
const PAUSE: Duration = Duration::from_millis(100);

const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Calls that are made again before it ends, unless it follows: about half a minute.
const ATTEMPTS: u32 = 10;

/// How often a server is asked that does not hold calls.
const SHORTEST_TURN: Duration = Duration::from_millis(100);

#[derive(Debug, Args)]
pub(super) struct PullArguments {
    #[command(flatten)]
    pub(super) who: IspbFlag,
    /// Write each message to a file of this directory, named by its id [standard output]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run this command by `sh -c` for each message, which is its standard input. Unless it
    /// succeeds, the message is not acknowledged
    #[arg(long, value_name = "CMD")]
    exec: Option<String>,
    /// End after so many batches
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    max_batches: Option<u64>,
    /// Wait for more where nothing is left, and for a slot where none is free
    #[arg(long)]
    follow: bool,
    /// Take one message at a time instead of up to ten
    #[arg(long)]
    single: bool,
    /// Have them sent compressed
    #[arg(long)]
    gzip: bool,
    /// Who reads, for the audit: up to 64 visible ASCII characters
    #[arg(long, value_name = "NAME", value_parser = Client::new)]
    client_id: Option<Client>,
}

pub(super) async fn run(
    arguments: &PullArguments,
    stream: &PullStream,
    clock: SharedClock,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let (directory, command) = (arguments.out.as_deref(), arguments.exec.as_deref());
    let sink = Sink::open(arguments.who.ispb, directory, command)?;
    let stop = Stop::listen();
    let stop =
        stop.map_err(|error| Failure::failed("cannot hear signals", &error, "start it anew"))?;
    let form = Form { multipart: !arguments.single, gzip: arguments.gzip };
    let client = arguments.client_id.clone().unwrap_or_default();
    let reading = stream.reading(Reader { client, form });
    let pulling = Pulling {
        reading,
        sink,
        stop,
        clock,
        output,
        follows: arguments.follow,
        batches_left: arguments.max_batches,
        was_answered: false,
        attempts: 0,
    };
    pulling.run().await
}

/// A pull that is under way.
struct Pulling<'a, 'b> {
    reading: Reading,
    sink: Sink<'a>,
    stop: Stop,
    clock: SharedClock,
    output: &'a mut Output<'b>,
    follows: bool,
    batches_left: Option<u64>,
    /// Whether the server has ever answered. One that has not is taken for a wrong address.
    was_answered: bool,
    /// Calls that failed since the last one that did not.
    attempts: u32,
}

impl Pulling<'_, '_> {
    async fn run(mut self) -> Result<(), Failure> {
        while self.batches_left != Some(0) {
            let asked_at = self.clock.monotonic();
            let Some(messages) = self.ask().await? else { break };
            if messages.is_empty() {
                if !self.follows {
                    break;
                }
                let turn = self.clock.monotonic().saturating_sub(asked_at);
                self.pause(SHORTEST_TURN.saturating_sub(turn)).await;
                continue;
            }
            if let Err(failure) = self.sink.take(&messages, &mut self.stop, self.output).await {
                return Err(self.give_back(failure).await);
            }
            self.batches_left = self.batches_left.map(|left| left - 1);
        }
        self.end().await
    }

    /// What comes next, over calls that failed; `None` once somebody has asked to stop.
    async fn ask(&mut self) -> Result<Option<Vec<Delivered>>, Failure> {
        loop {
            if self.stop.is_asked() {
                return Ok(None);
            }
            let asked = match self.reading.has_slot() {
                true => tokio::select! {
                    biased;
                    () = self.stop.asked() => return Ok(None),
                    asked = self.reading.ask() => asked,
                },
                // Dropped, it would leave a slot behind that nobody gives back.
                false => self.stop.finish(self.reading.ask(), self.output).await?,
            };
            match asked {
                Ok(messages) => {
                    self.was_answered = true;
                    if std::mem::take(&mut self.attempts) > 0 {
                        self.output.note("going on")?;
                    }
                    return Ok(Some(messages));
                }
                Err(error) => self.endure(error).await?,
            }
        }
    }

    /// Waits before the next call, or says why there is none.
    async fn endure(&mut self, error: ClientError) -> Result<(), Failure> {
        let remedy = Remedy::of(&error);
        self.attempts += 1;
        let pause = match remedy {
            Remedy::Anew if self.reading.has_slot() => {
                self.reading.begin_anew();
                self.say(&error, "starting again; what was not acknowledged may come again")?;
                return Ok(());
            }
            Remedy::Again(_) if !self.was_answered => return Err(error.into()),
            Remedy::Again(_) if !self.follows && self.attempts > ATTEMPTS => {
                return Err(StreamCommandError::Lost { source: error }.into());
            }
            Remedy::Again(least) => pause_after(self.attempts).max(least),
            Remedy::Wait(pause) if self.follows => pause,
            Remedy::Wait(_) => {
                self.leave().await;
                return Err(StreamCommandError::Full { source: error }.into());
            }
            Remedy::Anew | Remedy::Nothing => {
                self.leave().await;
                return Err(error.into());
            }
        };
        self.was_answered |= matches!(remedy, Remedy::Wait(_));
        if self.attempts == 1 {
            self.say(&error, "asking again")?;
        }
        self.pause(pause).await;
        Ok(())
    }

    /// Acknowledges what came last, and gives the slot back.
    async fn end(&mut self) -> Result<(), Failure> {
        let mut attempts = 0;
        loop {
            let ended = self.stop.finish(self.reading.end(), self.output).await?;
            let error = match ended {
                Ok(Ending::Gone) if attempts == 0 && self.reading.has_unacknowledged() => {
                    let note =
                        "the slot was gone before it was given back; what came last may come again";
                    return Ok(self.output.note(note)?);
                }
                Ok(Ending::Ended | Ending::Gone | Ending::Left) => return Ok(()),
                Err(error) => error,
            };
            attempts += 1;
            let pause = match Remedy::of(&error) {
                _ if !self.reading.has_unacknowledged() => {
                    return self.say(&error, "the slot is free once its lease has ended");
                }
                Remedy::Again(least) | Remedy::Wait(least) if attempts <= ATTEMPTS => {
                    pause_after(attempts).max(least)
                }
                Remedy::Again(_) | Remedy::Wait(_) | Remedy::Anew | Remedy::Nothing => {
                    return Err(StreamCommandError::NotEnded { source: error }.into());
                }
            };
            if attempts == 1 {
                self.say(&error, "ending again")?;
            }
            let slept = self.clock.sleep(pause);
            self.stop.finish(slept, self.output).await?;
        }
    }

    /// Gives back what could not be kept, for others or for a later run.
    async fn give_back(&mut self, failure: Failure) -> Failure {
        let is_over = matches!(&failure, Failure::Stream(error)
            if matches!(**error, StreamCommandError::Interrupted));
        if is_over {
            return failure;
        }
        let said = match self.reading.give_back().await {
            // Whoever read standard output has read enough.
            _ if failure.exit() == Exit::Done => Ok(()),
            Ok(Ending::Ended) => self.output.note("the batch was given back"),
            Ok(Ending::Gone | Ending::Left) => {
                self.output.note("the batch comes again once its lease has ended")
            }
            Err(error) => {
                let error = shown_text(&error.to_string());
                self.output
                    .note(&format!("the batch comes again once its lease has ended: {error}"))
            }
        };
        match said {
            Ok(()) => failure,
            Err(error) => error.into(),
        }
    }

    /// Tries to give the slot back after a call that nothing mends. What that fails of was said.
    async fn leave(&mut self) {
        drop(self.reading.end().await);
    }

    async fn pause(&mut self, pause: Duration) {
        tokio::select! {
            biased;
            () = self.stop.asked() => {}
            () = self.clock.sleep(pause) => {}
        }
    }

    fn say(&mut self, error: &ClientError, what: &str) -> Result<(), Failure> {
        Ok(self.output.note(&format!("{}; {what}", shown_text(&error.to_string())))?)
    }
}

/// How long to wait after so many calls that failed.
pub(super) fn pause_after(attempts: u32) -> Duration {
    (PAUSE * 2_u32.saturating_pow(attempts.saturating_sub(1))).min(LONGEST_PAUSE)
}
