//! `wane backup`, `wane restore` and `wane verify`: which store, and what is printed.

use clap::Subcommand;
use futures_util::stream::unfold;
use serde::Serialize;
use serde_json::{Map, Value};
use wane::store::BoxError;

use super::backup::{
    BackupArgs, RemoteBackup, RestoreArgs, Source, VerifyArgs, run_backup, run_restore, run_verify,
};
use super::connection::{ConnectionFlags, Place};
use super::failure::Failure;
use super::output::{Output, OutputFlags};
use super::{Exit, Surroundings, finish};

/// Commands on whole stores.
#[derive(Debug, Subcommand)]
pub(super) enum StoreCommand {
    /// Write a whole store to a file
    Backup(BackupArgs),
    /// Restore a backup into a directory that holds no store
    Restore(RestoreArgs),
    /// Check a backup or a stopped store, and say what it holds
    Verify(VerifyArgs),
}

pub(super) async fn run(
    command: StoreCommand,
    connection: &ConnectionFlags,
    flags: &OutputFlags,
    surroundings: &mut Surroundings,
) -> Exit {
    let asks_server = matches!(&command, StoreCommand::Backup(args) if args.data.is_none());
    let place = match asks_server.then(|| connection.admin_place(surroundings)).transpose() {
        Ok(place) => place,
        Err(failure) => return finish(Err(failure), None, flags, surroundings),
    };
    let done = carry_out(command, place.as_ref(), flags, surroundings).await;
    finish(done.map(|()| Exit::Done), place.as_ref(), flags, surroundings)
}

async fn carry_out(
    command: StoreCommand,
    place: Option<&Place>,
    flags: &OutputFlags,
    surroundings: &mut Surroundings,
) -> Result<(), Failure> {
    let clock = surroundings.clock.clone();
    let (object, text) = match command {
        StoreCommand::Backup(args) => {
            let source = match (&args.data, place) {
                (None, Some(place)) => Source::Remote(remote(place).await?),
                (data, _) => Source::Store(data.clone().unwrap_or_default()),
            };
            shown(&run_backup(&args, source, &clock).await?)
        }
        StoreCommand::Restore(args) => shown(&run_restore(&args, &clock).await?),
        StoreCommand::Verify(args) => shown(&run_verify(&args, &clock).await?),
    };
    Ok(Output::new(flags, surroundings).answer(object, &text)?)
}

/// The backup that a running server sends.
async fn remote(place: &Place) -> Result<RemoteBackup, Failure> {
    let backup = place.client.admin().backup().await?;
    Ok(Box::pin(unfold(backup, |mut backup| async {
        let chunk = backup.chunk().await.map_err(BoxError::from).transpose()?;
        Some((chunk, backup))
    })))
}

/// A report for programs and for people.
fn shown<R: Serialize + ToString>(report: &R) -> (Map<String, Value>, String) {
    let object = match serde_json::to_value(report) {
        Ok(Value::Object(object)) => object,
        Ok(_) | Err(_) => Map::new(),
    };
    (object, report.to_string())
}
