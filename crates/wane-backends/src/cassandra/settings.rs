//! [`CassandraSettings`]: which cluster, as whom, and how records are replicated there.

use std::fmt;
use std::path::PathBuf;

use crate::{OpenError, StoreUrl};

/// The keyspace where none is named.
const DEFAULT_KEYSPACE: &str = "wane";

/// The longest name of a keyspace that Cassandra takes.
const MAX_KEYSPACE: usize = 48;

/// How many copies of a record there are, and where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replication {
    /// One copy: `SimpleStrategy`, replication factor 1.
    Cas1,
    /// Three copies: `NetworkTopologyStrategy`, two in `dc1` and one in `dc2`.
    Cas3,
}

impl Replication {
    /// The name of the backend, as settings and metrics have it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cas1 => "cas1",
            Self::Cas3 => "cas3",
        }
    }

    /// The strategy of a keyspace of this kind.
    pub(super) fn strategy(self) -> &'static str {
        match self {
            Self::Cas1 => "SimpleStrategy",
            Self::Cas3 => "NetworkTopologyStrategy",
        }
    }

    /// The replication of a new keyspace, in CQL.
    pub(super) fn options(self) -> &'static str {
        match self {
            Self::Cas1 => "{'class': 'SimpleStrategy', 'replication_factor': 1}",
            Self::Cas3 => "{'class': 'NetworkTopologyStrategy', 'dc1': 2, 'dc2': 1}",
        }
    }
}

/// Where a store is and how it is reached.
#[derive(Clone, PartialEq, Eq)]
pub struct CassandraSettings {
    /// How many copies there are.
    pub replication: Replication,
    /// Who asks, where the cluster wants to know.
    pub user: Option<String>,
    /// The proof of it.
    pub password: Option<String>,
    /// Some nodes, as `host` or `host:port`; the others are found through them.
    pub hosts: Vec<String>,
    /// The keyspace, made where it is missing: 1 to 48 of a-z, 0-9 and _.
    pub keyspace: String,
    /// The datacenter whose nodes are asked first.
    pub datacenter: Option<String>,
    /// The authorities that sign the nodes' certificates, in PEM. With it TLS is spoken.
    pub ca: Option<PathBuf>,
}

impl CassandraSettings {
    /// Reads `cas1://` or `cas3://` followed by `user:password@host,host/keyspace`, with the
    /// options `datacenter` and `ca`.
    pub fn from_url(url: &str) -> Result<Self, OpenError> {
        let replication = match url.split_once("://").map(|(scheme, _)| scheme) {
            Some("cas1") => Replication::Cas1,
            Some("cas3") => Replication::Cas3,
            Some(_) | None => {
                return Err(OpenError::UnknownUrl { url: StoreUrl::without_secrets(url) });
            }
        };
        let backend = replication.name();
        let bad = |reason: &str| OpenError::BadUrl { backend, reason: reason.to_owned() };
        let mut url = StoreUrl::parse(backend, url)?;
        let (datacenter, ca) = (url.take("datacenter"), url.take("ca").map(PathBuf::from));
        url.nothing_left(backend)?;
        if url.hosts.is_empty() {
            return Err(bad("it names no node; give some as in cas1://host:9042,host/keyspace"));
        }
        if url.user.is_some() != url.password.is_some() {
            return Err(bad("a user needs a password, and a password a user"));
        }
        if url.name.is_empty() {
            url.name = DEFAULT_KEYSPACE.to_owned();
        }
        if !is_keyspace(&url.name) {
            return Err(bad("a keyspace is called by 1 to 48 of a-z, 0-9 and _"));
        }
        let StoreUrl { user, password, hosts, name: keyspace, .. } = url;
        Ok(Self { replication, user, password, hosts, keyspace, datacenter, ca })
    }

    /// The nodes in one line, for errors.
    pub(super) fn address(&self) -> String {
        self.hosts.join(",")
    }
}

/// Names are printed into the statements that make the tables, so nothing else may pass.
fn is_keyspace(name: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    (1..=MAX_KEYSPACE).contains(&name.len()) && name.bytes().all(legal)
}

impl fmt::Debug for CassandraSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CassandraSettings")
            .field("replication", &self.replication)
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| ".."))
            .field("hosts", &self.hosts)
            .field("keyspace", &self.keyspace)
            .field("datacenter", &self.datacenter)
            .field("ca", &self.ca)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_url_is_a_setting() {
        let settings = CassandraSettings::from_url(
            "cas3://ann:can%40ary@a:9042,b/my_store1?datacenter=dc2&ca=/etc/ca.pem",
        )
        .unwrap();
        assert_eq!(settings.replication, Replication::Cas3);
        assert_eq!(settings.user.as_deref(), Some("ann"));
        assert_eq!(settings.password.as_deref(), Some("can@ary"));
        assert_eq!(settings.hosts, ["a:9042", "b"]);
        assert_eq!(settings.keyspace, "my_store1");
        assert_eq!(settings.datacenter.as_deref(), Some("dc2"));
        assert_eq!(settings.ca, Some(PathBuf::from("/etc/ca.pem")));
        assert!(!format!("{settings:?}").contains("can@ary"), "{settings:?}");
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let settings = CassandraSettings::from_url("cas1://localhost").unwrap();
        assert_eq!((settings.replication.name(), settings.keyspace.as_str()), ("cas1", "wane"));
        assert_eq!((settings.user, settings.datacenter, settings.ca), (None, None, None));
    }

    #[test]
    fn a_url_that_cannot_be_meant_says_why() {
        let long = format!("cas1://h/{}", "a".repeat(49));
        for (url, told) in [
            ("cas2://h", "names no store"),
            ("localhost", "names no store"),
            ("cas1://", "names no node"),
            ("cas1://h/UPPER", "keyspace"),
            ("cas1://h/a%22b", "keyspace"),
            ("cas1://h/a-b", "keyspace"),
            (&long, "keyspace"),
            ("cas1://ann@h", "password"),
            ("cas1://:canary@h", "user"),
            ("cas3://h?dc=dc1", "\"dc\""),
        ] {
            let error = CassandraSettings::from_url(url).unwrap_err().to_string();
            assert!(error.contains(told), "{url}: {error}");
            assert!(!error.contains("canary"), "{error}");
        }
    }
}
