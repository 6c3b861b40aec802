//! Device authorization: one approval (D1), one redemption (D2), nothing after expiry (D3), the
//! guess budget (D4), strangers who learn nothing (D5), `slow_down` (D6), and every trap that real
//! clients and servers fell into.

mod canary;
mod clients;
mod cuts;
mod expiry;
mod faults;
mod flow;
mod limits;
mod probed;
mod races;
mod registry;
mod traps;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use wane::clock::{ManualClock, SharedClock};
use wane::services::ClusterAppId;
use wane::services::device_auth::{
    AppDeviceAuth, Approval, Asking, Client, Decided, DeviceAuth, DeviceAuthError,
    DeviceAuthSettings, DeviceId, DeviceKey, Guesser, Issued, NewClient, Pace, Polled, Source,
    Started,
};
use wane::store::{PageLimit, Row, Store};

use self::probed::Probed;
use crate::gated::GatedStore;
use crate::{InnerStore, inner_store, manual_clock};

const APP: ClusterAppId = ClusterAppId(3);
const OTHER_APP: ClusterAppId = ClusterAppId(4);
const SECOND: Duration = Duration::from_secs(1);
/// Rows of a client: itself, and what lists it.
const CLIENT: usize = 2;
const CODE_LIFE: Duration = Duration::from_secs(900);

type Below = GatedStore<Probed<InnerStore>>;

/// The service over a store that a test can watch and hold up, its clock, and a public client.
struct Setup {
    service: DeviceAuth<Below>,
    app: AppDeviceAuth<Below>,
    below: Below,
    clock: Arc<ManualClock>,
    client: Client,
}

/// No limits on starts: tests of other things start often.
fn unpaced() -> DeviceAuthSettings {
    let pace = Pace { burst: 1_000_000, every: Duration::from_millis(1) };
    DeviceAuthSettings {
        starts_per_client: pace,
        starts_per_source: pace,
        ..DeviceAuthSettings::default()
    }
}

async fn setup() -> Setup {
    setup_with(unpaced()).await
}

async fn setup_with(settings: DeviceAuthSettings) -> Setup {
    let (manual, clock) = manual_clock();
    let below = GatedStore::new(Probed::new(inner_store(Arc::clone(&clock))));
    let service = service_on(&below, clock, settings);
    let app = service.of(APP);
    let client = register(&app, television("tv")).await;
    Setup { service, app, below, clock: manual, client }
}

fn service_on<S: Store + Clone>(
    store: &S,
    clock: SharedClock,
    settings: DeviceAuthSettings,
) -> DeviceAuth<S> {
    DeviceAuth::new(store.clone(), clock, DeviceKey::from_bytes([7; 32]), settings)
}

fn television(id: &str) -> NewClient {
    NewClient {
        id: Some(id.parse().expect("a legal id")),
        name: "Television".into(),
        scopes: vec!["read".into(), "write".into(), "admin".into()],
        ..NewClient::default()
    }
}

async fn register<S: Store>(app: &AppDeviceAuth<S>, client: NewClient) -> Client {
    app.register(client).await.expect("it is registered").client
}

impl Setup {
    fn shared_clock(&self) -> SharedClock {
        self.clock.clone()
    }

    async fn started(&self) -> Started {
        let started = self.app.start(&self.client, Some("read"), &Asking::default()).await;
        started.expect("it starts")
    }

    async fn poll(&self, started: &Started) -> Polled {
        let polled = self.app.poll(&self.client, &started.device_code.reveal()).await;
        polled.expect("it answers")
    }

    async fn approve(&self, started: &Started, subject: &str) -> Decided {
        let typed = started.user_code.reveal();
        self.app.approve(&typed, &approval(subject), Guesser::App).await.expect("it answers")
    }

    async fn deny(&self, started: &Started) -> Decided {
        self.app.deny(&started.user_code.reveal(), Guesser::App).await.expect("it answers")
    }

    /// A device that was just linked to somebody.
    async fn linked(&self, subject: &str) -> (Started, Issued) {
        let started = self.started().await;
        assert_done(self.approve(&started, subject).await);
        let issued = issued(self.poll(&started).await);
        (started, issued)
    }

    async fn is_good(&self, issued: &Issued) -> bool {
        let found = self.app.introspect(issued.token.reveal()).await.expect("it answers");
        found.is_some()
    }

    /// Every live row of the store.
    async fn rows(&self) -> Vec<Row> {
        live_rows(&self.below.inner).await
    }
}

async fn live_rows<S: Store>(store: &S) -> Vec<Row> {
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let page = store.scan(after, PageLimit::MAX).await.expect("it can be scanned");
        rows.extend(page.rows);
        after = page.next;
        if after.is_none() {
            return rows;
        }
    }
}

fn approval(subject: &str) -> Approval {
    Approval { subject: subject.into(), link_token: None }
}

fn address(number: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, number))
}

fn person(number: u8) -> Guesser {
    Guesser::Address(Source::of(address(number)))
}

#[track_caller]
fn assert_done(decided: Decided) -> DeviceId {
    match decided {
        Decided::Done(device) => device,
        other @ (Decided::NoSuchCode | Decided::AlreadyDecided) => panic!("{other:?}"),
    }
}

#[track_caller]
fn issued(polled: Polled) -> Issued {
    let Polled::Issued(issued) = polled else { panic!("{polled:?}") };
    issued
}

#[track_caller]
fn assert_limited<T: std::fmt::Debug>(result: Result<T, DeviceAuthError>) -> Duration {
    match result {
        Err(DeviceAuthError::Limited { retry_after, .. }) => retry_after,
        other => panic!("{other:?}"),
    }
}

/// A code that is live nowhere.
fn wrong_code(number: usize) -> String {
    let letters = wane::services::device_auth::ALPHABET;
    let last = [letters[number / 20 % 20], letters[number % 20]];
    format!("BBBBB-BBB{}", String::from_utf8_lossy(&last))
}
