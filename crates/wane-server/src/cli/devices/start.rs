//! `wane device start`: a terminal as the device.
//!
//! What a person needs is on standard error: the QR code, the address, the code, and how it went.
//! The token alone is on standard output.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Map;
use wane::services::device_auth::ClientId;

use super::DeviceCommandError;
use crate::cli::Surroundings;
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Output, OutputFlags, left, shown_text};
use crate::client::{
    ClientError, Devices, LinkedToken, OAuthClient, Secret, StartedDevice, Verdict,
};
use crate::qr;
use crate::shutdown::asked_to_stop;

/// What a shell says of a program that Ctrl-C ended.
const INTERRUPTED: Exit = Exit::Of(130);

/// No secret is longer.
const LONGEST_SECRET: u64 = 4_096;

const SECRET: &str = "WANE_CLIENT_SECRET";

const BOLD: &str = "\x1b[1m";
const PLAIN: &str = "\x1b[0m";

#[derive(Debug, Args)]
pub(super) struct StartArguments {
    /// Which client the device is
    #[arg(long, value_name = "ID", default_value = "demo")]
    client: ClientId,
    /// The secret of a confidential client, in a file [WANE_CLIENT_SECRET]
    #[arg(long, value_name = "FILE")]
    client_secret_file: Option<PathBuf>,
    /// What the device may do, parted by blanks; all that the client may unless given
    #[arg(long, value_name = "SCOPES")]
    scope: Option<String>,
    /// Draw no QR code; it is drawn where standard error has colours
    #[arg(long)]
    no_qr: bool,
}

/// What standard error can show.
#[derive(Debug, Clone, Copy)]
struct Screen {
    is_colored: bool,
    columns: Option<u16>,
    has_qr: bool,
}

pub(super) async fn run(
    arguments: &StartArguments,
    devices: &Devices,
    flags: &OutputFlags,
    surroundings: &mut Surroundings,
) -> Result<Exit, Failure> {
    let is_colored = flags.color.is_on(surroundings.err_is_terminal, surroundings);
    let columns = surroundings.err_columns;
    let screen = Screen { is_colored, columns, has_qr: is_colored && !arguments.no_qr };
    let output = &mut Output::new(flags, surroundings);
    let who = OAuthClient { id: arguments.client.clone(), secret: secret(arguments, output)? };
    let started = devices.start(&who, arguments.scope.as_deref()).await?;
    output.note(&shown(&started, screen))?;
    let waited = {
        let told = |error: &ClientError| {
            // Where standard error is gone, waiting goes on all the same.
            let _said = output.note(&format!("{}; still waiting", shown_text(&error.to_string())));
        };
        tokio::select! {
            waited = devices.wait(&who, &started, told) => Some(waited),
            stop = asked_to_stop() => {
                stop.map_err(|error| Failure::failed("cannot hear signals", &error, "start anew"))?;
                None
            }
        }
    };
    match waited {
        Some(Ok(Verdict::Linked(token))) => linked(&token, output),
        Some(Ok(Verdict::Denied)) => Err(DeviceCommandError::Denied.into()),
        Some(Ok(Verdict::Expired)) => Err(DeviceCommandError::Expired.into()),
        Some(Err(ClientError::Problem { code, .. })) if code == "invalid_grant" => {
            Err(DeviceCommandError::Spent.into())
        }
        Some(Err(error)) => Err(error.into()),
        None => {
            output
                .note("stopped: nobody waits for this code any more, start again for a new one")?;
            Ok(INTERRUPTED)
        }
    }
}

/// The secret of the client, where one is given.
fn secret(arguments: &StartArguments, output: &Output<'_>) -> Result<Option<Secret>, Failure> {
    let (text, origin) = match &arguments.client_secret_file {
        Some(path) => {
            let advice = "give a file that holds the secret of the client and nothing else";
            let what = format!("cannot take the secret from {}", path.display());
            let text = read_secret(path).map_err(|error| Failure::failed(&what, &error, advice))?;
            (text, path.display().to_string())
        }
        None => match output.variable(SECRET) {
            Some(text) => (text.to_string_lossy().into_owned(), SECRET.to_owned()),
            None => return Ok(None),
        },
    };
    if text.trim().is_empty() {
        return Err(Failure::Usage {
            what: format!("there is no secret in {origin}"),
            advice: "give the secret as `wane app client add` printed it, or none".into(),
        });
    }
    Ok(Some(text.into()))
}

fn read_secret(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(LONGEST_SECRET).read_to_string(&mut text)?;
    Ok(text)
}

/// What a person is shown.
fn shown(started: &StartedDevice, screen: Screen) -> String {
    let uri = shown_text(&started.verification_uri);
    let (on, off) = if screen.is_colored { (BOLD, PLAIN) } else { ("", "") };
    let code: Vec<String> = shown_text(&started.user_code).chars().map(String::from).collect();
    // Blanks between the letters do not matter where it is typed or pasted.
    let code = code.join(" ");
    let drawn = drawn(started, screen);
    let how = if drawn.is_some() { "scan the QR code, or open" } else { "open" };
    let life = left(Some(started.expires_in));
    format!(
        "{}{how} {on}{uri}{off} and enter\n\n    {on}{code}{off}\n\n\
         waiting for approval, left: {life}; Ctrl-C stops",
        drawn.unwrap_or_default()
    )
}

/// The QR code of the link, where the terminal has room for it: cut lines are of no use.
fn drawn(started: &StartedDevice, screen: Screen) -> Option<String> {
    let link = started.verification_uri_complete.as_ref().unwrap_or(&started.verification_uri);
    let lines = screen.has_qr.then(|| qr::terminal(link).ok()).flatten()?;
    // Two rows of modules are one line, and the code is as wide as it is high.
    let columns = lines.lines().count() * 2 - 1;
    screen.columns.is_none_or(|width| columns <= usize::from(width)).then_some(lines)
}

fn linked(token: &LinkedToken, output: &mut Output<'_>) -> Result<Exit, Failure> {
    if output.is_json {
        let device = token.device.map(|device| device.to_string());
        let object = [
            ("access_token".to_owned(), (&*token.access_token).into()),
            ("token_type".to_owned(), (&*token.token_type).into()),
            ("expires_in".to_owned(), token.expires_in.map(|life| life.as_secs()).into()),
            ("scope".to_owned(), (&*token.scope).into()),
            ("device_id".to_owned(), device.into()),
        ];
        output.json(Map::from_iter(object))?;
        return Ok(Exit::Done);
    }
    let device = token.device.map_or_else(|| "unknown".into(), |device| device.to_string());
    let (scope, life) = (shown_text(&token.scope), left(token.expires_in));
    output.note(&format!("linked, device id: {device}, scope: {scope}, left: {life}"))?;
    let is_terminal = output.is_terminal();
    let text = &token.access_token;
    output.line(&if is_terminal { shown_text(text) } else { text.clone() })?;
    Ok(Exit::Done)
}
