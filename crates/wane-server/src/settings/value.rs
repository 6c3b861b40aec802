//! What settings hold: addresses, paths, numbers, choices, each with what is legal.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use axum::http::Uri;
use ipnet::IpNet;
use tracing_subscriber::filter::Targets;

use super::setting::{Form, Setting, Value};

/// The backends of this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Storage {
    /// Memory, gone with the process.
    Mem,
    /// An embedded file.
    File,
    /// Redis or Valkey.
    Redis,
    /// Cassandra or Scylla, one copy of each record.
    Cas1,
    /// Cassandra or Scylla, two copies in dc1 and one in dc2.
    Cas3,
    /// Amazon DynamoDB.
    Dynamodb,
}

impl Value for Storage {
    const FORM: Form = Form::Text;
    const NAME: &'static str = "BACKEND";

    fn legal(_: &Setting) -> String {
        Self::ALL.map(Self::name).join(", ")
    }

    fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
        let named = Self::ALL.into_iter().find(|storage| storage.name() == text);
        named.ok_or_else(|| give::<Self>(setting))
    }

    fn write(&self) -> Option<String> {
        Some(self.name().to_owned())
    }
}

impl Storage {
    const ALL: [Self; 6] =
        [Self::Mem, Self::File, Self::Redis, Self::Cas1, Self::Cas3, Self::Dynamodb];

    /// The name, as it is given.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mem => "mem",
            Self::File => "file",
            Self::Redis => "redis",
            Self::Cas1 => "cas1",
            Self::Cas3 => "cas3",
            Self::Dynamodb => "dynamodb",
        }
    }

    /// Whether other processes may write to the same store.
    #[must_use]
    pub fn is_shared(self) -> bool {
        !matches!(self, Self::Mem | Self::File)
    }
}

/// Declares a setting that is text of one kind.
macro_rules! text {
    ($(#[doc = $why:literal])+ $type:ident, $name:literal, $legal:literal, $check:expr $(, secret $secret:literal)?) => {
        $(#[doc = $why])+
        #[derive(Clone, PartialEq, Eq)]
        pub struct $type(String);

        impl $type {
            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(if Self::SECRET { ".." } else { &self.0 })
            }
        }

        impl Value for $type {
            const FORM: Form = Form::Text;
            const NAME: &'static str = $name;
            $(const SECRET: bool = $secret;)?

            fn legal(_: &Setting) -> String {
                $legal.to_owned()
            }

            fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
                let check: fn(&str) -> bool = $check;
                if check(text) { Ok(Self(text.to_owned())) } else { Err(give::<Self>(setting)) }
            }

            fn write(&self) -> Option<String> {
                Some(self.0.clone())
            }
        }
    };
}

text! {
    /// Where Redis is. It may hold a password.
    RedisUrl, "URL", "redis://USER:PASSWORD@HOST:PORT/DB, or rediss:// for TLS; several hosts with commas are a cluster",
    |text| ["redis://", "rediss://"].iter().any(|scheme| text.starts_with(scheme)), secret true
}

text! {
    /// Addresses of servers.
    Hosts, "HOSTS", "HOST or HOST:PORT, with commas between several",
    |text| text.split(',').all(|host| !host.trim().is_empty() && !host.contains(['/', '@', '?']))
}

text! {
    /// A time of the day.
    TimeOfDay, "HH:MM", "hours and minutes such as 02:00, up to 23:59", |text| minutes(text).is_some()
}

impl TimeOfDay {
    /// How long it is after midnight.
    #[must_use]
    pub fn since_midnight(&self) -> Duration {
        Duration::from_secs(60 * minutes(self.as_str()).unwrap_or_default())
    }
}

/// The minutes since midnight that `HH:MM` says.
fn minutes(text: &str) -> Option<u64> {
    let (hours, minutes) = text.split_once(':')?;
    let number = |digits: &str, below: u64| {
        let is_two = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        digits.parse::<u64>().ok().filter(|number| is_two && *number < below)
    };
    Some(number(hours, 24)? * 60 + number(minutes, 60)?)
}

text! {
    /// The name of a table or keyspace.
    TableName, "NAME", "1 to 48 of a-z, 0-9 and _, with a letter first",
    |text| {
        (1..=48).contains(&text.len())
            && text.starts_with(|first: char| first.is_ascii_lowercase())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    }
}

text! {
    /// A name that another program gave.
    Word, "NAME", "1 to 255 characters, none of them a control character",
    |text| (1..=255).contains(&text.len()) && !text.contains(char::is_control)
}

text! {
    /// What must not be seen.
    Secret, "SECRET", "1 to 1,024 characters",
    |text| (1..=1_024).contains(&text.len()), secret true
}

/// Networks, of one address or more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Networks(Vec<IpNet>);

impl Networks {
    /// Whether this address is in one of them. An IPv4 address may come in the clothes of an IPv6 one.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(&address.to_canonical()))
    }
}

impl Value for Networks {
    const FORM: Form = Form::Text;
    const NAME: &'static str = "NETWORKS";

    fn legal(_: &Setting) -> String {
        "addresses and networks such as 10.0.0.1 and 10.1.0.0/16, with commas between several"
            .into()
    }

    fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
        let network = |text: &str| {
            let alone = || text.parse::<IpAddr>().ok().map(IpNet::from);
            text.parse().ok().or_else(alone)
        };
        let networks: Option<Vec<_>> = text.split(',').map(str::trim).map(network).collect();
        networks.map(Self).ok_or_else(|| give::<Self>(setting))
    }

    fn write(&self) -> Option<String> {
        Some(self.0.iter().map(IpNet::to_string).collect::<Vec<_>>().join(","))
    }
}

text! {
    /// People and their passwords.
    DevUsers, "NAME:PASSWORD", "NAME:PASSWORD, with commas between several",
    |text| text.split(',').all(|user| user.split_once(':').is_some_and(|(name, password)| {
        !name.trim().is_empty() && name.len() <= 255 && !password.is_empty() && !user.contains(char::is_control)
    })), secret true
}

text! {
    /// Keys that sign tokens, or who holds them.
    StreamKeys, "KEYS", "kms:KEY_ID, file:PATH, or KID:BASE64 with 32 bytes or more, and with a comma the key before",
    crate::stream_keys::is_legal, secret true
}

text! {
    /// Where the masters are that a lock is kept on. It may hold passwords.
    RedlockUrls, "URLS", "three of redis://USER:PASSWORD@HOST:PORT/DB, or rediss:// for TLS, with commas between them",
    |text| text.split(',').count() == 3 && text.split(',').all(|url| {
        ["redis://", "rediss://"].iter().any(|scheme| url.trim().starts_with(scheme))
    }), secret true
}

impl RedlockUrls {
    /// The URL of each.
    #[must_use]
    pub fn three(&self) -> Option<[&str; 3]> {
        let urls: Vec<_> = self.0.split(',').map(str::trim).collect();
        urls.try_into().ok()
    }
}

impl DevUsers {
    /// The password of the person of this name.
    #[must_use]
    pub fn password_of(&self, name: &str) -> Option<&str> {
        let mut users = self.0.split(',').filter_map(|user| user.split_once(':'));
        users.find(|(own, _)| own.trim() == name).map(|(_, password)| password)
    }
}

text! {
    /// Where what pull streams archive is kept.
    ArchivePlace, "PLACE", "dir:PATH, or s3://BUCKET/PREFIX",
    |text| {
        let place = text.strip_prefix("dir:").or_else(|| text.strip_prefix("s3://"));
        place.is_some_and(|place| !place.is_empty() && !place.contains(char::is_control))
    }
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl Value for LogFormat {
    const FORM: Form = Form::Text;
    const NAME: &'static str = "FORMAT";

    fn legal(_: &Setting) -> String {
        "text or json".to_owned()
    }

    fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(give::<Self>(setting)),
        }
    }

    fn write(&self) -> Option<String> {
        let name = match self {
            Self::Text => "text",
            Self::Json => "json",
        };
        Some(name.to_owned())
    }
}

/// How producers and readers of pull streams are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamProfile {
    /// As the service is described: problems in JSON, 401 for a token that is over.
    Seed,
    /// As the Central Bank's interface does: problems in XML, few headers, 410 and never 401.
    Icom,
}

impl Value for StreamProfile {
    const FORM: Form = Form::Text;
    const NAME: &'static str = "PROFILE";

    fn legal(_: &Setting) -> String {
        "seed or icom".to_owned()
    }

    fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
        match text {
            "seed" => Ok(Self::Seed),
            "icom" => Ok(Self::Icom),
            _ => Err(give::<Self>(setting)),
        }
    }

    fn write(&self) -> Option<String> {
        let name = match self {
            Self::Seed => "seed",
            Self::Icom => "icom",
        };
        Some(name.to_owned())
    }
}

/// Which targets are logged from which level on. Spans cannot be named: there are none.
#[derive(Debug, Clone, PartialEq)]
pub struct LogFilter {
    text: String,
    targets: Targets,
}

impl Eq for LogFilter {}

const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];

impl LogFilter {
    /// The filter, as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// What it lets through.
    #[must_use]
    pub fn targets(&self) -> Targets {
        self.targets.clone()
    }
}

impl Value for LogFilter {
    const FORM: Form = Form::Text;
    const NAME: &'static str = "DIRECTIVES";

    fn legal(_: &Setting) -> String {
        format!("one of {}, or target=level; commas between several", LEVELS.join(", "))
    }

    fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
        // `tracing` takes a lone word for a target, so that a mistyped level silences the log, and
        // a space for a part of the target.
        let mistyped = |directive: &str| !directive.contains('=') && !LEVELS.contains(&directive);
        let is_odd = |letter: char| letter.is_whitespace() || "[]{}".contains(letter);
        if text.contains(is_odd) || text.split(',').any(mistyped) {
            return Err(give::<Self>(setting));
        }
        match text.parse() {
            Ok(targets) => Ok(Self { text: text.to_owned(), targets }),
            Err(error) => Err(format!("{error}; {}", give::<Self>(setting))),
        }
    }

    fn write(&self) -> Option<String> {
        Some(self.text.clone())
    }
}

/// A URL to which paths can be appended: no slash at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicUrl(String);

impl PublicUrl {
    /// The URL.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl PublicUrl {
    /// Whether it leads to this machine alone.
    pub(super) fn is_loopback(&self) -> bool {
        let uri = self.0.parse::<Uri>().ok();
        let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

impl Value for PublicUrl {
    const FORM: Form = Form::Text;
    const NAME: &'static str = "URL";

    fn legal(_: &Setting) -> String {
        "an http or https URL such as https://wane.example, without user, query and fragment".into()
    }

    fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
        let legal = |uri: &Uri| {
            matches!(uri.scheme_str(), Some("http" | "https"))
                && uri.host().is_some_and(|host| !host.is_empty())
                && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
                && uri.query().is_none()
                // Paths are sent as they are in redirects, where `//other` is another host.
                && !uri.path().trim_end_matches('/').contains("//")
                && !uri.path().contains('\\')
        };
        // `Uri` drops a fragment without a word, and lets some bytes beyond ASCII pass.
        let plain = text.is_ascii() && !text.contains('#');
        match text.parse::<Uri>() {
            Ok(uri) if plain && legal(&uri) => Ok(Self(text.trim_end_matches('/').to_owned())),
            _ => Err(give::<Self>(setting)),
        }
    }

    fn write(&self) -> Option<String> {
        Some(self.0.clone())
    }
}

/// The name of a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Region(String);

/// It is part of keys, whose length is limited.
const LONGEST_REGION: usize = 32;

impl Region {
    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Value for Region {
    const FORM: Form = Form::Text;
    const NAME: &'static str = "NAME";

    fn legal(_: &Setting) -> String {
        format!("1 to {LONGEST_REGION} of a-z, 0-9 and -")
    }

    fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
        let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if (1..=LONGEST_REGION).contains(&text.len()) && text.chars().all(legal) {
            Ok(Self(text.to_owned()))
        } else {
            Err(give::<Self>(setting))
        }
    }

    fn write(&self) -> Option<String> {
        Some(self.0.clone())
    }
}

impl Value for SocketAddr {
    const FORM: Form = Form::Text;
    const NAME: &'static str = "ADDR:PORT";

    fn legal(_: &Setting) -> String {
        "an address and a port such as 127.0.0.1:8628, [::1]:8628 or localhost:0 (0: any port)"
            .to_owned()
    }

    fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
        let numeric = match text.strip_prefix("localhost:") {
            Some(port) => format!("127.0.0.1:{port}"),
            None => text.to_owned(),
        };
        numeric.parse().map_err(|_| give::<Self>(setting))
    }

    fn write(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for PathBuf {
    const FORM: Form = Form::Text;
    const NAME: &'static str = "PATH";

    fn legal(_: &Setting) -> String {
        "a path; a relative one starts at the working directory".to_owned()
    }

    fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
        if text.is_empty() || text.contains('\0') {
            return Err(give::<Self>(setting));
        }
        Ok(Self::from(text))
    }

    fn write(&self) -> Option<String> {
        Some(self.to_string_lossy().into_owned())
    }
}

impl Value for bool {
    const FORM: Form = Form::Switch;
    const NAME: &'static str = "BOOL";

    fn legal(_: &Setting) -> String {
        "true or false".to_owned()
    }

    fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
        text.parse().map_err(|_| give::<Self>(setting))
    }

    fn write(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for usize {
    const FORM: Form = Form::Number;
    const NAME: &'static str = "NUMBER";

    fn legal(setting: &Setting) -> String {
        format!("a number from {} to {}", setting.range.start(), setting.range.end())
    }

    fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
        let number = number_within(text, setting).and_then(|number| Self::try_from(number).ok());
        number.ok_or_else(|| give::<Self>(setting))
    }

    fn write(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl Value for Duration {
    const FORM: Form = Form::Number;
    const NAME: &'static str = "MILLISECONDS";
    const UNIT: &'static str = "ms";

    fn legal(setting: &Setting) -> String {
        format!("milliseconds from {} to {}", setting.range.start(), setting.range.end())
    }

    fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
        let number = number_within(text, setting);
        number.map(Self::from_millis).ok_or_else(|| give::<Self>(setting))
    }

    fn write(&self) -> Option<String> {
        Some(self.as_millis().to_string())
    }
}

impl<V: Value> Value for Option<V> {
    const FORM: Form = V::FORM;
    const NAME: &'static str = V::NAME;
    const UNIT: &'static str = V::UNIT;
    const SECRET: bool = V::SECRET;

    fn legal(setting: &Setting) -> String {
        V::legal(setting)
    }

    fn parse(text: &str, setting: &Setting) -> Result<Self, String> {
        V::parse(text, setting).map(Some)
    }

    fn write(&self) -> Option<String> {
        self.as_ref().and_then(V::write)
    }

    fn unset() -> Option<Self> {
        Some(None)
    }
}

fn number_within(text: &str, setting: &Setting) -> Option<u64> {
    text.parse().ok().filter(|number| setting.range.contains(number))
}

fn give<V: Value>(setting: &Setting) -> String {
    format!("give {}", V::legal(setting))
}
