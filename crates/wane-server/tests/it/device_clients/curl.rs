//! curl: every error of RFC 6749 and RFC 8628, in its exact form.

use super::*;

/// What curl got.
pub(super) struct Ran {
    pub(super) status: u16,
    head: String,
    pub(super) body: String,
}

impl Ran {
    fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().rev().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The form of RFC 6749, section 5.2, and nothing else.
    #[track_caller]
    fn assert_refused(&self, status: u16, error: &str) {
        assert_eq!(self.status, status, "{error}: {}", self.body);
        assert_refusal(&self.body, error);
        assert_eq!(self.header("content-type"), Some("application/json"));
        assert_eq!(self.header("cache-control"), Some("no-store"));
        assert_eq!(self.header("pragma"), Some("no-cache"));
        let challenge = self.header("www-authenticate");
        assert_eq!(challenge.is_some_and(|text| text.starts_with("Basic ")), status == 401);
    }
}

/// `error` and `error_description`, in the characters that the RFC allows.
#[track_caller]
pub(super) fn assert_refusal(body: &str, error: &str) {
    let told: Json = serde_json::from_str(body).unwrap_or_else(|_| panic!("no JSON: {body}"));
    let names: Vec<_> = told.as_object().unwrap().keys().collect();
    assert_eq!(names, ["error", "error_description"], "{body}");
    assert_eq!(told["error"], error, "{body}");
    let description = told["error_description"].as_str().unwrap();
    let is_legal = |byte: u8| matches!(byte, 0x20..=0x21 | 0x23..=0x5B | 0x5D..=0x7E);
    assert!(!description.is_empty() && description.bytes().all(is_legal), "{description}");
}

impl Login {
    pub(super) fn curl(&self, arguments: &[&str], path: &str) -> Ran {
        let folder = tempfile::tempdir().unwrap();
        let (head, body) = (folder.path().join("head"), folder.path().join("body"));
        let mut command = Command::new("curl");
        // No settings of a person, no proxy, no patience without end.
        command.args(["-q", "-sS", "--noproxy", "*", "--max-time", "60", "-w", "%{http_code}"]);
        command.arg("-D").arg(&head).arg("-o").arg(&body);
        command.args(["-H", &format!("X-Forwarded-For: {}", own_address())]);
        command.args(arguments).arg(self.url(path)).stdin(Stdio::null());
        let output = command.output();
        let output =
            output.unwrap_or_else(|error| panic!("curl: {error}; scripts/tools installs it"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let status = String::from_utf8(output.stdout).unwrap().parse().unwrap();
        Ran { status, head: read(&head), body: read(&body) }
    }

    /// A form, of pairs as they are.
    fn curl_form(&self, pairs: &[&str], path: &str) -> Ran {
        let pairs = pairs.iter().flat_map(|pair| ["--data-urlencode", *pair]);
        let arguments: Vec<&str> = ["--data", ""].into_iter().chain(pairs).collect();
        self.curl(&arguments, &format!("{APP}/{path}"))
    }
}

#[test]
fn a_device_is_linked_by_curl_alone() {
    let login = Login::new();
    let started = login.curl_form(&["client_id=demo", "scope=read"], "device_authorization");
    assert_eq!(started.status, 200, "{}", started.body);
    assert_eq!(started.header("cache-control"), Some("no-store"));
    let codes: Json = serde_json::from_str(&started.body).unwrap();
    let names: Vec<_> = codes.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "device_code",
        "expires_in",
        "interval",
        "user_code",
        "verification_uri",
        "verification_uri_complete",
    ];
    let mut sorted = names.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, expected);
    // Of the 900 s the work on the answer has taken some milliseconds.
    assert!((890..=900).contains(&codes["expires_in"].as_u64().unwrap()), "{codes}");
    assert_eq!(codes["interval"], 5);
    let user_code = codes["user_code"].as_str().unwrap();
    let (left, right) = user_code.split_once('-').unwrap();
    let is_letter = |byte: u8| b"BCDFGHJKLMNPQRSTVWXZ".contains(&byte);
    assert!([left, right].iter().all(|half| half.len() == 5 && half.bytes().all(is_letter)));
    assert_eq!(codes["device_code"].as_str().unwrap().len(), 43, "256 bits");

    login.approve(user_code);
    let code = format!("device_code={}", codes["device_code"].as_str().unwrap());
    let grant = format!("grant_type={GRANT}");
    let linked = login.curl_form(&["client_id=demo", &grant, &code], "token");
    assert_eq!((linked.status, linked.header("cache-control")), (200, Some("no-store")));
    assert_eq!(linked.header("pragma"), Some("no-cache"));
    let linked: Json = serde_json::from_str(&linked.body).unwrap();
    assert_eq!((&linked["token_type"], &linked["scope"]), (&json!("Bearer"), &json!("read")));
    assert!(linked["expires_in"].as_u64().unwrap() > 179 * 86_400, "{linked}");
}

#[test]
fn errors_of_clients_have_their_exact_form() {
    let login = Login::new();
    let client = login.confidential();
    let (id, secret) = (format!("client_id={}", client.id), client.secret.unwrap());
    let right = format!("client_secret={secret}");
    let ask = |pairs: &[&str]| login.curl_form(pairs, "device_authorization");
    ask(&[]).assert_refused(400, "invalid_request");
    ask(&["scope=read"]).assert_refused(400, "invalid_request");
    ask(&["client_id=nobody"]).assert_refused(401, "invalid_client");
    ask(&["client_id=<b>"]).assert_refused(401, "invalid_client");
    ask(&[&id]).assert_refused(401, "invalid_client");
    ask(&[&id, "client_secret="]).assert_refused(401, "invalid_client");
    ask(&[&id, "client_secret=wrong"]).assert_refused(401, "invalid_client");
    ask(&[&id, &right, "scope=read admin"]).assert_refused(400, "invalid_scope");
    ask(&[&id, &right, "scope=\"read\""]).assert_refused(400, "invalid_scope");

    let basic = |credential: &str, pairs: &[&str]| {
        let mut arguments = vec!["-u", credential, "--data-urlencode", "scope=read"];
        arguments.extend(pairs.iter().flat_map(|pair| ["--data-urlencode", *pair]));
        login.curl(&arguments, &format!("{APP}/device_authorization"))
    };
    let own = format!("{}:{secret}", client.id);
    assert_eq!(basic(&own, &[]).status, 200);
    assert_eq!(basic(&own, &[&id]).status, 200, "the same id twice is no contradiction");
    basic(&format!("{}:wrong", client.id), &[]).assert_refused(401, "invalid_client");
    basic(&format!("{}:", client.id), &[]).assert_refused(401, "invalid_client");
    basic("nobody:wrong", &[]).assert_refused(401, "invalid_client");
    basic(&own, &[&right]).assert_refused(400, "invalid_request");
    basic(&own, &["client_id=demo"]).assert_refused(400, "invalid_request");
    let bearer = ["-H", "Authorization: Bearer x", "-d", "scope=read"];
    login
        .curl(&bearer, &format!("{APP}/device_authorization"))
        .assert_refused(401, "invalid_client");
}

#[test]
fn errors_of_grants_have_their_exact_form() {
    let login = Login::new();
    let grant = format!("grant_type={GRANT}");
    let codes = login.demo();
    let code = format!("device_code={}", codes.device_code);
    let ask = |pairs: &[&str]| login.curl_form(pairs, "token");
    ask(&["client_id=demo", &code]).assert_refused(400, "invalid_request");
    ask(&["client_id=demo", &grant]).assert_refused(400, "invalid_request");
    ask(&["client_id=demo", &grant, "device_code="]).assert_refused(400, "invalid_request");
    ask(&[&grant, &code]).assert_refused(400, "invalid_request");
    ask(&["client_id=nobody", &grant, &code]).assert_refused(401, "invalid_client");
    for other in [
        "authorization_code",
        "password",
        "client_credentials",
        "refresh_token",
        "device_code",
        "URN:IETF:PARAMS:OAUTH:GRANT-TYPE:DEVICE_CODE",
    ] {
        let other = format!("grant_type={other}");
        ask(&["client_id=demo", &other, &code]).assert_refused(400, "unsupported_grant_type");
    }
    ask(&["client_id=demo", &grant, "device_code=none"]).assert_refused(400, "invalid_grant");

    ask(&["client_id=demo", &grant, &code]).assert_refused(400, "authorization_pending");
    crate::wait(std::time::Duration::from_millis(1_200));
    ask(&["client_id=demo", &grant, &code]).assert_refused(400, "slow_down");
    login.deny(&codes.user_code);
    ask(&["client_id=demo", &grant, &code]).assert_refused(400, "access_denied");
}

#[test]
fn errors_about_tokens_have_their_exact_form() {
    let login = Login::new();
    login.curl_form(&["client_id=demo"], "revoke").assert_refused(400, "invalid_request");
    let nobody = login.curl_form(&["client_id=nobody", "token=x"], "revoke");
    nobody.assert_refused(401, "invalid_client");
    let unknown = login.curl_form(&["client_id=demo", "token=x"], "revoke");
    assert_eq!((unknown.status, &*unknown.body), (200, ""), "RFC 7009, section 2.2");

    let public = login.curl_form(&["client_id=demo", "token=x"], "introspect");
    public.assert_refused(401, "invalid_client");
    let key = format!("Authorization: Bearer {}", login.server.key);
    let path = format!("{APP}/introspect");
    let ask = |body: &str| login.curl(&["-H", &key, "-d", body], &path);
    ask("nothing=1").assert_refused(400, "invalid_request");
    let unknown = ask("token=x");
    assert_eq!((unknown.status, &*unknown.body), (200, "{\"active\":false}"));
}

/// RFC 6749, section 3.2: POST only.
#[test]
fn endpoints_take_nothing_but_post() {
    let login = Login::new();
    for path in ["device_authorization", "token", "introspect", "revoke"] {
        for method in ["GET", "PUT", "DELETE"] {
            let path = format!("{APP}/{path}?client_id=demo");
            let ran = login.curl(&["-X", method], &path);
            assert_eq!((ran.status, ran.header("allow")), (405, Some("POST")), "{method} {path}");
        }
    }
}

/// Control: a body with one more member, a missing one, or another name is noticed.
#[test]
fn a_refusal_of_another_form_is_noticed() {
    for wrong in [
        r#"{"error":"slow_down"}"#,
        r#"{"error":"slow_down","error_description":""}"#,
        r#"{"error":"slow_down","error_description":"say \"hi\""}"#,
        r#"{"error":"slow_down","error_description":"x","interval":10}"#,
        r#"{"error":"Slow_Down","error_description":"x"}"#,
        r#"{"code":"slow_down","detail":"x"}"#,
    ] {
        let noticed = std::panic::catch_unwind(|| assert_refusal(wrong, "slow_down"));
        assert!(noticed.is_err(), "{wrong}");
    }
    assert_refusal(r#"{"error":"slow_down","error_description":"wait"}"#, "slow_down");
}
