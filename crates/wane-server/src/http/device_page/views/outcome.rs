//! How it ended: approved, denied, expired, answered before; and what is in the way.

use axum::http::StatusCode;
use maud::{Markup, html};

use super::super::session::DecidedCode;
use super::super::shell::Page;
use super::super::trouble::Trouble;
use super::{CHECK, CLOCK, CROSS, DOTS, mark};

fn another(prefix: &str, words: &str) -> Markup {
    html! { div.actions { a.button.other href={ (prefix) "/device" } { (words) } } }
}

/// What the visitor decided.
pub(in super::super) fn outcome(prefix: &str, decided: &DecidedCode) -> Page {
    if decided.is_approved {
        let content = html! {
            (mark("good", CHECK))
            h1 { "Approved" }
            p { "Return to your device: " bdi { (decided.client_name) } " goes on by itself in a few seconds." }
            p.lead { "You can close this page." }
            (another(prefix, "Connect another device"))
        };
        return Page::new("Approved", content);
    }
    let content = html! {
        (mark("still", CROSS))
        h1 { "Denied" }
        p { bdi { (decided.client_name) } " was not connected. Return to your device if you want to begin again." }
        p.lead { "If you did not start this, there is nothing more to do. You can close this page." }
        (another(prefix, "Enter another code"))
    };
    Page::new("Denied", content)
}

/// Somebody, perhaps this person elsewhere, was faster.
pub(in super::super) fn already_answered(prefix: &str) -> Page {
    let content = html! {
        (mark("still", DOTS))
        h1 { "This request was answered before" }
        p { "Each code can be approved or denied once. If that was you, return to your device." }
        p.lead { "If it was not, start again on your device to get a new code." }
        (another(prefix, "Enter another code"))
    };
    Page::new("Answered before", content)
}

/// Nothing can be done about this code any more.
pub(in super::super) fn expired(prefix: &str) -> Page {
    let content = html! {
        (mark("still", CLOCK))
        h1 { "This code has expired" }
        p { "Codes are good for a few minutes only. Nothing was connected." }
        p.lead { "Start again on your device to get a new code, and enter it here." }
        div.actions { a.button.main href={ (prefix) "/device" } { "Enter a new code" } }
    };
    Page::new("The code has expired", content).status(StatusCode::GONE)
}

/// The form was not that of the page that counts now.
pub(in super::super) fn stale(prefix: &str) -> Page {
    let content = html! {
        (mark("still", CLOCK))
        h1 { "Please look again" }
        p {
            "This page was out of date: it was open for a long time, or you went on in another "
            "window. Nothing was decided."
        }
        div.actions { a.button.main href={ (prefix) "/device/confirm" } { "Show the request again" } }
    };
    Page::new("Please look again", content).status(StatusCode::CONFLICT)
}

/// The service fails, or is full. `again` is where to try again.
pub(in super::super) fn trouble(prefix: &str, trouble: Trouble, again: &str) -> Page {
    let (headline, advice) = trouble.words();
    let content = html! {
        (mark("bad", CLOCK))
        h1 { (headline.trim_end_matches('.')) }
        p { (advice) }
        div.actions { a.button.main href={ (prefix) (again) } { "Try again" } }
    };
    let page = Page::new(headline.trim_end_matches('.'), content);
    page.status(trouble.status()).retry_after(trouble.retry_after())
}

/// A form that another site sent.
pub(in super::super) fn other_site(prefix: &str) -> Page {
    let content = html! {
        (mark("bad", CROSS))
        h1 { "This came from another site" }
        p { "Another site tried to send this in your name. Nothing was done." }
        (another(prefix, "Go to device login"))
    };
    Page::new("Refused", content)
}

/// Something that is no form of ours.
pub(in super::super) fn not_understood(prefix: &str) -> Page {
    let content = html! {
        (mark("bad", CROSS))
        h1 { "This was not understood" }
        p { "What your browser sent is not a form of this page. Nothing was done." }
        (another(prefix, "Go to device login"))
    };
    Page::new("Not understood", content)
}

/// Two sessions at once, of which one may be somebody else's.
pub(in super::super) fn two_sessions(prefix: &str) -> Page {
    let content = html! {
        (mark("bad", CROSS))
        h1 { "Your browser sent two sessions" }
        p {
            "One of them may have been put there by another site, so neither counts. Nothing was "
            "done."
        }
        p.lead { "Delete the cookies of this site in your browser, or use a private window." }
        (another(prefix, "Go to device login"))
    };
    Page::new("Two sessions", content).status(StatusCode::BAD_REQUEST)
}
