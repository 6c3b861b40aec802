//! An OpenID Connect issuer that people are sent to: discovery, keys, codes and tokens over real
//! HTTP, with signatures by `ring`. That those of others are understood is shown where keys are read.
//!
//! It holds the client to the protocol: state, nonce, PKCE, its secret, its redirect URI. And it can
//! lie, in each of the ways that an ID token must not be believed.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::digest::{SHA256, digest};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value as Json, json};

use crate::wall_clock;

pub(super) const CLIENT: &str = "wane-at-issuer";
pub(super) const SECRET: &str = "canary-secret-of-the-issuer";

/// What the issuer gets wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lie {
    Nothing,
    Nonce,
    Audience,
    Issuer,
    Expired,
    Signature,
    Unsigned,
    SharedSecret,
    NoIdToken,
    LongSubject,
    TokenError,
    AuthorizedParty,
    OtherAudience,
    IssuedLongAgo,
    IssuedLater,
    NoDiscovery,
    SlowDiscovery,
    OtherDiscovery,
}

/// A running issuer. It ends with the process of the tests.
#[derive(Debug, Clone)]
pub(super) struct Issuer {
    pub(super) address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    lie: Lie,
    keys: Keys,
    /// What each code was given for.
    codes: HashMap<String, HashMap<String, String>>,
    /// Requests for its keys.
    keys_asked: usize,
    /// What its token endpoint was told, as it came.
    tokens_asked: Vec<String>,
    /// RFC 9207.
    names_itself: bool,
    /// Requests for what it says of itself.
    discoveries: usize,
    /// Whether it knows us without a secret.
    is_public: bool,
}

struct Keys {
    pair: EcdsaKeyPair,
    id: String,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.id)
    }
}

impl Keys {
    fn draw(id: &str) -> Self {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random);
        let pkcs8 = pkcs8.unwrap();
        let pair =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref(), &random);
        Self { pair: pair.unwrap(), id: id.to_owned() }
    }

    fn sign(&self, message: &str) -> String {
        let signature = self.pair.sign(&SystemRandom::new(), message.as_bytes()).unwrap();
        URL_SAFE_NO_PAD.encode(signature)
    }

    fn public(&self) -> Json {
        let point = self.pair.public_key().as_ref();
        let coordinate = |range| URL_SAFE_NO_PAD.encode(&point[range]);
        json!({"kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": self.id,
            "x": coordinate(1..33), "y": coordinate(33..65)})
    }
}

impl Issuer {
    pub(super) fn begin() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = State {
            lie: Lie::Nothing,
            keys: Keys::draw("first"),
            codes: HashMap::new(),
            keys_asked: 0,
            tokens_asked: Vec::new(),
            names_itself: false,
            discoveries: 0,
            is_public: false,
        };
        let issuer = Self { address, state: Arc::new(Mutex::new(state)) };
        let serving = issuer.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                serving.answer(stream.unwrap());
            }
        });
        issuer
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn lies(&self, lie: Lie) {
        self.state.lock().unwrap().lie = lie;
    }

    /// Signs with another key from now on.
    pub(super) fn changes_keys(&self) {
        self.state.lock().unwrap().keys = Keys::draw("second");
    }

    pub(super) fn keys_asked(&self) -> usize {
        self.state.lock().unwrap().keys_asked
    }

    pub(super) fn takes_public_clients(&self) {
        self.state.lock().unwrap().is_public = true;
    }

    pub(super) fn discoveries(&self) -> usize {
        self.state.lock().unwrap().discoveries
    }

    pub(super) fn tokens_asked(&self) -> Vec<String> {
        self.state.lock().unwrap().tokens_asked.clone()
    }

    /// Says from now on that each of its answers names it, and names it.
    pub(super) fn names_itself(&self) {
        self.state.lock().unwrap().names_itself = true;
    }

    /// The person signs in: what the browser is sent back with, for the URL that it came with.
    pub(super) fn authorizes(&self, url: &str) -> String {
        let (endpoint, query) = url.split_once('?').unwrap();
        assert_eq!(endpoint, format!("{}/authorize", self.url()));
        let asked = fields(query);
        assert_eq!(asked["response_type"], "code");
        assert_eq!(asked["client_id"], CLIENT);
        assert_eq!(asked["code_challenge_method"], "S256");
        assert!(asked["scope"].split(' ').any(|scope| scope == "openid"), "{asked:?}");
        assert!(asked["state"].len() >= 22 && asked["nonce"].len() >= 22, "{asked:?}");
        let mut state = self.state.lock().unwrap();
        let code = format!("code-{}", state.codes.len());
        let iss = if state.names_itself { format!("&iss={}", self.url()) } else { String::new() };
        let back = format!("{}?code={code}&state={}{iss}", asked["redirect_uri"], asked["state"]);
        state.codes.insert(code, asked);
        back
    }

    fn answer(&self, mut stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if line.trim().is_empty() {
                break;
            }
            lines.push(line.trim().to_owned());
        }
        let header = |name: &str| {
            let mut pairs = lines.iter().filter_map(|line| line.split_once(':'));
            pairs
                .find(|(own, _)| own.eq_ignore_ascii_case(name))
                .map(|(_, it)| it.trim().to_owned())
        };
        let length = header("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let path = lines[0].split(' ').nth(1).unwrap();
        let (status, answer) = match path {
            "/.well-known/openid-configuration" => self.about(),
            "/keys" => {
                let mut state = self.state.lock().unwrap();
                state.keys_asked += 1;
                ("200 OK", json!({"keys": [state.keys.public()]}))
            }
            "/token" => {
                let form = String::from_utf8(body).unwrap();
                self.state.lock().unwrap().tokens_asked.push(form.clone());
                self.token(&fields(&form), header("authorization").as_deref())
            }
            _ => ("404 Not Found", json!({})),
        };
        let body = answer.to_string();
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\
             connection: close\r\n\r\n",
            body.len()
        );
        drop(stream.write_all(format!("{head}{body}").as_bytes()));
    }

    fn about(&self) -> (&'static str, Json) {
        let (lie, names_itself) = {
            let mut state = self.state.lock().unwrap();
            state.discoveries += 1;
            (state.lie, state.names_itself)
        };
        if lie == Lie::NoDiscovery {
            return ("500 Internal Server Error", json!({}));
        }
        if lie == Lie::SlowDiscovery {
            crate::wait(std::time::Duration::from_secs(2));
        }
        let url = self.url();
        let named = if lie == Lie::OtherDiscovery { "https://evil.example" } else { &url };
        let about = json!({
            "issuer": named,
            "authorization_endpoint": format!("{url}/authorize"),
            "token_endpoint": format!("{url}/token"),
            "jwks_uri": format!("{url}/keys"),
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
            "authorization_response_iss_parameter_supported": names_itself,
        });
        ("200 OK", about)
    }

    fn token(
        &self,
        form: &HashMap<String, String>,
        authorization: Option<&str>,
    ) -> (&'static str, Json) {
        let mut state = self.state.lock().unwrap();
        let expected = format!("Basic {}", STANDARD.encode(format!("{CLIENT}:{SECRET}")));
        let is_public = state.is_public && authorization.is_none();
        if !is_public && authorization != Some(&*expected) {
            return ("401 Unauthorized", json!({"error": "invalid_client"}));
        }
        let refused = ("400 Bad Request", json!({"error": "invalid_grant"}));
        if state.lie == Lie::TokenError {
            return refused;
        }
        // A code is good once.
        let Some(asked) = state.codes.remove(&form["code"]) else { return refused };
        let challenge = URL_SAFE_NO_PAD.encode(digest(&SHA256, form["code_verifier"].as_bytes()));
        if challenge != asked["code_challenge"] || form["redirect_uri"] != asked["redirect_uri"] {
            return refused;
        }
        let mut answer = json!({"access_token": "unused", "token_type": "Bearer"});
        if state.lie != Lie::NoIdToken {
            answer["id_token"] = self.id_token(&state, &asked["nonce"]).into();
        }
        ("200 OK", answer)
    }

    fn id_token(&self, state: &State, nonce: &str) -> String {
        let now = wall_clock() / 1_000;
        let mut claims = json!({"iss": self.url(), "sub": "user-4711", "aud": CLIENT, "iat": now,
            "exp": now + 300, "nonce": nonce, "preferred_username": "alice@example.com"});
        let mut header = json!({"alg": "ES256", "kid": state.keys.id, "typ": "JWT"});
        match state.lie {
            Lie::Nonce => claims["nonce"] = "of somebody else".into(),
            Lie::Audience => claims["aud"] = "somebody else".into(),
            Lie::Issuer => claims["iss"] = "https://evil.example".into(),
            Lie::Expired => claims["exp"] = (now - 61).into(),
            Lie::LongSubject => claims["sub"] = "x".repeat(256).into(),
            Lie::Unsigned => header = json!({"alg": "none"}),
            Lie::SharedSecret => header = json!({"alg": "HS256"}),
            Lie::AuthorizedParty => claims["azp"] = "somebody else".into(),
            Lie::OtherAudience => claims["aud"] = json!([CLIENT, "somebody else"]),
            Lie::IssuedLongAgo => claims["iat"] = (now - 661).into(),
            Lie::IssuedLater => claims["iat"] = (now + 120).into(),
            Lie::Nothing
            | Lie::Signature
            | Lie::NoIdToken
            | Lie::TokenError
            | Lie::NoDiscovery
            | Lie::SlowDiscovery
            | Lie::OtherDiscovery => {}
        }
        let part = |part: &Json| URL_SAFE_NO_PAD.encode(part.to_string());
        let signed = format!("{}.{}", part(&header), part(&claims));
        let signature = if state.lie == Lie::Unsigned {
            String::new()
        } else if state.lie == Lie::Signature {
            Keys::draw("forger").sign(&signed)
        } else if state.lie == Lie::SharedSecret {
            mac(SECRET, &signed)
        } else {
            state.keys.sign(&signed)
        };
        format!("{signed}.{signature}")
    }
}

/// The HMAC-SHA256 of a message, in base64url.
pub(super) fn mac(secret: &str, message: &str) -> String {
    let key = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, secret.as_bytes());
    URL_SAFE_NO_PAD.encode(ring::hmac::sign(&key, message.as_bytes()))
}

/// The fields of a query or a form.
pub(super) fn fields(text: &str) -> HashMap<String, String> {
    let decoded = |text: &str| {
        let spaced = text.replace('+', " ");
        percent_encoding::percent_decode_str(&spaced).decode_utf8().unwrap().into_owned()
    };
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}
