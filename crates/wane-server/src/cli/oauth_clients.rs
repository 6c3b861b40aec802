//! `wane app client`: which programs may ask for codes in the name of which app, for operators.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::Map;
use wane::services::apps::AppName;
use wane::services::device_auth::ClientId;

use super::devices::DeviceCommandError;
use super::failure::Failure;
use super::lifetime;
use super::output::{Output, Table};
use crate::client::{Admin, NewOAuthClient};

#[derive(Debug, Subcommand)]
pub(super) enum ClientCommand {
    /// Register a client and print its id, and its secret where it has one
    Add(AddArguments),
    /// Remove a client; devices that it linked stay linked
    Remove {
        /// The app
        #[arg(value_name = "OWNER/APP")]
        app: AppName,
        /// Its id
        id: ClientId,
    },
}

#[derive(Debug, Args)]
pub(super) struct AddArguments {
    /// The app
    #[arg(value_name = "OWNER/APP")]
    app: AppName,
    /// What people are told is asking
    name: String,
    /// Give it a secret: for programs that can keep one, unlike a television
    #[arg(long)]
    confidential: bool,
    /// What it may ask for; several are parted by blanks, or each has a flag
    #[arg(long, value_name = "SCOPES", alias = "scopes")]
    scope: Vec<String>,
    /// Its id; drawn unless given
    #[arg(long)]
    id: Option<ClientId>,
    /// How long its codes live, 1m to 30m [15m]
    #[arg(long, value_name = "S", value_parser = life)]
    code_life: Option<Duration>,
    /// How long its tokens live, 1m to 360d [180d]
    #[arg(long, value_name = "S", value_parser = life)]
    token_life: Option<Duration>,
}

/// A life of whole seconds.
fn life(text: &str) -> Result<Duration, String> {
    let life = lifetime::parse(text)?.as_duration();
    if life.subsec_nanos() != 0 {
        return Err("give whole seconds".into());
    }
    Ok(life)
}

pub(super) async fn run(
    command: ClientCommand,
    admin: &Admin,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    match command {
        ClientCommand::Add(arguments) => add(arguments, admin, output).await,
        ClientCommand::Remove { app, id } => {
            let removed = admin.remove_client(&app, &id).await;
            removed.map_err(DeviceCommandError::of_client)?;
            Ok(output.answer(Map::new(), "removed")?)
        }
    }
}

async fn add(
    arguments: AddArguments,
    admin: &Admin,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let AddArguments { app, name, confidential, scope, id, code_life, token_life } = arguments;
    let scopes = scope.iter().flat_map(|scopes| scopes.split_whitespace());
    let scopes = scopes.map(ToOwned::to_owned).collect();
    let new =
        NewOAuthClient { id, name, is_confidential: confidential, scopes, code_life, token_life };
    let registered = admin.register_client(&app, &new).await;
    let registered = registered.map_err(DeviceCommandError::of_client)?;
    let secret = registered.secret.as_ref().map(|secret| secret.reveal());
    if output.is_json {
        let object = [
            ("clientId".to_owned(), registered.id.as_str().into()),
            ("clientSecret".to_owned(), secret.into()),
        ];
        return Ok(output.json(Map::from_iter(object))?);
    }
    let mut table = Table::default();
    table.push(vec!["client".into(), registered.id.to_string()]);
    if let Some(secret) = secret {
        table.push(vec!["secret".into(), secret.into()]);
    }
    output.table(&table)?;
    if secret.is_some() {
        output.note("keep the secret: it is shown this once")?;
    }
    Ok(())
}
