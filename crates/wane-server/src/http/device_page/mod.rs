//! The page `/device`: a person types the code that a device shows, signs in, sees who asks, and
//! approves or denies. It is made on the server, and runs nothing in the browser.
//!
//! ```text
//! /device --code--> /device/confirm --decide--> /device/done
//!                    |         ^
//!                    v         |
//!               /device/sign-in +--> elsewhere --> /device/signed-in/{owner}/{app}
//! ```
//!
//! Promises: a link alone approves nothing; showing a page writes nothing and costs no attempt;
//! whoever approves has signed in to the application of the code; a form counts only for the code
//! and the person that it showed; whatever was typed is shown as text.
//!
//! Flow: `visit` is one request; `entering`, `signing_in` and `deciding` are the steps; `session` is
//! what is known between them, in a signed cookie; `views` are the pages and `shell` what is around
//! each. `oidc`, `assertion` and `password` are the ways to sign in; `jwt` is what the first two read. `operator` sets which one an
//! application has.
//! Not here: what a code is and what becomes of it. That is the service `device_auth`.

/// `Debug` that says nothing but the name: what is inside is a code, a person or a secret.
macro_rules! untold {
    ($($name:ident),+) => {
        $(impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(concat!(stringify!($name), "(..)"))
            }
        })+
    };
}

mod assertion;
mod deciding;
mod entering;
mod fetch;
mod form;
mod jwt;
mod leaving;
mod oidc;
pub(super) mod operator;
mod password;
mod same_site;
mod session;
mod shell;
mod signing_in;
mod spoken;
mod trouble;
mod views;
mod visit;

pub(super) use deciding::{confirm, decide, done};
pub(super) use entering::{icon, picture, show, style, submit};
pub(super) use leaving::{returned, start};
pub(super) use signing_in::{by_password, sign_in, sign_out};

use std::sync::Arc;

use wane::clock::SharedClock;
use wane::services::device_auth::GuessLimiter;

use self::oidc::Issuers;

/// What the page keeps in memory, bounded.
pub(crate) struct DevicePage {
    /// Wrong passwords of the development list.
    passwords: GuessLimiter,
    /// Visitors for whom an issuer is to be called.
    departures: GuessLimiter,
    issuers: Issuers,
}

untold!(DevicePage);

impl DevicePage {
    /// Nothing is known yet.
    pub(crate) fn new(clock: &SharedClock) -> Self {
        Self {
            passwords: GuessLimiter::new(password::LIMITS, Arc::clone(clock)),
            departures: GuessLimiter::new(leaving::LIMITS, Arc::clone(clock)),
            issuers: Issuers::new(clock),
        }
    }
}

#[cfg(test)]
mod tests;
