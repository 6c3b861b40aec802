//! Being asked to stop: once ends what is under way in good order, twice ends it at once.

use std::io;
use std::pin::pin;

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::StreamCommandError;
use crate::cli::failure::Failure;
use crate::cli::output::Output;

/// Hears SIGTERM and Ctrl-C, from when it was made.
#[derive(Debug)]
pub(super) struct Stop {
    terminate: Signal,
    interrupt: Signal,
    is_asked: bool,
}

impl Stop {
    pub(super) fn listen() -> io::Result<Self> {
        let (terminate, interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, is_asked: false })
    }

    pub(super) fn is_asked(&self) -> bool {
        self.is_asked
    }

    /// Returns once somebody has asked.
    pub(super) async fn asked(&mut self) {
        if !self.is_asked {
            self.heard().await;
            self.is_asked = true;
        }
    }

    /// Does what must not be left half done, unless somebody asks twice.
    pub(super) async fn finish<T>(
        &mut self,
        work: impl Future<Output = T>,
        output: &mut Output<'_>,
    ) -> Result<T, Failure> {
        let mut work = pin!(work);
        if !self.is_asked {
            tokio::select! {
                biased;
                done = &mut work => return Ok(done),
                () = self.asked() => {}
            }
            output.note("stopping in good order; a second signal stops at once")?;
        }
        tokio::select! {
            biased;
            done = &mut work => Ok(done),
            () = self.heard() => Err(StreamCommandError::Interrupted.into()),
        }
    }

    async fn heard(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
