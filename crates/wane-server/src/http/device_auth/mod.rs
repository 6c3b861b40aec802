//! Device login over HTTP (RFC 8628): what devices ask, in forms, and what applications decide, in
//! JSON.
//!
//! Flow: `form` reads what a device sends, `client` finds out which client it is, `authorization`
//! gives it codes, `token` answers its polls, `introspection` and `revocation` are for what it was
//! given; `refusal` is every error in the form of RFC 6749. `discovery` says where all this is,
//! `github` offers it in another place. `devices` is the side of the application, `clients` that of
//! the operator.
//! Not here: the page, which is `device_page`.

pub(super) mod authorization;
mod client;
pub(super) mod clients;
pub(super) mod devices;
pub(super) mod discovery;
mod form;
pub(super) mod github;
pub(super) mod introspection;
mod refusal;
pub(super) mod revocation;
pub(super) mod token;

pub(super) use refusal::OAuthErrorBody;

use crate::settings::{DevUsers, Settings};

/// What the operator says about device login.
#[derive(Debug, Clone)]
pub(crate) struct DeviceLogin {
    /// Whether devices are given the link with the code in it.
    pub(crate) tells_complete_uri: bool,
    /// Whether there are aliases for clients made for GitHub.
    pub(crate) has_github_aliases: bool,
    /// Who signs in by a password, while developing.
    pub(crate) dev_users: Option<DevUsers>,
}

impl From<&Settings> for DeviceLogin {
    fn from(settings: &Settings) -> Self {
        Self {
            tells_complete_uri: settings.verification_uri_complete,
            has_github_aliases: settings.github_aliases,
            dev_users: settings.dev_users.clone(),
        }
    }
}
