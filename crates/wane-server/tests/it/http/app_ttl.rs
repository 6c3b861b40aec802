//! The calls of application TTL storage, with the statuses and bodies that the interface promises.

use serde_json::json;

use super::{TTL, insert};
use crate::server::Server;

#[test]
fn an_entry_is_inserted_read_swapped_touched_and_deleted() {
    for server in [Server::in_memory(), Server::on_file()] {
        let path = format!("{TTL}/alpha:ABC123");
        let made = server.ask("POST", &path, r#"{"value":"device:XYZ789","ttlSeconds":900}"#);
        assert_eq!(made.status, 201);
        let expires_at = made.json()["expiresAt"].as_u64().unwrap();
        let read = server.ask("GET", &path, "");
        assert_eq!(read.status, 200);
        assert_eq!(read.json()["value"], "device:XYZ789");
        assert_eq!(read.json()["expiresAt"], expires_at);
        let left = read.json()["ttlMillis"].as_u64().unwrap();
        assert!((880_000..=900_000).contains(&left), "{left}");

        let again = server.ask("POST", &path, r#"{"value":"x","ttlSeconds":900}"#);
        assert_eq!((again.status, &*again.code()), (409, "refused"));
        let current = &again.json()["current"];
        assert_eq!(*current, json!({"value": "device:XYZ789", "expiresAt": expires_at}));

        let body = r#"{"expectedValue":"device:XYZ789","newValue":"n","keepExpiry":true}"#;
        let swapped = server.ask("PUT", &path, body);
        assert_eq!((swapped.status, &swapped.json()), (200, &json!({"expiresAt": expires_at})));
        let stale = server.ask("PUT", &path, body);
        assert_eq!((stale.status, &stale.json()["current"]["value"]), (409, &json!("n")));

        let touched = server.ask("PATCH", &path, r#"{"ttlMillis":60000}"#);
        assert_eq!(touched.status, 200);
        assert!(touched.json()["expiresAt"].as_u64().unwrap() < expires_at);

        let wrong = server.ask("DELETE", &path, r#"{"expectedValue":"x"}"#);
        assert_eq!(wrong.status, 409);
        let deleted = server.ask("DELETE", &path, r#"{"expectedValue":"n"}"#);
        assert_eq!((deleted.status, &*deleted.body), (204, ""));
        assert_eq!(server.ask("GET", &path, "").status, 404);
        let absent = server.ask("PUT", &path, body);
        assert_eq!((absent.status, &absent.json()["current"]), (409, &json!(null)));
        assert_eq!(server.ask("PATCH", &path, r#"{"ttlSeconds":60}"#).status, 404);
    }
}

#[test]
fn an_unconditional_set_and_delete_do_not_ask_what_is_there() {
    let server = Server::in_memory();
    let path = format!("{TTL}/k");
    for value in ["a", "b"] {
        let body = format!(r#"{{"value":"{value}","ttlSeconds":60}}"#);
        assert_eq!(server.ask("PUT", &path, &body).status, 200);
        assert_eq!(server.ask("GET", &path, "").json()["value"], value);
    }
    for _ in 0..2 {
        assert_eq!(server.ask("DELETE", &path, "").status, 204, "also when absent");
    }
}

#[test]
fn bytes_travel_as_base64_and_raw() {
    let server = Server::in_memory();
    let path = format!("{TTL}/bytes");
    let body = r#"{"valueBase64":"AP/+","ttlSeconds":60}"#;
    assert_eq!(server.ask("POST", &path, body).status, 201);
    let read = server.ask("GET", &path, "").json();
    assert_eq!((&read["valueBase64"], read.get("value")), (&json!("AP/+"), None));
    let swap = r#"{"expectedValueBase64":"AP/+","newValueBase64":"aGk=","ttlSeconds":60}"#;
    assert_eq!(server.ask("PUT", &path, swap).status, 200);
    assert_eq!(server.ask("GET", &path, "").json()["value"], "hi", "UTF-8 comes back as text");
    let key = &server.key;
    let wanted = format!(
        "GET {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\nauthorization: Bearer {key}\r\n\
         accept: application/octet-stream\r\n\r\n"
    );
    let raw = crate::server::raw(server.http, wanted.as_bytes());
    assert_eq!((raw.status, &*raw.body), (200, "hi"));
    assert_eq!(raw.header("content-type"), Some("application/octet-stream"));
}

#[test]
fn a_slash_is_part_of_a_key_and_decoding_happens_once() {
    let server = Server::in_memory();
    for (escaped, key) in [
        ("a%2Fb", "a/b"),
        ("%252F", "%2F"),
        ("..%2f..%2fetc%2fpasswd", "../../etc/passwd"),
        ("%00", "\u{0}"),
        ("%C3%A9", "\u{e9}"),
        ("a+b", "a+b"),
    ] {
        insert(&server, escaped, "v");
        let listed = server.ask("GET", TTL, "").json();
        let keys: Vec<_> = listed["items"].as_array().unwrap().iter().map(|i| &i["key"]).collect();
        assert!(keys.contains(&&json!(key)), "{key:?} in {keys:?}");
        assert_eq!(server.ask("GET", &format!("{TTL}/{escaped}"), "").status, 200);
    }
}

#[test]
fn a_scan_lists_a_prefix_in_pages_ascending() {
    let server = Server::in_memory();
    for key in ["a:3", "a:1", "b:1", "a:2"] {
        insert(&server, key, key);
    }
    let first = server.ask("GET", &format!("{TTL}?prefix=a:&limit=2"), "").json();
    let keys = |page: &serde_json::Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap().iter();
        items.map(|item| item["key"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(keys(&first), ["a:1", "a:2"]);
    assert_eq!(first["next"], "a:2");
    let second = server.ask("GET", &format!("{TTL}?prefix=a:&limit=2&after=a:2"), "").json();
    assert_eq!((keys(&second), &second["next"]), (vec!["a:3".to_owned()], &json!(null)));
}

#[test]
fn a_batch_answers_each_operation_in_order() {
    let server = Server::in_memory();
    let body = r#"{"operations":[
        {"op":"get","key":"k"},
        {"op":"insert","key":"k","value":"v","ttlSeconds":60},
        {"op":"insert","key":"k","value":"w","ttlSeconds":60},
        {"op":"swap","key":"k","expectedValue":"v","newValue":"x","ttlMillis":60000},
        {"op":"get","key":"k"},
        {"op":"insert","key":"","value":"v","ttlSeconds":60},
        {"op":"insert","key":"k2","value":"v","ttlSeconds":0},
        {"op":"delete","key":"k","expectedValue":"wrong"},
        {"op":"delete","key":"k"},
        {"op":"get","key":"k","value":"v"}]}"#;
    let answer = server.ask("POST", &format!("{TTL}:batch"), body);
    assert_eq!(answer.status, 200, "{}", answer.body);
    let json = answer.json();
    let results = json["results"].as_array().unwrap();
    let statuses: Vec<_> = results.iter().map(|one| one["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [404, 201, 409, 200, 200, 400, 400, 409, 204, 400]);
    assert_eq!(results[4]["body"]["value"], "x");
    assert_eq!(results[5]["body"]["code"], "key_empty");
    assert_eq!(results[6]["body"]["code"], "invalid_ttl");
    assert_eq!(results[8]["body"], json!(null));

    let many = vec![r#"{"op":"get","key":"k"}"#; 101].join(",");
    let answer =
        server.ask("POST", &format!("{TTL}:batch"), &format!(r#"{{"operations":[{many}]}}"#));
    assert_eq!((answer.status, &*answer.code()), (400, "invalid_request"));
}

#[test]
fn an_app_is_held_to_its_quota_and_its_rate() {
    let server = Server::in_memory();
    let limits = "/api/v1/admin/apps/demo/app/limits";
    assert_eq!(server.administer("PUT", limits, r#"{"maxKeys":2}"#).status, 200);
    // What was read of the app before is at most half a second old.
    std::thread::park_timeout(std::time::Duration::from_millis(600));
    insert(&server, "1", "v");
    insert(&server, "2", "v");
    let over = server.ask("POST", &format!("{TTL}/3"), r#"{"value":"v","ttlSeconds":60}"#);
    assert_eq!((over.status, &*over.code()), (429, "limited"));
    assert!(over.header("retry-after").is_some());
    assert!(over.json()["detail"].as_str().unwrap().contains("2 keys"), "{}", over.body);

    let change = r#"{"maxKeys":null,"requestsPerSecond":3}"#;
    assert_eq!(server.administer("PUT", limits, change).json()["maxKeys"], 1_000_000);
    std::thread::park_timeout(std::time::Duration::from_millis(600));
    let statuses: Vec<_> =
        (0..8).map(|_| server.ask("GET", &format!("{TTL}/1"), "").status).collect();
    assert!(statuses.contains(&429) && statuses.contains(&200), "{statuses:?}");
}
