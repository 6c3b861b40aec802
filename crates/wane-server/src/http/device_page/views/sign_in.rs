//! Signing in: elsewhere, by a password while developing, or not on this page at all.

use axum::http::StatusCode;
use maud::html;

use super::super::shell::Page;
use super::{CROSS, Complaint, alert, hidden_token, mark};

/// Where people are sent to sign in.
#[derive(Debug)]
pub(in super::super) struct Elsewhere<'a> {
    pub(in super::super) prefix: &'a str,
    /// The application, as `owner/app`.
    pub(in super::super) app: &'a str,
    /// The host that they will see.
    pub(in super::super) host: &'a str,
}

/// The way to the application's own sign-in: a link, for forms may not lead there.
pub(in super::super) fn elsewhere(about: &Elsewhere<'_>) -> Page {
    let content = html! {
        h1 { "Sign in to go on" }
        p.lead {
            "The device asks for access to " strong { bdi { (about.app) } }
            ". Sign in there, then you will see who asks and decide."
        }
        div.actions {
            a.button.main href={ (about.prefix) "/device/sign-in/start" } {
                "Sign in at " (about.host)
            }
            a.button.other href={ (about.prefix) "/device" } { "Enter another code" }
        }
    };
    Page::new("Sign in", content)
}

/// Name and password of the development list.
pub(in super::super) fn password(
    prefix: &str,
    token: &str,
    app: &str,
    name: &str,
    complaint: Option<&Complaint>,
) -> Page {
    let invalid = Complaint::mark(complaint);
    let described_by = complaint.map(|_| "error");
    let content = html! {
        h1 { "Sign in to go on" }
        p.lead {
            "The device asks for access to " strong { bdi { (app) } }
            ". Sign in, then you will see who asks and decide."
        }
        @if let Some(complaint) = complaint { (alert(&complaint.headline, &complaint.advice)) }
        form method="post" action={ (prefix) "/device/sign-in" } {
            (hidden_token(token))
            div.field {
                label for="name" { "Name" }
                input #name type="text" name="name" value=(name) required maxlength="255"
                    autofocus[name.is_empty()] autocomplete="username" autocapitalize="none"
                    autocorrect="off" spellcheck="false"
                    aria-invalid=[invalid] aria-describedby=[described_by];
            }
            div.field {
                label for="password" { "Password" }
                input #password type="password" name="password" required maxlength="1024"
                    autofocus[!name.is_empty()] autocomplete="current-password"
                    aria-invalid=[invalid] aria-describedby=[described_by];
            }
            div.actions { button.main type="submit" { "Sign in" } }
        }
        p.hint { "This server is in development: it has its own list of people." }
    };
    let title = if complaint.is_some() { "Error: sign in" } else { "Sign in" };
    Page::new(title, content)
}

/// The application has no sign-in here: it approves devices itself.
pub(in super::super) fn no_sign_in(prefix: &str, app: &str) -> Page {
    let content = html! {
        h1 { "Go on in the application" }
        p {
            "The code is right. " strong { bdi { (app) } }
            " approves devices in its own place: open it, sign in there, and look for its linked "
            "devices."
        }
        p.lead { "Nothing was approved or denied here." }
        div.actions { a.button.other href={ (prefix) "/device" } { "Enter another code" } }
    };
    Page::new("Go on in the application", content)
}

/// The server does not know that this is its address, so nobody is sent away from here or trusted
/// here.
pub(in super::super) fn not_here(prefix: &str) -> Page {
    let content = html! {
        (mark("bad", CROSS))
        h1 { "You cannot sign in at this address" }
        p {
            "The server is not set up for the address that your browser shows. Nothing was "
            "approved or denied."
        }
        p.lead { "Please tell those who run it: its public_url is to be set." }
        div.actions { a.button.other href={ (prefix) "/device" } { "Enter another code" } }
    };
    let page = Page::new("You cannot sign in at this address", content);
    page.status(StatusCode::MISDIRECTED_REQUEST)
}

/// Signing in elsewhere did not work. `headline` and `advice` say why.
pub(in super::super) fn sign_in_failed(
    prefix: &str,
    status: StatusCode,
    complaint: &Complaint,
) -> Page {
    let content = html! {
        (mark("bad", CROSS))
        h1 { (complaint.headline) }
        p { (complaint.advice) }
        div.actions {
            a.button.main href={ (prefix) "/device/sign-in" } { "Try again" }
            a.button.other href={ (prefix) "/device" } { "Enter another code" }
        }
    };
    Page::new(complaint.headline.as_str(), content).status(status)
}
