//! Whether a form was sent by a page of ours.
//!
//! Browsers say it in `Sec-Fetch-Site`. Older ones say in `Origin` where the form was; ours are
//! sent without one, as `null`, because the page tells nobody where a visitor came from. What says
//! neither is judged by the form's token alone, which every form must bring anyway.

use axum::http::HeaderMap;
use axum::http::header::{HOST, HeaderName, ORIGIN};

const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether nothing in the head says that another site sent the form.
pub(super) fn is_ours(headers: &HeaderMap, base_url: &str) -> bool {
    let text = |name: &HeaderName| headers.get(name).map(|it| it.to_str().unwrap_or("other"));
    if let Some(site) = text(&FETCH_SITE) {
        return matches!(site, "same-origin" | "none");
    }
    match text(&ORIGIN) {
        None | Some("null") => true,
        // A proxy may have changed the scheme, and without a URL of the operator's we do not know.
        Some(origin) => {
            let from = authority_of(origin);
            from == authority_of(base_url) || Some(from) == text(&HOST)
        }
    }
}

fn authority_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or("", |(_, rest)| rest);
    rest.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(lines: &[(&'static str, &str)]) -> bool {
        let lines = lines
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
        is_ours(&lines.collect(), "https://login.example/x")
    }

    #[test]
    fn a_form_of_another_site_is_known_by_what_the_browser_says() {
        for site in ["cross-site", "same-site", "junk", ""] {
            assert!(!judged(&[("sec-fetch-site", site)]), "{site}");
            assert!(!judged(&[("sec-fetch-site", site), ("origin", "https://login.example")]));
        }
        for origin in ["https://evil.example", "https://login.example.evil", "login.example", ""] {
            assert!(!judged(&[("origin", origin)]), "{origin}");
        }
    }

    #[test]
    fn our_own_forms_pass_in_old_browsers_too() {
        assert!(judged(&[("sec-fetch-site", "same-origin"), ("origin", "null")]));
        assert!(judged(&[("origin", "null")]));
        assert!(judged(&[("origin", "https://login.example")]));
        assert!(judged(&[("origin", "http://inner:8080"), ("host", "inner:8080")]));
        assert!(judged(&[]));
    }
}
