//! `wane app`: applications, their keys, limits and OAuth clients, for operators.

use std::str::FromStr;

use clap::{Args, Subcommand};
use serde_json::{Map, Value};
use wane::services::apps::{AppName, Limits, LimitsChange, Scope};

use super::connection::DataFlag;
use super::failure::Failure;
use super::oauth_clients::{self, ClientCommand};
use super::output::{Output, OutputFlags, Table};
use super::{Place, Surroundings};
use crate::client::{Admin, AppSummary, Secret};

#[derive(Debug, Args)]
pub(super) struct AppArguments {
    #[command(flatten)]
    pub(super) data: DataFlag,

    #[command(subcommand)]
    pub(super) command: AppCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum AppCommand {
    /// Make an app and print its first key
    Create {
        /// Its name
        #[arg(value_name = "OWNER/APP")]
        name: AppName,
    },
    /// List all apps
    List,
    /// Add and revoke keys
    #[command(subcommand)]
    Key(KeyCommand),
    /// Register and remove the OAuth clients that link devices
    #[command(subcommand)]
    Client(ClientCommand),
    /// Change the limits that are given and print all of them
    Limits {
        /// The app
        #[arg(value_name = "OWNER/APP")]
        name: AppName,
        #[command(flatten)]
        limits: Box<LimitsFlags>,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum KeyCommand {
    /// Make a key and print it; an app has at most two
    Add {
        /// The app
        #[arg(value_name = "OWNER/APP")]
        name: AppName,
        /// What it opens: read, write, device; all of them unless given
        #[arg(long, value_name = "SCOPE", value_delimiter = ',', alias = "scope")]
        scopes: Vec<Scope>,
    },
    /// Take a key back at once
    Revoke {
        /// The app
        #[arg(value_name = "OWNER/APP")]
        name: AppName,
        /// The part of the key before the dot
        id: String,
    },
}

/// A limit that was given: a number, or `default`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Given<T>(Option<T>);

impl<T: FromStr> FromStr for Given<T> {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "default" => Ok(Self(None)),
            _ => {
                text.parse().map(|limit| Self(Some(limit))).map_err(|_| "give a number or default")
            }
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct LimitsFlags {
    /// Entries; here and below a number, or default
    #[arg(long, value_name = "N")]
    max_keys: Option<Given<u64>>,
    /// Bytes of keys and values
    #[arg(long, value_name = "N")]
    max_bytes: Option<Given<u64>>,
    /// Requests a second
    #[arg(long, value_name = "N")]
    requests_per_second: Option<Given<u32>>,
    /// Requests under way at once
    #[arg(long, value_name = "N")]
    in_flight: Option<Given<u32>>,
    /// Bytes of one BLOB
    #[arg(long, value_name = "N")]
    max_blob_bytes: Option<Given<u64>>,
    /// The longest life of a BLOB
    #[arg(long, value_name = "S")]
    max_blob_ttl_seconds: Option<Given<u64>>,
    /// BLOBs
    #[arg(long, value_name = "N")]
    max_blobs: Option<Given<u64>>,
    /// Bytes of all BLOBs
    #[arg(long, value_name = "N")]
    max_blob_total_bytes: Option<Given<u64>>,
    /// The life of what is written without one
    #[arg(long, value_name = "S")]
    default_ttl_seconds: Option<Given<u64>>,
}

impl LimitsFlags {
    fn change(&self) -> LimitsChange {
        fn of<T: Copy>(flag: Option<Given<T>>) -> Option<Option<T>> {
            flag.map(|Given(limit)| limit)
        }
        LimitsChange {
            max_keys: of(self.max_keys),
            max_bytes: of(self.max_bytes),
            requests_per_second: of(self.requests_per_second),
            in_flight: of(self.in_flight),
            max_blob_bytes: of(self.max_blob_bytes),
            max_blob_ttl_seconds: of(self.max_blob_ttl_seconds),
            max_blobs: of(self.max_blobs),
            max_blob_total_bytes: of(self.max_blob_total_bytes),
            default_ttl_seconds: of(self.default_ttl_seconds),
        }
    }
}

pub(super) async fn run(
    command: AppCommand,
    place: &Place,
    flags: &OutputFlags,
    surroundings: &mut Surroundings,
) -> Result<(), Failure> {
    let admin = place.client.admin();
    let output = &mut Output::new(flags, surroundings);
    match command {
        AppCommand::Create { name } => create(&admin, &name, output).await,
        AppCommand::List => list(&admin, output).await,
        AppCommand::Key(KeyCommand::Add { name, scopes }) => {
            print_key(&admin.add_key(&name, &scopes).await?, output)
        }
        AppCommand::Key(KeyCommand::Revoke { name, id }) => {
            // The whole key does as well as its id, and its secret is not sent.
            let id = id.split('.').next().unwrap_or_default();
            admin.revoke_key(&name, id).await?;
            Ok(output.answer(Map::new(), "revoked")?)
        }
        AppCommand::Client(command) => oauth_clients::run(command, &admin, output).await,
        AppCommand::Limits { name, limits } => {
            print_limits(&admin.set_limits(&name, &limits.change()).await?, output)
        }
    }
}

async fn create(admin: &Admin, name: &AppName, output: &mut Output<'_>) -> Result<(), Failure> {
    let created = admin.create_app(name).await?;
    if output.is_json {
        let object = [
            ("clusterAppId".to_owned(), created.id.0.into()),
            ("key".to_owned(), created.key.reveal().into()),
        ];
        return Ok(output.json(Map::from_iter(object))?);
    }
    let mut table = Table::default();
    table.push(vec!["app".into(), name.to_string()]);
    table.push(vec!["id".into(), created.id.0.to_string()]);
    table.push(vec!["key".into(), created.key.reveal().into()]);
    output.table(&table)?;
    Ok(output.note("keep the key: it is shown this once")?)
}

/// Prints a key that is told this once.
pub(super) fn print_key(key: &Secret, output: &mut Output<'_>) -> Result<(), Failure> {
    let object = Map::from_iter([("key".to_owned(), key.reveal().into())]);
    output.answer(object, key.reveal())?;
    if !output.is_json {
        output.note("keep the key: it is shown this once")?;
    }
    Ok(())
}

async fn list(admin: &Admin, output: &mut Output<'_>) -> Result<(), Failure> {
    let mut apps = Vec::new();
    let mut after = None;
    loop {
        let page = admin.list_apps(after.as_ref()).await?;
        apps.extend(page.apps);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    if output.is_json {
        let items: Vec<_> = apps.iter().map(app_object).collect();
        let object = [("items".to_owned(), items.into()), ("next".to_owned(), Value::Null)];
        return Ok(output.json(Map::from_iter(object))?);
    }
    let mut table = Table::new(&["APP", "ID", "MAX KEYS", "MAX BYTES", "PER SECOND", "KEYS"]);
    for app in &apps {
        let keys: Vec<_> = app.keys.iter().map(|key| &*key.id).collect();
        table.push(vec![
            app.name.to_string(),
            app.id.0.to_string(),
            app.limits.max_keys().to_string(),
            app.limits.max_bytes().to_string(),
            app.limits.requests_per_second().to_string(),
            keys.join(" "),
        ]);
    }
    Ok(output.table(&table)?)
}

fn app_object(app: &AppSummary) -> Value {
    let keys = app.keys.iter().map(|key| {
        let scopes: Vec<_> = key.scopes.iter().map(ToString::to_string).collect();
        let key = [("id".to_owned(), Value::from(&*key.id)), ("scopes".to_owned(), scopes.into())];
        Value::Object(Map::from_iter(key))
    });
    let object = [
        ("owner".to_owned(), app.name.owner().into()),
        ("app".to_owned(), app.name.app().into()),
        ("clusterAppId".to_owned(), app.id.0.into()),
        ("createdAt".to_owned(), app.created_at.map(|at| at.as_unix_millis()).into()),
        ("limits".to_owned(), limits_object(&app.limits).into()),
        ("keys".to_owned(), keys.collect()),
    ];
    Value::Object(Map::from_iter(object))
}

/// Each limit in force, by its name.
fn in_force(limits: &Limits) -> [(&'static str, Option<u64>); 9] {
    [
        ("maxKeys", Some(limits.max_keys())),
        ("maxBytes", Some(limits.max_bytes())),
        ("requestsPerSecond", Some(limits.requests_per_second().into())),
        ("inFlight", Some(limits.in_flight().into())),
        ("maxBlobBytes", Some(limits.max_blob_bytes())),
        ("maxBlobTtlSeconds", Some(limits.max_blob_ttl_seconds())),
        ("maxBlobs", Some(limits.max_blobs())),
        ("maxBlobTotalBytes", Some(limits.max_blob_total_bytes())),
        ("defaultTtlSeconds", limits.default_ttl_seconds()),
    ]
}

fn limits_object(limits: &Limits) -> Map<String, Value> {
    in_force(limits).into_iter().map(|(name, limit)| (name.to_owned(), limit.into())).collect()
}

fn print_limits(limits: &Limits, output: &mut Output<'_>) -> Result<(), Failure> {
    if output.is_json {
        return Ok(output.json(limits_object(limits))?);
    }
    let mut table = Table::default();
    for (name, limit) in in_force(limits) {
        let limit = limit.map_or_else(|| "none".into(), |limit| limit.to_string());
        table.push(vec![name.into(), limit]);
    }
    Ok(output.table(&table)?)
}
