//! What is known of a visitor between two pages: one signed cookie, and nothing on the server.
//!
//! The cookie says which code is being dealt with, who signed in for which application, which
//! sign-in is under way, and what this visitor decided last. It is signed and not encrypted: all of
//! it is the visitor's own. It lives for [`LIFE`]. A page sets it where it has changed, or where half
//! of its life is over: so a page of one window does not undo what was done in another meanwhile.
//!
//! Invariants:
//! - What was changed, is too old or was signed for something else is as if it were not there.
//! - A form carries a token made of the session's id and of what the form is about. So no other
//!   site can send it, and a form about one code or one person never counts for another.
//! - A sign-in counts only while it is set as it was, and where the page was; so does a visitor's way
//!   back.
//! - Of two sessions in one request neither counts.
//! - Signing in and out gives the session another id: what was known of the one before is of no use.

use std::time::Duration;

use axum::http::header::COOKIE;
use axum::http::{HeaderMap, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use wane::clock::Clock;
use wane::services::ClusterAppId;
use wane::services::device_auth::PageKey;
use wane::store::Timestamp;

use super::spoken::is_unseen;

/// How long a page can be left open, and how long a sign-in counts.
pub(super) const LIFE: Duration = Duration::from_secs(900);

/// The longest cookie that is looked at, in bytes.
const LONGEST: usize = 4_096;

/// What a visitor is called, cut to this many bytes.
const LONGEST_NAME: usize = 120;

/// What is known of a visitor.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Session {
    /// Drawn at random.
    id: String,
    /// When it ends, in Unix milliseconds.
    ends: u64,
    /// The code that was looked up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) asked: Option<AskedCode>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    who: Option<Who>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) leaving: Option<Leaving>,
    /// The visitor wants to sign in as somebody else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) as_another: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) decided: Option<DecidedCode>,
    /// The last code that was not found, as [`Self::derived`] makes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) missed: Option<String>,
}

/// A code that was found, and whose it is.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AskedCode {
    /// As it is shown.
    pub(super) code: String,
    app: u32,
    /// When it expires, in Unix milliseconds.
    until: u64,
}

impl AskedCode {
    pub(super) fn new(code: String, app: ClusterAppId, until: Timestamp) -> Self {
        Self { code, app: app.0, until: until.as_unix_millis() }
    }

    pub(super) fn app(&self) -> ClusterAppId {
        ClusterAppId(self.app)
    }

    pub(super) fn has_expired(&self, now: Timestamp) -> bool {
        now.as_unix_millis() >= self.until
    }
}

/// Somebody who signed in to one application.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Who {
    app: u32,
    /// As the application calls them.
    pub(super) subject: String,
    /// As they call themselves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) name: Option<String>,
    until: u64,
    /// Which sign-in said so, as it was set then.
    pub(super) voucher: String,
}

/// A visitor who is away to sign in.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Leaving {
    app: u32,
    /// Drawn at random; whoever comes back must bring it.
    pub(super) state: String,
    /// Which sign-in they left for, as it was set then.
    pub(super) voucher: String,
}

impl Leaving {
    pub(super) fn app(&self) -> ClusterAppId {
        ClusterAppId(self.app)
    }
}

/// What the visitor decided.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DecidedCode {
    pub(super) code: String,
    pub(super) is_approved: bool,
    /// What asked.
    pub(super) client_name: String,
}

untold!(Session, AskedCode, Who, Leaving, DecidedCode, Person);

/// A request with two sessions. Whoever may set cookies for a parent domain may plant a session of
/// their own beside the visitor's, and which comes first is theirs to choose; so neither counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TwoSessions;

/// What a form is about, which its token is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A code to look up.
    Code,
    /// Name and password.
    SignIn,
    /// Yes or no, or signing out: for this code, by this person.
    Decision,
}

impl Session {
    pub(super) fn fresh(clock: &dyn Clock) -> Self {
        Self {
            id: drawn(clock),
            ends: ending(clock.now()),
            asked: None,
            who: None,
            leaving: None,
            as_another: false,
            decided: None,
            missed: None,
        }
    }

    /// The session that the request brings, if it is one of ours and has not ended.
    pub(super) fn brought(
        headers: &HeaderMap,
        cookie: &Cookie,
        key: &PageKey,
        now: Timestamp,
    ) -> Result<Option<Self>, TwoSessions> {
        let lines = headers.get_all(COOKIE).iter().filter_map(|line| line.to_str().ok());
        let pairs =
            lines.flat_map(|line| line.split(';')).filter_map(|it| it.trim().split_once('='));
        let own = pairs.filter(|(name, _)| *name == cookie.name).map(|(_, value)| value);
        let mut sessions = own.filter_map(|value| Self::opened(value, key, now));
        let first = sessions.next();
        match sessions.any(|other| Some(&other) != first.as_ref()) {
            true => Err(TwoSessions),
            false => Ok(first),
        }
    }

    fn opened(value: &str, key: &PageKey, now: Timestamp) -> Option<Self> {
        let (payload, mac) = value.split_once('.').filter(|_| value.len() <= LONGEST)?;
        let mac = URL_SAFE_NO_PAD.decode(mac).ok()?;
        if !key.is_mac(&mac, "cookie", &[payload.as_bytes()]) {
            return None;
        }
        let session: Self = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).ok()?).ok()?;
        (now.as_unix_millis() < session.ends).then_some(session)
    }

    /// The header that gives the session to the browser, with a new life.
    pub(super) fn sealed(
        &self,
        cookie: &Cookie,
        key: &PageKey,
        now: Timestamp,
    ) -> Option<HeaderValue> {
        let renewed = Self { ends: ending(now), ..self.clone() };
        let payload = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&renewed).ok()?);
        let mac = URL_SAFE_NO_PAD.encode(key.mac("cookie", &[payload.as_bytes()]));
        let Cookie { name, path, is_secure } = cookie;
        let secure = if *is_secure { "; Secure" } else { "" };
        let life = LIFE.as_secs();
        let line = format!(
            "{name}={payload}.{mac}; Path={path}; Max-Age={life}; HttpOnly; SameSite=Lax{secure}"
        );
        let mut value = HeaderValue::from_str(&line).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Whether half of its life is over, so that it is time to give it another.
    pub(super) fn is_waning(&self, now: Timestamp) -> bool {
        now.as_unix_millis().saturating_add(LIFE.as_millis() as u64 / 2) >= self.ends
    }

    /// The token of a form.
    pub(super) fn token(&self, form: Form, key: &PageKey) -> String {
        URL_SAFE_NO_PAD.encode(self.form_mac(form, key))
    }

    /// Whether a form of this session brings this token.
    pub(super) fn is_token(&self, presented: &str, form: Form, key: &PageKey) -> bool {
        let presented = URL_SAFE_NO_PAD.decode(presented).unwrap_or_default();
        let (purpose, parts) = self.form_parts(form);
        key.is_mac(&presented, purpose, &parts)
    }

    fn form_mac(&self, form: Form, key: &PageKey) -> [u8; 32] {
        let (purpose, parts) = self.form_parts(form);
        key.mac(purpose, &parts)
    }

    fn form_parts(&self, form: Form) -> (&'static str, [&[u8]; 3]) {
        let code = self.asked.as_ref().map_or("", |asked| &asked.code).as_bytes();
        let subject = self.who.as_ref().map_or("", |who| &who.subject).as_bytes();
        let id = self.id.as_bytes();
        match form {
            Form::Code => ("form of the code", [id, b"", b""]),
            Form::SignIn => ("form of the sign-in", [id, code, b""]),
            Form::Decision => ("form of the decision", [id, code, subject]),
        }
    }

    /// Who signed in to this application, and is still.
    pub(super) fn who(&self, app: ClusterAppId, now: Timestamp) -> Option<&Who> {
        self.who.as_ref().filter(|who| who.app == app.0 && now.as_unix_millis() < who.until)
    }

    /// Somebody signed in. The session is another one from now on.
    pub(super) fn signed_in(
        &mut self,
        app: ClusterAppId,
        person: Person,
        voucher: String,
        clock: &dyn Clock,
    ) {
        let Person { subject, name } = person;
        let name = name.map(|name| shortened(&name));
        let name = name.filter(|name| !name.is_empty() && *name != subject);
        self.id = drawn(clock);
        self.who = Some(Who { app: app.0, subject, name, until: ending(clock.now()), voucher });
        self.leaving = None;
        self.as_another = false;
    }

    /// They signed out, to sign in as somebody else.
    pub(super) fn signed_out(&mut self, clock: &dyn Clock) {
        self.id = drawn(clock);
        self.who = None;
        self.leaving = None;
        self.decided = None;
        self.as_another = true;
    }

    /// They decided, and are signed out: the browser may be one that many use.
    pub(super) fn finished(&mut self, decided: DecidedCode, clock: &dyn Clock) {
        self.id = drawn(clock);
        self.who = None;
        self.leaving = None;
        self.decided = Some(decided);
    }

    /// Whether the visitor decided about this code.
    pub(super) fn has_decided(&self, code: &str) -> bool {
        self.decided.as_ref().is_some_and(|decided| decided.code == code)
    }

    /// The visitor leaves to sign in; what is drawn for that is to come back.
    pub(super) fn leaves(
        &mut self,
        app: ClusterAppId,
        voucher: String,
        clock: &dyn Clock,
    ) -> String {
        let state = drawn(clock);
        self.leaving = Some(Leaving { app: app.0, state: state.clone(), voucher });
        state
    }

    /// A value for this purpose that nobody else can make and that comes back the same while the
    /// visitor is away: nonces and verifiers need not be in the cookie.
    pub(super) fn derived(&self, purpose: &str, state: &str, key: &PageKey) -> String {
        URL_SAFE_NO_PAD.encode(key.mac(purpose, &[self.id.as_bytes(), state.as_bytes()]))
    }
}

/// Somebody whom a sign-in vouches for.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Person {
    pub(super) subject: String,
    pub(super) name: Option<String>,
}

/// What the cookie is called and where browsers send it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cookie {
    name: &'static str,
    path: String,
    is_secure: bool,
}

impl Cookie {
    /// The cookie of a page under this URL. Over `https` its name says that it is of this host
    /// alone, and browsers then take it from no other; for that it must be of every path.
    pub(super) fn of(base_url: &str) -> Self {
        if base_url.starts_with("https://") {
            return Self { name: "__Host-wane_device", path: "/".into(), is_secure: true };
        }
        let path = format!("{}/device", prefix_of(base_url));
        Self { name: "wane_device", path, is_secure: false }
    }
}

/// The path of a URL that others are appended to.
pub(super) fn prefix_of(base_url: &str) -> &str {
    let rest = base_url.split_once("://").map_or(base_url, |(_, rest)| rest);
    rest.find('/').map_or("", |at| rest[at..].trim_end_matches('/'))
}

fn drawn(clock: &dyn Clock) -> String {
    let mut bytes = [0; 24];
    clock.fill_random(&mut bytes);
    URL_SAFE_NO_PAD.encode(bytes)
}

fn ending(now: Timestamp) -> u64 {
    now.as_unix_millis().saturating_add(LIFE.as_millis() as u64)
}

fn shortened(name: &str) -> String {
    let mut bytes = 0;
    let seen = name.chars().filter(|c| !is_unseen(*c));
    let seen: String = seen
        .take_while(|c| {
            bytes += c.len_utf8();
            bytes <= LONGEST_NAME
        })
        .collect();
    seen.trim().to_owned()
}

#[cfg(test)]
mod tests;
