//! Everybody who may turn up with a request, and what they hold.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use wane::services::apps::Scope;

use super::Site;
use super::walk::SIGN_IN;
use crate::http::conversation::{Conversation, Request};

/// Addresses that were asked from.
static ADDRESSES: AtomicU32 = AtomicU32::new(1);

/// The institution whose stream is asked for.
pub(super) const INSTITUTION: &str = "12345678";

/// What is known of who asks, apart from what they ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// Holds nothing that is worth anything.
    Nobody,
    /// Holds a key of an app: of the one in the path, or of another.
    AppKey { own: bool, scopes: Vec<Scope> },
    /// Holds a credential of no app.
    System { scopes: Vec<Scope> },
}

/// One kind of credential, and the app whose paths it is tried on.
#[derive(Debug, Clone)]
pub(super) struct Kind {
    pub(super) name: String,
    pub(super) headers: Vec<Vec<u8>>,
    pub(super) standing: Standing,
    pub(super) target: Target,
}

/// An app with two keys.
#[derive(Debug, Clone)]
pub(super) struct Target {
    pub(super) owner: &'static str,
    /// A key of every scope.
    pub(super) key: String,
    /// The other key.
    pub(super) second: String,
    held: Arc<Mutex<Held>>,
}

/// Ids that the server drew.
#[derive(Debug, Clone, Default)]
pub(super) struct Held {
    /// A BLOB.
    pub(super) blob: String,
    /// An upload that has no bytes yet.
    pub(super) upload: String,
    /// A linked device.
    pub(super) device: String,
    /// What a device shows that nobody has decided about.
    pub(super) user_code: String,
    /// And what it polls with.
    device_code: String,
}

impl Target {
    /// Makes an app whose second key has these scopes, and an entry in it.
    fn make(site: &Site, owner: &'static str, scopes: &[Scope]) -> Self {
        let body = format!(r#"{{"owner":"{owner}","app":"app"}}"#);
        let made = site.administer("POST", "/api/v1/admin/apps", &body);
        assert_eq!(made.status, 201, "{}", made.body);
        let scopes: Vec<_> =
            scopes.iter().map(|scope| format!("{:?}", scope.to_string())).collect();
        let body = format!(r#"{{"scopes":[{}]}}"#, scopes.join(","));
        let path = format!("/api/v1/admin/apps/{owner}/app/keys");
        let added = site.administer("POST", &path, &body);
        assert_eq!(added.status, 201, "{}", added.body);
        let key = |json: &serde_json::Value| json["key"].as_str().unwrap().to_owned();
        let (key, second) = (key(&made.json()), key(&added.json()));
        let target = Self { owner, key, second, held: Arc::default() };
        target.seed(site);
        target
    }

    pub(super) fn path(&self) -> String {
        format!("/api/v2/apps/{}/app/ttl", self.owner)
    }

    fn election(&self) -> String {
        format!("/api/v2/apps/{}/app/elections/kept", self.owner)
    }

    fn sequence(&self) -> String {
        format!("/api/v2/apps/{}/app/sequences/kept", self.owner)
    }

    /// Where the BLOBs of the app are, or, with `-tus` after it, its uploads.
    fn blobs(&self) -> String {
        format!("/api/v2/apps/{}/app/workspaces/7/tblobs", self.owner)
    }

    /// What it holds that has an id.
    pub(super) fn held(&self) -> Held {
        self.held.lock().unwrap().clone()
    }

    /// The entry `kept` is there and `new` is not; the election `kept` is held, and of the sequence
    /// `kept` numbers were taken; there is a BLOB and an upload.
    pub(super) fn seed(&self, site: &Site) {
        let mut connection = Conversation::with(site.http);
        let (kept, new) = (format!("{}/kept", self.path()), format!("{}/new", self.path()));
        let body = r#"{"value":"kept","ttlSeconds":9000}"#;
        let set = connection.ask(&Request::new("PUT", &kept).key(&self.key).body(body));
        let gone = connection.ask(&Request::new("DELETE", &new).key(&self.key));
        assert_eq!((set.status, gone.status), (200, 204), "{}", set.body);
        let campaign = format!("{}/campaign", self.election());
        let body = r#"{"holder":"seed","ttlMillis":3600000}"#;
        let held = connection.ask(&Request::new("POST", &campaign).key(&self.key).body(body));
        assert!(matches!(held.status, 200 | 409), "{}", held.body);
        let next =
            Request::new("POST", &format!("{}/next", self.sequence())).body(r#"{"count":1}"#);
        assert_eq!(connection.ask(&next.key(&self.key)).status, 200);
        self.seed_blobs(&mut connection);
        self.seed_devices(site, &mut connection);
    }

    /// The client that its devices are of.
    pub(super) fn client(&self) -> String {
        format!("client-of-{}", self.owner)
    }

    /// A linked device, and one that waits; and where people sign in.
    fn seed_devices(&self, site: &Site, connection: &mut Conversation) {
        let (owner, client) = (self.owner, self.client());
        let body =
            format!(r#"{{"owner":"{owner}","app":"app","name":"TV","clientId":"{client}"}}"#);
        let made = site.administer("POST", "/api/v1/admin/oauth-clients", &body);
        assert!(matches!(made.status, 201 | 409), "{}", made.body);
        let path = format!("/api/v1/admin/apps/{owner}/app/sign-in");
        assert_eq!(site.administer("PUT", &path, SIGN_IN).status, 200);
        let mut held = self.held();
        if !self.devices(connection).contains(&held.device) || held.device.is_empty() {
            let (user_code, device_code) = self.start(connection);
            let body = format!(r#"{{"userCode":"{user_code}","subject":"kept"}}"#);
            let path = format!("/api/v2/apps/{owner}/app/devices/approve");
            let approved = connection.ask(&Request::new("POST", &path).key(&self.key).body(&body));
            assert_eq!(approved.status, 200, "{}", approved.body);
            let linked = self.poll(connection, &device_code);
            linked["device_id"].as_str().unwrap().clone_into(&mut held.device);
        }
        if !self.is_undecided(connection, &held) {
            (held.user_code, held.device_code) = self.start(connection);
        }
        *self.held.lock().unwrap() = held;
    }

    fn start(&self, connection: &mut Conversation) -> (String, String) {
        let form = format!("client_id={}", self.client());
        let started = self.send(connection, "device_authorization", &form);
        let code = |name: &str| started[name].as_str().unwrap_or_else(|| panic!("{started}"));
        (code("user_code").to_owned(), code("device_code").to_owned())
    }

    fn poll(&self, connection: &mut Conversation, device_code: &str) -> serde_json::Value {
        let grant = "urn:ietf:params:oauth:grant-type:device_code";
        let client = self.client();
        let form = format!("grant_type={grant}&client_id={client}&device_code={device_code}");
        self.send(connection, "token", &form)
    }

    fn is_undecided(&self, connection: &mut Conversation, held: &Held) -> bool {
        let polled = self.poll(connection, &held.device_code);
        matches!(polled["error"].as_str(), Some("authorization_pending" | "slow_down"))
    }

    fn send(&self, connection: &mut Conversation, to: &str, form: &str) -> serde_json::Value {
        let path = format!("/oauth/{}/app/{to}", self.owner);
        // Each from an address of its own: starts are paced by address.
        let number = ADDRESSES.fetch_add(1, Ordering::Relaxed);
        let address = Ipv4Addr::from(0x0A00_0000 + number);
        let from = format!("x-forwarded-for: {address}");
        connection.ask(&Request::new("POST", &path).header(&from).form(form)).json()
    }

    /// The linked devices of the app.
    fn devices(&self, connection: &mut Conversation) -> String {
        let path = format!("/api/v2/apps/{}/app/devices", self.owner);
        connection.ask(&Request::new("GET", &path).key(&self.key)).body
    }

    fn seed_blobs(&self, connection: &mut Conversation) {
        let blobs = self.blobs();
        let mut held = self.held();
        if !self.found(connection).starts_with("200") {
            let upload = Request::new("POST", &blobs).key(&self.key).body("kept");
            let made = connection.ask(&upload);
            assert_eq!(made.status, 201, "{}", made.body);
            made.json()["blobSUUID"].as_str().unwrap().clone_into(&mut held.blob);
        }
        if !self.found(connection).ends_with("200 0") {
            let create = Request::new("POST", &format!("{blobs}-tus")).key(&self.key);
            let create = create.header("tus-resumable: 1.0.0").header("upload-length: 5");
            let made = connection.ask(&create);
            assert_eq!(made.status, 201, "{}", made.body);
            let location = made.header("location").unwrap();
            location.rsplit('/').next().unwrap().clone_into(&mut held.upload);
        }
        *self.held.lock().unwrap() = held;
    }

    /// Whether BLOB and upload are there, and how far the upload is.
    fn found(&self, connection: &mut Conversation) -> String {
        let (held, blobs) = (self.held(), self.blobs());
        let blob = Request::new("HEAD", &format!("{blobs}/{}", held.blob)).key(&self.key);
        let upload = Request::new("HEAD", &format!("{blobs}-tus/{}", held.upload)).key(&self.key);
        let blob = connection.ask(&blob);
        let upload = connection.ask(&upload.header("tus-resumable: 1.0.0"));
        let offset = upload.header("upload-offset").unwrap_or("none");
        format!("{} {} {offset}", blob.status, upload.status)
    }

    /// Everything that the app holds.
    pub(super) fn listing(&self, connection: &mut Conversation) -> String {
        let path = format!("{}?limit=1000", self.path());
        let answer = connection.ask(&Request::new("GET", &path).key(&self.key));
        assert_eq!(answer.status, 200, "{}", answer.body);
        let election = connection.ask(&Request::new("GET", &self.election()).key(&self.key));
        let election = election.json();
        let sequence = connection.ask(&Request::new("GET", &self.sequence()).key(&self.key)).body;
        let blobs = self.found(connection);
        let election = format!("{} {}", election["holder"], election["token"]);
        let undecided = self.is_undecided(connection, &self.held());
        let devices = format!("{undecided} {}", self.devices(connection));
        format!("{}\n{election}\n{sequence}\n{blobs}\n{devices}", answer.body)
    }
}

/// All kinds, in the order in which they are tried.
#[derive(Debug)]
pub(super) struct Cast {
    kinds: Vec<Kind>,
    pub(super) targets: Vec<Target>,
}

impl Cast {
    pub(super) fn assemble(site: &Site) -> Self {
        let all = Scope::OF_APPS;
        let own = Target::make(site, "own", &all);
        let foreign = Target::make(site, "foreign", &all);
        let reads = Target::make(site, "reads", &[Scope::Read]);
        let writes = Target::make(site, "writes", &[Scope::Write]);
        let devices = Target::make(site, "devices", &[Scope::Device]);
        let mut cast = Self { kinds: strangers(&own, &foreign), targets: vec![] };
        let mut add = |name: &str, key: &str, standing, target: &Target| {
            cast.kinds.push(bearer(name, key, standing, target));
        };
        let foreigner = Standing::AppKey { own: false, scopes: all.to_vec() };
        add("foreign key", &foreign.key, foreigner, &own);
        for (name, target, scope) in [
            ("read only", &reads, Scope::Read),
            ("write only", &writes, Scope::Write),
            ("device only", &devices, Scope::Device),
        ] {
            let standing = Standing::AppKey { own: true, scopes: vec![scope] };
            add(name, &target.second, standing, target);
        }
        let owner = Standing::AppKey { own: true, scopes: all.to_vec() };
        add("own key", &own.key, owner, &own);
        let pull = |ispb: &str| format!(r#"{{"scopes":["pull"],"ispb":"{ispb}"}}"#);
        let of_another = site.administer("POST", "/api/v1/admin/credentials", &pull("87654321"));
        let of_another = of_another.json()["key"].as_str().unwrap().to_owned();
        // Among the paths here there is none that it opens.
        add("another institution", &of_another, Standing::System { scopes: vec![] }, &own);
        for (name, body, scope) in [
            ("system read", r#"{"scopes":["read"]}"#, Scope::Read),
            ("system produce", r#"{"scopes":["produce"]}"#, Scope::Produce),
            ("system pull", &pull(INSTITUTION), Scope::Pull),
        ] {
            let made = site.administer("POST", "/api/v1/admin/credentials", body);
            assert_eq!(made.status, 201, "{}", made.body);
            let standing = Standing::System { scopes: vec![scope] };
            add(name, made.json()["key"].as_str().unwrap(), standing, &own);
        }
        // Last: the operator's calls take a key of the app away.
        add("admin", &site.admin_key, Standing::System { scopes: vec![Scope::Admin] }, &own);
        cast.targets = vec![own, foreign, reads, writes, devices];
        cast
    }

    pub(super) fn kinds(&self) -> &[Kind] {
        &self.kinds
    }
}

fn bearer(name: &str, key: &str, standing: Standing, target: &Target) -> Kind {
    let headers = vec![format!("authorization: Bearer {key}").into_bytes()];
    Kind { name: name.to_owned(), headers, standing, target: target.clone() }
}

/// Everything that opens nothing.
fn strangers(own: &Target, foreign: &Target) -> Vec<Kind> {
    let key = &own.key;
    let (id, secret) = key.split_once('.').unwrap();
    let (foreign_id, foreign_secret) = foreign.key.split_once('.').unwrap();
    let (app, random) = id.split_once('-').unwrap();
    let other = |digit: char| if digit == '0' { '1' } else { '0' };
    let mut wrong = secret.to_owned();
    wrong.replace_range(63.., &other(secret.chars().last().unwrap()).to_string());
    #[rustfmt::skip]
    let headers: Vec<(&str, Vec<String>)> = vec![
        ("no credential", vec![]),
        ("an empty header", vec!["authorization:".into()]),
        ("a scheme alone", vec!["authorization: Bearer".into()]),
        ("an empty credential", vec!["authorization: Bearer ".into()]),
        ("a dot", vec!["authorization: Bearer .".into()]),
        ("no dot", vec![format!("authorization: Bearer {id}{secret}")]),
        ("no secret", vec![format!("authorization: Bearer {id}.")]),
        ("no id", vec![format!("authorization: Bearer .{secret}")]),
        ("no scheme", vec![format!("authorization: {key}")]),
        ("a colon after the scheme", vec![format!("authorization: Bearer: {key}")]),
        ("the scheme Basic", vec![format!("authorization: Basic {key}")]),
        ("the scheme Token", vec![format!("authorization: Token {key}")]),
        ("two headers", vec![format!("authorization: Bearer {key}"), format!("Authorization: Bearer {key}")]),
        ("a right and a wrong header", vec![format!("authorization: Bearer {key}"), "authorization: Bearer x.y".into()]),
        ("two keys in one header", vec![format!("authorization: Bearer {key}, Bearer {key}")]),
        ("another header", vec![format!("x-authorization: Bearer {key}"), format!("proxy-authorization: Bearer {key}")]),
        ("a cookie", vec![format!("cookie: authorization=Bearer {key}")]),
        ("an unknown id", vec![format!("authorization: Bearer {app}-{}{}.{secret}", other(random.chars().next().unwrap()), &random[1..])]),
        ("an unknown app", vec![format!("authorization: Bearer fffffffe-{random}.{secret}")]),
        ("an app beyond numbers", vec![format!("authorization: Bearer 1{app:0>8}-{random}.{secret}")]),
        ("a signed app", vec![format!("authorization: Bearer +{id}.{secret}")]),
        ("an app with a zero before", vec![format!("authorization: Bearer 0{id}.{secret}")]),
        ("the system's number", vec![format!("authorization: Bearer 0-{random}.{secret}")]),
        ("a wrong secret", vec![format!("authorization: Bearer {id}.{wrong}")]),
        ("a secret too short", vec![format!("authorization: Bearer {id}.{}", &secret[..63])]),
        ("a secret too long", vec![format!("authorization: Bearer {key}0")]),
        ("a secret in capitals", vec![format!("authorization: Bearer {id}.{}", secret.to_uppercase())]),
        ("another's secret", vec![format!("authorization: Bearer {id}.{foreign_secret}")]),
        ("another's id", vec![format!("authorization: Bearer {foreign_id}.{secret}")]),
        ("a zero byte escaped", vec![format!("authorization: Bearer {key}%00")]),
    ];
    let mut kinds: Vec<_> = headers
        .into_iter()
        .map(|(name, lines)| {
            let headers = lines.into_iter().map(String::into_bytes).collect();
            let (name, target) = (name.to_owned(), own.clone());
            Kind { name, headers, standing: Standing::Nobody, target }
        })
        .collect();
    let mut not_text = format!("authorization: Bearer {key}").into_bytes();
    not_text.push(0xFF);
    kinds.push(Kind {
        name: "a header that is no text".into(),
        headers: vec![not_text],
        standing: Standing::Nobody,
        target: own.clone(),
    });
    kinds
}
