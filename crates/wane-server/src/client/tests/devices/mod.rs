//! Device login, against a server that plays its part.

mod calls;
mod waiting;

use super::stage::{Player, client, demo};
use crate::client::{Devices, OAuthClient};

/// The id of a device, as a server writes it.
const DEVICE: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8";

const STARTED: &str = r#"{"device_code":"the-device-code","user_code":"BCDFG-HJKLM",
    "verification_uri":"http://h/device",
    "verification_uri_complete":"http://h/device?user_code=BCDFG-HJKLM",
    "expires_in":900,"interval":7}"#;

const LINKED: &str = r#"{"access_token":"the-link-token","token_type":"Bearer","expires_in":60,
    "scope":"read write","device_id":"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"}"#;

async fn stage() -> (Player, Devices) {
    let (player, url) = Player::start().await;
    (player, client(&url).devices(&demo()))
}

fn television() -> OAuthClient {
    OAuthClient { id: "tv".parse().unwrap(), secret: None }
}

/// An error as OAuth writes it.
fn refuses(player: &Player, error: &str) {
    player.json(400, &format!(r#"{{"error":"{error}","error_description":"because"}}"#));
}
