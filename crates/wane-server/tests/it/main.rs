//! Integration tests of the server: its listener, and the real binary on ports the system chose.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod blob_clients;
mod cli;
mod cli_audit;
mod cli_blobs;
mod cli_devices;
mod cli_streams;
mod cli_streams_archive;
mod cli_streams_regions;
mod cli_streams_replay;
mod client;
mod connection;
mod device_clients;
mod device_page;
mod disk_full;
mod failover;
mod http;
#[path = "../../../wane-backends/tests/it/harness/listed.rs"]
mod listed;
mod listen;
#[cfg(feature = "aws")]
#[path = "../../../wane-backends/tests/it/harness/moto.rs"]
mod moto;
mod openapi;
mod readme;
mod restart;
mod server;
mod shared;
mod snapshots;
mod steady;
mod stream_clients;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

/// Tests that load the machine and tests that measure time keep out of each other's way.
static MACHINE: RwLock<()> = RwLock::new(());

fn loading() -> RwLockReadGuard<'static, ()> {
    // A test that failed says so itself.
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

fn measuring() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// How often a proof goes round: `name` in the environment, or what each CI run does.
fn count(name: &str, in_ci: u64) -> u64 {
    let set = std::env::var(name).ok();
    set.map_or(in_ci, |set| set.parse().unwrap_or_else(|_| panic!("{name} is not a number")))
}

/// Lets real time pass while the server works.
#[expect(clippy::disallowed_methods, reason = "another process works meanwhile")]
fn wait(duration: Duration) {
    std::thread::sleep(duration);
}

/// The time as the server sees it, in Unix milliseconds.
#[expect(clippy::disallowed_methods, reason = "expiries happen in real time")]
fn wall_clock() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    now.as_millis() as u64
}

/// Measures from now on.
#[expect(clippy::disallowed_methods, reason = "another process takes real time")]
fn stopwatch() -> impl Fn() -> Duration {
    let begin = std::time::Instant::now();
    move || begin.elapsed()
}
