//! `wane device`: a device shows a code, somebody approves it elsewhere, and the device is linked.
//!
//! `start` is the device: it needs no key, and waits (see `start`). The others are the app, with
//! its key. Codes and tokens are on the two streams of whoever typed the command, and nowhere else.

mod error;
mod start;

pub(in crate::cli) use error::DeviceCommandError;

use std::io::Read;

use clap::{Args, Subcommand};
use serde_json::{Map, Value};
use wane::services::apps::AppName;
use wane::services::device_auth::{DeviceId, LinkedDevice};

use super::connection::DataFlag;
use super::failure::{Exit, Failure};
use super::output::{Output, OutputFlags, Table, shown_text};
use super::{Place, Surroundings};
use crate::client::{ClientError, Devices};

/// The longest token that an app may hand on, and a line feed after it.
const LONGEST_TOKEN: u64 = 8_194;

#[derive(Debug, Args)]
pub(super) struct DeviceArguments {
    /// The app whose devices they are
    #[arg(long, global = true, value_name = "OWNER/APP", default_value = "demo/app")]
    pub(super) app: AppName,

    #[command(flatten)]
    pub(super) data: DataFlag,

    #[command(subcommand)]
    command: DeviceCommand,
}

impl DeviceArguments {
    /// Whether the command is the device's, which has no key.
    pub(super) fn is_device(&self) -> bool {
        matches!(self.command, DeviceCommand::Start(_))
    }
}

#[derive(Debug, Subcommand)]
enum DeviceCommand {
    /// Show a code, wait until somebody approves it, and print the token
    Start(start::StartArguments),
    /// Link the device that shows a code; prints its id
    Approve {
        /// The code; case, dashes and blanks make no difference
        code: String,
        /// Whom the device is linked to, as the app calls them
        #[arg(long)]
        subject: String,
        /// What the device gets instead of a token of the server's; - reads it from standard input
        #[arg(long, value_name = "TOKEN", allow_hyphen_values = true)]
        link_token: Option<String>,
    },
    /// Turn the device that shows a code away
    Deny {
        /// The code; case, dashes and blanks make no difference
        code: String,
    },
    /// List the linked devices
    List {
        /// Only those that are linked to this subject
        #[arg(long)]
        subject: Option<String>,
    },
    /// Unlink a device; its token stops working
    Revoke {
        /// The id, as approve and list print it; one that begins with a dash comes after --
        #[arg(value_name = "DEVICE_ID", allow_hyphen_values = true)]
        device: DeviceId,
    },
}

pub(super) async fn run(
    arguments: DeviceArguments,
    place: &Place,
    flags: &OutputFlags,
    surroundings: &mut Surroundings,
) -> Result<Exit, Failure> {
    let devices = place.client.devices(&arguments.app);
    match arguments.command {
        DeviceCommand::Start(start) => {
            return start::run(&start, &devices, flags, surroundings).await;
        }
        DeviceCommand::Approve { code, subject, link_token } => {
            let output = &mut Output::new(flags, surroundings);
            let link_token = link_token.map(|token| given_token(token, output)).transpose()?;
            approve(&devices, (&code, &subject), link_token.as_deref(), output).await?;
        }
        DeviceCommand::Deny { code } => {
            devices.deny(&code).await.map_err(DeviceCommandError::of_code)?;
            Output::new(flags, surroundings).answer(Map::new(), "denied")?;
        }
        DeviceCommand::List { subject } => {
            list(&devices, subject.as_deref(), &mut Output::new(flags, surroundings)).await?;
        }
        DeviceCommand::Revoke { device } => {
            devices.revoke(device).await.map_err(DeviceCommandError::of_device)?;
            Output::new(flags, surroundings).answer(Map::new(), "revoked")?;
        }
    }
    Ok(Exit::Done)
}

/// The token that was given, or the first line of standard input: others see arguments.
fn given_token(given: String, output: &mut Output<'_>) -> Result<String, Failure> {
    if given != "-" {
        return Ok(given);
    }
    let mut token = String::new();
    let read = output.input().take(LONGEST_TOKEN).read_to_string(&mut token);
    read.map_err(|error| {
        Failure::failed("cannot read standard input", &error, "give the token as text")
    })?;
    Ok(token.trim_end_matches(['\n', '\r']).to_owned())
}

async fn approve(
    devices: &Devices,
    (code, subject): (&str, &str),
    link_token: Option<&str>,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let approved = devices.approve(code, subject, link_token).await;
    let device = approved.map_err(DeviceCommandError::of_code)?;
    let object = Map::from_iter([("deviceId".to_owned(), device.to_string().into())]);
    Ok(output.answer(object, &format!("approved, device id: {device}"))?)
}

async fn list(
    devices: &Devices,
    subject: Option<&str>,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let linked = all(devices, subject).await?;
    if output.is_json {
        let items: Vec<Value> = linked.iter().map(device_object).collect();
        let object = [("items".to_owned(), items.into()), ("next".to_owned(), Value::Null)];
        return Ok(output.json(Map::from_iter(object))?);
    }
    let mut table =
        Table::new(&["DEVICE", "SUBJECT", "CLIENT", "SCOPE", "LEFT", "ADDRESS", "AGENT"]);
    for device in &linked {
        table.push(vec![
            device.id.to_string(),
            shown_text(&device.subject),
            shown_text(&device.client_name),
            shown_text(&device.scope.join(" ")),
            output.left(Some(device.expires_at)),
            device.asking.address.map(|address| address.to_string()).unwrap_or_default(),
            shown_text(&device.asking.agent),
        ]);
    }
    if table.is_empty() {
        return Ok(output.note("no device is linked")?);
    }
    Ok(output.table(&table)?)
}

async fn all(devices: &Devices, subject: Option<&str>) -> Result<Vec<LinkedDevice>, ClientError> {
    let mut linked = Vec::new();
    let mut after = None;
    loop {
        let page = devices.list(subject, after.as_deref()).await?;
        linked.extend(page.devices);
        after = page.next;
        if after.is_none() {
            return Ok(linked);
        }
    }
}

fn device_object(device: &LinkedDevice) -> Value {
    let address = device.asking.address.map(|address| address.to_string());
    let object = [
        ("deviceId".to_owned(), device.id.to_string().into()),
        ("subject".to_owned(), (&*device.subject).into()),
        ("clientId".to_owned(), device.client.as_str().into()),
        ("clientName".to_owned(), (&*device.client_name).into()),
        ("scope".to_owned(), device.scope.join(" ").into()),
        ("linkedAt".to_owned(), device.linked_at.as_unix_millis().into()),
        ("expiresAt".to_owned(), device.expires_at.as_unix_millis().into()),
        ("address".to_owned(), address.into()),
        ("agent".to_owned(), (&*device.asking.agent).into()),
    ];
    Value::Object(Map::from_iter(object))
}
