//! A redis-server of a test's own: to be restarted, broken, or made a cluster of.

use std::net::TcpListener;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use redis::{Client, Connection};
use tempfile::TempDir;
use wane::clock::SystemClock;

/// How often a server is asked whether it answers: for a minute, as machines may have other things
/// to do.
const LOOKS: usize = 6_000;
const PAUSE: Duration = Duration::from_millis(10);

/// A server of a test's own, ended with it.
pub(crate) struct Server {
    directory: TempDir,
    port: u16,
    options: Vec<String>,
    process: Option<Child>,
}

/// A port that nobody listens on, nor on the one by which servers of a cluster find each other.
///
/// Both are below those that the kernel gives to outgoing connections: while a server is down, one
/// that somebody makes would have its port, and the server could not come back.
pub(crate) fn free_port() -> u16 {
    const FIRST: u16 = 10_240;
    const PORTS: u64 = 12_000;
    const TO_CLUSTER_PORT: u16 = 10_000;
    let clock = SystemClock::shared();
    let is_free = |port| TcpListener::bind(("127.0.0.1", port)).is_ok();
    loop {
        let port = FIRST + (clock.random_u64() % PORTS) as u16;
        if is_free(port) && is_free(port + TO_CLUSTER_PORT) {
            return port;
        }
    }
}

impl Server {
    /// A server that syncs what it acknowledges, with further options.
    pub(crate) fn start(options: &[&str]) -> Self {
        let port = free_port();
        let directory = tempfile::tempdir().expect("a temporary directory");
        let options = options.iter().map(|&option| option.to_owned()).collect();
        let mut server = Self { directory, port, options, process: None };
        server.restart();
        server
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    pub(crate) fn connection(&self) -> Connection {
        let client = Client::open(self.url()).expect("a legal URL");
        client.get_connection().expect("the server answers")
    }

    /// Ends the process as a crash would.
    pub(crate) fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("it can be killed");
            process.wait().expect("it ends");
        }
    }

    /// Forgets all that it has stored.
    pub(crate) fn flush(&self) {
        redis::cmd("FLUSHALL").exec(&mut self.connection()).expect("the server obeys");
    }

    /// Stops the process where it is, or lets it go on.
    pub(crate) fn pause(&self, stop: bool) {
        let process = self.process.as_ref().expect("it runs");
        let signal = if stop { "-STOP" } else { "-CONT" };
        let sent = Command::new("kill").args([signal, &process.id().to_string()]).status();
        assert!(sent.expect("kill runs").success(), "it can be told {signal}");
    }

    /// Starts the process, again over what it has stored, and waits until it answers.
    pub(crate) fn restart(&mut self) {
        self.kill();
        let process = Command::new("redis-server")
            .args(["--port", &self.port.to_string(), "--bind", "127.0.0.1", "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", "always", "--dir"])
            .arg(self.directory.path())
            .args(&self.options)
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed where redis is listed");
        self.process = Some(process);
        for _ in 0..LOOKS {
            if self.answers() {
                return;
            }
            if let Some(status) = self.ended() {
                panic!("redis-server on port {} has ended: {status}", self.port);
            }
            pause(PAUSE);
        }
        panic!("redis-server on port {} does not answer", self.port);
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.process.as_mut()?.try_wait().expect("its status can be had")
    }

    fn answers(&self) -> bool {
        let Ok(mut connection) = Client::open(self.url()).and_then(|c| c.get_connection()) else {
            return false;
        };
        let pong: Result<redis::Value, _> = redis::cmd("PING").query(&mut connection);
        // One that wants a password answers too.
        pong.map_or_else(|error| error.code() == Some("NOAUTH"), |_| true)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

#[expect(clippy::disallowed_methods, reason = "nothing else runs while a server starts")]
fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
