//! A command that is run for a message, which it finds on its standard input.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;
use wane::services::pull_stream::{Delivered, Ispb};

use super::StreamCommandError;

/// What a command is told.
#[derive(Debug)]
pub(super) struct Task<'a> {
    pub(super) command: &'a str,
    pub(super) ispb: Ispb,
    pub(super) message: &'a Delivered,
    /// Where the message is, if it is in a file.
    pub(super) file: Option<&'a Path>,
}

impl Task<'_> {
    /// Runs the command by `sh -c` to its end, which must be a success. Dropped, it is killed with
    /// everything that it started and that is still in its group.
    pub(super) async fn run(&self) -> Result<(), StreamCommandError> {
        let status = self.status().await.map_err(|error| self.failed(error.to_string()))?;
        if status.success() {
            return Ok(());
        }
        Err(self.failed(match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit code {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => status.to_string(),
        }))
    }

    async fn status(&self) -> io::Result<ExitStatus> {
        let mut command = Command::new("sh");
        command.args(["-c", self.command]).stdin(Stdio::piped());
        command.env("WANE_ISPB", self.ispb.as_str());
        command.env("WANE_RESOURCE_ID", self.message.id.to_string());
        if let Some(file) = self.file {
            command.env("WANE_FILE", file);
        }
        // Its own group: a Ctrl-C in the terminal is for this process, which lets it finish.
        let mut child = command.process_group(0).spawn()?;
        let mut group = Group(child.id().and_then(|id| Pid::from_raw(id as i32)));
        let mut input = child.stdin.take();
        let fed = async {
            if let Some(input) = &mut input {
                // A command that does not read everything is judged by its exit code.
                drop(input.write_all(&self.message.bytes).await);
            }
            drop(input);
            pending::<Infallible>().await
        };
        let status = tokio::select! {
            status = child.wait() => status,
            never = fed => match never {},
        };
        group.0 = None;
        status
    }

    fn failed(&self, how: String) -> StreamCommandError {
        StreamCommandError::CommandFailed { id: self.message.id, how }
    }
}

/// A group of processes that is killed when it is dropped, unless it was let go.
#[derive(Debug)]
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // Fails where nothing is left in the group, which is what is wanted.
            let _gone = kill_process_group(group, Signal::KILL);
        }
    }
}
