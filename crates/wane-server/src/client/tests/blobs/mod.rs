//! BLOBs: what is sent and read, and what becomes of transfers that break, stall or lie.

mod downloads;
mod resumed;
mod uploads;

use wane::clock::SharedClock;
use wane::services::blobs::Suuid;
use wane::services::sequencer::WorkspaceId;

use super::stage::{client, client_at, demo};
use crate::client::Blobs;

const ID: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

const SECRET: &str = "__________________________________________8";

const EXPIRES: &str = "Sun, 09 Sep 2001 02:01:40 GMT";

/// The same instant in Unix milliseconds.
const EXPIRES_AT: u64 = 1_000_000_900_000;

const PATH: &str = "/api/v2/apps/demo/app/workspaces/7/tblobs";

fn blobs(url: &str) -> Blobs {
    client(url).blobs(&demo(), WorkspaceId(7))
}

fn blobs_at(url: &str, clock: SharedClock) -> Blobs {
    client_at(url, clock).blobs(&demo(), WorkspaceId(7))
}

fn id() -> Suuid {
    ID.parse().unwrap()
}
