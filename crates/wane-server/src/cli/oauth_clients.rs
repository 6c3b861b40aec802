//! `wane app client`: which programs may ask for codes in the name of which app, for operators.

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use wane::services::apps::AppName;
use wane::services::device_auth::ClientId;

use super::devices::DeviceCommandError;
use super::failure::Failure;
use super::lifetime;
use super::output::{Output, Table, shown_text};
use crate::client::{Admin, ListedClient, NewOAuthClient, RegisteredClient};

#[derive(Debug, Subcommand)]
pub(super) enum ClientCommand {
    /// Register a client and print its id, and its secret where it has one
    Add(AddArguments),
    /// List the clients of an app
    List {
        /// The app
        #[arg(value_name = "OWNER/APP")]
        app: AppName,
    },
    /// Give a confidential client another secret; the one before is wrong from then on
    Secret {
        /// The app
        #[arg(value_name = "OWNER/APP")]
        app: AppName,
        /// Its id
        id: ClientId,
    },
    /// Remove a client; the tokens of devices that it linked are not good any more
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
        ClientCommand::List { app } => list(&app, admin, output).await,
        ClientCommand::Secret { app, id } => {
            let secret = admin.rotate_secret(&app, &id).await;
            let secret = Some(secret.map_err(DeviceCommandError::of_client)?);
            show(&RegisteredClient { id, secret }, output)
        }
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
    show(&registered.map_err(DeviceCommandError::of_client)?, output)
}

/// A client and its secret, which is shown this once.
fn show(registered: &RegisteredClient, output: &mut Output<'_>) -> Result<(), Failure> {
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

async fn list(app: &AppName, admin: &Admin, output: &mut Output<'_>) -> Result<(), Failure> {
    let mut clients = Vec::new();
    let mut after = None;
    loop {
        let page =
            admin.clients(app, after.as_ref()).await.map_err(DeviceCommandError::of_client)?;
        clients.extend(page.clients);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    if output.is_json {
        let items: Vec<Value> = clients.iter().map(client_object).collect();
        let object = [("items".to_owned(), items.into()), ("next".to_owned(), Value::Null)];
        return Ok(output.json(Map::from_iter(object))?);
    }
    let mut table = Table::new(&["CLIENT", "NAME", "KIND", "SCOPES"]);
    for client in &clients {
        let kind = if client.is_confidential { "confidential" } else { "public" };
        let (name, scopes) = (shown_text(&client.name), shown_text(&client.scopes.join(" ")));
        table.push(vec![client.id.to_string(), name, kind.into(), scopes]);
    }
    if table.is_empty() {
        return Ok(output.note("no client is registered")?);
    }
    Ok(output.table(&table)?)
}

fn client_object(client: &ListedClient) -> Value {
    json!({
        "clientId": client.id.as_str(),
        "name": client.name,
        "confidential": client.is_confidential,
        "scopes": client.scopes,
        "codeLifeSeconds": client.code_life.as_secs(),
        "tokenLifeSeconds": client.token_life.as_secs(),
    })
}
