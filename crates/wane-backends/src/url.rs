//! URLs of stores on servers: `scheme://user:password@host,host/name?option=value`.
//!
//! One form for every backend that lives elsewhere; each says which parts it takes. Whatever stands
//! between separators may be percent-encoded. A URL may hold a password, so it has no `Debug` that
//! shows one, and errors quote it only through [`StoreUrl::without_secrets`].

use std::collections::BTreeMap;
use std::fmt;

use percent_encoding::percent_decode_str;

use crate::OpenError;

/// The parts of a URL.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreUrl {
    /// Who asks, where the server wants to know.
    pub user: Option<String>,
    /// The proof of it.
    pub password: Option<String>,
    /// The servers, as `host` or `host:port`. Empty where the backend finds them itself.
    pub hosts: Vec<String>,
    /// What is opened there: a keyspace, a table, a database. Empty for the backend's default.
    pub name: String,
    options: BTreeMap<String, String>,
}

impl StoreUrl {
    /// Takes a URL apart; `backend` is who wants it, for errors.
    pub fn parse(backend: &'static str, url: &str) -> Result<Self, OpenError> {
        let bad = |reason: &str| OpenError::BadUrl { backend, reason: reason.to_owned() };
        let decoded = |part: &str| {
            let text = percent_decode_str(part).decode_utf8();
            text.map(String::from).map_err(|_| bad("a part of the URL is not UTF-8"))
        };
        let (scheme, rest) =
            url.split_once("://").ok_or_else(|| bad("the URL lacks \"://\" after its scheme"))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (place, name) = split_name(place);
        let (secret, hosts) = place.rsplit_once('@').map_or((None, place), |(s, h)| (Some(s), h));
        let (user, password) = match secret.map(|secret| secret.split_once(':')) {
            None => (None, None),
            Some(None) => (secret.map(decoded).transpose()?, None),
            Some(Some((user, password))) => (Some(decoded(user)?), Some(decoded(password)?)),
        };
        let mut options = BTreeMap::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (option, value) =
                pair.split_once('=').ok_or_else(|| bad("an option lacks \"=\""))?;
            if options.insert(decoded(option)?, decoded(value)?).is_some() {
                return Err(bad("an option stands there twice"));
            }
        }
        Ok(Self {
            user: user.filter(|user| !user.is_empty()),
            password,
            hosts: hosts_of(scheme, hosts),
            name: decoded(name)?,
            options,
        })
    }

    /// Takes an option out, so that [`nothing_left`](Self::nothing_left) can find unknown ones.
    pub fn take(&mut self, option: &str) -> Option<String> {
        self.options.remove(option)
    }

    /// Refuses options that nobody took.
    pub fn nothing_left(&self, backend: &'static str) -> Result<(), OpenError> {
        let Some(option) = self.options.keys().next() else { return Ok(()) };
        Err(OpenError::BadUrl { backend, reason: format!("it has no option {option:?}") })
    }

    /// The servers in one line, for errors.
    #[must_use]
    pub fn address(&self) -> String {
        self.hosts.join(",")
    }

    /// The URL without its user and password.
    #[must_use]
    pub fn without_secrets(url: &str) -> String {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        match rest.rsplit_once('@') {
            Some((_, place)) if scheme.is_empty() => format!("..@{place}"),
            Some((_, place)) => format!("{scheme}://..@{place}"),
            None => url.to_owned(),
        }
    }
}

/// The servers before the first slash, and the name after it.
fn split_name(place: &str) -> (&str, &str) {
    // A list may repeat the scheme: its slashes are not the one before the name.
    let after_list = place.rfind("://").map_or(0, |at| at + 3);
    match place[after_list..].find('/') {
        Some(at) => (&place[..after_list + at], &place[after_list + at + 1..]),
        None => (place, ""),
    }
}

fn hosts_of(scheme: &str, list: &str) -> Vec<String> {
    let again = format!("{scheme}://");
    let hosts = list.split(',').map(|host| host.trim());
    let hosts = hosts.map(|host| host.strip_prefix(&again).unwrap_or(host));
    hosts.filter(|host| !host.is_empty()).map(str::to_owned).collect()
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreUrl")
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| ".."))
            .field("hosts", &self.hosts)
            .field("name", &self.name)
            .field("options", &self.options)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(url: &str) -> StoreUrl {
        StoreUrl::parse("redis", url).unwrap()
    }

    #[test]
    fn every_part_is_found() {
        let mut url =
            parsed("cas3://us%3Aer:p%40ss%2Fword@a:9042,b/my%20name?datacenter=dc1&ca=/x/y");
        assert_eq!(url.user.as_deref(), Some("us:er"));
        assert_eq!(url.password.as_deref(), Some("p@ss/word"));
        assert_eq!(url.hosts, ["a:9042", "b"]);
        assert_eq!((url.name.as_str(), url.address().as_str()), ("my name", "a:9042,b"));
        assert_eq!(url.take("datacenter").as_deref(), Some("dc1"));
        assert_eq!(url.take("datacenter"), None);
        let left = url.nothing_left("cassandra").unwrap_err().to_string();
        assert!(left.ends_with("it has no option \"ca\""), "{left}");
        assert_eq!(url.take("ca").as_deref(), Some("/x/y"));
        url.nothing_left("cassandra").unwrap();
    }

    #[test]
    fn what_is_left_out_is_empty() {
        let url = parsed("redis://");
        assert_eq!((url.user, url.password, url.name), (None, None, String::new()));
        assert!(url.hosts.is_empty());
        assert_eq!(parsed("dynamodb:///wane").name, "wane");
        assert_eq!(parsed("redis://:secret@h").user, None);
        assert_eq!(parsed("redis://:secret@h").password.as_deref(), Some("secret"));
    }

    /// A list of whole URLs names the same servers as a list of hosts.
    #[test]
    fn a_list_may_repeat_the_scheme() {
        let (whole, hosts) = (parsed("redis://a:1,redis://b:2/3"), parsed("redis://a:1,b:2/3"));
        assert_eq!(whole, hosts);
        assert_eq!(
            (hosts.hosts.as_slice(), hosts.name.as_str()),
            (&["a:1".into(), "b:2".into()][..], "3")
        );
    }

    #[test]
    fn a_broken_url_says_what_is_wrong() {
        for (url, told) in [
            ("redis:localhost", "\"://\""),
            ("redis://h/%FF", "not UTF-8"),
            ("redis://h?prefix", "\"=\""),
            ("redis://h?a=1&a=2", "twice"),
        ] {
            let error = StoreUrl::parse("redis", url).unwrap_err().to_string();
            assert!(error.starts_with("redis ") && error.contains(told), "{url}: {error}");
        }
    }

    #[test]
    fn secrets_are_shown_nowhere() {
        let url = "redis://user:canary@h:1/0?a=b";
        assert!(!format!("{:?}", parsed(url)).contains("canary"));
        assert_eq!(StoreUrl::without_secrets(url), "redis://..@h:1/0?a=b");
        assert_eq!(StoreUrl::without_secrets("reds:user:canary@h"), "..@h");
        assert_eq!(StoreUrl::without_secrets("file:a"), "file:a");
    }
}
