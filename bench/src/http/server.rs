//! The servers under load: processes of this same program, on ports that the system chose.

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value as Json;
use tokio::runtime::Runtime;
use wane::clock::SharedClock;
use wane_server::client::{Client, Elections, Endpoint, Trust};
use wane_server::settings::{ServeFlags, Settings, Storage};

use crate::http::load::Load;
use crate::{BoxError, machine, timing};

/// The name under which the benchmark starts itself as a server.
pub(crate) const SERVE: &str = "serve-for-http";

/// What each record holds.
pub(super) const VALUE: &str = "thirty-two bytes of record value";

/// Which server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Empty,
    Mem,
    File,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Empty => "empty handler",
            Self::Mem => "wane mem",
            Self::File => "wane file",
        }
    }

    fn argument(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Mem => "mem",
            Self::File => "file",
        }
    }
}

/// A server that runs until this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) kind: Kind,
    pub(crate) http: SocketAddr,
    admin: Option<SocketAddr>,
    key: String,
    admin_key: String,
    process: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It holds nothing that is needed later.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// What it takes to write requests.
#[derive(Debug, Clone)]
pub(crate) struct Requests {
    kind: Kind,
    key: String,
}

impl Server {
    pub(crate) fn start(kind: Kind, scratch: &Path) -> Result<Self, BoxError> {
        let data = scratch.join(kind.argument());
        std::fs::create_dir_all(&data)?;
        let ready = data.join("ready.json");
        let process = Command::new(std::env::current_exe()?)
            .args([SERVE, kind.argument()])
            .arg(&data)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        for _ in 0..1_000 {
            if ready.exists() {
                break;
            }
            timing::pause(Duration::from_millis(10));
        }
        let ready: Json = serde_json::from_slice(&std::fs::read(ready)?)?;
        let address = |name: &str| ready[name].as_str().and_then(|text| text.parse().ok());
        let key_in = |name: &str| std::fs::read_to_string(data.join(name)).unwrap_or_default();
        Ok(Self {
            kind,
            http: address("http").ok_or("the server told no address")?,
            admin: address("admin"),
            key: key_in("demo.key").trim().to_owned(),
            admin_key: key_in("admin.key").trim().to_owned(),
            process,
        })
    }

    /// The elections of the demo app, over connections of their own.
    pub(crate) fn elections(&self, clock: &SharedClock) -> Result<Elections, BoxError> {
        let endpoint = Endpoint {
            url: format!("http://{}", self.http),
            key: Some(self.key.as_str().into()),
            trust: Trust::PublicRoots,
        };
        let client = Client::new(&endpoint, SharedClock::clone(clock))?;
        Ok(client.elections(&"demo/app".parse()?))
    }

    /// What its process has used of the cores so far.
    pub(crate) fn cpu_seconds(&self) -> f64 {
        machine::cpu_seconds(self.process.id())
    }

    pub(crate) fn clone_for_requests(&self) -> Requests {
        Requests { kind: self.kind, key: self.key.clone() }
    }

    /// Where it answers operators.
    pub(crate) fn admin(&self) -> Result<SocketAddr, BoxError> {
        self.admin.ok_or_else(|| "there is no admin address".into())
    }

    /// A request of the operator.
    pub(crate) fn admin_request(&self, method: &str, path: &str, body: &str) -> Vec<u8> {
        format!(
            "{method} /api/v1/admin{path} HTTP/1.1\r\nhost: bench\r\n\
             authorization: Bearer {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            self.admin_key,
            body.len()
        )
        .into_bytes()
    }

    /// The request for what the server counted.
    pub(crate) fn metrics_request(&self) -> Vec<u8> {
        let key = &self.admin_key;
        format!("GET /metrics HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {key}\r\n\r\n")
            .into_bytes()
    }

    /// Lets the demo app make as many requests as it can.
    pub(crate) fn raise_limits(&self, client: &Runtime) -> Result<(), BoxError> {
        let body = r#"{"requestsPerSecond":100000000,"inFlight":100000,"maxKeys":100000000}"#;
        let request = self.admin_request("PUT", "/apps/demo/app/limits", body);
        let load = Load {
            server: self.admin()?,
            connections: 1,
            slice: Duration::from_millis(50),
            request: std::sync::Arc::new(move |_, _| request.clone()),
            status: 200,
            says: &[],
        };
        load.run(client).map(drop)
    }

    /// Writes the records that gets will ask for: each slice goes through all of them from the first
    /// on, and the second one is long enough for a disk.
    pub(super) fn fill(&self, client: &Runtime, records: u64) -> Result<(), BoxError> {
        const CALLERS: u64 = 64;
        for slice in [Duration::from_millis(500), Duration::from_secs(6)] {
            let requests = self.clone_for_requests();
            let make = move |caller: usize, sent: u64| {
                requests.set_request(&format!("r{}", (sent * CALLERS + caller as u64) % records))
            };
            let load = Load {
                server: self.http,
                connections: CALLERS as usize,
                slice,
                request: std::sync::Arc::new(make),
                status: 200,
                says: &[],
            };
            // Connections do not keep pace with each other: twice as many writes leave no gap.
            if load.run(client)?.rate * slice.as_secs_f64() >= 2.0 * records as f64 {
                break;
            }
        }
        Ok(())
    }
}

impl Requests {
    pub(crate) fn get_request(&self, index: u64) -> Vec<u8> {
        match self.kind {
            Kind::Empty => b"GET / HTTP/1.1\r\nhost: bench\r\n\r\n".to_vec(),
            Kind::Mem | Kind::File => format!(
                "GET /api/v2/apps/demo/app/ttl/r{index} HTTP/1.1\r\nhost: bench\r\n\
                 authorization: Bearer {}\r\n\r\n",
                self.key
            )
            .into_bytes(),
        }
    }

    pub(super) fn insert_request(&self, key: &str) -> Vec<u8> {
        self.write("POST", key)
    }

    fn set_request(&self, key: &str) -> Vec<u8> {
        self.write("PUT", key)
    }

    /// One insert for each of the keys.
    pub(super) fn batch_request(&self, keys: impl Iterator<Item = String>) -> Vec<u8> {
        let insert =
            |key| format!(r#"{{"op":"insert","key":"{key}","value":"{VALUE}","ttlSeconds":3600}}"#);
        let inserts: Vec<_> = keys.map(insert).collect();
        self.request("POST", ":batch", &format!(r#"{{"operations":[{}]}}"#, inserts.join(",")))
    }

    fn write(&self, method: &str, key: &str) -> Vec<u8> {
        let body = format!(r#"{{"value":"{VALUE}","ttlSeconds":3600}}"#);
        self.request(method, &format!("/{key}"), &body)
    }

    fn request(&self, method: &str, of: &str, body: &str) -> Vec<u8> {
        format!(
            "{method} /api/v2/apps/demo/app/ttl{of} HTTP/1.1\r\nhost: bench\r\n\
             authorization: Bearer {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            self.key,
            body.len()
        )
        .into_bytes()
    }
}

/// What the process does that was started as a server.
pub(crate) fn serve(kind: &str, data: &Path) -> Result<(), BoxError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    match kind {
        "empty" => runtime.block_on(serve_nothing(&data.join("ready.json"))),
        storage => runtime.block_on(serve_wane(storage, data)),
    }
}

async fn serve_nothing(ready: &Path) -> Result<(), BoxError> {
    let router = axum::Router::new().route("/", axum::routing::get(async || "ok"));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    std::fs::write(ready, format!(r#"{{"http":"{address}"}}"#))?;
    Ok(axum::serve(listener, router).await?)
}

async fn serve_wane(storage: &str, data: &Path) -> Result<(), BoxError> {
    // The device benchmark says by a header which address a request is from.
    let proxies = [("WANE_TRUSTED_PROXIES".into(), "127.0.0.1".into())];
    let settings = Settings {
        storage: if storage == "mem" { Storage::Mem } else { Storage::File },
        data: data.to_path_buf(),
        listen: "127.0.0.1:0".parse()?,
        admin_listen: "127.0.0.1:0".parse()?,
        ..Settings::load(&ServeFlags::default(), proxies)?.settings
    };
    let _log = wane_server::telemetry::start(&settings)?;
    Ok(wane_server::serve::serve(&settings, Some(&data.join("ready.json"))).await?)
}
