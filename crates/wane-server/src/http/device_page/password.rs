//! Signing in by a password, from the list that a server in development has.
//!
//! Wrong passwords are limited as wrong codes are: per address, and for all together.

use std::time::Duration;

use wane::services::ClusterAppId;
use wane::services::device_auth::{GuessSettings, PageKey};

use super::session::Person;
use super::trouble::Trouble;
use super::visit::Visit;
use crate::settings::DevUsers;

/// Wrong passwords that may be tried in five minutes.
pub(super) const LIMITS: GuessSettings =
    GuessSettings { per_address: 10, per_app: 0, budget: 100, life: Duration::from_secs(300) };

/// Who this is; `None` for a wrong name or password.
pub(super) fn check(
    visit: &Visit,
    users: &DevUsers,
    name: &str,
    password: &str,
) -> Result<Option<Person>, Trouble> {
    let passwords = &visit.services.device_page.passwords;
    let tried = visit.key.mac("tried password", &[name.as_bytes(), password.as_bytes()]);
    let attempt = passwords.admit(visit.guesser(), ClusterAppId::NONE, tried);
    let attempt = attempt.map_err(Trouble::Limited)?;
    if !is_right(users, name, password, &visit.key) {
        drop(attempt);
        return Ok(None);
    }
    attempt.forgive();
    Ok(Some(Person { subject: name.to_owned(), name: None }))
}

/// Compares what the key makes of both, in a time that tells nothing of the right one, whether the
/// name is known or not.
fn is_right(users: &DevUsers, name: &str, password: &str, key: &PageKey) -> bool {
    let known = users.password_of(name);
    let expected = key.mac("password", &[known.unwrap_or_default().as_bytes()]);
    key.is_mac(&expected, "password", &[password.as_bytes()]) && known.is_some()
}

#[cfg(test)]
mod tests {
    use wane::services::device_auth::DeviceKey;

    use super::*;
    use crate::settings::Settings;

    #[test]
    fn only_the_own_password_of_a_known_name_is_right() {
        let listed = ("WANE_DEV_USERS".into(), "alice:wonderland,bob:builder".into());
        let settings = Settings::load(&Default::default(), [listed]).unwrap().settings;
        let users = settings.dev_users.unwrap();
        let key = DeviceKey::from_bytes([1; 32]).for_pages();
        assert!(is_right(&users, "alice", "wonderland", &key));
        for (name, password) in
            [("alice", "builder"), ("bob", ""), ("carol", ""), ("", ""), ("Alice", "wonderland")]
        {
            assert!(!is_right(&users, name, password, &key), "{name}");
        }
    }
}
