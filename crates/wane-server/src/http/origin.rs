//! Where a request comes from, and under which URL the caller reaches this server.
//!
//! Both may pass through proxies. The address of the connection counts, unless it is that of a proxy
//! that the operator trusts: then the last address of `X-Forwarded-For` that is not a proxy's. The
//! URL is the operator's, or else made of the host that the request names.

use std::net::{IpAddr, SocketAddr};

use axum::extract::ConnectInfo;
use axum::http::header::HOST;
use axum::http::request::Parts;
use axum::http::uri::Authority;

use super::problem::Problem;
use crate::settings::{Addresses, PublicUrl, Settings};

const FORWARDED_FOR: &str = "x-forwarded-for";

/// What the operator says about the way to this server.
#[derive(Debug, Clone)]
pub(crate) struct Origin {
    public_url: Option<PublicUrl>,
    is_tls: bool,
    trusted_proxies: Option<Addresses>,
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
    /// The address that a request comes from; `None` where no connection brought it.
    pub(crate) fn address_of(&self, parts: &Parts) -> Option<IpAddr> {
        let ConnectInfo(peer) = parts.extensions.get::<ConnectInfo<SocketAddr>>()?;
        let is_proxy = |address: IpAddr| {
            self.trusted_proxies.as_ref().is_some_and(|proxies| proxies.contains(address))
        };
        if !is_proxy(peer.ip()) {
            return Some(peer.ip());
        }
        // From the last to the first: whoever came before the last proxy may have made up the rest.
        let lines = parts.headers.get_all(FORWARDED_FOR).iter().rev();
        let texts = lines.map(|line| line.to_str().unwrap_or_default());
        let mut forwarded = texts.flat_map(|line| line.rsplit(',')).map(|text| text.trim().parse());
        let first_other =
            forwarded.find(|address| !matches!(address, Ok(known) if is_proxy(*known)));
        first_other.and_then(Result::ok).or(Some(peer.ip()))
    }

    /// The URL that paths are appended to, without a slash at its end.
    pub(crate) fn base_url(&self, parts: &Parts) -> Result<String, Problem> {
        if let Some(url) = &self.public_url {
            return Ok(url.as_str().to_owned());
        }
        let named = parts.headers.get(HOST).map(|host| host.to_str().unwrap_or_default());
        let host = named.or_else(|| parts.uri.authority().map(Authority::as_str));
        let host = host.and_then(|host| host.parse::<Authority>().ok());
        let host = host.filter(|host| !host.as_str().contains('@'));
        let host = host.ok_or_else(|| Problem::invalid("Host", "name the host that you reach"))?;
        let scheme = if self.is_tls { "https" } else { "http" };
        Ok(format!("{scheme}://{host}"))
    }
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
            request = request.header(*name, *value);
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
            address.unwrap().to_string()
        };
        let proxies = Some("10.0.0.1,10.0.0.2");
        assert_eq!(address(None, "10.0.0.1", &["9.9.9.9"]), "10.0.0.1");
        assert_eq!(address(proxies, "7.7.7.7", &["9.9.9.9"]), "7.7.7.7");
        assert_eq!(address(proxies, "10.0.0.1", &["9.9.9.9"]), "9.9.9.9");
        assert_eq!(address(proxies, "10.0.0.1", &["1.1.1.1, 9.9.9.9, 10.0.0.2"]), "9.9.9.9");
        assert_eq!(address(proxies, "10.0.0.1", &["1.1.1.1", "9.9.9.9"]), "9.9.9.9");
        assert_eq!(address(proxies, "10.0.0.1", &["9.9.9.9, junk"]), "10.0.0.1");
        assert_eq!(address(proxies, "10.0.0.1", &[]), "10.0.0.1");
        assert_eq!(address(proxies, "10.0.0.1", &["10.0.0.2"]), "10.0.0.1");
    }

    #[test]
    fn links_lead_where_the_operator_says_or_where_the_caller_is() {
        let parts = request("7.7.7.7", &[("host", "wane.example:8628")]);
        assert_eq!(origin(None, None).base_url(&parts).unwrap(), "http://wane.example:8628");
        let public = origin(None, Some("https://login.example/"));
        assert_eq!(public.base_url(&parts).unwrap(), "https://login.example");
        for wrong in ["", "evil@wane.example", "a/b", "a b"] {
            let parts = request("7.7.7.7", &[("host", wrong)]);
            assert!(origin(None, None).base_url(&parts).is_err(), "{wrong}");
        }
    }
}
