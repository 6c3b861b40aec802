//! Where a request comes from, and under which URL the caller reaches this server.
//!
//! Both may pass through proxies. The address of the connection counts, unless it is that of a proxy
//! that the operator trusts: then the last address of `X-Forwarded-For` that is not a proxy's. The
//! URL is the operator's, or else made of the host that the request names.

use std::net::{IpAddr, SocketAddr};

use axum::extract::ConnectInfo;
use axum::http::Uri;
use axum::http::header::HOST;
use axum::http::request::Parts;
use axum::http::uri::Authority;

use super::problem::Problem;
use crate::settings::{Networks, PublicUrl, Settings};

const FORWARDED_FOR: &str = "x-forwarded-for";

/// What the operator says about the way to this server.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    public_url: Option<PublicUrl>,
    is_tls: bool,
    trusted_proxies: Option<Networks>,
}

impl From<&Settings> for Origin {
    fn from(settings: &Settings) -> Self {
        Self {
            public_url: settings.public_url.clone(),
            is_tls: settings.tls().is_some(),
            trusted_proxies: settings.trusted_proxies.clone(),
        }
    }
}

impl Origin {
    /// The address that a request comes from; `None` where no connection brought it, or where a
    /// proxy says something else than an address.
    pub(crate) fn address_of(&self, parts: &Parts) -> Option<IpAddr> {
        let ConnectInfo(peer) = parts.extensions.get::<ConnectInfo<SocketAddr>>()?;
        let is_proxy = |address: IpAddr| {
            self.trusted_proxies.as_ref().is_some_and(|proxies| proxies.contains(address))
        };
        let peer = peer.ip().to_canonical();
        if !is_proxy(peer) {
            return Some(peer);
        }
        // From the last to the first: whoever came before the last proxy may have made up the rest.
        let lines = parts.headers.get_all(FORWARDED_FOR).iter().rev();
        let texts = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
        let mut others = texts.map(forwarded).filter(|one| !one.is_some_and(is_proxy));
        others.next().unwrap_or(Some(peer))
    }

    /// The URL that paths are appended to, without a slash at its end.
    pub(crate) fn base_url(&self, parts: &Parts) -> Result<String, Problem> {
        if let Some(url) = &self.public_url {
            return Ok(url.as_str().to_owned());
        }
        let is_host = |host: &Authority| {
            let port = host.as_str().rsplit_once(':').map(|(_, port)| port);
            let has_port = host.port_u16().is_some();
            let is_legal = has_port || port.is_none_or(|port| port.ends_with(']'));
            is_legal && !host.host().is_empty() && !host.as_str().contains('@')
        };
        let host = host_of(parts).filter(is_host);
        let host = host.ok_or_else(|| Problem::invalid("Host", "name the host that you reach"))?;
        let scheme = if self.is_tls { "https" } else { "http" };
        Ok(format!("{scheme}://{host}"))
    }

    /// Whether the base URL is not just what a request says: the operator gave it, or it leads to
    /// this machine, where whoever asks sends only themselves.
    pub(crate) fn is_settled(&self, parts: &Parts) -> bool {
        self.public_url.is_some() || self.is_reached_here(parts)
    }

    /// Whether a request names another host than the URL that the operator gave.
    pub(crate) fn is_elsewhere(&self, parts: &Parts) -> bool {
        let url = self.public_url.as_ref().and_then(|url| url.as_str().parse::<Uri>().ok());
        let (Some(url), Some(host)) = (url, host_of(parts)) else { return false };
        let usual = if url.scheme_str() == Some("https") { 443 } else { 80 };
        let own = url.authority().map(|own| (own.host().to_ascii_lowercase(), own.port_u16()));
        let asked = (host.host().to_ascii_lowercase(), host.port_u16());
        own.is_some_and(|(name, port)| {
            (name, port.unwrap_or(usual)) != (asked.0, asked.1.unwrap_or(usual))
        })
    }

    /// Whether a request names this machine as its host. A page of another site, whose name was
    /// made to lead here, names that site.
    pub(crate) fn is_reached_here(&self, parts: &Parts) -> bool {
        host_of(parts).is_some_and(|host| {
            let bare = host.host().trim_start_matches('[').trim_end_matches(']');
            bare.eq_ignore_ascii_case("localhost")
                || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        })
    }
}

/// The host that a request is for, as it says.
fn host_of(parts: &Parts) -> Option<Authority> {
    let in_header = || parts.headers.get(HOST)?.to_str().ok()?.parse().ok();
    parts.uri.authority().cloned().or_else(in_header)
}

/// One address of `X-Forwarded-For`; some proxies write it with brackets or with a port.
fn forwarded(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?.trim();
    let with_port = || text.parse::<SocketAddr>().ok().map(|address| address.ip());
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse::<IpAddr>().ok().or_else(with_port);
    address.map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use axum::extract::Request;

    use super::*;

    fn origin(proxies: Option<&str>, url: Option<&str>) -> Origin {
        let mut flags = Vec::new();
        flags.extend(proxies.map(|proxies| ("WANE_TRUSTED_PROXIES".into(), proxies.into())));
        flags.extend(url.map(|url| ("WANE_PUBLIC_URL".into(), url.into())));
        Origin::from(&Settings::load(&Default::default(), flags).unwrap().settings)
    }

    fn request(peer: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().uri("/device");
        for (name, value) in headers {
            let bytes: Vec<u8> = value.chars().map(|c| c as u8).collect();
            request = request.header(*name, bytes);
        }
        let mut parts = request.body(()).unwrap().into_parts().0;
        parts.extensions.insert(ConnectInfo(SocketAddr::new(peer.parse().unwrap(), 1)));
        parts
    }

    #[test]
    fn only_a_trusted_proxy_says_for_whom_it_asks() {
        let address = |proxies, peer, forwarded: &[&str]| {
            let headers: Vec<_> = forwarded.iter().map(|value| (FORWARDED_FOR, *value)).collect();
            let address = origin(proxies, None).address_of(&request(peer, &headers));
            address.map_or_else(|| "none".to_owned(), |address| address.to_string())
        };
        let proxies = Some("10.0.0.1,10.0.0.2");
        assert_eq!(address(None, "10.0.0.1", &["9.9.9.9"]), "10.0.0.1");
        assert_eq!(address(proxies, "7.7.7.7", &["9.9.9.9"]), "7.7.7.7");
        assert_eq!(address(proxies, "10.0.0.1", &["9.9.9.9"]), "9.9.9.9");
        assert_eq!(address(proxies, "10.0.0.1", &["1.1.1.1, 9.9.9.9, 10.0.0.2"]), "9.9.9.9");
        assert_eq!(address(proxies, "10.0.0.1", &["1.1.1.1", "9.9.9.9"]), "9.9.9.9");
        assert_eq!(address(proxies, "10.0.0.1", &["9.9.9.9, junk"]), "none", "and not the proxy's");
        assert_eq!(address(proxies, "10.0.0.1", &["\u{ff}, 9.9.9.9"]), "9.9.9.9");
        assert_eq!(address(proxies, "10.0.0.1", &["9.9.9.9:5678"]), "9.9.9.9");
        assert_eq!(address(proxies, "10.0.0.1", &["[2001:db8::1]:443"]), "2001:db8::1");
        assert_eq!(address(proxies, "10.0.0.1", &["[2001:db8::1]"]), "2001:db8::1");
        assert_eq!(address(proxies, "::ffff:7.7.7.7", &[]), "7.7.7.7");
        assert_eq!(address(proxies, "10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(address(proxies, "10.0.0.1", &["10.0.0.2"]), "10.0.0.1");
    }

    #[test]
    fn links_lead_where_the_operator_says_or_where_the_caller_is() {
        let parts = request("7.7.7.7", &[("host", "wane.example:8628")]);
        assert_eq!(origin(None, None).base_url(&parts).unwrap(), "http://wane.example:8628");
        let public = origin(None, Some("https://login.example/"));
        assert_eq!(public.base_url(&parts).unwrap(), "https://login.example");
        let parts = request("7.7.7.7", &[("host", "[::1]")]);
        assert_eq!(origin(None, None).base_url(&parts).unwrap(), "http://[::1]");
        for wrong in ["", "evil@wane.example", "a/b", "a b", ":8628", "a:xyz", "a:"] {
            let parts = request("7.7.7.7", &[("host", wrong)]);
            assert!(origin(None, None).base_url(&parts).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_host_that_is_not_the_operators_is_elsewhere() {
        let origin = origin(None, Some("https://login.example/base"));
        let judged = |host: &str| origin.is_elsewhere(&request("192.0.2.1", &[("host", host)]));
        for own in ["login.example", "LOGIN.example:443"] {
            assert!(!judged(own), "{own}");
        }
        for other in ["login.example:8080", "inner", "login.example.evil"] {
            assert!(judged(other), "{other}");
        }
    }
}
