//! The servers of a store: one, or the masters of a cluster.
//!
//! In a cluster each slot has a master, and the map of slots changes under way. A server that is
//! asked for a slot it does not have says so and does nothing; only then, or where a command was
//! not sent at all, it is sent elsewhere. So no command is carried out twice.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use redis::{Cmd, RedisError, ServerError, Value as Reply, cmd};

use super::link::{Fault, Link, strange};
use super::reply::{array, bytes_or_none, number};
use super::settings::RedisSettings;

/// How often a command follows a slot before it is given up.
const REDIRECTS: usize = 5;

/// Whoever holds the slots.
#[derive(Debug)]
pub(super) enum Servers {
    /// One server with every slot.
    One(Arc<Link>),
    /// A cluster.
    Cluster(Box<Cluster>),
}

impl Servers {
    /// Sends a command to whoever has `slot`.
    pub(super) async fn request(&self, slot: u16, command: &Cmd) -> Result<Reply, Fault> {
        match self {
            Self::One(link) => link.request(command).await,
            Self::Cluster(cluster) => Box::pin(cluster.request(slot, command)).await,
        }
    }

    /// Every server that has slots.
    pub(super) fn masters(&self) -> Vec<Arc<Link>> {
        match self {
            Self::One(link) => vec![Arc::clone(link)],
            Self::Cluster(cluster) => cluster.map.read().masters(),
        }
    }

    /// The server that has `slot`, as far as is known.
    pub(super) fn holder(&self, slot: u16) -> Option<Arc<Link>> {
        match self {
            Self::One(link) => Some(Arc::clone(link)),
            Self::Cluster(cluster) => cluster.map.read().holder(slot),
        }
    }

    /// Looks again who has which slot, after a server said that it does not.
    pub(super) async fn look_again(&self) -> Result<(), Fault> {
        match self {
            Self::One(_) => Ok(()),
            Self::Cluster(cluster) => cluster.refresh(cluster.seen()).await,
        }
    }
}

/// The servers of a cluster, and who has which slot.
#[derive(Debug)]
pub(super) struct Cluster {
    settings: RedisSettings,
    map: RwLock<Map>,
    /// How often the map was drawn anew.
    drawn: AtomicU64,
    drawing: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Map {
    /// First slot, last slot, and who has them.
    ranges: Vec<(u16, u16, Arc<Link>)>,
    links: BTreeMap<String, Arc<Link>>,
}

impl Map {
    fn holder(&self, slot: u16) -> Option<Arc<Link>> {
        let mut ranges = self.ranges.iter();
        let range = ranges.find(|(first, last, _)| (*first..=*last).contains(&slot))?;
        Some(Arc::clone(&range.2))
    }

    fn masters(&self) -> Vec<Arc<Link>> {
        let masters: BTreeMap<_, _> =
            self.ranges.iter().map(|(_, _, link)| (link.address(), link)).collect();
        masters.into_values().cloned().collect()
    }
}

impl Cluster {
    /// Draws the map from what one of its servers says.
    pub(super) async fn found(settings: RedisSettings, link: Arc<Link>) -> Result<Self, Fault> {
        let links = BTreeMap::from([(link.address().to_owned(), link)]);
        let map = RwLock::new(Map { ranges: Vec::new(), links });
        let (drawn, drawing) = (AtomicU64::new(0), tokio::sync::Mutex::new(()));
        let cluster = Self { settings, map, drawn, drawing };
        cluster.refresh(0).await?;
        Ok(cluster)
    }

    async fn request(&self, slot: u16, command: &Cmd) -> Result<Reply, Fault> {
        let mut seen = self.seen();
        let mut link = self.map.read().holder(slot).ok_or_else(|| Fault::NotSent(no_holder()))?;
        for _ in 0..REDIRECTS {
            let fault = match link.request(command).await {
                Ok(reply) => return Ok(reply),
                Err(fault) => fault,
            };
            match fault {
                Fault::Answered(error) => match Redirect::of(&error, &link) {
                    Some(Redirect::Moved(address)) => {
                        // Not to know the new map is no reason not to follow.
                        drop(self.refresh(seen).await);
                        link = self.link(&address).map_err(Fault::NotSent)?;
                    }
                    Some(Redirect::Ask(address)) => {
                        let other = self.link(&address).map_err(Fault::NotSent)?;
                        return other.request_asking(command).await;
                    }
                    None => return Err(Fault::Answered(error)),
                },
                Fault::NotSent(error) => {
                    drop(self.refresh(seen).await);
                    let holder = self.map.read().holder(slot);
                    match holder.filter(|other| !Arc::ptr_eq(other, &link)) {
                        Some(other) => link = other,
                        None => return Err(Fault::NotSent(error)),
                    }
                }
                Fault::Unclear(error) => return Err(Fault::Unclear(error)),
            }
            seen = self.seen();
        }
        Err(Fault::NotSent(no_holder()))
    }

    fn seen(&self) -> u64 {
        self.drawn.load(Ordering::Acquire)
    }

    /// The server at `address`, known before or not.
    fn link(&self, address: &str) -> Result<Arc<Link>, RedisError> {
        if let Some(link) = self.map.read().links.get(address) {
            return Ok(Arc::clone(link));
        }
        let link = Arc::new(self.settings.link(address)?);
        let mut map = self.map.write();
        Ok(Arc::clone(map.links.entry(link.address().to_owned()).or_insert(link)))
    }

    /// Draws the map anew, unless somebody did since it was `seen`.
    async fn refresh(&self, seen: u64) -> Result<(), Fault> {
        let _drawing = self.drawing.lock().await;
        if self.seen() != seen {
            return Ok(());
        }
        let mut links: Vec<_> = self.map.read().links.values().cloned().collect();
        for host in &self.settings.hosts {
            links.push(self.link(host).map_err(Fault::NotSent)?);
        }
        let mut last = Fault::NotSent(no_holder());
        for link in links {
            match link.request(cmd("CLUSTER").arg("SLOTS")).await {
                Ok(reply) => {
                    let drawn = ranges_of(reply, link.address()).unwrap_or_default();
                    if drawn.is_empty() {
                        last = Fault::NotSent(no_holder());
                        continue;
                    }
                    return self.draw(drawn).map_err(Fault::NotSent);
                }
                Err(fault) => last = fault,
            }
        }
        Err(last)
    }

    fn draw(&self, drawn: Vec<(u16, u16, String)>) -> Result<(), RedisError> {
        let mut ranges = Vec::with_capacity(drawn.len());
        for (first, last, address) in drawn {
            ranges.push((first, last, self.link(&address)?));
        }
        let mut map = self.map.write();
        map.links =
            ranges.iter().map(|(.., link)| (link.address().to_owned(), link.clone())).collect();
        map.ranges = ranges;
        self.drawn.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }
}

fn no_holder() -> RedisError {
    (redis::ErrorKind::ClusterConnectionNotFound, "no server of the cluster has this slot").into()
}

/// Where a server sends whoever asks.
#[derive(Debug, PartialEq, Eq)]
enum Redirect {
    /// The slot is there for good.
    Moved(String),
    /// This key may be there already.
    Ask(String),
}

impl Redirect {
    fn of(error: &ServerError, from: &Link) -> Option<Self> {
        // As in "MOVED 3999 127.0.0.1:6381".
        let place = error.details()?.split_ascii_whitespace().nth(1);
        match error.code() {
            "MOVED" => Some(Self::Moved(whole_address(place?, from.address()))),
            "ASK" => Some(Self::Ask(whole_address(place?, from.address()))),
            _ => None,
        }
    }
}

/// An address without a host means the host that told it.
fn whole_address(told: &str, by: &str) -> String {
    match (told.strip_prefix(':'), by.rsplit_once(':')) {
        (Some(port), Some((host, _))) => format!("{host}:{port}"),
        _ => told.to_owned(),
    }
}

/// The ranges that `CLUSTER SLOTS` tells, each with its master.
fn ranges_of(reply: Reply, by: &str) -> Option<Vec<(u16, u16, String)>> {
    let slot = |part: &Reply| u16::try_from(number(part)?).ok();
    let mut drawn = Vec::new();
    for range in array(reply)? {
        let mut parts = array(range)?.into_iter();
        let (first, last) = (slot(&parts.next()?)?, slot(&parts.next()?)?);
        let mut master = array(parts.next()?)?.into_iter();
        let host = bytes_or_none(master.next()?)?.unwrap_or_default();
        let host = String::from_utf8_lossy(&host);
        let port = number(&master.next()?)?;
        let told = if host == "?" { format!(":{port}") } else { format!("{host}:{port}") };
        drawn.push((first, last, whole_address(&told, by)));
    }
    Some(drawn)
}

/// The answer of a command that has only one.
pub(super) fn text_of(reply: Reply) -> Result<String, Fault> {
    redis::from_redis_value(reply).map_err(|_| Fault::Unclear(strange()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: i64, last: i64, host: &str, port: i64) -> Reply {
        let host = Reply::BulkString(host.as_bytes().to_vec());
        let master = Reply::Array(vec![host, Reply::Int(port), Reply::SimpleString("id".into())]);
        let replica = Reply::Array(vec![Reply::Nil, Reply::Int(1)]);
        Reply::Array(vec![Reply::Int(first), Reply::Int(last), master, replica])
    }

    #[test]
    fn the_map_of_slots_is_read() {
        let reply = Reply::Array(vec![range(0, 8_191, "a", 1), range(8_192, 16_383, "", 2)]);
        let drawn = ranges_of(reply, "host:9").unwrap();
        assert_eq!(drawn, [(0, 8_191, "a:1".into()), (8_192, 16_383, "host:2".into())]);
        assert_eq!(ranges_of(Reply::Nil, "host:9"), None);
        assert_eq!(ranges_of(Reply::Array(vec![Reply::Int(1)]), "host:9"), None);
        assert_eq!(ranges_of(Reply::Array(vec![range(0, 70_000, "a", 1)]), "host:9"), None);
    }

    #[test]
    fn an_address_without_host_is_on_the_host_that_told_it() {
        assert_eq!(whole_address("a:1", "b:2"), "a:1");
        assert_eq!(whole_address(":1", "b:2"), "b:1");
    }
}
