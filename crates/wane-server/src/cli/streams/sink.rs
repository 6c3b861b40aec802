//! What becomes of a batch before it is acknowledged: files, a command for each message, or
//! standard output.

use std::io;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Map;
use wane::services::pull_stream::{Delivered, Ispb};

use super::StreamCommandError;
use super::exec::Task;
use super::message_directory::MessageDirectory;
use super::stop::Stop;
use crate::cli::failure::Failure;
use crate::cli::output::{Output, shown_text};

/// Where messages go.
#[derive(Debug)]
pub(super) struct Sink<'a> {
    ispb: Ispb,
    directory: Option<MessageDirectory>,
    command: Option<&'a str>,
}

impl<'a> Sink<'a> {
    pub(super) fn open(
        ispb: Ispb,
        directory: Option<&Path>,
        command: Option<&'a str>,
    ) -> Result<Self, StreamCommandError> {
        let directory = directory.map(MessageDirectory::open).transpose()?;
        Ok(Self { ispb, directory, command })
    }

    /// Takes a batch in, in its order. After an error nothing of it may be acknowledged.
    pub(super) async fn take(
        &self,
        messages: &[Delivered],
        stop: &mut Stop,
        output: &mut Output<'_>,
    ) -> Result<(), Failure> {
        let files = match &self.directory {
            Some(directory) => directory.keep(messages)?.into_iter().map(Some).collect(),
            None => vec![None; messages.len()],
        };
        for (message, file) in messages.iter().zip(files) {
            if let Some(command) = self.command {
                let task = Task { command, ispb: self.ispb, message, file: file.as_deref() };
                stop.finish(task.run(), output).await??;
            }
            self.print(message, file, output)?;
        }
        Ok(())
    }

    /// Where the message is, or the message itself; nothing where a command has it.
    fn print(
        &self,
        message: &Delivered,
        file: Option<PathBuf>,
        output: &mut Output<'_>,
    ) -> io::Result<()> {
        let mut object = Map::from_iter([("id".to_owned(), message.id.to_string().into())]);
        match (file, self.command) {
            (Some(file), _) => {
                let file = file.display().to_string();
                object.insert("file".into(), (&*file).into());
                match output.is_json {
                    true => output.json(object),
                    false => output.line(&file),
                }
            }
            (None, Some(_)) => Ok(()),
            (None, None) if output.is_json => {
                match std::str::from_utf8(&message.bytes) {
                    Ok(text) => object.insert("message".into(), text.into()),
                    Err(_) => {
                        let text = STANDARD.encode(&message.bytes);
                        object.insert("messageBase64".into(), text.into())
                    }
                };
                output.json(object)
            }
            (None, None) if output.is_terminal() => output.line(&readable(&message.bytes)),
            (None, None) => {
                output.bytes(&message.bytes)?;
                output.line("")
            }
        }
    }
}

/// A message for people: its lines, and everything else escaped that a terminal acts on.
fn readable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).replace("\r\n", "\n");
    let shown = |c: char| match c {
        '\n' | '\t' => c.to_string(),
        _ => shown_text(c.encode_utf8(&mut [0; 4])),
    };
    text.chars().map(shown).collect()
}
