//! curl, told nothing but what a test gives it.

use std::ffi::OsStr;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value as Json;

use super::{Site, id_in, run, started, text};

/// How curl reaches a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Via {
    Http1,
    Http2,
    TlsHttp1,
    TlsHttp2,
}

impl Via {
    pub(super) const ALL: [Self; 4] = [Self::Http1, Self::Http2, Self::TlsHttp1, Self::TlsHttp2];

    /// A server that is reached so.
    pub(super) fn site(self) -> Site {
        match self {
            Self::Http1 | Self::Http2 => Site::on_file(),
            Self::TlsHttp1 | Self::TlsHttp2 => Site::with_tls(),
        }
    }

    pub(super) fn flag(self) -> &'static str {
        match self {
            Self::Http1 | Self::TlsHttp1 => "--http1.1",
            Self::Http2 => "--http2-prior-knowledge",
            Self::TlsHttp2 => "--http2",
        }
    }

    /// The version that curl says was spoken.
    pub(super) fn version(self) -> &'static str {
        match self {
            Self::Http1 | Self::TlsHttp1 => "1.1",
            Self::Http2 | Self::TlsHttp2 => "2",
        }
    }
}

/// What became of one run.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) exit: i32,
    pub(super) status: u16,
    /// The heads of all answers, interim ones too.
    pub(super) head: String,
    /// What went to the file of the answer, where none was asked for by name.
    pub(super) body: Vec<u8>,
    /// What curl says of the transfer.
    pub(super) told: Json,
    /// What it printed for people.
    pub(super) said: String,
}

impl Ran {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        super::header(&self.head, name)
    }

    pub(super) fn seconds(&self) -> f64 {
        self.told["time_total"].as_f64().unwrap()
    }

    pub(super) fn bytes_up(&self) -> u64 {
        self.told["size_upload"].as_u64().unwrap()
    }

    /// The id of the BLOB that was made.
    #[track_caller]
    pub(super) fn made(&self) -> String {
        let said = String::from_utf8_lossy(&self.body);
        assert_eq!((self.exit, self.status), (0, 201), "{said}{}", self.said);
        id_in(&self.body)
    }
}

impl Site {
    /// curl with the key of the app; the answer goes to a file that is read back.
    pub(super) fn curl(&self, arguments: &[&str]) -> Ran {
        let body = self.folder.path().join("answer");
        // Of the run before.
        drop(std::fs::remove_file(&body));
        let mut command = self.curl_command();
        command.arg("-o").arg(&body).args(arguments);
        let mut ran = self.ran(&mut command);
        ran.body = std::fs::read(&body).unwrap_or_default();
        ran
    }

    /// curl with its answer where the arguments say.
    pub(super) fn curl_in(&self, folder: &Path, arguments: &[&str]) -> Ran {
        self.ran(self.curl_command().current_dir(folder).args(arguments))
    }

    /// curl that reads a file as its standard input.
    pub(super) fn curl_from(&self, input: &Path, arguments: &[&str]) -> Ran {
        let body = self.folder.path().join("answer");
        let mut command = self.curl_command();
        command.arg("-o").arg(&body).args(arguments).stdin(File::open(input).unwrap());
        let output = started(command.stdout(Stdio::piped()).output(), &command);
        let mut ran = self.read(&output);
        ran.body = std::fs::read(&body).unwrap_or_default();
        ran
    }

    /// Uploads a file whole, and returns the id.
    pub(super) fn uploaded(&self, bytes: &[u8], headers: &[&str]) -> String {
        let (file, url) = (self.file("uploaded", bytes), self.url("tblobs"));
        let headers = headers.iter().flat_map(|header| ["-H", header]);
        let arguments: Vec<&str> =
            ["-X", "POST", "-T", text(&file), &url].into_iter().chain(headers).collect();
        self.curl(&arguments).made()
    }

    /// Downloads a BLOB whole.
    pub(super) fn downloaded(&self, id: &str) -> Ran {
        let ran = self.curl(&[&self.url(&format!("tblobs/{id}"))]);
        assert_eq!(ran.exit, 0, "{}", ran.said);
        ran
    }

    fn curl_command(&self) -> Command {
        let mut command = Command::new("curl");
        // No settings of a person, no proxy, no patience without end.
        command.args(["-q", "-sS", "--noproxy", "*", "--max-time", "60"]);
        command.args(["-H", &self.credential(), "-w", "%{json}", "-D"]).arg(self.heads());
        if let Some(certificate) = &self.certificate {
            command.args([OsStr::new("--cacert"), certificate.as_os_str()]);
        }
        command
    }

    fn heads(&self) -> std::path::PathBuf {
        self.folder.path().join("heads")
    }

    fn ran(&self, command: &mut Command) -> Ran {
        let output = run(command);
        self.read(&output)
    }

    fn read(&self, output: &std::process::Output) -> Ran {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let told: Json = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("curl told nothing: {error}: {said}"));
        Ran {
            exit: output.status.code().unwrap(),
            status: told["response_code"].as_u64().unwrap() as u16,
            head: std::fs::read_to_string(self.heads()).unwrap_or_default(),
            body: Vec::new(),
            told,
            said,
        }
    }
}
