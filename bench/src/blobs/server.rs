//! `wane serve` itself, on the file backend: the program that lies beside this one.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value as Json;

use super::client::Answer;
use crate::{BoxError, machine, timing};

/// A server that runs until this is dropped.
#[derive(Debug)]
pub(super) struct Wane {
    pub(super) http: SocketAddr,
    key: String,
    process: Child,
}

impl Drop for Wane {
    fn drop(&mut self) {
        // It holds nothing that is needed later.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Wane {
    /// Starts it on an empty directory, with an app that may hold whatever is sent.
    pub(super) fn start(data: &Path) -> Result<Self, BoxError> {
        std::fs::create_dir_all(data)?;
        let ready = data.join("ready.json");
        let program = std::env::current_exe()?.with_file_name("wane");
        let process = Command::new(&program)
            .args(["serve", "--storage", "file"])
            .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
            .arg("--data")
            .arg(data)
            .arg("--ready-file")
            .arg(&ready)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|error| {
                let build = "build it: cargo build --release -p wane-server";
                format!("{}: {error}; {build}", program.display())
            })?;
        let mut server =
            Self { http: SocketAddr::from(([127, 0, 0, 1], 0)), key: String::new(), process };
        for _ in 0..1_000 {
            if ready.exists() {
                break;
            }
            timing::pause(Duration::from_millis(10));
        }
        let ready: Json = serde_json::from_slice(&std::fs::read(ready)?)?;
        let address = |name: &str| ready[name].as_str().and_then(|text| text.parse().ok());
        server.http = address("http").ok_or("the server told no address")?;
        let key = |name: &str| std::fs::read_to_string(data.join(name));
        server.key = key("demo.key")?.trim().to_owned();
        let admin: SocketAddr = address("admin").ok_or("there is no admin address")?;
        raise_limits(admin, key("admin.key")?.trim())?;
        Ok(server)
    }

    pub(super) fn upload_head(&self, length: usize) -> String {
        format!(
            "POST /api/v2/apps/demo/app/workspaces/1/tblobs HTTP/1.1\r\nhost: bench\r\n\
             authorization: Bearer {}\r\ncontent-type: application/octet-stream\r\n\
             content-length: {length}\r\n\r\n",
            self.key
        )
    }

    pub(super) fn download_head(&self, id: &str) -> String {
        self.head("GET", id)
    }

    pub(super) fn delete_head(&self, id: &str) -> String {
        self.head("DELETE", id)
    }

    fn head(&self, method: &str, id: &str) -> String {
        format!(
            "{method} /api/v2/apps/demo/app/workspaces/1/tblobs/{id} HTTP/1.1\r\nhost: bench\r\n\
             authorization: Bearer {}\r\n\r\n",
            self.key
        )
    }

    /// Bytes of memory that the process has now.
    pub(super) fn resident(&self) -> Result<u64, BoxError> {
        machine::memory_of(self.process.id(), "VmRSS")
    }

    /// The most that it had since [`forget_peak`](Self::forget_peak).
    pub(super) fn peak(&self) -> Result<u64, BoxError> {
        machine::memory_of(self.process.id(), "VmHWM")
    }

    pub(super) fn forget_peak(&self) -> Result<(), BoxError> {
        Ok(std::fs::write(format!("/proc/{}/clear_refs", self.process.id()), "5")?)
    }
}

fn raise_limits(admin: SocketAddr, key: &str) -> Result<(), BoxError> {
    use std::io::{Read, Write};
    let body = r#"{"requestsPerSecond":1000000,"inFlight":10000,"maxBlobs":1000000,
        "maxBlobBytes":1073741824,"maxBlobTotalBytes":1099511627776}"#;
    let mut stream = std::net::TcpStream::connect(admin)?;
    write!(
        stream,
        "PUT /api/v1/admin/apps/demo/app/limits HTTP/1.1\r\nhost: bench\r\n\
         authorization: Bearer {key}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    match Answer::of(&answer) {
        Some(Answer { status: 200, .. }) => Ok(()),
        _ => Err(String::from_utf8_lossy(&answer).into_owned().into()),
    }
}
