//! Opening: what is asked of a server before it is trusted with a store.
//!
//! A server that is too old, not a master, or holds a store of another layout is refused. One that
//! may forget what it acknowledged is used, after a warning that names the setting to change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redis::{ErrorKind, RedisError, cmd};
use wane::store::BoxError;

use super::layout::{Layout, slot_of};
use super::link::{Fault, Link, strange};
use super::reply::bytes_or_none;
use super::servers::{Cluster, Servers, text_of};
use super::settings::RedisSettings;
use crate::OpenError;

/// How long opening may take at most, whatever the servers do.
const OPENING: Duration = Duration::from_secs(5);

/// The layout that this program knows.
const LAYOUT: &str = "1";

/// The oldest major version with scripts that are refused whole.
const OLDEST: u32 = 7;

/// Connects to the servers and checks them.
pub(super) async fn open(settings: &RedisSettings, layout: &Layout) -> Result<Servers, OpenError> {
    ready_for_tls(settings);
    let address = || settings.address();
    match tokio::time::timeout(OPENING, connect(settings, layout)).await {
        Ok(opened) => opened.map_err(|refusal| refusal.at(address())),
        Err(_) => Err(Refusal::Silent("no answer within 5 s".into()).at(address())),
    }
}

/// Names the cryptography that the driver is to use, which brings none of its own.
pub(super) fn ready_for_tls(settings: &RedisSettings) {
    if settings.tls && rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that another thread was faster.
        drop(rustls::crypto::ring::default_provider().install_default());
    }
}

async fn connect(settings: &RedisSettings, layout: &Layout) -> Result<Servers, Refusal> {
    let (link, info) = first_answer(settings).await?;
    let is_cluster = info.get("redis_mode") == Some("cluster");
    if info.get("redis_mode") == Some("sentinel") {
        return Err(Refusal::unfit("it is a sentinel", "that the URL names the master"));
    }
    if settings.hosts.len() > 1 && !is_cluster {
        let check = "that the URL names one server, or servers of a cluster";
        return Err(Refusal::unfit("several hosts are a cluster, and it is in none", check));
    }
    let servers = match is_cluster {
        false => Servers::One(link),
        true if settings.database != 0 => {
            return Err(Refusal::unfit("a cluster has no database but 0", "the end of the URL"));
        }
        true => Servers::Cluster(Box::new(Cluster::found(settings.clone(), link).await?)),
    };
    for master in servers.masters() {
        let info = Info::of(&master).await?;
        info.check()?;
        let sync = sync_policy(&master).await;
        for concern in info.concerns(sync.as_deref()) {
            tracing::warn!(backend = "redis", address = master.address(), "{concern}");
        }
    }
    check_layout(&servers, layout).await?;
    Ok(servers)
}

/// The first of the servers that answers, and what it says of itself.
async fn first_answer(settings: &RedisSettings) -> Result<(Arc<Link>, Info), Refusal> {
    let mut last = Refusal::Silent("no host was named".into());
    for host in &settings.hosts {
        let link = settings.link(host).map_err(|error| Refusal::of(Fault::NotSent(error)))?;
        match Info::of(&link).await {
            Ok(info) => return Ok((Arc::new(link), info)),
            Err(refusal) => last = refusal,
        }
    }
    Err(last)
}

/// Writes down how the store is laid out, or compares with what is written.
async fn check_layout(servers: &Servers, layout: &Layout) -> Result<(), Refusal> {
    let key = layout.version();
    let slot = slot_of(key.as_bytes());
    let stored = async || -> Result<Option<String>, Refusal> {
        let reply = servers.request(slot, cmd("GET").arg(&key)).await?;
        let found = bytes_or_none(reply).ok_or_else(|| Fault::Unclear(strange()))?;
        Ok(found.map(|found| String::from_utf8_lossy(&found).into_owned()))
    };
    let found = match stored().await? {
        Some(found) => found,
        None => {
            // Another node may do so at the same moment: what stands there then counts.
            servers.request(slot, cmd("SET").arg(&key).arg(LAYOUT).arg("NX")).await?;
            stored().await?.unwrap_or_default()
        }
    };
    if found == LAYOUT {
        return Ok(());
    }
    Err(Refusal::Otherwise(format!(
        "{key} says {found:?}, this program knows layout {LAYOUT}; use the program that made it, or \
         another prefix"
    )))
}

/// Whether appended writes reach the disk before they are acknowledged, where it may be asked.
async fn sync_policy(link: &Link) -> Option<String> {
    let asked = link.request(cmd("CONFIG").arg("GET").arg("appendfsync")).await;
    let Ok(reply) = asked else {
        tracing::info!(
            backend = "redis",
            address = link.address(),
            "this user may not ask for appendfsync: check that it is always or everysec"
        );
        return None;
    };
    let settings: BTreeMap<String, String> = redis::from_redis_value(reply).ok()?;
    settings.get("appendfsync").cloned()
}

/// What a server says of itself.
#[derive(Debug, Default)]
struct Info(BTreeMap<String, String>);

impl Info {
    async fn of(link: &Link) -> Result<Self, Refusal> {
        let text = link.request(&cmd("INFO")).await.map_err(Refusal::of)?;
        Ok(Self::parsed(&text_of(text)?))
    }

    fn parsed(text: &str) -> Self {
        let fields = text.lines().filter_map(|line| line.trim_end().split_once(':'));
        Self(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// What makes a server useless.
    fn check(&self) -> Result<(), Refusal> {
        let version = self.get("redis_version").unwrap_or_default();
        let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
        if major.is_none_or(|major| major < OLDEST) {
            let reason =
                format!("it is version {version:?}, and Redis 7, Valkey 7.2 or later is needed");
            return Err(Refusal::unfit(&reason, "the version of the server"));
        }
        match self.get("role") {
            Some("master") | None => Ok(()),
            Some(role) => {
                Err(Refusal::unfit(&format!("it is a {role}"), "that the URL names the master"))
            }
        }
    }

    /// What may lose acknowledged records, in words for the operator.
    fn concerns(&self, sync: Option<&str>) -> Vec<String> {
        let mut concerns = Vec::new();
        if let Some(policy) = self.get("maxmemory_policy").filter(|policy| *policy != "noeviction")
        {
            concerns.push(format!(
                "maxmemory-policy is {policy}: a full server removes live records, and leases and \
                 numbers with them; set maxmemory-policy noeviction"
            ));
        }
        if self.get("aof_enabled") == Some("0") {
            concerns.push(
                "appendonly is no: a restart of the server forgets acknowledged writes; set \
                 appendonly yes"
                    .to_owned(),
            );
        } else if sync == Some("no") {
            concerns.push(
                "appendfsync is no: a crash of the machine forgets writes of many seconds; set \
                 appendfsync always, or everysec to risk one second"
                    .to_owned(),
            );
        }
        concerns
    }
}

/// Why a store is not opened, before it is known at which address.
#[derive(Debug)]
enum Refusal {
    /// Nobody answers, or not yet.
    Silent(BoxError),
    /// Somebody answers, and will not serve.
    Unfit { reason: BoxError, check: &'static str },
    /// The store there has another layout.
    Otherwise(String),
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Self {
        Self::of(fault)
    }
}

impl Refusal {
    fn unfit(reason: &str, check: &'static str) -> Self {
        Self::Unfit { reason: reason.into(), check }
    }

    /// What a command that failed means for opening.
    fn of(fault: Fault) -> Self {
        let error = match fault {
            Fault::NotSent(error) | Fault::Unclear(error) => error,
            Fault::Answered(error) => RedisError::from(error),
        };
        let code = error.code().unwrap_or_default();
        let waiting = ["LOADING", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN"].contains(&code)
            || error.kind() == ErrorKind::ClusterConnectionNotFound;
        if waiting || (error.is_io_error() && !is_about_tls(&error)) {
            return Self::Silent(error.into());
        }
        let check = match code {
            "NOAUTH" | "WRONGPASS" => "user and password in the URL",
            "READONLY" => "that the URL names the master",
            "NOPERM" => "what this user is allowed to do",
            _ if is_about_tls(&error) => "the certificate of the server, and the option ca",
            _ if error.kind() == ErrorKind::Parse => {
                "that this is a Redis server, and whether it speaks TLS (rediss://)"
            }
            _ => "the URL, and the log of the server",
        };
        Self::Unfit { reason: error.into(), check }
    }

    fn at(self, address: String) -> OpenError {
        let backend = "redis";
        match self {
            Self::Silent(source) => {
                let check = "that it runs, the address, and firewalls";
                OpenError::Unreachable { backend, address, check, source }
            }
            Self::Unfit { reason, check } => {
                OpenError::Refused { backend, address, check, source: reason }
            }
            Self::Otherwise(reason) => OpenError::Mismatch { backend, address, reason },
        }
    }
}

/// Whether TLS failed because of who answered, which comes wrapped as an error of I/O.
fn is_about_tls(error: &RedisError) -> bool {
    let told = error.to_string();
    told.contains("certificate") || told.contains("InvalidContentType")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOUND: &str = "redis_version:7.0.15\r\nredis_mode:standalone\r\nrole:master\r\n\
                         maxmemory_policy:noeviction\r\naof_enabled:1\r\n";

    #[test]
    fn a_sound_server_is_taken_without_a_word() {
        let info = Info::parsed(SOUND);
        info.check().unwrap();
        assert_eq!(info.concerns(Some("always")), [""; 0]);
        assert_eq!(info.concerns(Some("everysec")), [""; 0]);
        assert_eq!(info.concerns(None), [""; 0]);
    }

    #[test]
    fn a_server_that_may_forget_is_warned_of() {
        for (from, to, setting) in [
            ("noeviction", "allkeys-lru", "maxmemory-policy"),
            ("aof_enabled:1", "aof_enabled:0", "appendonly"),
        ] {
            let concerns = Info::parsed(&SOUND.replace(from, to)).concerns(Some("always"));
            assert!(concerns.len() == 1 && concerns[0].starts_with(setting), "{concerns:?}");
        }
        let concerns = Info::parsed(SOUND).concerns(Some("no"));
        assert!(concerns.len() == 1 && concerns[0].starts_with("appendfsync"), "{concerns:?}");
    }

    #[test]
    fn an_old_server_and_a_replica_are_refused() {
        for (from, to) in [("7.0.15", "6.2.14"), ("7.0.15", "?"), ("role:master", "role:slave")] {
            assert!(Info::parsed(&SOUND.replace(from, to)).check().is_err(), "{to}");
        }
        assert!(Info::parsed(&SOUND.replace("7.0.15", "8.2.0")).check().is_ok());
    }
}
