//! `wane serve`: opens the store, makes the keys ready, answers until it is asked to stop.
//!
//! Order of the end: stop accepting, let requests finish, end watches and the snapshot that is being
//! taken, remove what broken uploads left, close the store. A request
//! that was let in is answered, within the time that draining may take.

use std::io::{self, Write as _};
use std::path::{self, Path};
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use wane::clock::{Clock, SharedClock, SystemClock};
use wane_backends::OpenError;

use crate::archiver;
use crate::first_start::{FirstStartError, make_keys};
use crate::http::{admin_routes, main_routes, router};
use crate::listen::{ListenError, ListenLimits, Listener, TlsFiles};
use crate::ready_file::ReadyFile;
use crate::settings::Settings;
use crate::shutdown::asked_to_stop;
use crate::snapshots::{self, SnapshotPlan};
use crate::wiring::{Services, WiringError};

/// How often a store that is in use or does not answer is tried again under `--wait`.
const TRY_AGAIN: Duration = Duration::from_millis(500);

/// How long what transfers left behind may take to be removed in the end. The rest expires.
const SETTLING: Duration = Duration::from_secs(5);

/// How often that is said.
const SAY_AGAIN: Duration = Duration::from_secs(10);

/// Why the server did not start, or ended before it was asked to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "every field is named in its message")]
pub enum ServeError {
    /// The store does not open.
    #[error(transparent)]
    Open(WiringError),

    /// Another server has the store.
    #[error(
        "{in_use}; or start with --wait to take over when it ends, or name another directory \
         with --data"
    )]
    InUse { in_use: WiringError },

    /// The store's server does not answer.
    #[error("{unreachable}; or start with --wait to begin once it answers")]
    Unreachable { unreachable: WiringError },

    /// A key file or the store's settings cannot be used.
    #[error(transparent)]
    FirstStart(#[from] FirstStartError),

    /// An address cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),

    /// The operating system refused.
    #[error("cannot {what}: {source}")]
    Io { what: String, source: io::Error },
}

/// What the ready file says.
#[derive(Debug, Serialize)]
struct Ready {
    http: String,
    admin: String,
    pid: u32,
}

/// Runs the server until the process is asked to stop.
pub async fn serve(settings: &Settings, ready_file: Option<&Path>) -> Result<(), ServeError> {
    let clock = SystemClock::shared();
    let prepare = |path| ReadyFile::prepare(path).map_err(|error| unready(path, error));
    let ready_file = ready_file.map(prepare).transpose()?;
    let services = open(settings, &clock).await?;
    make_keys(&services, &settings.data).await?;
    let (limits, tls) = (limits(settings), tls(settings));
    let main = Listener::bind(settings.listen, tls.clone(), limits.clone(), Arc::clone(&clock));
    let main = main.await?;
    let admin = Listener::bind(settings.admin_listen, tls, limits, clock).await?;
    let ready = Ready {
        http: main.local_addr().to_string(),
        admin: admin.local_addr().to_string(),
        pid: std::process::id(),
    };
    services.watch_connections(main.connections());
    let (main_router, admin_router) =
        (router(main_routes(), &services), router(admin_routes(), &services));
    let snapshots = SnapshotPlan::of(settings)
        .map(|plan| tokio::spawn(snapshots::keep(services.clone(), plan)));
    let closing = services.closing.clone();
    let wait = || {
        let closing = closing.clone();
        async move { closing.wait().await }
    };
    let archiving = async {
        if settings.stream_archive.is_some() {
            archiver::run(services.clone(), settings.stream_archive_every_ms).await;
        }
    };
    let serving =
        async { tokio::join!(main.serve(main_router, wait()), admin.serve(admin_router, wait())) };
    let stopping = async {
        let stopped = tokio::select! {
            error = stay_announced(settings, &ready, ready_file.as_ref(), &*services.clock) => {
                Err(error)
            }
            asked = asked_to_stop() => {
                asked.map_err(|source| ServeError::Io { what: "wait for signals".into(), source })
            }
        };
        tracing::info!("stopping: no new connections, finishing what is under way");
        closing.begin();
        services.pull_stream.end_holds();
        stopped
    };
    let ((main_drained, admin_drained), stopped, ()) = tokio::join!(serving, stopping, archiving);
    if let Some(snapshots) = snapshots {
        // It has heard that the server stops, and removes what it had not finished.
        drop(snapshots.await);
    }
    tokio::select! {
        () = services.blobs.settle() => {}
        () = services.clock.sleep(SETTLING) => {}
    }
    tracing::info!(cut = main_drained.cut + admin_drained.cut, "stopped");
    stopped
}

fn limits(settings: &Settings) -> ListenLimits {
    ListenLimits {
        connections: settings.max_connections,
        handshake: settings.handshake_timeout_ms,
        header: settings.header_timeout_ms,
        idle: settings.idle_timeout_ms,
        ..ListenLimits::default()
    }
}

fn tls(settings: &Settings) -> Option<TlsFiles> {
    settings.tls().map(|files| TlsFiles {
        certificate: files.cert.to_path_buf(),
        key: files.key.to_path_buf(),
        client_ca: files.client_ca.map(Path::to_path_buf),
    })
}

/// Opens the store; under `--wait`, as soon as nobody else has it open and its server answers.
async fn open(settings: &Settings, clock: &SharedClock) -> Result<Services, ServeError> {
    let began = clock.monotonic();
    let mut said = None;
    loop {
        let error = match Services::open(settings, Arc::clone(clock)).await {
            Ok(services) => return Ok(services),
            Err(error) => error,
        };
        let is_in_use = matches!(error, WiringError::Open(OpenError::InUse { .. }));
        if !is_in_use && !error.may_pass() {
            return Err(ServeError::Open(error));
        }
        if !settings.wait {
            return Err(match is_in_use {
                true => ServeError::InUse { in_use: error },
                false => ServeError::Unreachable { unreachable: error },
            });
        }
        let now = clock.monotonic();
        if said.is_none_or(|said| now.saturating_sub(said) >= SAY_AGAIN) {
            let waited = now.saturating_sub(began).as_secs();
            tracing::info!(waited_seconds = waited, "waiting for the store: {error}");
            said = Some(now);
        }
        clock.sleep(TRY_AGAIN).await;
    }
}

fn unready(path: &Path, source: io::Error) -> ServeError {
    ServeError::Io { what: format!("write the ready file {}", path.display()), source }
}

/// Tells people and programs that every port answers, and returns only if that cannot be told.
async fn stay_announced(
    settings: &Settings,
    ready: &Ready,
    file: Option<&ReadyFile>,
    clock: &dyn Clock,
) -> ServeError {
    if let Err(error) = print_greeting(settings, ready) {
        tracing::warn!(%error, "the greeting cannot be printed");
    }
    let Some(file) = file else { return std::future::pending().await };
    let written = match serde_json::to_vec(ready) {
        Ok(bytes) => file.write(&bytes, clock).await,
        Err(error) => Err(error.into()),
    };
    match written {
        Ok(()) => std::future::pending().await,
        Err(error) => unready(file.path(), error),
    }
}

/// Lines that can be pasted as they are.
fn print_greeting(settings: &Settings, ready: &Ready) -> io::Result<()> {
    let scheme = if settings.tls().is_some() { "https" } else { "http" };
    let (http, admin) = (&ready.http, &ready.admin);
    let key = quoted(&path::absolute(settings.data.join("demo.key"))?);
    let entry = format!("{scheme}://{http}/api/v2/apps/demo/app/ttl/hello");
    let credential = format!("-H \"Authorization: Bearer $(cat {key})\"");
    let mut out = io::stdout().lock();
    writeln!(
        out,
        "wane {version} serves {scheme}://{http} (admin {scheme}://{admin}), storage {storage} in {data}\n\
         Try it:\n\n\
         curl -X POST {entry} {credential} \\\n  \
         -H 'Content-Type: application/json' -d '{{\"value\":\"world\",\"ttlSeconds\":900}}'\n\
         curl {entry} {credential}\n",
        version = env!("CARGO_PKG_VERSION"),
        storage = settings.storage.name(),
        data = settings.data.display(),
    )?;
    out.flush()
}

/// A path as a shell reads it back.
fn quoted(path: &Path) -> String {
    let path = path.display().to_string();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%,".contains(c);
    if path.chars().all(is_plain) { path } else { format!("'{}'", path.replace('\'', r"'\''")) }
}
