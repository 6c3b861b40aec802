//! The walk: each route, asked by each kind of caller, and what is wrong with the answers.

use std::net::SocketAddr;

use wane::services::apps::Scope;
use wane_server::http::{Access, Route};

use super::credentials::{Cast, INSTITUTION, Kind, Standing};
use super::{Site, listeners};
use crate::http::conversation::{Conversation, Request};

/// What must become of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expected {
    Unauthorized,
    Forbidden,
    Absent,
    LetIn,
}

/// The rule, apart from the code that keeps it: refused unless there is a reason.
pub(super) fn expected(access: Access, standing: &Standing) -> Expected {
    // Nobody here has the secret of anything.
    let access = match access {
        Access::OwnerOrHolder(scope) => Access::App(scope),
        Access::Public | Access::App(_) | Access::System(_) | Access::Institution => access,
    };
    match (access, standing) {
        (Access::Public, _) => Expected::LetIn,
        (_, Standing::Nobody) => Expected::Unauthorized,
        (Access::App(scope), Standing::AppKey { own: true, scopes }) => {
            if scopes.contains(&scope) {
                Expected::LetIn
            } else {
                Expected::Forbidden
            }
        }
        (Access::App(_) | Access::OwnerOrHolder(_), _) => Expected::Absent,
        (Access::System(scope), Standing::System { scopes }) if scopes.contains(&scope) => {
            Expected::LetIn
        }
        (Access::Institution, Standing::System { scopes }) if scopes.contains(&Scope::Pull) => {
            Expected::LetIn
        }
        (Access::System(_) | Access::Institution, _) => Expected::Forbidden,
    }
}

impl Expected {
    /// What is wrong with a status, where `success` is that of who is let in.
    pub(super) fn violation(self, status: u16, success: u16) -> Option<String> {
        let wanted = match self {
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::Absent => 404,
            Self::LetIn => success,
        };
        let found = if [401, 403, 404].contains(&status) { "refused" } else { "let in" };
        (status != wanted).then(|| format!("{found} with {status} instead of {wanted}"))
    }
}

/// A call of a route that would do something if it were let in.
pub(super) struct Call {
    pub(super) request: Request,
    /// The status of whoever is let in.
    success: u16,
}

const SET: &str = r#"{"value":"changed","ttlSeconds":60}"#;
const TOUCH: &str = r#"{"ttlSeconds":60}"#;
const CAMPAIGN: &str = r#"{"holder":"me","ttlMillis":3600000}"#;
const LEASE: &str = r#"{"leaseId":"00000000000000000000000000000000","token":1}"#;
const BATCH: &str = r#"{"operations":[{"op":"insert","key":"new","value":"v","ttlSeconds":60}]}"#;

pub(super) const SIGN_IN: &str = r#"{"assertion":{"url":"https://app.example/link"}}"#;

/// The body to send and the status of who is let in, for each route: a new one must be listed.
#[rustfmt::skip]
const CALLS: &[(&str, &str, &str, u16)] = &[
    ("GET", "/livez", "", 200),
    ("GET", "/readyz", "", 200),
    ("GET", "/metrics", "", 200),
    ("GET", "/api/openapi.json", "", 200),
    ("GET", "/api/docs", "", 200),
    ("GET", "/api/v2/apps/{owner}/{app}/ttl", "", 200),
    ("GET", "/api/v2/apps/{owner}/{app}/ttl/", "", 400),
    ("POST", "/api/v2/apps/{owner}/{app}/ttl/", SET, 400),
    ("PUT", "/api/v2/apps/{owner}/{app}/ttl/", SET, 400),
    ("PATCH", "/api/v2/apps/{owner}/{app}/ttl/", TOUCH, 400),
    ("DELETE", "/api/v2/apps/{owner}/{app}/ttl/", "", 400),
    ("GET", "/api/v2/apps/{owner}/{app}/ttl/{key}", "", 200),
    ("POST", "/api/v2/apps/{owner}/{app}/ttl/{key}", SET, 201),
    ("PUT", "/api/v2/apps/{owner}/{app}/ttl/{key}", SET, 200),
    ("PATCH", "/api/v2/apps/{owner}/{app}/ttl/{key}", TOUCH, 200),
    ("DELETE", "/api/v2/apps/{owner}/{app}/ttl/{key}", "", 204),
    ("POST", "/api/v2/apps/{owner}/{app}/ttl:batch", BATCH, 200),
    ("GET", "/api/v2/apps/{owner}/{app}/ttl:watch", "", 200),
    ("GET", "/api/v2/apps/{owner}/{app}/elections/", "", 400),
    ("GET", "/api/v2/apps/{owner}/{app}/elections/{name}", "", 200),
    ("GET", "/api/v2/apps/{owner}/{app}/elections/{name}/watch", "", 200),
    ("POST", "/api/v2/apps/{owner}/{app}/elections/{name}/campaign", CAMPAIGN, 200),
    ("POST", "/api/v2/apps/{owner}/{app}/elections/{name}/renew", LEASE, 409),
    ("POST", "/api/v2/apps/{owner}/{app}/elections/{name}/resign", LEASE, 409),
    ("GET", "/api/v2/apps/{owner}/{app}/elections//watch", "", 400),
    ("POST", "/api/v2/apps/{owner}/{app}/elections//campaign", CAMPAIGN, 400),
    ("POST", "/api/v2/apps/{owner}/{app}/elections//renew", LEASE, 400),
    ("POST", "/api/v2/apps/{owner}/{app}/elections//resign", LEASE, 400),
    ("GET", "/api/v2/apps/{owner}/{app}/sequences/", "", 400),
    ("GET", "/api/v2/apps/{owner}/{app}/sequences/{name}", "", 200),
    ("POST", "/api/v2/apps/{owner}/{app}/sequences/{name}/next", r#"{"count":1}"#, 200),
    ("POST", "/api/v2/apps/{owner}/{app}/sequences//next", r#"{"count":1}"#, 400),
    ("POST", "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs", "bytes", 201),
    ("GET", "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs/{suuid}", "", 200),
    ("DELETE", "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs/{suuid}", "", 204),
    ("OPTIONS", "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs-tus", "", 204),
    ("POST", "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs-tus", "", 201),
    ("HEAD", "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs-tus/{suuid}", "", 200),
    ("PATCH", "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs-tus/{suuid}", "", 204),
    ("DELETE", "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs-tus/{suuid}", "", 204),
    ("POST", "/api/v2/apps/{owner}/{app}/workspaces/{wsid}/tblobs-tus/{suuid}", "", 204),
    ("POST", "/api/v2/apps/{owner}/{app}/devices/approve", r#"{"userCode":"{code}","subject":"s"}"#, 200),
    ("POST", "/api/v2/apps/{owner}/{app}/devices/deny", r#"{"userCode":"{code}"}"#, 204),
    ("GET", "/api/v2/apps/{owner}/{app}/devices", "", 200),
    ("DELETE", "/api/v2/apps/{owner}/{app}/devices/{deviceId}", "", 204),
    // Devices prove who they are in forms, and this is none.
    ("POST", "/oauth/{owner}/{app}/device_authorization", "{}", 400),
    ("POST", "/oauth/{owner}/{app}/token", "{}", 400),
    ("POST", "/oauth/{owner}/{app}/introspect", "{}", 400),
    ("POST", "/oauth/{owner}/{app}/revoke", "{}", 400),
    ("GET", "/.well-known/oauth-authorization-server/oauth/{owner}/{app}", "", 200),
    ("GET", "/oauth/{owner}/{app}/.well-known/oauth-authorization-server", "", 200),
    // Switched off.
    ("POST", "/login/device/code", "", 404),
    ("POST", "/login/oauth/access_token", "", 404),
    ("POST", "/api/v1/admin/oauth-clients", r#"{"owner":"{owner}","app":"app","name":"made"}"#, 201),
    ("GET", "/api/v1/admin/apps/{owner}/{app}/oauth-clients", "", 200),
    // A public client has no secret.
    ("POST", "/api/v1/admin/apps/{owner}/{app}/oauth-clients/{clientId}/secret", "", 409),
    ("DELETE", "/api/v1/admin/apps/{owner}/{app}/oauth-clients/{clientId}", "", 204),
    ("PUT", "/api/v1/admin/apps/{owner}/{app}/sign-in", SIGN_IN, 200),
    ("GET", "/api/v1/admin/apps/{owner}/{app}/sign-in", "", 200),
    ("DELETE", "/api/v1/admin/apps/{owner}/{app}/sign-in", "", 204),
    // What is sent there is JSON.
    ("POST", "/api/v1/in/{ispb}/msgs", "{}", 415),
    ("GET", "/api/v1/out/{ispb}/stream/start", "", 204),
    // Whoever is let in has a token that is none.
    ("GET", "/api/v1/out/{ispb}/stream/{token}", "", 401),
    ("DELETE", "/api/v1/out/{ispb}/stream/{token}", "", 401),
    ("GET", "/api/v1/out/{ispb}/replay/{token}", "", 401),
    // Nothing came in in that time.
    ("POST", "/api/v1/admin/replays", r#"{"ispb":"12345678","from":0,"to":1,"reason":"why"}"#, 404),
    ("GET", "/api/v1/admin/streams/{ispb}", "", 200),
    ("GET", "/api/v1/admin/policies/{ispb}", "", 200),
    ("PUT", "/api/v1/admin/policies/{ispb}", r#"{"maxReaders":6}"#, 200),
    ("POST", "/api/v1/admin/holds", r#"{"ispb":"{ispb}","from":0,"to":1,"reason":"case 17"}"#, 201),
    ("GET", "/api/v1/admin/holds", "", 200),
    // There is none of that name.
    ("DELETE", "/api/v1/admin/holds/{holdId}", "", 404),
    // The region of this server, which serves the institution before and after.
    ("PUT", "/api/v1/admin/regions/{ispb}", r#"{"primary":"local","secondary":"r2"}"#, 200),
    ("GET", "/api/v1/admin/regions/{ispb}", "", 200),
    ("POST", "/api/v1/admin/regions/{ispb}/failover", r#"{"to":"local"}"#, 200),
    // The institution is in the query, and there is none.
    ("GET", "/api/v1/admin/audit", "", 400),
    ("GET", "/api/v1/admin/audit/verify", "", 400),
    // No archive is set up there.
    ("POST", "/api/v1/admin/archives", r#"{"ispb":"00000208","from":0,"to":1}"#, 404),
    ("GET", "/api/v1/admin/archives", "", 400),
    // Pages for everybody, who is sent to the first one without a code, and forms that are none.
    ("GET", "/device", "", 200),
    ("GET", "/device/", "", 200),
    ("POST", "/device", "", 415),
    ("GET", "/device/qr.svg", "", 400),
    ("GET", "/device/style.css", "", 200),
    ("GET", "/device/icon.svg", "", 200),
    ("GET", "/device/sign-in", "", 303),
    ("POST", "/device/sign-in", "", 415),
    ("GET", "/device/sign-in/start", "", 303),
    ("GET", "/device/signed-in/{owner}/{app}", "", 303),
    ("GET", "/device/sign-out", "", 303),
    ("POST", "/device/sign-out", "", 415),
    ("GET", "/device/confirm", "", 303),
    ("GET", "/device/decide", "", 303),
    ("POST", "/device/decide", "", 415),
    ("GET", "/device/done", "", 303),
    ("POST", "/api/v1/admin/apps", r#"{"owner":"made","app":"app"}"#, 201),
    ("GET", "/api/v1/admin/apps", "", 200),
    ("PUT", "/api/v1/admin/apps/{owner}/{app}/limits", r#"{"maxKeys":1000}"#, 200),
    // Two keys are there, and a third is refused.
    ("POST", "/api/v1/admin/apps/{owner}/{app}/keys", r#"{"scopes":["read"]}"#, 409),
    ("DELETE", "/api/v1/admin/apps/{owner}/{app}/keys/{id}", "", 204),
    ("POST", "/api/v1/admin/credentials", r#"{"scopes":["read"]}"#, 201),
    // The id is that of an app's key: no credential is lost on the way.
    ("DELETE", "/api/v1/admin/credentials/{id}", "", 404),
    ("GET", "/api/v1/admin/backup", "", 200),
];

/// What every call of tus says, needed or not.
const TUS: [&str; 5] = [
    "tus-resumable: 1.0.0",
    "upload-length: 5",
    "upload-offset: 0",
    "content-type: application/offset+octet-stream",
    "x-http-method-override: DELETE",
];

/// The call of a route by a kind of caller.
pub(super) fn call(route: &Route, kind: &Kind) -> Call {
    let is_this = |call: &&(&str, &str, &str, u16)| route.method == call.0 && route.path == call.1;
    let found = CALLS.iter().find(is_this);
    let (method, path, body, success) =
        found.unwrap_or_else(|| panic!("no call of {} {}: add one", route.method, route.path));
    let key = if *method == "POST" { "new" } else { "kept" };
    // A held election is not won again, so each kind campaigns in one of its own.
    let name =
        if path.ends_with("/campaign") { kind.name.replace(' ', "-") } else { "kept".into() };
    let id = kind.target.second.split('.').next().unwrap();
    let held = kind.target.held();
    let is_tus = path.contains("/tblobs-tus");
    let suuid = if is_tus { held.upload } else { held.blob };
    let path = path
        .replace("{owner}", kind.target.owner)
        .replace("{app}", "app")
        .replace("{key}", key)
        .replace("{name}", &name)
        .replace("{id}", id)
        .replace("{wsid}", "7")
        .replace("{ispb}", INSTITUTION)
        .replace("{token}", "e30.e30.e30")
        .replace("{holdId}", &format!("{INSTITUTION}-0123456789abcdef"))
        .replace("{suuid}", &suuid);
    let path =
        path.replace("{deviceId}", &held.device).replace("{clientId}", &kind.target.client());
    let body = body.replace("{code}", &held.user_code).replace("{owner}", kind.target.owner);
    let body = body.replace("{ispb}", INSTITUTION);
    // What is listed by institution is listed of this one.
    let path = if path.ends_with("/holds") { format!("{path}?ispb={INSTITUTION}") } else { path };
    let mut request = Request::new(method, &path).body(&body);
    request.headers.clone_from(&kind.headers);
    if is_tus {
        request.headers.extend(TUS.map(|line| line.as_bytes().to_vec()));
    }
    Call { request, success: *success }
}

/// Asks everything as everybody and returns what is wrong.
pub(super) fn walk(site: &Site, cast: &Cast) -> Vec<String> {
    walk_as(site, cast, cast.kinds())
}

/// Asks everything as each of these kinds and returns what is wrong.
///
/// What a kind must not do is tried first, and changed nothing if everything looks as before.
/// Only when it does not, each call is looked at by itself.
pub(super) fn walk_as<'a>(
    site: &Site,
    cast: &Cast,
    kinds: impl IntoIterator<Item = &'a Kind>,
) -> Vec<String> {
    let mut violations = Vec::new();
    let mut observer = Observer::of(site);
    for kind in kinds {
        let (let_in, refused): (Vec<_>, Vec<_>) =
            Step::all(site, kind).into_iter().partition(|step| step.expected == Expected::LetIn);
        let before = observer.picture(cast);
        violations.extend(refused.iter().filter_map(Step::violation));
        if observer.picture(cast) != before {
            kind.target.seed(site);
            violations.extend(refused.iter().filter_map(|step| {
                let before = observer.picture(cast);
                step.violation();
                let changed = observer.picture(cast) != before;
                changed.then(|| {
                    kind.target.seed(site);
                    format!("{}: changed the store", step.name)
                })
            }));
        }
        for step in let_in {
            violations.extend(step.violation());
            kind.target.seed(site);
        }
    }
    violations
}

/// A call to make, and what must become of it.
struct Step<'a> {
    name: String,
    address: SocketAddr,
    route: Route,
    is_head: bool,
    kind: &'a Kind,
    expected: Expected,
}

impl<'a> Step<'a> {
    /// Every call that a kind can make: those for heads as well, where something can be read.
    fn all(site: &Site, kind: &'a Kind) -> Vec<Self> {
        let mut steps = Vec::new();
        for (listener, address) in listeners().into_iter().zip([site.http, site.admin]) {
            for route in listener.routes {
                steps.push(Self::of(listener.name, address, route.clone(), false, kind));
                if route.method == "GET" {
                    steps.push(Self::of(listener.name, address, route, true, kind));
                }
            }
        }
        steps
    }

    fn of(
        listener: &str,
        address: SocketAddr,
        route: Route,
        is_head: bool,
        kind: &'a Kind,
    ) -> Self {
        let method = if is_head { "HEAD" } else { route.method.as_str() };
        let name = format!("{listener}: {method} {} by {}", route.path, kind.name);
        let expected = expected(route.access, &kind.standing);
        Self { name, address, route, is_head, kind, expected }
    }

    /// Makes the call and says what is wrong with the answer.
    fn violation(&self) -> Option<String> {
        let Call { mut request, mut success } = call(&self.route, self.kind);
        if self.is_head {
            request.method = "HEAD".into();
            // A pull has effects.
            let is_pull = self.route.access == Access::Institution;
            success = if is_pull { 405 } else { success };
        }
        // A body that nobody reads, or a watch, ends the connection.
        let answer = Conversation::with(self.address).ask(&request);
        let wrong = self.expected.violation(answer.status, success)?;
        Some(format!("{}: {wrong}", self.name))
    }
}

/// Sees everything that there is, with keys of its own.
struct Observer {
    main: Conversation,
    admin: Conversation,
    admin_key: String,
}

impl Observer {
    fn of(site: &Site) -> Self {
        Self {
            main: Conversation::with(site.http),
            admin: Conversation::with(site.admin),
            admin_key: site.admin_key.clone(),
        }
    }

    /// The apps with their keys and limits, and what each holds.
    fn picture(&mut self, cast: &Cast) -> Vec<String> {
        let apps = Request::new("GET", "/api/v1/admin/apps").key(&self.admin_key);
        let apps = self.admin.ask(&apps);
        assert_eq!(apps.status, 200, "{}", apps.body);
        let stream = format!("/api/v1/admin/streams/{INSTITUTION}");
        let mut stream = self.admin.ask(&Request::new("GET", &stream).key(&self.admin_key)).json();
        // It grows by itself.
        stream["lagMillis"].take();
        let holds = format!("/api/v1/admin/holds?ispb={INSTITUTION}");
        let holds = self.admin.ask(&Request::new("GET", &holds).key(&self.admin_key)).body;
        let listings = cast.targets.iter().map(|target| target.listing(&mut self.main));
        listings.chain([apps.body, stream.to_string(), holds]).collect()
    }
}
