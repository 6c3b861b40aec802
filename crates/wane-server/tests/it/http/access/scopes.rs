//! Scopes within one app: what a key may not read, it does not learn from writing either.

use serde_json::Value as Json;

use super::Site;
use super::credentials::{Cast, Kind};
use crate::http::conversation::{Conversation, Request};
use crate::server::{Answer, Server};

/// The value of the entry `kept`.
const SECRET: &str = "kept";

struct Scene {
    _server: Server,
    site: Site,
    cast: Cast,
}

impl Scene {
    fn set() -> Self {
        let server = Server::in_memory();
        let site = Site::of(&server);
        let cast = Cast::assemble(&site);
        Self { _server: server, site, cast }
    }

    fn kind(&self, name: &str) -> &Kind {
        self.cast.kinds().iter().find(|kind| kind.name == name).unwrap()
    }

    fn ask(&self, kind: &str, method: &str, rest: &str, body: &str) -> Answer {
        let kind = self.kind(kind);
        let path = format!("{}{rest}", kind.target.path());
        let request = Request { headers: kind.headers.clone(), ..Request::new(method, &path) };
        Conversation::with(self.site.http).ask(&request.body(body))
    }
}

const REFUSED: [(&str, &str); 3] = [
    ("POST", r#"{"value":"v","ttlSeconds":60}"#),
    ("PUT", r#"{"expectedValue":"x","newValue":"v","ttlSeconds":60}"#),
    ("DELETE", r#"{"expectedValue":"x"}"#),
];

#[test]
fn a_refusal_shows_what_is_there_to_those_who_may_read_it() {
    let scene = Scene::set();
    for (method, body) in REFUSED {
        let seen = scene.ask("own key", method, "/kept", body);
        assert_eq!((seen.status, &seen.json()["current"]["value"]), (409, &SECRET.into()));
        let hidden = scene.ask("write only", method, "/kept", body);
        assert_eq!((hidden.status, &*hidden.code()), (409, "refused"));
        assert!(!hidden.body.contains(SECRET) && !hidden.body.contains("current"), "{hidden:?}");
    }
}

#[test]
fn a_batch_opens_no_more_than_its_operations_alone() {
    let scene = Scene::set();
    let body = r#"{"operations":[
        {"op":"get","key":"kept"},
        {"op":"get","key":"never"},
        {"op":"insert","key":"kept","value":"v","ttlSeconds":60},
        {"op":"swap","key":"kept","expectedValue":"x","newValue":"v","ttlSeconds":60},
        {"op":"delete","key":"kept","expectedValue":"x"},
        {"op":"insert","key":"new","value":"v","ttlSeconds":60}]}"#;
    let statuses = |answer: &Answer| -> Vec<Json> {
        assert_eq!(answer.status, 200, "{}", answer.body);
        let results = answer.json()["results"].as_array().unwrap().clone();
        results.iter().map(|result| result["status"].clone()).collect()
    };
    let write_only = scene.ask("write only", "POST", ":batch", body);
    assert_eq!(statuses(&write_only), [403, 403, 409, 409, 409, 201]);
    assert!(!write_only.body.contains("\"kept\""), "{}", write_only.body);
    assert!(!write_only.body.contains("current"), "{}", write_only.body);
    let own = scene.ask("own key", "POST", ":batch", body);
    assert_eq!(statuses(&own), [200, 404, 409, 409, 409, 201]);
    assert_eq!(own.json()["results"][2]["body"]["current"]["value"], SECRET);
}
