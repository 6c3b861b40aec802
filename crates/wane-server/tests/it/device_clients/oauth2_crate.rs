//! The `oauth2` crate. It polls at once, and takes whatever it is given to send requests with.

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::time::Duration;

use oauth2::basic::{BasicClient, BasicTokenResponse, BasicTokenType};
use oauth2::{
    AuthType, ClientId, ClientSecret, DeviceAuthorizationUrl, DeviceCodeErrorResponse,
    DeviceCodeErrorResponseType, EndpointNotSet, EndpointSet, HttpRequest, HttpResponse,
    IntrospectionUrl, RequestTokenError, RevocationUrl, Scope, StandardDeviceAuthorizationResponse,
    TokenIntrospectionResponse, TokenResponse, TokenUrl,
};

use super::*;

type Library = BasicClient<EndpointNotSet, EndpointSet, EndpointSet, EndpointSet, EndpointSet>;

type Outcome = Result<BasicTokenResponse, RequestTokenError<Infallible, DeviceCodeErrorResponse>>;

/// The library with a client of ours. It revokes at addresses of HTTPS only; where they lead is for
/// `sent` to say.
fn library(client: &Client, method: AuthType) -> Library {
    let url = |path: &str| format!("https://wane.test{APP}/{path}");
    let mut library = BasicClient::new(ClientId::new(client.id.clone()));
    if let Some(secret) = &client.secret {
        library = library.set_client_secret(ClientSecret::new(secret.clone()));
    }
    library
        .set_auth_type(method)
        .set_device_authorization_url(
            DeviceAuthorizationUrl::new(url("device_authorization")).unwrap(),
        )
        .set_token_uri(TokenUrl::new(url("token")).unwrap())
        .set_introspection_url(IntrospectionUrl::new(url("introspect")).unwrap())
        .set_revocation_url(RevocationUrl::new(url("revoke")).unwrap())
}

/// Sends a request of the library as it is.
fn sent(login: &Login, request: &HttpRequest) -> Result<HttpResponse, Infallible> {
    let headers: Vec<_> = request
        .headers()
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
        .collect();
    let body = std::str::from_utf8(request.body()).unwrap();
    let answer = login.post_with(request.uri().path(), &headers, body);
    let mut response = oauth2::http::Response::builder().status(answer.status);
    for (name, value) in answer.head.lines().filter_map(|line| line.split_once(": ")) {
        response = response.header(name, value);
    }
    Ok(response.body(answer.body.into_bytes()).unwrap())
}

/// A device of the library, and what it did.
struct Device<'a> {
    login: &'a Login,
    library: Library,
    codes: StandardDeviceAuthorizationResponse,
    /// How long it wanted to wait, in order.
    waits: RefCell<Vec<Duration>>,
    polls: Cell<usize>,
}

impl<'a> Device<'a> {
    fn start(login: &'a Login, library: Library, scopes: &[&str]) -> Self {
        let request = library.exchange_device_code();
        let request = scopes
            .iter()
            .fold(request, |request, scope| request.add_scope(Scope::new((*scope).into())));
        let codes = request.request(&|request: HttpRequest| sent(login, &request)).unwrap();
        Self { login, library, codes, waits: RefCell::default(), polls: Cell::new(0) }
    }

    fn user_code(&self) -> &str {
        self.codes.user_code().secret()
    }

    /// Polls until it is told, and calls `waiting` with the number of each wait.
    fn poll(&self, waiting: impl Fn(usize)) -> Outcome {
        let http = |request: HttpRequest| {
            self.polls.set(self.polls.get() + 1);
            sent(self.login, &request)
        };
        let sleep = |wait: Duration| {
            self.waits.borrow_mut().push(wait);
            waiting(self.waits.borrow().len());
        };
        self.library.exchange_device_access_token(&self.codes).request(&http, sleep, None)
    }
}

fn refused_with(outcome: Outcome) -> DeviceCodeErrorResponseType {
    match outcome {
        Err(RequestTokenError::ServerResponse(refusal)) => refusal.error().clone(),
        other => panic!("{other:?}"),
    }
}

/// Trap: the `oauth2` crate polls at t = 0: the first poll is never throttled, and the second one,
/// five seconds later, is in time.
#[test]
fn the_first_poll_comes_at_once_and_is_never_throttled() {
    let login = Login::new();
    let client = login.register(json!({ "scopes": ["read", "write"] }));
    let device = Device::start(&login, library(&client, AuthType::RequestBody), &["read"]);
    let page = device.codes.verification_uri().to_string();
    assert_eq!(page, login.url("/device"));
    let complete = device.codes.verification_uri_complete().unwrap().secret();
    assert_eq!(*complete, format!("{page}?user_code={}", device.user_code()));
    assert!((890..=900).contains(&device.codes.expires_in().as_secs()));

    let token = device.poll(|wait| match wait {
        1 => crate::wait(Duration::from_secs(5)),
        _ => drop(login.approve(device.user_code())),
    });
    let token = token.unwrap();
    assert_eq!(*device.waits.borrow(), [Duration::from_secs(5); 2], "pending both times");
    assert_eq!((device.polls.get(), token.token_type()), (3, &BasicTokenType::Bearer));
    assert_eq!(token.scopes(), Some(&vec![Scope::new("read".into())]));
    let life = token.expires_in().unwrap().as_secs();
    assert!((180 * 86_400 - 60..=180 * 86_400).contains(&life), "{life} s");
}

#[test]
fn a_confidential_client_links_introspects_and_revokes_in_both_ways() {
    let login = Login::new();
    let client = login.confidential();
    for method in [AuthType::BasicAuth, AuthType::RequestBody] {
        let device = Device::start(&login, library(&client, method.clone()), &["write", "read"]);
        login.approve(device.user_code());
        let token = device.poll(|_| panic!("it was approved")).unwrap();
        let http = |request: HttpRequest| sent(&login, &request);
        let of = |token: &BasicTokenResponse| {
            device.library.introspect(token.access_token()).request(&http).unwrap()
        };
        let seen = of(&token);
        assert!(seen.active(), "{method:?}");
        assert_eq!(
            (seen.sub(), seen.client_id().map(|id| &***id)),
            (Some("alice"), Some(&*client.id))
        );
        let scopes = ["write", "read"].map(|scope| Scope::new(scope.into()));
        assert_eq!(seen.scopes().map(Vec::as_slice), Some(&scopes[..]));
        device.library.revoke_token(token.access_token().into()).unwrap().request(&http).unwrap();
        assert!(!of(&token).active(), "{method:?}");
    }
}

#[test]
fn what_was_denied_ends_the_loop_of_the_library() {
    let login = Login::new();
    let client = login.register(json!({ "scopes": ["read"] }));
    let device = Device::start(&login, library(&client, AuthType::RequestBody), &[]);
    let outcome = device.poll(|_| login.deny(device.user_code()));
    assert_eq!(refused_with(outcome), DeviceCodeErrorResponseType::AccessDenied);
    assert_eq!(device.polls.get(), 2);
}

/// Trap: an approved grant is never withheld by `slow_down`. The library takes each as five seconds
/// more, and gets its token all the same when it comes too early once more.
#[test]
fn a_library_that_was_told_to_slow_down_gets_its_token_at_once() {
    let login = Login::new();
    let client = login.register(json!({ "scopes": ["read"] }));
    let device = Device::start(&login, library(&client, AuthType::RequestBody), &[]);
    let token = device.poll(|wait| match wait {
        // Too early, and not so early that it is the same poll.
        1 | 2 => crate::wait(Duration::from_millis(1_200)),
        _ => drop(login.approve(device.user_code())),
    });
    token.unwrap();
    let waits = device.waits.borrow().iter().map(Duration::as_secs).collect::<Vec<_>>();
    assert_eq!(waits, [5, 10, 15], "pending, and slow_down twice");
}

#[test]
fn a_client_that_is_not_known_is_told_so_by_the_library() {
    let login = Login::new();
    let client = Client { id: "nobody".into(), secret: None };
    let library = library(&client, AuthType::RequestBody);
    let http = |request: HttpRequest| sent(&login, &request);
    let refused: Result<StandardDeviceAuthorizationResponse, _> =
        library.exchange_device_code().request(&http);
    let Err(RequestTokenError::ServerResponse(refusal)) = refused else { panic!("{refused:?}") };
    assert_eq!(refusal.error().as_ref(), "invalid_client");
}
