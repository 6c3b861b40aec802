//! A server in this process whose table says something else than it should.

use std::sync::Arc;

use tempfile::TempDir;
use tokio::runtime::Runtime;
use wane::clock::SystemClock;
use wane_server::first_start::make_keys;
use wane_server::http::{Access, Route, admin_routes, main_routes, router};
use wane_server::listen::{ListenLimits, Listener};
use wane_server::settings::{ServeFlags, Settings};
use wane_server::wiring::Services;

use super::Site;

/// A running server. Dropped, it ends.
pub(super) struct Forged {
    pub(super) site: Site,
    _runtime: Runtime,
    _data: TempDir,
}

impl Forged {
    /// Serves the tables with each access replaced.
    pub(super) fn serve(forge: impl Fn(Access) -> Access) -> Self {
        let runtime = Runtime::new().unwrap();
        let data = tempfile::tempdir().unwrap();
        let clock = SystemClock::shared();
        let forged = |mut routes: Vec<Route>| {
            routes.iter_mut().for_each(|route| route.access = forge(route.access));
            routes
        };
        let serve = async |services: &Services, routes: Vec<Route>| {
            let any = "127.0.0.1:0".parse().unwrap();
            let limits = ListenLimits::default();
            let listener = Listener::bind(any, None, limits, Arc::clone(&clock)).await.unwrap();
            let address = listener.local_addr();
            let router = router(forged(routes), services);
            tokio::spawn(async move { listener.serve(router, std::future::pending()).await });
            address
        };
        let site = runtime.block_on(async {
            let services = {
                let set = [("WANE_STORAGE_TYPE", "mem"), ("WANE_TRUSTED_PROXIES", "127.0.0.1")];
                let set = set.map(|(name, value)| (name.into(), value.into()));
                let settings = Settings::load(&ServeFlags::default(), set).unwrap().settings;
                Services::open(&settings, Arc::clone(&clock)).await.unwrap()
            };
            make_keys(&services, data.path()).await.unwrap();
            let admin_key = std::fs::read_to_string(data.path().join("admin.key")).unwrap();
            Site {
                http: serve(&services, main_routes()).await,
                admin: serve(&services, admin_routes()).await,
                admin_key: admin_key.trim().to_owned(),
            }
        });
        Self { site, _runtime: runtime, _data: data }
    }
}
