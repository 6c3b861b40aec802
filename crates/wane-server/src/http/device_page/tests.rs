//! The page on a clock that tests move: what expires while it is open.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{CONTENT_TYPE, COOKIE, HOST, LOCATION, SET_COOKIE};
use axum::http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use tower::ServiceExt as _;
use wane::clock::{Clock as _, ManualClock};
use wane::services::apps::AppName;
use wane::services::device_auth::{Asking, NewClient, Source, Started};

use crate::http::{main_routes, router};
use crate::settings::Settings;
use crate::wiring::Services;

/// A visitor of a server whose time stands still.
struct Visitor {
    clock: Arc<ManualClock>,
    services: Services,
    router: Router,
    cookie: String,
    page: String,
}

impl Visitor {
    async fn new() -> Self {
        let clock = ManualClock::seeded(3);
        let given = [("WANE_STORAGE_TYPE", "mem"), ("WANE_DEV_USERS", "alice:wonderland")];
        let given = given.map(|(name, value)| (name.into(), value.into()));
        let settings = Settings::load(&Default::default(), given).unwrap().settings;
        let services = Services::open(&settings, clock.clone()).await.unwrap();
        let router = router(main_routes(), &services);
        Self { clock, services, router, cookie: String::new(), page: String::new() }
    }

    /// The codes of a device.
    async fn started(&self) -> Started {
        self.started_with(NewClient::default()).await
    }

    async fn started_with(&self, client: NewClient) -> Started {
        let name = AppName::new("demo", "app").unwrap();
        let app = self.services.apps.create(&name).await.unwrap().app;
        let app = self.services.device_auth.of(app.id);
        let client = app.register(client).await.unwrap().client;
        app.start(&client, None, &Asking::default()).await.unwrap()
    }

    async fn asks(&mut self, method: Method, path: &str, form: &str) -> StatusCode {
        let token = self.page.split("name=\"token\" value=\"").last().unwrap_or_default();
        let token = token.split('"').next().unwrap_or_default();
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "localhost")
            .header(COOKIE, &self.cookie)
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let body = Body::from(format!("token={token}&{form}"));
        let answer = self.router.clone().oneshot(request.body(body).unwrap()).await.unwrap();
        if let Some(set) = answer.headers().get(SET_COOKIE) {
            set.to_str().unwrap().split(';').next().unwrap().clone_into(&mut self.cookie);
        }
        let (status, location) = (answer.status(), answer.headers().get(LOCATION).cloned());
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        self.page = String::from_utf8(body.to_vec()).unwrap();
        match location {
            Some(location) => {
                let path = location.to_str().unwrap().to_owned();
                Box::pin(self.asks(Method::GET, &path, "")).await
            }
            None => status,
        }
    }

    /// On the page that asks for a decision, with a minute left.
    async fn about_to_decide(&mut self) {
        let code = self.started().await.user_code.reveal();
        self.asks(Method::GET, "/device", "").await;
        self.asks(Method::POST, "/device", &format!("user_code={code}")).await;
        self.clock.advance(Duration::from_secs(840));
        self.asks(Method::GET, "/device/sign-in", "").await;
        self.asks(Method::POST, "/device/sign-in", "name=alice&password=wonderland").await;
        assert!(self.page.contains("value=\"approve\""), "{}", self.page);
    }
}

#[tokio::test]
async fn a_code_that_expires_while_the_page_is_open_is_told_and_costs_no_attempt() {
    let mut visitor = Visitor::new().await;
    visitor.about_to_decide().await;
    visitor.clock.advance(Duration::from_secs(61));
    let approved = visitor.asks(Method::POST, "/device/decide", "decision=approve").await;
    assert_eq!(approved, StatusCode::GONE, "{}", visitor.page);
    for _ in 0..10 {
        for path in ["/device/confirm", "/device/sign-in"] {
            assert_eq!(visitor.asks(Method::GET, path, "").await, StatusCode::GONE);
            assert!(visitor.page.contains("This code has expired"), "{}", visitor.page);
        }
    }
    let here = Source::of("0.0.0.0".parse().unwrap());
    for letter in ["B", "C", "D", "F", "G"] {
        let tried = visitor.services.device_auth.look_up(&letter.repeat(10), here).await;
        assert_eq!(tried.unwrap(), None, "five misses are left");
    }
    visitor.services.device_auth.look_up(&"H".repeat(10), here).await.unwrap_err();
}

/// The page that says that a code is wrong, loaded again after the minute in which the same code from
/// the same place is the same attempt.
#[tokio::test]
async fn a_wrong_code_that_is_sent_again_costs_one_attempt() {
    let mut visitor = Visitor::new().await;
    visitor.asks(Method::GET, "/device", "").await;
    for _ in 0..8 {
        let told = visitor.asks(Method::POST, "/device", "user_code=ZZZZZZZZZZ").await;
        assert_eq!(told, StatusCode::UNPROCESSABLE_ENTITY, "{}", visitor.page);
        visitor.clock.advance(Duration::from_secs(61));
    }
    let here = Source::of("0.0.0.0".parse().unwrap());
    for letter in ["B", "C", "D", "F"] {
        let tried = visitor.services.device_auth.look_up(&letter.repeat(10), here).await;
        assert_eq!(tried.unwrap(), None, "four misses are left");
    }
    visitor.services.device_auth.look_up(&"H".repeat(10), here).await.unwrap_err();
}

/// A page that one window loads must not undo what another does meanwhile.
#[tokio::test]
async fn a_page_that_changes_nothing_sets_no_cookie_before_half_its_life() {
    let mut visitor = Visitor::new().await;
    visitor.asks(Method::GET, "/device", "").await;
    let first = std::mem::take(&mut visitor.cookie);
    for (seconds, is_set) in [(0, false), (449, false), (1, true)] {
        visitor.clock.advance(Duration::from_secs(seconds));
        visitor.cookie.clone_from(&first);
        visitor.asks(Method::GET, "/device", "").await;
        assert_eq!(visitor.cookie != first, is_set, "{seconds}");
    }
}

/// Neither a log nor a panic may show what is in a session.
#[tokio::test]
async fn no_debug_shows_what_is_inside() {
    let visitor = Visitor::new().await;
    let mut session = super::session::Session::fresh(&*visitor.clock);
    let person = super::session::Person { subject: "canary".into(), name: Some("canary".into()) };
    let until = visitor.clock.now();
    let app = wane::services::ClusterAppId(1);
    session.asked = Some(super::session::AskedCode::new("canary".into(), app, until));
    let said = format!("{person:?} {:?} {:?}", session.asked, visitor.services.device_page);
    session.leaves(app, "canary".into(), &*visitor.clock);
    session.signed_in(app, person, "canary".into(), &*visitor.clock);
    let fields = super::form::Fields::of_query(&"/?password=canary".parse().unwrap());
    let said = format!("{said} {session:?} {:?} {fields:?}", session.leaving);
    assert!(!said.contains("canary"), "{said}");
    assert!(said.contains("DevicePage(..)") && said.contains("Session(..)"), "{said}");
}

/// A page that was left open for longer than the session: nothing is decided, and nobody is lost.
#[tokio::test]
async fn a_page_that_was_left_open_too_long_decides_nothing() {
    let mut visitor = Visitor::new().await;
    visitor.about_to_decide().await;
    visitor.clock.advance(Duration::from_secs(901));
    let approved = visitor.asks(Method::POST, "/device/decide", "decision=approve").await;
    assert_eq!(approved, StatusCode::CONFLICT);
    assert!(visitor.page.contains("Please look again"), "{}", visitor.page);
    visitor.asks(Method::GET, "/device/confirm", "").await;
    assert!(visitor.page.contains("Enter the code that your device shows."), "{}", visitor.page);
}

/// Fifteen minutes after the sign-in its person is asked again, also with a page just loaded.
#[tokio::test]
async fn a_sign_in_ends_while_the_session_goes_on() {
    let mut visitor = Visitor::new().await;
    let life = Duration::from_secs(1_800);
    let started = visitor.started_with(NewClient { code_life: life, ..NewClient::default() }).await;
    let code = started.user_code.reveal();
    visitor.asks(Method::GET, "/device", "").await;
    visitor.asks(Method::POST, "/device", &format!("user_code={code}")).await;
    visitor.asks(Method::POST, "/device/sign-in", "name=alice&password=wonderland").await;
    for _ in 0..2 {
        visitor.clock.advance(Duration::from_secs(449));
        visitor.asks(Method::GET, "/device/confirm", "").await;
        assert!(visitor.page.contains("value=\"approve\""), "{}", visitor.page);
        visitor.clock.advance(Duration::from_secs(1));
        visitor.asks(Method::GET, "/device", "").await;
    }
    visitor.asks(Method::GET, "/device/confirm", "").await;
    assert!(visitor.page.contains("Sign in to go on"), "the code lives: {}", visitor.page);
}
