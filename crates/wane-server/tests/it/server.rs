//! The server under test: the real binary as a process of its own, on ports that the system chose.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value as Json;
use tempfile::TempDir;

/// How long anything may take before a test gives up on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A running server. Dropped, it is killed.
pub(crate) struct Server {
    process: Child,
    data: PathBuf,
    /// Kept until the server has ended.
    directory: Option<TempDir>,
    pub(crate) http: SocketAddr,
    pub(crate) admin: SocketAddr,
    /// The key of `demo/app`.
    pub(crate) key: String,
    pub(crate) admin_key: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already, which is what is wanted.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Server {
    /// A server with a store of its own in memory.
    pub(crate) fn in_memory() -> Self {
        Self::with(&["--storage", "mem"])
    }

    /// A server with a file of its own.
    pub(crate) fn on_file() -> Self {
        Self::with(&[])
    }

    /// A server with these flags, in a directory of its own.
    pub(crate) fn with(flags: &[&str]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path().join("data");
        let mut server = Self::start(&data, flags);
        server.directory = Some(directory);
        server
    }

    /// A server in this directory, once it is ready.
    pub(crate) fn start(data: &Path, flags: &[&str]) -> Self {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), data, flags)
    }

    /// A server at this address, as one that comes back to its clients.
    pub(crate) fn start_at(listen: SocketAddr, data: &Path, flags: &[&str]) -> Self {
        Self::start_as(wane(), listen, data, flags)
    }

    /// A server at this address by a command of the test's own, as with another environment.
    pub(crate) fn start_as(
        mut command: Command,
        listen: SocketAddr,
        data: &Path,
        flags: &[&str],
    ) -> Self {
        std::fs::create_dir_all(data).unwrap();
        let ready = data.join("ready.json");
        drop(std::fs::remove_file(&ready));
        let log = std::fs::File::create(data.join("log.txt")).unwrap();
        let mut process = command
            .arg("serve")
            .args(["--listen", &listen.to_string(), "--admin-listen", "127.0.0.1:0"])
            .arg("--data")
            .arg(data)
            .arg("--ready-file")
            .arg(&ready)
            .args(flags)
            .stdout(Stdio::from(log.try_clone().unwrap()))
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        let is_ready = eventually(|| ready.exists() || process.try_wait().unwrap().is_some());
        let log = std::fs::read_to_string(data.join("log.txt")).unwrap_or_default();
        if !is_ready || !ready.exists() {
            // Whatever it is at, it ends with its test.
            drop(process.kill());
            drop(process.wait());
            panic!("the server did not start:\n{log}");
        }
        let ready: Json = serde_json::from_slice(&std::fs::read(ready).unwrap()).unwrap();
        let address = |name: &str| ready[name].as_str().unwrap().parse().unwrap();
        let key_in =
            |name: &str| std::fs::read_to_string(data.join(name)).unwrap().trim().to_owned();
        Self {
            http: address("http"),
            admin: address("admin"),
            key: key_in("demo.key"),
            admin_key: key_in("admin.key"),
            data: data.to_path_buf(),
            directory: None,
            process,
        }
    }

    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Everything that the server printed and logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.data.join("log.txt")).unwrap()
    }

    /// Ends the process at once, as a power cut to it.
    pub(crate) fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// Asks the process to stop.
    pub(crate) fn ask_to_stop(&self) {
        self.signal("TERM");
    }

    /// Sends the process a signal.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args([format!("-{name}"), pid]).status().unwrap();
        assert!(sent.success());
    }

    /// Asks the process to stop and returns its exit code.
    pub(crate) fn stop(mut self) -> Option<i32> {
        self.ask_to_stop();
        assert!(eventually(|| self.process.try_wait().unwrap().is_some()), "it did not stop");
        self.process.wait().unwrap().code()
    }

    /// A request with the key of `demo/app`.
    pub(crate) fn ask(&self, method: &str, path: &str, body: &str) -> Answer {
        self.ask_as(Some(&self.key), method, path, body)
    }

    /// A request with this credential, or none.
    pub(crate) fn ask_as(&self, key: Option<&str>, method: &str, path: &str, body: &str) -> Answer {
        request(self.http, key, method, path, body)
    }

    /// A request of the operator.
    pub(crate) fn administer(&self, method: &str, path: &str, body: &str) -> Answer {
        request(self.admin, Some(&self.admin_key), method, path, body)
    }

    /// Makes an app and returns its key.
    pub(crate) fn make_app(&self, owner: &str, app: &str) -> String {
        let body = format!(r#"{{"owner":"{owner}","app":"{app}"}}"#);
        let answer = self.administer("POST", "/api/v1/admin/apps", &body);
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.json()["key"].as_str().unwrap().to_owned()
    }
}

/// The binary.
pub(crate) fn wane() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wane"));
    // What the machine's environment says is not what is tested.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WANE_") {
            command.env_remove(name);
        }
    }
    // DynamoDB Local takes any credentials, and no test is to use those of a person.
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
        command.env(name, "local");
    }
    command.env("AWS_REGION", "us-east-1");
    command
}

/// Whether `holds` becomes true while a test has patience.
#[expect(clippy::disallowed_methods, reason = "another process takes real time")]
pub(crate) fn eventually(mut holds: impl FnMut() -> bool) -> bool {
    let begin = std::time::Instant::now();
    while begin.elapsed() < PATIENCE {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}

/// An answer as it came over the wire.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Json {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    pub(crate) fn code(&self) -> String {
        self.json()["code"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// One request on a connection of its own, written by hand.
pub(crate) fn request(
    server: SocketAddr,
    key: Option<&str>,
    method: &str,
    path: &str,
    body: &str,
) -> Answer {
    let credential = key.map_or(String::new(), |key| format!("authorization: Bearer {key}\r\n"));
    let content = if body.is_empty() {
        String::new()
    } else {
        format!("content-type: application/json\r\ncontent-length: {}\r\n", body.len())
    };
    let head = format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n");
    raw(server, format!("{head}{credential}{content}\r\n{body}").as_bytes())
}

/// Sends bytes as they are and returns what came back until the server closed.
pub(crate) fn raw(server: SocketAddr, bytes: &[u8]) -> Answer {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // A server that refuses early may close before everything was sent.
    drop(stream.write_all(bytes));
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer));
    let text = String::from_utf8_lossy(&answer).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = if chunked { unchunk(body) } else { body.to_owned() };
    Answer { status, head: head.to_owned(), body }
}

fn unchunk(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 || rest.len() < size {
            break;
        }
        whole.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}
