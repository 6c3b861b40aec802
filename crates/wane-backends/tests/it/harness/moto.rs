//! A moto of a test's own: a server that speaks the protocols of KMS and S3.

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server of a test's own, ended with it. What it holds is in its memory.
pub(crate) struct Moto {
    process: Child,
    address: SocketAddr,
}

impl Moto {
    /// A server on a port that the system chose; none where it is not installed, except in CI.
    pub(crate) fn start() -> Option<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let is_installed = root.join(".cache/moto/installed.txt").exists();
        let is_ci = std::env::var("CI").is_ok_and(|ci| !ci.is_empty());
        if !is_installed && !is_ci {
            println!("skipped: moto is not installed; scripts/moto does so");
            return None;
        }
        let mut process = Command::new(root.join("scripts/moto"))
            .args(["-H", "127.0.0.1", "-p", "0"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("scripts/moto runs");
        let mut log = BufReader::new(process.stderr.take().expect("it is piped"));
        let mut told = String::new();
        let address = loop {
            let mut line = String::new();
            let read = log.read_line(&mut line).expect("its log is text");
            assert!(read > 0, "moto has ended: {told}");
            if let Some((_, address)) = line.trim_end().split_once("Running on http://") {
                break address.parse().expect("an address");
            }
            told += &line;
        };
        // Nobody reads the rest, and the server would wait for that.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Some(Self { process, address })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        self.process.kill().expect("it can be killed");
        self.process.wait().expect("it ends");
    }
}
