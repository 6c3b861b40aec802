//! Rules between settings, above all: no port is open to other machines by accident.

use std::net::SocketAddr;

use super::{Problem, Settings};

/// Every rule that `settings` break; none if a server may start with them.
#[must_use]
pub fn broken_rules(settings: &Settings) -> Vec<Problem> {
    let mut broken = incomplete_tls(settings);
    broken.extend(exposed_ports(settings));
    broken.extend(same_address(settings));
    broken.extend(exposed_users(settings));
    broken.extend(untimely_stream(settings));
    broken
}

/// Credentials would cross the network in the clear.
fn exposed_ports(settings: &Settings) -> Vec<Problem> {
    if settings.insecure || settings.tls().is_some() {
        return Vec::new();
    }
    let ports = [("listen", settings.listen), ("admin_listen", settings.admin_listen)];
    let public = ports.into_iter().filter(|(_, address)| !is_loopback(address));
    public.map(|(setting, address)| Problem::Exposed { setting, address }).collect()
}

/// An IPv4 address may come in the clothes of an IPv6 one.
fn is_loopback(address: &SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

fn incomplete_tls(settings: &Settings) -> Vec<Problem> {
    let cert = ("tls_cert", settings.tls_cert.is_some());
    let key = ("tls_key", settings.tls_key.is_some());
    let client_ca = ("tls_client_ca", settings.tls_client_ca.is_some());
    [(cert, key), (key, cert), (client_ca, cert)]
        .into_iter()
        .filter(|((_, set), (_, needed))| *set && !needed)
        .map(|((setting, _), (missing, _))| Problem::Incomplete { setting, missing })
        .collect()
}

fn same_address(settings: &Settings) -> Option<Problem> {
    let address = settings.listen;
    let same = address.port() != 0 && address == settings.admin_listen;
    same.then_some(Problem::SameAddress { address })
}

/// Passwords in a settings file are for one's own machine, which no proxy stands in front of.
fn exposed_users(settings: &Settings) -> Option<Problem> {
    settings.dev_users.as_ref()?;
    let public_url = settings.public_url.as_ref();
    let reason = if !is_loopback(&settings.listen) {
        format!("listen is {}", settings.listen)
    } else if public_url.is_some_and(|url| !url.is_loopback()) {
        "public_url is that of another machine".to_owned()
    } else if settings.trusted_proxies.is_some() {
        "there are trusted_proxies".to_owned()
    } else {
        return None;
    };
    Some(Problem::ExposedUsers { reason })
}

/// A held reader must keep its lease, and a lease must end before its token does.
fn untimely_stream(settings: &Settings) -> Option<Problem> {
    let Settings { stream_hold_ms, stream_lease_ms, stream_token_ms, .. } = settings;
    let in_order = stream_hold_ms < stream_lease_ms && stream_lease_ms < stream_token_ms;
    (!in_order).then_some(Problem::UntimelyStream {
        hold: stream_hold_ms.as_millis(),
        lease: stream_lease_ms.as_millis(),
        token: stream_token_ms.as_millis(),
    })
}
