//! Settings: which servers, as whom, and under which names.

use std::fmt;
use std::path::PathBuf;

use redis::{
    Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo, RedisError,
    TlsCertificates,
};

use super::link::Link;
use crate::{OpenError, StoreUrl};

/// The port of a server that is named without one.
const PORT: u16 = 6_379;

/// Where a store is and how to get in.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisSettings {
    /// The servers, as `host` or `host:port`. More than one are servers of a cluster.
    pub hosts: Vec<String>,
    /// Whether they speak TLS.
    pub tls: bool,
    /// The authorities that sign their certificates, in PEM; `None` for those of the web.
    pub ca: Option<PathBuf>,
    /// Who asks, where there are users.
    pub user: Option<String>,
    /// The proof of it.
    pub password: Option<String>,
    /// The number of the database. A cluster has only 0.
    pub database: u16,
    /// What the names of all keys begin with: stores with different ones share a server.
    pub prefix: String,
}

impl RedisSettings {
    /// Settings from `redis://user:password@host:port,host/database?prefix=wane`, or `rediss://` for
    /// TLS, then with an option `ca`.
    pub fn from_url(url: &str) -> Result<Self, OpenError> {
        let tls = url.starts_with("rediss://");
        let mut parts = StoreUrl::parse("redis", url)?;
        let prefix = parts.take("prefix").unwrap_or_else(|| "wane".to_owned());
        let ca = parts.take("ca").map(PathBuf::from);
        parts.nothing_left("redis")?;
        check_prefix(&prefix)?;
        if ca.is_some() && !tls {
            return Err(bad("the option \"ca\" is for rediss://"));
        }
        let database = match parts.name.as_str() {
            "" => 0,
            name => name.parse().map_err(|_| bad("its database is not a number"))?,
        };
        if parts.hosts.len() > 1 && database != 0 {
            return Err(bad("several hosts are a cluster, which has no database but 0"));
        }
        if parts.hosts.is_empty() {
            parts.hosts.push("localhost".to_owned());
        }
        for host in &parts.hosts {
            host_and_port(host).ok_or_else(|| bad(&format!("{host:?} has no such port")))?;
        }
        let StoreUrl { user, password, hosts, .. } = parts;
        Ok(Self { hosts, tls, ca, user, password, database, prefix })
    }

    /// The servers in one line, for errors.
    pub(super) fn address(&self) -> String {
        self.hosts.join(",")
    }

    /// A server of this store.
    pub(super) fn link(&self, address: &str) -> Result<Link, RedisError> {
        let (host, port) = host_and_port(address).ok_or_else(|| {
            let kind = redis::ErrorKind::InvalidClientConfig;
            RedisError::from((kind, "not an address", address.to_owned()))
        })?;
        let mut settings = RedisConnectionInfo::default()
            .set_db(self.database.into())
            // Only this protocol tells when a connection is gone.
            .set_protocol(ProtocolVersion::RESP3)
            .set_lib_name("wane", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        let addr = match self.tls {
            false => ConnectionAddr::Tcp(host.clone(), port),
            true => ConnectionAddr::TcpTls {
                host: host.clone(),
                port,
                insecure: false,
                tls_params: None,
            },
        };
        let info = addr.into_connection_info()?.set_redis_settings(settings);
        let client = match &self.ca {
            Some(path) => {
                let certificates =
                    TlsCertificates { client_tls: None, root_cert: Some(std::fs::read(path)?) };
                Client::build_with_tls(info, certificates)?
            }
            None => Client::open(info)?,
        };
        Ok(Link::new(format!("{host}:{port}"), client))
    }
}

impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSettings")
            .field("hosts", &self.hosts)
            .field("tls", &self.tls)
            .field("ca", &self.ca)
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| ".."))
            .field("database", &self.database)
            .field("prefix", &self.prefix)
            .finish()
    }
}

fn bad(reason: &str) -> OpenError {
    OpenError::BadUrl { backend: "redis", reason: reason.to_owned() }
}

/// Braces would move the hash tag, and wildcards would match the keys of others.
fn check_prefix(prefix: &str) -> Result<(), OpenError> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte);
    if (1..=64).contains(&prefix.len()) && prefix.bytes().all(legal) {
        return Ok(());
    }
    Err(bad("its prefix is not 1 to 64 of a-z, A-Z, 0-9 and _-.:"))
}

/// The parts of `host`, `host:port` or `[::1]:port`.
fn host_and_port(address: &str) -> Option<(String, u16)> {
    let (host, port) = match address.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            (host, port.parse().ok()?)
        }
        // An IPv6 address without a port.
        _ => (address, PORT),
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Some((host.to_owned(), port)).filter(|(host, _)| !host.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_servers_user_database_and_prefix() {
        let url = "redis://me:s%40crt@a:7000/3?prefix=mine:1";
        let settings = RedisSettings::from_url(url).unwrap();
        assert_eq!((&*settings.hosts, settings.tls), (&["a:7000".to_owned()][..], false));
        assert_eq!((settings.user.as_deref(), settings.database), (Some("me"), 3));
        assert_eq!((settings.password.as_deref(), &*settings.prefix), (Some("s@crt"), "mine:1"));
        assert!(!format!("{settings:?}").contains("s@crt"), "secrets are shown nowhere");
        assert!(!format!("{:?}", settings.link("a:1").unwrap()).contains("s@crt"));
    }

    #[test]
    fn what_is_left_out_has_a_default() {
        let settings = RedisSettings::from_url("redis://").unwrap();
        assert_eq!((&*settings.hosts, settings.database), (&["localhost".to_owned()][..], 0));
        assert_eq!(settings.prefix, "wane");
        let cluster = RedisSettings::from_url("rediss://a:1,b:2?ca=/x.pem").unwrap();
        assert_eq!((cluster.hosts.len(), cluster.tls), (2, true));
    }

    #[test]
    fn a_wrong_url_says_what_is_wrong() {
        for (url, told) in [
            ("redis://h/one", "not a number"),
            ("redis://h/70000", "not a number"),
            ("redis://a,b/1", "no database but 0"),
            ("redis://h?prefix=", "prefix"),
            ("redis://h?prefix=a{b}", "prefix"),
            ("redis://h?prefix=a*", "prefix"),
            ("redis://h?ca=/x", "rediss"),
            ("redis://h?retries=3", "no option"),
            ("redis://h:port", "port"),
            ("redis://h:70000", "port"),
        ] {
            let error = RedisSettings::from_url(url).unwrap_err().to_string();
            assert!(error.contains(told), "{url}: {error}");
        }
    }

    #[test]
    fn addresses_of_every_kind_are_taken_apart() {
        for (address, host, port) in [
            ("h", "h", 6_379),
            ("h:1", "h", 1),
            ("127.0.0.1:2", "127.0.0.1", 2),
            ("[::1]:3", "::1", 3),
            ("[::1]", "::1", 6_379),
            ("::1", "::1", 6_379),
        ] {
            assert_eq!(host_and_port(address), Some((host.to_owned(), port)), "{address}");
        }
        assert_eq!((host_and_port(":1"), host_and_port("h:x")), (None, None));
    }
}
