//! Who asks, and for what: yes or no.

use std::net::IpAddr;

use maud::{Markup, html};
use wane::services::device_auth::{Asked, Source};
use wane::store::Timestamp;

use super::super::session::Who;
use super::super::shell::Page;
use super::super::spoken::visible;
use super::{hidden_token, shown_code};

/// How much of a name is shown, in characters: what somebody is called, or a client.
const NAME: usize = 120;

/// How much of what a device calls itself is shown.
const AGENT: usize = 80;

/// The end of the year 9999, beyond which there is no date to be written, in Unix milliseconds.
const LAST_DAY: u64 = 253_402_300_799_999;

/// What a person is told before they decide.
#[derive(Debug)]
pub(in super::super) struct Confirmation<'a> {
    pub(in super::super) prefix: &'a str,
    pub(in super::super) token: &'a str,
    pub(in super::super) code: &'a str,
    /// The application, as `owner/app`.
    pub(in super::super) app: &'a str,
    pub(in super::super) asked: &'a Asked,
    pub(in super::super) who: &'a Who,
    /// Where the visitor is.
    pub(in super::super) address: Option<IpAddr>,
    pub(in super::super) now: Timestamp,
}

/// The page on which a device is approved or denied.
pub(in super::super) fn confirm(about: &Confirmation<'_>) -> Page {
    let content = html! {
        h1 { "Connect " bdi { (visible(&about.asked.client_name, NAME)) } "?" }
        (signed_in_as(about))
        (shown_code(about.code))
        (facts(about))
        div.note {
            p {
                "Approve only if you have just started this yourself, on a device that you have "
                "before you and that shows this code."
            }
        }
        form #decision method="post" action={ (about.prefix) "/device/decide" } {
            (hidden_token(about.token))
            div.actions.pair {
                button.main type="submit" name="decision" value="approve" { "Approve" }
                button.other type="submit" name="decision" value="deny" { "Deny" }
            }
        }
    };
    Page::new("Approve or deny", content)
}

fn signed_in_as(about: &Confirmation<'_>) -> Markup {
    html! {
        div.who {
            p {
                "Signed in as "
                // Names are for anybody to choose; whom the device is linked to is the subject.
                strong { bdi { (visible(about.who.name.as_deref().unwrap_or(&about.who.subject), NAME)) } }
                @if about.who.name.is_some() {
                    " (" bdi { (visible(&about.who.subject, NAME)) } ")"
                }
            }
            form method="post" action={ (about.prefix) "/device/sign-out" } {
                (hidden_token(about.token))
                button.plain type="submit" { "Not you?" }
            }
        }
    }
}

fn facts(about: &Confirmation<'_>) -> Markup {
    let asked = about.asked;
    let agent = visible(&asked.asking.agent, AGENT);
    let address = asked.asking.address.map(|address| address.to_canonical().to_string());
    html! {
        dl {
            div { dt { "Application" } dd { bdi { (about.app) } } }
            div {
                dt { "Permissions" }
                dd {
                    @if asked.scope.is_empty() {
                        "No particular permission: it will be linked to your account."
                    } @else {
                        ul { @for scope in &asked.scope { li { bdi { (scope) } } } }
                    }
                }
            }
            div {
                dt { "Asked from" }
                dd {
                    (address.as_deref().unwrap_or("an unknown address"))
                    @if let Some(words) = nearness(asked.asking.address, about.address) {
                        br; small { (words) }
                    }
                    @if !agent.is_empty() {
                        br; small { "It calls itself \u{201C}" bdi { (agent) } "\u{201D}." }
                    }
                }
            }
            div {
                dt { "Asked at" }
                dd {
                    span.whole { (clock_time(asked.started_at)) } " "
                    small.whole { "(" (ago(asked.started_at, about.now)) ")" }
                }
            }
        }
    }
}

/// What the address of the device means to somebody who is at this one.
fn nearness(device: Option<IpAddr>, visitor: Option<IpAddr>) -> Option<&'static str> {
    let (device, visitor) = (device?.to_canonical(), visitor?.to_canonical());
    if Source::of(device) == Source::of(visitor) {
        return None;
    }
    Some(if device.is_ipv4() == visitor.is_ipv4() {
        "This is not the network you are on."
    } else {
        // A household has one of each kind.
        "We cannot tell whether this is the network you are on."
    })
}

/// `16 Nov 2026, 04:12 UTC`: the server does not know where the visitor is.
fn clock_time(at: Timestamp) -> String {
    let millis = at.as_unix_millis().min(LAST_DAY);
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_millis(millis);
    // `Mon, 16 Nov 2026 04:12:33 GMT`
    let text = httpdate::fmt_http_date(at);
    let date = text.get(5..16).unwrap_or_default().trim_start_matches('0');
    format!("{date}, {} UTC", text.get(17..22).unwrap_or_default())
}

/// How long ago, in words.
fn ago(at: Timestamp, now: Timestamp) -> String {
    let seconds = at.until(now).as_secs();
    match (seconds, seconds / 60) {
        (..=44, _) => "just now".into(),
        (45..=119, _) => "a minute ago".into(),
        (_, minutes) => format!("{minutes} minutes ago"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_said_in_words() {
        let at = Timestamp::from_unix_millis(1_794_802_353_000);
        assert_eq!(clock_time(at), "16 Nov 2026, 04:12 UTC");
        let then = |seconds: u64| Timestamp::from_unix_millis(1_794_802_353_000 + seconds * 1_000);
        assert_eq!(ago(at, then(3)), "just now");
        assert_eq!(ago(at, then(60)), "a minute ago");
        assert_eq!(ago(at, then(121)), "2 minutes ago");
        assert_eq!(ago(then(9), at), "just now", "clocks differ");
    }

    #[test]
    fn a_time_beyond_all_dates_is_no_panic() {
        let last = clock_time(Timestamp::from_unix_millis(u64::MAX));
        assert_eq!(last, "31 Dec 9999, 23:59 UTC");
    }

    #[test]
    fn a_device_elsewhere_is_told_in_words() {
        let judged = |device: &str, visitor: &str| {
            nearness(Some(device.parse().unwrap()), Some(visitor.parse().unwrap()))
        };
        let elsewhere = Some("This is not the network you are on.");
        assert_eq!(judged("192.0.2.1", "192.0.2.1"), None);
        assert_eq!(judged("::ffff:192.0.2.1", "192.0.2.1"), None);
        assert_eq!(judged("2001:db8::1", "2001:db8::2"), None, "one network");
        assert_eq!(judged("192.0.2.1", "192.0.2.2"), elsewhere);
        assert_eq!(judged("2001:db8::1", "2001:db8:0:1::1"), elsewhere);
        let unsure = judged("192.0.2.1", "2001:db8::1").unwrap();
        assert!(unsure.starts_with("We cannot tell"), "{unsure}");
        assert_eq!(nearness(None, Some("192.0.2.1".parse().unwrap())), None);
    }
}
