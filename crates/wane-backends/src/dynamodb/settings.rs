//! Settings: which table is opened, where, and as whom.

use std::fmt;
use std::time::Duration;

use aws_sdk_dynamodb::config::Credentials;

use super::BACKEND;
use crate::{OpenError, StoreUrl};

/// The table where none is named.
const DEFAULT_TABLE: &str = "wane";

/// How long a request may take, and what an operator may set it to, in milliseconds.
const DEFAULT_TIMEOUT: u64 = 3_000;
const TIMEOUTS: std::ops::RangeInclusive<u64> = 50..=60_000;

/// Which table is opened.
///
/// `dynamodb:///TABLE?region=eu-west-1`, or with every part
/// `dynamodb://KEY_ID:SECRET@/TABLE?region=..&endpoint=http%3A%2F%2F127.0.0.1%3A8000&timeout_ms=3000`.
/// What is left out comes from where AWS programs look for it: environment, profile, container,
/// instance.
#[derive(Clone)]
pub struct DynamodbSettings {
    /// The name of the table.
    pub table: String,
    /// Where DynamoDB is, unless it is the one of the region.
    pub endpoint: Option<String>,
    /// The region.
    pub region: Option<String>,
    /// How long one request may take. A write whose answer was not heard takes up to five times as
    /// long, for it is then looked for.
    pub timeout: Duration,
    credentials: Option<Credentials>,
}

impl DynamodbSettings {
    /// Takes the settings from a URL, or says what is wrong with it.
    pub fn from_url(url: &str) -> Result<Self, OpenError> {
        let mut url = StoreUrl::parse(BACKEND, url)?;
        if !url.hosts.is_empty() {
            return Err(bad("a host is not taken; give endpoint=http%3A%2F%2Fhost%3Aport instead"));
        }
        let timeout = match url.take("timeout_ms") {
            None => DEFAULT_TIMEOUT,
            Some(text) => {
                let millis = text.parse().ok().filter(|millis| TIMEOUTS.contains(millis));
                millis.ok_or_else(|| bad("timeout_ms is not a number from 50 to 60000"))?
            }
        };
        let settings = Self {
            table: table_name(&url.name)?,
            endpoint: url.take("endpoint").map(endpoint_url).transpose()?,
            region: url.take("region").filter(|region| !region.is_empty()),
            timeout: Duration::from_millis(timeout),
            credentials: credentials(&url)?,
        };
        url.nothing_left(BACKEND)?;
        Ok(settings)
    }

    /// Who asks, where that is not left to the environment.
    pub(super) fn credentials(&self) -> Option<Credentials> {
        self.credentials.clone()
    }

    /// Where the table is, for errors.
    pub(super) fn place(&self, region: &str) -> String {
        let place = self.endpoint.as_deref().unwrap_or(region);
        format!("{place} (table {})", self.table)
    }
}

impl fmt::Debug for DynamodbSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamodbSettings")
            .field("table", &self.table)
            .field("endpoint", &self.endpoint)
            .field("region", &self.region)
            .field("timeout", &self.timeout)
            .field("credentials", &self.credentials.as_ref().map(|_| ".."))
            .finish()
    }
}

fn bad(reason: &str) -> OpenError {
    OpenError::BadUrl { backend: BACKEND, reason: reason.to_owned() }
}

fn table_name(name: &str) -> Result<String, OpenError> {
    if name.is_empty() {
        return Ok(DEFAULT_TABLE.to_owned());
    }
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
    if (3..=255).contains(&name.len()) && name.bytes().all(legal) {
        return Ok(name.to_owned());
    }
    Err(bad("a table has 3 to 255 letters, digits, dots, hyphens and underscores"))
}

fn endpoint_url(endpoint: String) -> Result<String, OpenError> {
    let place = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
    match place {
        Some(place) if !place.is_empty() && !place.contains('@') => Ok(endpoint),
        _ => Err(bad("endpoint is not of the form http://host:port or https://host")),
    }
}

fn credentials(url: &StoreUrl) -> Result<Option<Credentials>, OpenError> {
    match (&url.user, &url.password) {
        (None, None) => Ok(None),
        (Some(id), Some(secret)) if !secret.is_empty() => {
            Ok(Some(Credentials::new(id, secret, None, None, "store URL")))
        }
        _ => Err(bad("give the key id and its secret, or neither")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_taken() {
        let url = "dynamodb://AK%2FID:se%2Bcret@/codes?endpoint=http%3A%2F%2F127.0.0.1%3A8000\
                   &region=eu-west-1&timeout_ms=250";
        let settings = DynamodbSettings::from_url(url).unwrap();
        assert_eq!(settings.table, "codes");
        assert_eq!(settings.endpoint.as_deref(), Some("http://127.0.0.1:8000"));
        assert_eq!(settings.region.as_deref(), Some("eu-west-1"));
        assert_eq!(settings.timeout, Duration::from_millis(250));
        let credentials = settings.credentials().unwrap();
        assert_eq!(credentials.access_key_id(), "AK/ID");
        assert_eq!(credentials.secret_access_key(), "se+cret");
    }

    #[test]
    fn what_is_left_out_is_left_to_the_environment() {
        let settings = DynamodbSettings::from_url("dynamodb://").unwrap();
        assert_eq!((settings.table.as_str(), settings.timeout.as_millis()), ("wane", 3_000));
        assert!(settings.endpoint.is_none() && settings.region.is_none());
        assert!(settings.credentials().is_none());
        assert_eq!(settings.place("eu-west-1"), "eu-west-1 (table wane)");
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_the_reason() {
        for (url, told) in [
            ("dynamodb://127.0.0.1:8000/wane", "endpoint="),
            ("dynamodb:///a", "3 to 255"),
            ("dynamodb:///with%20space", "3 to 255"),
            ("dynamodb:///wane?endpoint=127.0.0.1", "http://"),
            ("dynamodb:///wane?endpoint=http%3A%2F%2Fu%3Ap%40h", "http://"),
            ("dynamodb:///wane?timeout_ms=0", "timeout_ms"),
            ("dynamodb:///wane?timeout_ms=never", "timeout_ms"),
            ("dynamodb:///wane?table=x", "no option \"table\""),
            ("dynamodb://id@/wane", "secret"),
            ("dynamodb://:secret@/wane", "secret"),
        ] {
            let error = DynamodbSettings::from_url(url).unwrap_err().to_string();
            assert!(error.starts_with("dynamodb ") && error.contains(told), "{url}: {error}");
        }
    }

    #[test]
    fn the_secret_is_shown_nowhere() {
        let settings = DynamodbSettings::from_url("dynamodb://id:canary@/wane").unwrap();
        assert!(!format!("{settings:?} {}", settings.place("x")).contains("canary"));
    }
}
