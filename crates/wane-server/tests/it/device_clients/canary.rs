//! Codes, tokens and secrets stay where they belong: with everything logged, none of them is in the
//! log, in a refusal or in a counter, wherever a client puts them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::visitor::Visitor;
use super::*;
use crate::server::eventually;

/// What is logged and not private: the control of each search.
const LOGGED: &str = "request-that-is-logged";

/// What the application gives instead of a token.
const PAYLOAD: &str = "canary-payload-of-the-application";

/// How people sign in, and how they mistype it.
const PASSWORD: &str = "canary-password-of-alice";
const MISTYPED: &str = "canary-password-of-slice";

/// What the operator gives, and what an application says about its people.
const ISSUER_SECRET: &str = "canary-secret-at-the-issuer";
const ASSERTION: &str = "canaryheader.canaryclaims.canarymac";

/// Uses device login, and keeps what must be nowhere and what was said.
struct Aviary<'a> {
    login: &'a Login,
    secrets: Vec<String>,
    refusals: Vec<String>,
}

impl Aviary<'_> {
    fn hide(&mut self, secret: &str) {
        self.secrets.push(secret.to_owned());
        let bare = secret.replace('-', "");
        // A user code may be written in other ways.
        if secret.len() == 11 && bare.len() == 10 {
            self.secrets.extend([bare.to_lowercase(), secret.to_lowercase(), bare]);
        }
    }

    fn heard(&mut self, answer: &Answer) -> Answer {
        if answer.status >= 400 {
            self.refusals.push(format!("{}\n{}", answer.head, answer.body));
        }
        answer.clone()
    }

    fn post(&mut self, path: &str, pairs: &[(&str, &str)]) -> Answer {
        let answer = self.login.post(path, &encoded(pairs));
        self.heard(&answer)
    }

    fn start(&mut self, client: &Client) -> Codes {
        let codes = self.login.start(client, None);
        self.hide(&codes.device_code);
        self.hide(&codes.user_code);
        codes
    }

    /// A device from its codes to its end, with polls of every outcome.
    fn link(&mut self, client: &Client, link_token: Option<&str>) {
        let codes = self.start(client);
        let (login, polls) = (self.login, [&codes; 2]);
        for codes in polls {
            let answer = login.poll(codes);
            self.heard(&answer);
            crate::wait(std::time::Duration::from_millis(1_100));
        }
        let foreign = Codes { client: "demo".into(), secret: None, ..codes.clone() };
        self.heard(&login.poll(&foreign));
        let mut approval = json!({ "userCode": codes.user_code, "subject": "alice" });
        if let Some(token) = link_token {
            approval["linkToken"] = json!(token);
        }
        for _ in 0..2 {
            let answer = login.decide("approve", &approval);
            self.heard(&answer);
        }
        let linked = login.redeemed(&codes);
        let token = linked["access_token"].as_str().unwrap();
        self.hide(token);
        login.introspect(token);
        let mut form = vec![("client_id", &*codes.client), ("token", token)];
        form.extend(codes.secret.as_deref().map(|secret| ("client_secret", secret)));
        self.post(&format!("{APP}/introspect"), &form);
        self.post(&format!("{APP}/revoke"), &form);
        self.heard(&login.poll(&codes));
    }

    fn deny(&mut self, client: &Client) {
        let codes = self.start(client);
        self.login.deny(&codes.user_code);
        self.heard(&self.login.poll(&codes));
        let body = json!({ "userCode": codes.user_code });
        self.heard(&self.login.decide("deny", &body));
    }

    /// People at the page: they sign in, mistype, decide, and come back from elsewhere.
    fn visit(&mut self, client: &Client) {
        let codes = self.start(client);
        let mut visitor = Visitor::at(self.login);
        visitor.enter(&codes.user_code);
        assert!(!visitor.sign_in("alice", MISTYPED));
        assert!(visitor.sign_in("alice", PASSWORD));
        assert_eq!(visitor.decide("approve").status, 303);
        assert!(visitor.get("/device/done").body.contains("Approved"));
        for path in [
            format!("/device/signed-in/demo/app?state={ASSERTION}&assertion={ASSERTION}"),
            format!("/device/signed-in/demo/app?code={ASSERTION}&error={ASSERTION}&state=x"),
            format!("/device?user_code={}&x=%ff", codes.user_code),
            format!("/device/qr.svg?user_code={}", codes.user_code),
            format!("/device/{PASSWORD}"),
        ] {
            visitor.get(&path);
        }
        for form in [
            format!("password={PASSWORD}&password={PASSWORD}"),
            format!("token={PASSWORD}&password={PASSWORD}&name=%ff"),
            format!("decision={PASSWORD}&token={}", codes.device_code),
        ] {
            for path in ["/device", "/device/sign-in", "/device/decide", "/device/sign-out"] {
                visitor.send("POST", path, Some(&form));
            }
        }
        for page in &visitor.pages {
            let never = [PASSWORD, MISTYPED, ASSERTION, &codes.device_code].map(str::to_owned);
            assert_eq!(found(page, &never), None, "on a page");
        }
        assert!(visitor.private.len() >= 8, "cookies and tokens were seen");
        self.secrets.append(&mut visitor.private);
        self.hide(self.login.redeemed(&codes)["access_token"].as_str().unwrap());
    }

    /// The operator says where people sign in, also wrongly.
    fn set_sign_in(&mut self) {
        let path = "/api/v1/admin/apps/demo/app/sign-in";
        for body in [
            json!({ "oidc": { "issuer": "ftp://x", "clientId": "w", "clientSecret": ISSUER_SECRET } }),
            json!({ "oidc": { "issuer": 1, "clientId": "w", "clientSecret": ISSUER_SECRET } }),
            json!({ "oidc": { "issuer": "https://a.test", "clientSecret": ISSUER_SECRET } }),
            json!({ "assertion": { "url": "https://a.test", "secret": ISSUER_SECRET } }),
            json!({ "oidc": { "issuer": "http://127.0.0.1:1", "clientId": "w",
                "clientSecret": ISSUER_SECRET } }),
        ] {
            let answer = self.login.server.administer("PUT", path, &body.to_string());
            assert_eq!(
                answer.status == 200,
                body["oidc"]["clientId"] == "w" && body["oidc"]["issuer"] == "http://127.0.0.1:1",
                "{body}: {}",
                answer.body
            );
            assert_eq!(found(&answer.body, &[ISSUER_SECRET.to_owned()]), None);
            self.heard(&answer);
        }
        // An issuer that nobody answers at.
        let codes = self.start(&Client { id: "demo".into(), secret: None });
        let mut visitor = Visitor::at(self.login);
        visitor.enter(&codes.user_code);
        assert_eq!(visitor.get("/device/sign-in/start").status, 502);
        self.secrets.append(&mut visitor.private);
        let body = json!({ "assertion": { "url": "https://a.test/in" } }).to_string();
        let told = self.login.server.administer("PUT", path, &body).json();
        self.hide(told["assertion"]["secret"].as_str().unwrap());
    }

    /// Secrets where they do not belong: a client that is wrong must not spill them.
    fn misplace(&mut self, client: &Client) {
        let codes = self.start(client);
        let secret = client.secret.as_deref().unwrap();
        let basic = STANDARD.encode(format!("{}:{secret}", client.id));
        self.hide(secret);
        self.hide(&basic);
        let (device, user) = (&*codes.device_code, &*codes.user_code);
        let form = ("content-type", "application/x-www-form-urlencoded");
        for private in [device, user, secret, &basic] {
            let login = self.login;
            for path in ["device_authorization", "token", "introspect", "revoke"] {
                let path = format!("{APP}/{path}");
                for pairs in [
                    [("client_id", private), ("grant_type", GRANT)],
                    [("client_id", "demo"), ("grant_type", private)],
                    [("client_id", "demo"), ("scope", private)],
                    [("client_id", "demo"), ("client_secret", private)],
                    [("device_code", private), ("token", private)],
                ] {
                    self.post(&path, &pairs);
                }
                let twice = format!("device_code={private}&device_code={private}");
                self.heard(&login.post(&path, &twice));
                self.heard(&login.post(&path, &format!("{private}=%ff")));
                self.heard(&login.post(&format!("{path}?device_code={private}"), "x=1"));
                self.heard(&login.post(&format!("{path}/{private}"), "x=1"));
                self.heard(&login.post_with(&path, &[("content-type", private)], private));
                for scheme in ["Basic", "Bearer", "Digest"] {
                    let header = format!("{scheme} {private}");
                    self.heard(&login.post_with(&path, &[form, ("authorization", &header)], "x=1"));
                }
                let agent = [form, ("user-agent", private), ("referer", private)];
                self.heard(&login.post_with(&path, &agent, "client_id=demo"));
            }
            self.misplace_in_json(private);
        }
    }

    fn misplace_in_json(&mut self, private: &str) {
        let login = self.login;
        let app = "/api/v2/apps/demo/app/devices";
        for body in [
            json!({ "userCode": [private] }),
            json!({ "userCode": private }),
            json!({ "userCode": private, "subject": 1 }),
            json!({ "userCode": private, "subject": "" }),
            json!({ "userCode": "x", "subject": "alice", "linkToken": [private] }),
            json!({ "userCode": "x", "subject": "alice", "linkToken": format!("{private}\n") }),
        ] {
            for what in ["approve", "deny"] {
                self.heard(&login.decide(what, &body));
            }
        }
        for path in [
            format!("{app}/{private}"),
            format!("{app}?after={private}"),
            format!("{app}?limit={private}"),
            format!("/device/{private}"),
            format!("/login/device/code?user_code={private}"),
        ] {
            self.heard(&login.server.ask("GET", &path, ""));
            self.heard(&login.server.ask("DELETE", &path, ""));
        }
        let json = ("content-type", "application/json");
        for body in [format!("{{\"device_code\":\"{private}\""), format!("[\"{private}\"]")] {
            for path in ["/login/device/code", "/login/oauth/access_token"] {
                self.heard(&login.post_with(path, &[json], &body));
            }
        }
        let clients = "/api/v1/admin/oauth-clients";
        for body in [
            json!({ "owner": "demo", "app": "app", "name": 1, "clientId": private }),
            json!({ "owner": "demo", "app": "app", "name": "x", "clientId": format!("{private}/") }),
            json!({ "owner": "demo", "app": "app", "name": "x", "scopes": [format!("{private} ")] }),
            json!({ "owner": private, "app": "app", "name": [private] }),
        ] {
            self.heard(&login.server.administer("POST", clients, &body.to_string()));
        }
    }

    /// Over HTTP/2, of which the most is logged.
    fn use_http2(&mut self, client: &Client) {
        let codes = self.start(client);
        let basic = format!("{}:{}", client.id, client.secret.as_deref().unwrap());
        let code = format!("device_code={}", codes.device_code);
        let grant = format!("grant_type={GRANT}");
        let cookie = self.secrets.last().map(|last| format!("session={last}")).unwrap();
        let flags =
            ["--http2-prior-knowledge", "-u", &basic, "-b", &cookie, "-d", &grant, "-d", &code];
        let polled = self.login.curl(&flags, &format!("{APP}/token"));
        assert_eq!(polled.status, 400);
        self.refusals.push(polled.body);
        let page = format!("/device?user_code={}", codes.user_code);
        assert_eq!(self.login.curl(&["--http2-prior-knowledge", "-b", &cookie], &page).status, 200);
    }

    /// Nowhere in what the server wrote and said.
    fn assert_kept(&self) {
        let server = &self.login.server;
        let header = [("x-request-id", LOGGED), ("content-type", "text/plain")];
        self.login.post_with(&format!("{APP}/token"), &header, "");
        assert!(eventually(|| server.log().contains(LOGGED)), "what is logged is found");
        let log = server.log();
        assert!(log.contains("TRACE"), "everything is logged");
        assert_eq!(found(&log, &self.secrets), None, "in the log");
        assert!(!log.contains("panicked"), "{log}");

        assert!(self.refusals.len() > 300, "{} refusals were heard", self.refusals.len());
        for refusal in &self.refusals {
            assert_eq!(found(refusal, &self.secrets), None, "in {refusal}");
        }
        let metrics = server.administer("GET", "/metrics", "").body;
        assert!(metrics.contains("/oauth/{owner}/{app}/token"), "requests were counted");
        assert_eq!(found(&metrics, &self.secrets), None, "in the metrics");
    }
}

/// The line that one of the secrets is in.
fn found(text: &str, secrets: &[String]) -> Option<String> {
    let at = secrets.iter().filter_map(|secret| text.find(&**secret)).min()?;
    let line = text[..at].rfind('\n').map_or(0, |end| end + 1);
    Some(text[line..].chars().take(400).collect())
}

#[test]
fn codes_tokens_and_secrets_are_in_no_log_no_refusal_and_no_counter() {
    for format in ["text", "json"] {
        let users = format!("alice:{PASSWORD}");
        let flags = [
            "--log-format",
            format,
            "--log-filter",
            "trace",
            "--github-aliases",
            "--dev-users",
            &users,
        ];
        let login = Login::alone(&flags);
        let confidential = login.confidential();
        let public = login.register(json!({ "scopes": ["read"] }));
        let mut aviary = Aviary { login: &login, secrets: Vec::new(), refusals: Vec::new() };
        aviary.hide(login.server.key.split_once('.').unwrap().1);
        aviary.hide(login.server.admin_key.split_once('.').unwrap().1);
        aviary.hide(confidential.secret.as_deref().unwrap());
        for private in [PAYLOAD, PASSWORD, MISTYPED, ISSUER_SECRET, ASSERTION] {
            aviary.hide(private);
        }
        aviary.link(&confidential, None);
        aviary.link(&public, Some(PAYLOAD));
        aviary.deny(&public);
        aviary.visit(&public);
        aviary.set_sign_in();
        aviary.use_http2(&confidential);
        aviary.misplace(&confidential);
        aviary.assert_kept();
    }
}

/// Control: a secret is found in a log, in whatever line, and a user code however it is written.
#[test]
fn a_secret_that_is_logged_is_found() {
    let login = Login::with(&["--log-filter", "trace"]);
    let mut aviary = Aviary { login: &login, secrets: Vec::new(), refusals: Vec::new() };
    let codes = aviary.start(&Client { id: "demo".into(), secret: None });
    assert_eq!(found(&login.server.log(), &aviary.secrets), None);
    // Whoever sends a code as the id of a request has it logged.
    let bare = codes.user_code.replace('-', "").to_lowercase();
    let header = [("x-request-id", &*bare), ("content-type", "text/plain")];
    login.post_with(&format!("{APP}/token"), &header, "");
    assert!(eventually(|| found(&login.server.log(), &aviary.secrets).is_some()));
    let line = found(&login.server.log(), &aviary.secrets).unwrap();
    assert!(line.contains(&bare), "{line}");
    assert_eq!(
        found("a line\nwith s3cret in it", &["s3cret".to_owned()]).unwrap(),
        "with s3cret in it"
    );
}
