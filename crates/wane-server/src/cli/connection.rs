//! Which server, and with which key: flags before the environment before the files of a server
//! that was started here.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use wane::services::apps::AppName;

use super::Surroundings;
use super::failure::Failure;
use crate::client::{Client, Endpoint, Identity, Secret, Trust};

/// Where `wane serve` answers unless told otherwise.
const URL: &str = "http://127.0.0.1:8628";

/// Where it answers operators.
const ADMIN_URL: &str = "http://127.0.0.1:8629";

const DATA: &str = "./wane-data";

/// The application that a first start makes.
const DEMO: &str = "demo/app";

/// No key is longer.
const LONGEST_KEY: u64 = 4_096;

/// How the server is found.
#[derive(Debug, Args)]
#[command(next_help_heading = "Server")]
pub(super) struct ConnectionFlags {
    /// The server [WANE_URL, else http://127.0.0.1:8628]
    #[arg(long, global = true)]
    url: Option<String>,

    /// Where the server answers operators [WANE_ADMIN_URL, else http://127.0.0.1:8629]
    #[arg(long, global = true, value_name = "URL")]
    admin_url: Option<String>,

    /// The key, id.secret; others see it in the list of processes, so prefer WANE_KEY
    // Commands have keys of their own, and arguments of one id are one argument.
    #[arg(id = "credential", long = "key", global = true, value_name = "KEY")]
    key: Option<Secret>,

    /// Trust only the certificate authorities in this PEM file [WANE_CA]
    #[arg(long, global = true, value_name = "FILE")]
    ca: Option<PathBuf>,

    /// Show this certificate, a PEM file, to servers that ask for one [WANE_CERT]
    #[arg(long, global = true, value_name = "FILE")]
    cert: Option<PathBuf>,

    /// The private key of --cert, a PEM file [WANE_KEY_FILE]
    #[arg(long, global = true, value_name = "FILE")]
    key_file: Option<PathBuf>,

    /// Taken from the command: `serve`, `backup` and `restore` mean something else by --data.
    #[arg(skip)]
    pub(super) data: Option<PathBuf>,
}

/// Where key files are looked for.
#[derive(Debug, Args)]
pub(super) struct DataFlag {
    /// Where a server that was started here keeps its files [WANE_DATA, else ./wane-data]
    #[arg(long, global = true, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Which listener a command speaks to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listener {
    Public,
    Admin,
}

/// Which side of a pull stream a command is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamParty {
    Producer,
    Reader,
}

/// A server that was found.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) client: Client,
    pub(super) listener: Listener,
    /// `None` where none is needed.
    pub(super) key: Option<Secret>,
    /// Where the key came from.
    pub(super) key_origin: String,
}

impl ConnectionFlags {
    /// The same, with key files in the directory that the command names.
    pub(super) fn with_data(self, flag: &DataFlag) -> Self {
        Self { data: flag.data.clone(), ..self }
    }

    /// The server for commands of an application.
    pub(super) fn app_place(
        &self,
        app: &AppName,
        surroundings: &Surroundings,
    ) -> Result<Place, Failure> {
        let (key, origin) = match self.given_key(surroundings)? {
            Some(given) => given,
            // The key of another application: the server would say absent, which misleads.
            None if app.to_string() != DEMO => {
                return Err(Failure::Failed {
                    what: format!("there is no key for {app}"),
                    advice: "give it with --key or WANE_KEY".into(),
                });
            }
            None => self.key_of_file("demo.key", surroundings)?,
        };
        let url = given(self.url.clone(), "WANE_URL", surroundings)?;
        let url = url.unwrap_or_else(|| URL.into());
        self.place(Listener::Public, url, (Some(key), origin), surroundings)
    }

    /// The server for commands that need no key.
    pub(super) fn keyless_place(&self, surroundings: &Surroundings) -> Result<Place, Failure> {
        let url = given(self.url.clone(), "WANE_URL", surroundings)?;
        let url = url.unwrap_or_else(|| URL.into());
        self.place(Listener::Public, url, (None, "nowhere".into()), surroundings)
    }

    /// The server for commands of a pull stream, whose readers may be known by a certificate.
    pub(super) fn stream_place(
        &self,
        who: StreamParty,
        surroundings: &Surroundings,
    ) -> Result<Place, Failure> {
        let url = given(self.url.clone(), "WANE_URL", surroundings)?;
        let url = url.unwrap_or_else(|| URL.into());
        let shows_certificate = self.identity(surroundings)?.is_some() && url.starts_with("https");
        let key = match (self.given_key(surroundings)?, who) {
            (Some((key, origin)), _) => (Some(key), origin),
            (None, StreamParty::Reader) if shows_certificate => {
                (None, "nowhere, as a certificate is shown".into())
            }
            (None, StreamParty::Reader) => return Err(no_stream_key("pull")),
            (None, StreamParty::Producer) => return Err(no_stream_key("produce")),
        };
        self.place(Listener::Public, url, key, surroundings)
    }

    /// The server for commands of operators.
    pub(super) fn admin_place(&self, surroundings: &Surroundings) -> Result<Place, Failure> {
        let (key, origin) = match self.given_key(surroundings)? {
            Some(given) => given,
            None => self.key_of_file("admin.key", surroundings)?,
        };
        let url = given(self.admin_url.clone(), "WANE_ADMIN_URL", surroundings)?;
        let url = url.unwrap_or_else(|| ADMIN_URL.into());
        self.place(Listener::Admin, url, (Some(key), origin), surroundings)
    }

    /// The directory of a server that was started here.
    pub(super) fn data(&self, surroundings: &Surroundings) -> PathBuf {
        let variable = || surroundings.variable("WANE_DATA").map(PathBuf::from);
        self.data.clone().or_else(variable).unwrap_or_else(|| DATA.into())
    }

    fn place(
        &self,
        listener: Listener,
        url: String,
        (key, key_origin): (Option<Secret>, String),
        surroundings: &Surroundings,
    ) -> Result<Place, Failure> {
        let ca = self.ca.clone().or_else(|| surroundings.variable("WANE_CA").map(PathBuf::from));
        let trust = ca.map_or(Trust::PublicRoots, Trust::CaFile);
        let endpoint = Endpoint { url, key: key.clone(), trust };
        let clock = Arc::clone(&surroundings.clock);
        let client = match self.identity(surroundings)? {
            Some(identity) => Client::presenting(&endpoint, &identity, clock)?,
            None => Client::new(&endpoint, clock)?,
        };
        Ok(Place { client, listener, key, key_origin })
    }

    /// The certificate to show, and its key.
    fn identity(&self, surroundings: &Surroundings) -> Result<Option<Identity>, Failure> {
        let path = |flag: &Option<PathBuf>, variable| {
            flag.clone().or_else(|| surroundings.variable(variable).map(PathBuf::from))
        };
        match (path(&self.cert, "WANE_CERT"), path(&self.key_file, "WANE_KEY_FILE")) {
            (None, None) => Ok(None),
            (Some(certificate), Some(private_key)) => {
                Ok(Some(Identity { certificate, private_key }))
            }
            (Some(_), None) | (None, Some(_)) => Err(Failure::Usage {
                what: "a certificate and its private key go together".into(),
                advice: "give both --cert and --key-file, or WANE_CERT and WANE_KEY_FILE".into(),
            }),
        }
    }

    fn given_key(&self, surroundings: &Surroundings) -> Result<Option<(Secret, String)>, Failure> {
        if let Some(key) = &self.key {
            return Ok(Some((key.clone(), "--key".into())));
        }
        let key = given(None, "WANE_KEY", surroundings)?;
        Ok(key.map(|key| (key.into(), "WANE_KEY".into())))
    }

    fn key_of_file(
        &self,
        name: &str,
        surroundings: &Surroundings,
    ) -> Result<(Secret, String), Failure> {
        let path = self.data(surroundings).join(name);
        let key = read_key(&path).map_err(|error| Failure::Failed {
            what: format!("cannot take the key from {}: {error}", path.display()),
            advice: "start a server here with `wane serve`, name its directory with --data, or \
                     give the key with --key or WANE_KEY"
                .into(),
        })?;
        Ok((key.into(), path.display().to_string()))
    }
}

/// The keys in the files of a server open no stream.
fn no_stream_key(scope: &str) -> Failure {
    let (command, certificate) = match scope {
        "pull" => (
            "wane stream credential --ispb N",
            ", or show a certificate with --cert and --key-file to an https server",
        ),
        _ => ("wane stream credential", ""),
    };
    Failure::Failed {
        what: format!("there is no key with the scope {scope}"),
        advice: format!(
            "have an operator make one ({command}) and give it with --key or WANE_KEY{certificate}"
        ),
    }
}

fn read_key(path: &Path) -> io::Result<String> {
    let mut key = String::new();
    File::open(path)?.take(LONGEST_KEY).read_to_string(&mut key)?;
    Ok(key)
}

/// A flag, or else a variable. What is not text is never shown: it may be a key.
fn given(
    flag: Option<String>,
    variable: &str,
    surroundings: &Surroundings,
) -> Result<Option<String>, Failure> {
    if flag.is_some() {
        return Ok(flag);
    }
    let text = surroundings.variable(variable).map(OsString::into_string).transpose();
    text.map_err(|_| Failure::Usage {
        what: format!("{variable} is not UTF-8"),
        advice: "set it anew".into(),
    })
}
