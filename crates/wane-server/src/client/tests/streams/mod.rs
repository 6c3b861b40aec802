//! Pull streams, against a server that plays its part.

mod calls;
mod hostile;
mod reading;

use axum::body::Body;
use axum::http::Response;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use wane::services::pull_stream::{Batch, Form, Message, Reader, ResourceId};

use super::stage::{Player, client};
use crate::client::PullStream;

pub(crate) const ISPB: &str = "00000208";

/// Where tokens of the stream lead.
pub(crate) const OUT: &str = "/api/v1/out/00000208/stream/";

/// The id of a message, as a server draws it.
pub(crate) fn id(number: u8) -> ResourceId {
    let mut bytes = [number; 24];
    bytes[..8].copy_from_slice(b"PI\x00\xE8\xD4\xA5\x10\x00");
    (bytes[14], bytes[16]) = (0x4F, 0xBF);
    STANDARD.encode(bytes).parse().unwrap()
}

/// Messages as a server delivers them, a part each.
pub(crate) fn batch(messages: &[(u8, &str)]) -> String {
    let part = |(number, message): &(u8, &str)| {
        let id = id(*number);
        let head = "--pi-b\r\nContent-Type: application/xml;charset=utf-8\r\n";
        format!("{head}PI-ResourceId: {id}\r\n\r\n{message}\r\n")
    };
    messages.iter().map(part).collect::<String>() + "--pi-b--\r\n"
}

/// Plays messages, and the token that acknowledges them.
pub(crate) fn delivers(player: &Player, next: &str, messages: &[(u8, &str)]) {
    let answer = Response::builder()
        .header("pi-pull-next", format!("{OUT}{next}"))
        .header("content-type", "multipart/mixed; boundary=pi-b");
    player.answers_with(answer.body(Body::from(batch(messages))).unwrap());
}

/// Plays that nothing came.
pub(crate) fn delivers_nothing(player: &Player, next: &str) {
    let answer = Response::builder().status(204).header("pi-pull-next", format!("{OUT}{next}"));
    player.answers_with(answer.body(Body::empty()).unwrap());
}

/// Plays that messages were taken in.
pub(crate) fn takes(player: &Player, numbers: &[u8]) {
    let ids: Vec<_> = numbers.iter().map(|number| id(*number).to_string()).collect();
    let answer = Response::builder().status(201).header("pi-resourceid", ids.join(","));
    player.answers_with(answer.body(Body::empty()).unwrap());
}

/// Plays that a slot was given back.
pub(crate) fn ends(player: &Player) {
    player.answers(200, "", "");
}

/// Every request, without what is the same in all of them.
pub(crate) fn asked(player: &Player) -> Vec<String> {
    player.all_heard().iter().map(|heard| heard.line.replace(OUT, "")).collect()
}

async fn stage() -> (Player, PullStream) {
    let (player, url) = Player::start().await;
    (player, client(&url).pull_stream(ISPB.parse().unwrap()))
}

fn multipart() -> Reader {
    Reader { form: Form::MULTIPART, ..Reader::default() }
}

fn messages(texts: &[&'static str]) -> Batch {
    Batch::new(texts.iter().map(|text| Message::new(*text).unwrap()).collect()).unwrap()
}
