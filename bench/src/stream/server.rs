//! `wane serve` itself, the program that lies beside this one, with credentials for its callers.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use serde_json::{Value as Json, json};

use super::cores::Cores;
use super::line::Line;
use super::pause;
use crate::{BoxError, machine, timing};

/// How long a server may take until it answers: it verifies its whole file first.
const STARTS_WITHIN: Duration = Duration::from_secs(600);

/// How long readers may take until all of them wait.
const PARK_WITHIN: Duration = Duration::from_secs(20);

/// Institutions that can have a credential of their own: a server keeps 1,000, and the operator's
/// and the producer's are two of them.
pub(super) const MOST_INSTITUTIONS: usize = 998;

/// A server that runs until this is dropped.
#[derive(Debug)]
pub(super) struct Wane {
    pub(super) http: SocketAddr,
    admin: SocketAddr,
    admin_key: String,
    process: Child,
}

/// An institution, and what opens its stream.
#[derive(Debug, Clone)]
pub(super) struct Institution {
    pub(super) ispb: String,
    pub(super) key: String,
}

impl Drop for Wane {
    fn drop(&mut self) {
        // What it has answered is durable, and nothing else is needed later.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

impl Wane {
    /// Starts it on a directory, with settings beside the defaults; the file backend, unless they
    /// name another.
    pub(super) fn start(
        data: &Path,
        cores: &Cores,
        settings: &[(&str, &str)],
    ) -> Result<Self, BoxError> {
        std::fs::create_dir_all(data)?;
        let ready = data.join("ready.json");
        // Of a server that had the directory before.
        drop(std::fs::remove_file(&ready));
        let program = std::env::current_exe()?.with_file_name("wane");
        let build = "build it: cargo build --release -p wane-server";
        if !program.exists() {
            return Err(format!("{}: there is none; {build}", program.display()).into());
        }
        let mut process = cores
            .server_command(&program)
            .args(["serve"])
            .args(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
            .args(settings.iter().flat_map(|(name, value)| [format!("--{name}"), (*value).into()]))
            .arg("--data")
            .arg(data)
            .arg("--ready-file")
            .arg(&ready)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let told = match await_ready(&ready, &mut process) {
            Ok(told) => told,
            Err(error) => {
                drop(process.kill());
                drop(process.wait());
                return Err(error);
            }
        };
        let address = |name: &str| told[name].as_str().and_then(|text| text.parse().ok());
        Ok(Self {
            http: address("http").ok_or("the server told no address")?,
            admin: address("admin").ok_or("there is no admin address")?,
            admin_key: std::fs::read_to_string(data.join("admin.key"))?.trim().to_owned(),
            process,
        })
    }

    /// A credential that lets messages in.
    pub(super) async fn producer_key(&self) -> Result<String, BoxError> {
        let mut line = Line::to(self.admin).await?;
        self.credential(&mut line, &json!({"scopes": ["produce"]})).await
    }

    /// Credentials of so many institutions, whose numbers begin at `first`.
    pub(super) async fn institutions(
        &self,
        first: usize,
        count: usize,
    ) -> Result<Vec<Institution>, BoxError> {
        let mut line = Line::to(self.admin).await?;
        let mut institutions = Vec::new();
        for number in first..first + count {
            let ispb = format!("{number:08}");
            let wanted = json!({"scopes": ["pull"], "ispb": ispb});
            let key = self.credential(&mut line, &wanted).await?;
            institutions.push(Institution { ispb, key });
        }
        Ok(institutions)
    }

    async fn credential(&self, line: &mut Line, wanted: &Json) -> Result<String, BoxError> {
        let made = self.made(line, "credentials", wanted).await?;
        Ok(made["key"].as_str().ok_or("a credential without a key")?.to_owned())
    }

    /// The paths of so many replays of each institution, of all that it has.
    pub(super) async fn replays(
        &self,
        institutions: &[Institution],
        each: usize,
    ) -> Result<Vec<(Institution, String)>, BoxError> {
        let mut line = Line::to(self.admin).await?;
        let mut replays = Vec::new();
        for institution in institutions {
            let wanted = json!({
                "ispb": institution.ispb, "from": 0, "to": i64::MAX, "reason": "a benchmark",
            });
            for _ in 0..each {
                let made = self.made(&mut line, "replays", &wanted).await?;
                let start = made["start"].as_str().ok_or("a replay without a path")?.to_owned();
                replays.push((institution.clone(), start));
            }
        }
        Ok(replays)
    }

    /// What an operator is told of something that was made.
    async fn made(&self, line: &mut Line, what: &str, wanted: &Json) -> Result<Json, BoxError> {
        let body = wanted.to_string();
        let request = format!(
            "POST /api/v1/admin/{what} HTTP/1.1\r\nhost: bench\r\n\
             authorization: Bearer {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            self.admin_key,
            body.len()
        );
        let answer = line.ask(request.as_bytes()).await?.expect(201)?;
        Ok(serde_json::from_slice(answer.body)?)
    }

    /// A call of the operator, and what it is answered.
    pub(super) async fn administer(
        &self,
        line: &mut Line,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<Json, BoxError> {
        let request = format!(
            "{method} /api/v1/admin/{path} HTTP/1.1\r\nhost: bench\r\n\
             authorization: Bearer {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            self.admin_key,
            body.len()
        );
        Ok(serde_json::from_slice(line.ask(request.as_bytes()).await?.expect(200)?.body)?)
    }

    /// A connection of the operator.
    pub(super) async fn operator(&self) -> Result<Line, BoxError> {
        Line::to(self.admin).await
    }

    /// What the server has counted.
    pub(super) async fn counted(&self) -> Result<Counted, BoxError> {
        let request = format!(
            "GET /metrics HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {}\r\n\r\n",
            self.admin_key
        );
        let mut line = Line::to(self.admin).await?;
        let answer = line.ask(request.as_bytes()).await?.expect(200)?;
        Ok(Counted::read(std::str::from_utf8(answer.body)?))
    }

    /// Completes when so many readers wait for a message.
    pub(super) async fn all_parked(&self, readers: usize) -> Result<(), BoxError> {
        let begin = timing::now();
        loop {
            let parked = self.counted().await?.parked;
            if parked == readers as f64 {
                return Ok(());
            }
            if begin.elapsed() > PARK_WITHIN {
                return Err(format!("of {readers} readers {parked} wait").into());
            }
            pause(Duration::from_millis(100)).await;
        }
    }

    /// What its process has used of the cores so far.
    pub(super) fn cpu_seconds(&self) -> f64 {
        machine::cpu_seconds(self.process.id())
    }

    /// Bytes of memory that it has now.
    pub(super) fn resident(&self) -> Result<f64, BoxError> {
        Ok(machine::memory_of(self.process.id(), "VmRSS")? as f64)
    }
}

fn await_ready(ready: &Path, process: &mut Child) -> Result<Json, BoxError> {
    let begin = timing::now();
    while begin.elapsed() < STARTS_WITHIN {
        if let Ok(told) = std::fs::read(ready) {
            return Ok(serde_json::from_slice(&told)?);
        }
        if let Some(status) = process.try_wait()? {
            return Err(format!("the server ended with {status}").into());
        }
        timing::pause(Duration::from_millis(5));
    }
    Err("the server does not answer".into())
}

/// What a server has counted so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Counted {
    /// Calls of the store that write, whatever came of them.
    pub(super) writes: f64,
    /// Readers that wait for a message now.
    pub(super) parked: f64,
}

impl Counted {
    fn read(metrics: &str) -> Self {
        let value = |line: &str| line.rsplit(' ').next().and_then(|text| text.parse::<f64>().ok());
        let calls = metrics.lines();
        let calls = calls.filter(|line| line.starts_with("wane_store_operations_total{"));
        let is_write = |line: &&str| {
            let outcomes = ["applied", "refused", "unknown"];
            outcomes.iter().any(|outcome| line.contains(&format!("outcome=\"{outcome}\"")))
        };
        let parked = metrics.lines().find(|line| line.starts_with("wane_stream_parked_readers "));
        Self {
            writes: calls.filter(is_write).filter_map(value).sum(),
            parked: parked.and_then(value).unwrap_or(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_known_by_their_outcome_and_parked_readers_are_found() {
        let text = "# TYPE wane_store_operations_total counter\n\
            wane_store_operations_total{backend=\"file\",operation=\"get\",outcome=\"found\"} 5\n\
            wane_store_operations_total{backend=\"file\",operation=\"swap\",outcome=\"applied\"} 3\n\
            wane_store_operations_total{backend=\"file\",operation=\"swap\",outcome=\"refused\"} 1\n\
            # TYPE wane_stream_parked_readers gauge\n\
            wane_stream_parked_readers 12\n";
        let expected = Counted { writes: 4.0, parked: 12.0 };
        assert_eq!(Counted::read(text), expected);
    }
}
