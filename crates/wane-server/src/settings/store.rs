//! The store that the settings name: its URL, and how its keys are spread.

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use super::{Settings, Storage};

/// Partitions for the keys of one app where a server makes conditional writes of one partition wait
/// for each other.
pub const SPREAD: u16 = 256;

impl Settings {
    /// The store as [`wane_backends::open`] wants it named. It may hold a password.
    #[must_use]
    pub fn store_url(&self) -> String {
        match self.storage {
            Storage::Mem => "mem:".to_owned(),
            Storage::File => {
                let (data, young_bytes) = (self.data.display(), self.file_young_bytes);
                format!("file:{data}?young_bytes={young_bytes}")
            }
            Storage::Redis => self.redis_url.as_str().to_owned(),
            Storage::Cas1 | Storage::Cas3 => self.cassandra_url(),
            Storage::Dynamodb => {
                let endpoint = self.dynamodb_endpoint.as_ref().map(|url| url.as_str());
                let options = options(&[("endpoint", endpoint)]);
                format!("dynamodb:///{}{options}", self.dynamodb_table.as_str())
            }
        }
    }

    /// Over how many partitions the independent keys of one app are spread.
    #[must_use]
    pub fn buckets(&self) -> u16 {
        let given = self.spread_buckets.and_then(|buckets| u16::try_from(buckets).ok());
        given.unwrap_or(match self.storage {
            Storage::Cas1 | Storage::Cas3 | Storage::Dynamodb => SPREAD,
            Storage::Mem | Storage::File | Storage::Redis => 1,
        })
    }

    fn cassandra_url(&self) -> String {
        let user = self.cassandra_user.as_ref().map(|user| encoded(user.as_str()));
        let password = self.cassandra_password.as_ref().map(|secret| encoded(secret.as_str()));
        let login = match (user, password) {
            (None, None) => String::new(),
            (user, None) => format!("{}@", user.unwrap_or_default()),
            (user, Some(password)) => format!("{}:{password}@", user.unwrap_or_default()),
        };
        let datacenter = self.cassandra_datacenter.as_ref().map(|name| name.as_str());
        let ca = self.cassandra_ca.as_ref().map(|path| path.to_string_lossy());
        let options = options(&[("datacenter", datacenter), ("ca", ca.as_deref())]);
        let (scheme, hosts) = (self.storage.name(), self.cassandra_hosts.as_str());
        format!("{scheme}://{login}{hosts}/{}{options}", self.cassandra_keyspace.as_str())
    }
}

/// The options that are given, as the end of a URL.
fn options(given: &[(&str, Option<&str>)]) -> String {
    let given = given.iter().filter_map(|(name, value)| value.map(|value| (name, encoded(value))));
    let given: Vec<_> = given.map(|(name, value)| format!("{name}={value}")).collect();
    if given.is_empty() { String::new() } else { format!("?{}", given.join("&")) }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use crate::settings::{ServeFlags, Settings};

    fn with(variables: &[(&str, &str)]) -> Settings {
        let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
        let variables: Vec<(OsString, OsString)> = variables.collect();
        Settings::load(&ServeFlags::default(), variables).expect("legal settings").settings
    }

    #[test]
    fn each_storage_has_its_url_and_its_spread() {
        let redis =
            with(&[("WANE_STORAGE_TYPE", "redis"), ("WANE_REDIS_URL", "redis://:p@h:1,i:2/3")]);
        assert_eq!((redis.store_url().as_str(), redis.buckets()), ("redis://:p@h:1,i:2/3", 1));
        let cassandra = with(&[
            ("WANE_STORAGE_TYPE", "cas3"),
            ("WANE_CASSANDRA_HOSTS", "a,b:9043"),
            ("WANE_CASSANDRA_USER", "me"),
            ("WANE_CASSANDRA_PASSWORD", "p@ss:/word"),
            ("WANE_CASSANDRA_DATACENTER", "dc1"),
            ("WANE_CASSANDRA_CA", "/etc/ca.pem"),
        ]);
        let url = "cas3://me:p%40ss%3A%2Fword@a,b:9043/wane?datacenter=dc1&ca=%2Fetc%2Fca%2Epem";
        assert_eq!((cassandra.store_url().as_str(), cassandra.buckets()), (url, 256));
        let parsed = wane_backends::StoreUrl::parse("cassandra", url).expect("it can be read back");
        assert_eq!(parsed.password.as_deref(), Some("p@ss:/word"));
        let dynamodb = with(&[
            ("WANE_STORAGE_TYPE", "dynamodb"),
            ("WANE_DYNAMODB_ENDPOINT", "http://127.0.0.1:8000"),
            ("WANE_SPREAD_BUCKETS", "16"),
        ]);
        let url = "dynamodb:///wane?endpoint=http%3A%2F%2F127%2E0%2E0%2E1%3A8000";
        assert_eq!((dynamodb.store_url().as_str(), dynamodb.buckets()), (url, 16));
        assert_eq!(
            with(&[("WANE_STORAGE_TYPE", "cas1")]).store_url(),
            "cas1://127.0.0.1:9042/wane"
        );
    }
}
