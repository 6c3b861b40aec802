//! JSON that is deep, double, huge or broken: refused, and nothing is touched.

use super::{TTL, assert_unharmed, keys};
use crate::http::conversation::{Conversation, Request};
use crate::server::{Answer, Server, raw};

/// Texts that are no good wherever a JSON object is read.
fn broken() -> Vec<(&'static str, Vec<u8>)> {
    let deep = |open: &str, close: &str, depth: usize| {
        format!("{}1{}", open.repeat(depth), close.repeat(depth)).into_bytes()
    };
    let good = r#"{"value":"v","ttlSeconds":60}"#;
    let utf16: Vec<u8> = good.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let with = |before: &[u8], after: &[u8]| [before, good.as_bytes(), after].concat();
    #[rustfmt::skip]
    let texts = vec![
        ("deep lists", deep("[", "]", 100_000)),
        ("deep objects", deep("{\"a\":", "}", 100_000)),
        ("deep lists in an object", [b"{\"value\":".as_slice(), &deep("[", "]", 100_000), b"}"].concat()),
        ("lists that never end", vec![b'['; 500_000]),
        ("objects that never end", b"{\"a\":".repeat(100_000)),
        ("a byte order mark", with(b"\xEF\xBB\xBF", b"")),
        ("UTF-16", utf16),
        ("a NUL before", with(b"\0", b"")),
        ("a NUL behind", with(b"", b"\0")),
        ("two objects", with(b"", good.as_bytes())),
        ("a comment", with(b"", b"// x")),
        ("nothing but spaces", vec![b' '; 1_000]),
        ("a string", b"\"v\"".to_vec()),
        ("null", b"null".to_vec()),
        ("NaN", br#"{"value":"v","ttlSeconds":NaN}"#.to_vec()),
        ("Infinity", br#"{"value":"v","ttlSeconds":Infinity}"#.to_vec()),
        ("a number beyond doubles", br#"{"value":"v","ttlSeconds":1e400}"#.to_vec()),
        ("a number of many digits", format!(r#"{{"value":"v","ttlSeconds":{}}}"#, "9".repeat(100_000)).into_bytes()),
        ("an exponent of many digits", format!(r#"{{"value":"v","ttlSeconds":1e{}}}"#, "9".repeat(100_000)).into_bytes()),
        ("a number in hex", br#"{"value":"v","ttlSeconds":0x10}"#.to_vec()),
        ("a number with a zero before", br#"{"value":"v","ttlSeconds":060}"#.to_vec()),
        ("minus zero", br#"{"value":"v","ttlSeconds":-0}"#.to_vec()),
        ("a double key", br#"{"value":"v","value":"w","ttlSeconds":60}"#.to_vec()),
        ("a double key, escaped", br#"{"value":"v","v\u0061lue":"w","ttlSeconds":60}"#.to_vec()),
        ("a double life", br#"{"value":"v","ttlSeconds":60,"ttlSeconds":61}"#.to_vec()),
        ("a key in capitals", br#"{"Value":"v","ttlSeconds":60}"#.to_vec()),
        ("a key with a NUL", br#"{"value\u0000":"v","ttlSeconds":60}"#.to_vec()),
        ("__proto__", br#"{"__proto__":{"value":"v"},"ttlSeconds":60}"#.to_vec()),
        ("a NUL in a string", b"{\"value\":\"v\0\",\"ttlSeconds\":60}".to_vec()),
        ("a line end in a string", b"{\"value\":\"v\n\",\"ttlSeconds\":60}".to_vec()),
        ("no UTF-8 in a string", b"{\"value\":\"v\xFF\",\"ttlSeconds\":60}".to_vec()),
        ("overlong UTF-8 in a string", b"{\"value\":\"\xC0\xAF\",\"ttlSeconds\":60}".to_vec()),
        ("half a surrogate", br#"{"value":"\ud800","ttlSeconds":60}"#.to_vec()),
        ("surrogates in the wrong order", br#"{"value":"\udc00\ud800","ttlSeconds":60}"#.to_vec()),
        ("an unknown escape", br#"{"value":"\x41","ttlSeconds":60}"#.to_vec()),
        ("single quotes", b"{'value':'v','ttlSeconds':60}".to_vec()),
        ("a comma at the end", br#"{"value":"v","ttlSeconds":60,}"#.to_vec()),
        ("a string cut off", br#"{"value":"v"#.to_vec()),
        ("Base64 with a line end", br#"{"valueBase64":"dg==\n","ttlSeconds":60}"#.to_vec()),
        ("Base64 with stray bits", br#"{"valueBase64":"dh==","ttlSeconds":60}"#.to_vec()),
        ("Base64 without its end", br#"{"valueBase64":"dg","ttlSeconds":60}"#.to_vec()),
        ("Base64 of URLs", br#"{"valueBase64":"_-8=","ttlSeconds":60}"#.to_vec()),
    ];
    texts
}

fn send(server: &Server, method: &str, path: &str, body: &[u8]) -> Answer {
    let (key, length) = (&server.key, body.len());
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: t\r\nconnection: close\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    );
    raw(server.http, &[head.as_bytes(), body].concat())
}

#[test]
fn broken_json_is_refused_and_nothing_is_touched() {
    let server = Server::in_memory();
    for (name, body) in broken() {
        let calls =
            [("POST", "/k"), ("PUT", "/k"), ("PATCH", "/k"), ("DELETE", "/k"), ("POST", ":batch")];
        for (method, rest) in calls {
            let answer = send(&server, method, &format!("{TTL}{rest}"), &body);
            assert_eq!(answer.status, 400, "{method} {rest} {name}: {}", answer.body);
            assert!(answer.body.len() < 2_000, "{name} is told at length");
        }
    }
    assert!(keys(&server).is_empty());
    assert_unharmed(&server);
}

/// A parser that takes the last of two and one that takes the first would read two batches.
#[test]
fn an_operation_of_a_batch_names_each_field_once() {
    let server = Server::in_memory();
    for operation in [
        r#""op":"get","op":"insert","key":"k","value":"v","ttlSeconds":60"#,
        r#""op":"insert","key":"a","key":"k","value":"v","ttlSeconds":60"#,
        r#""op":"insert","key":"k","value":"v","value":"w","ttlSeconds":60"#,
        r#""op":"insert","key":"k","value":"v","ttlSeconds":60,"ttlSeconds":61"#,
        r#""op":"insert","key":"k","value":"v","v\u0061lue":"w","ttlSeconds":60"#,
        r#""op":"delete","key":"k","expectedValue":"v","expectedValue":"w""#,
    ] {
        let body = format!(r#"{{"operations":[{{{operation}}}]}}"#);
        let answer = send(&server, "POST", &format!("{TTL}:batch"), body.as_bytes());
        assert_eq!((answer.status, &*answer.code()), (400, "invalid_request"), "{operation}");
        assert!(answer.body.contains("duplicate field"), "{operation}: {}", answer.body);
    }
    assert!(keys(&server).is_empty());
    assert_unharmed(&server);
}

#[test]
fn a_batch_does_not_nest() {
    let server = Server::in_memory();
    let one = r#"{"op":"insert","key":"k","value":"v","ttlSeconds":60}"#;
    for body in [
        format!(r#"{{"operations":[{{"operations":[{one}]}}]}}"#),
        format!(r#"{{"operations":[[{one}]]}}"#),
        format!(r#"{{"operations":{one}}}"#),
        format!(r#"{{"operations":[{one}],"operations":[{one}]}}"#),
        format!(r#"{{"operations":[{{"op":"batch","key":"k","operations":[{one}]}}]}}"#),
        format!(r#"{{"operations":[{}]}}"#, vec![one; 101].join(",")),
        format!(r#"{{"operations":[{}]}}"#, vec![one; 100_000].join(",")),
        format!(r#"{{"operations":[{}]}}"#, vec!["{}"; 1_000_000].join(",")),
        r#"{"operations":null}"#.to_owned(),
        r#"{"operations":["get","k"]}"#.to_owned(),
        r#"{"operations":[["get","k"]]}"#.to_owned(),
    ] {
        let answer = send(&server, "POST", &format!("{TTL}:batch"), body.as_bytes());
        assert_eq!(answer.status, 400, "{body:.80}: {}", answer.body);
    }
    let nested = format!(r#"{{"operations":[{{"op":"insert","key":"k","value":[{one}]}}]}}"#);
    let answer = send(&server, "POST", &format!("{TTL}:batch"), nested.as_bytes());
    assert_eq!(answer.json()["results"][0]["status"], 400, "{}", answer.body);
    assert!(keys(&server).is_empty());
    assert_unharmed(&server);
}

#[test]
fn what_json_can_say_is_kept_as_it_was_said() {
    let server = Server::in_memory();
    for (said, value) in [
        (r"a\u0000b", "a\0b"),
        (r"\u0000", "\0"),
        (r"\ud83d\ude00", "\u{1f600}"),
        (r"\ufeff\uffff", "\u{feff}\u{ffff}"),
        (r#"\"\\\/\b\f\n\r\t"#, "\"\\/\u{8}\u{c}\n\r\t"),
        ("</script>{{7*7}}%s%n", "</script>{{7*7}}%s%n"),
    ] {
        let body = format!(r#"{{"value":"{said}","ttlSeconds":60}}"#);
        assert_eq!(
            send(&server, "PUT", &format!("{TTL}/k"), body.as_bytes()).status,
            200,
            "{said}"
        );
        let read = Request::new("GET", &format!("{TTL}/k")).key(&server.key);
        assert_eq!(Conversation::with(server.http).ask(&read).json()["value"], value, "{said}");
    }
    assert_unharmed(&server);
}

#[test]
fn the_operator_is_read_as_strictly() {
    let server = Server::in_memory();
    let admin = |method: &str, path: &str, body: &str| {
        server.administer(method, &format!("/api/v1/admin{path}"), body).status
    };
    for body in [
        r#"{"owner":"a","owner":"b","app":"c"}"#,
        r#"{"owner":"a"}"#,
        r#"["a","b"]"#,
        "{}",
        "",
        r#"{"owner":"a","app":"c","key":"x"}"#,
        r#"{"owner":"..","app":"c"}"#,
        r#"{"owner":"a/b","app":"c"}"#,
        r#"{"owner":"a\u0000","app":"c"}"#,
        r#"{"owner":"","app":"c"}"#,
        r#"{"owner":"\u00e9","app":"c"}"#,
    ] {
        assert_eq!(admin("POST", "/apps", body), 400, "{body}");
    }
    let limits = "/apps/demo/app/limits";
    for body in [
        r#"{"maxKeys":-1}"#,
        r#"{"maxKeys":1.5}"#,
        r#"{"maxKeys":1e30}"#,
        r#"{"maxKeys":"1"}"#,
        r#"{"maxKeys":1,"maxKeys":2}"#,
        r#"{"inFlight":0}"#,
        r#"{"requestsPerSecond":0}"#,
        r#"{"requestsPerSecond":4294967296}"#,
        r#"{"maxkeys":1}"#,
        r#"{"defaultTtlSeconds":31536001}"#,
    ] {
        assert_eq!(admin("PUT", limits, body), 400, "{body}");
    }
    let most = r#"{"maxKeys":9223372036854775807,"maxBytes":9223372036854775807,
        "requestsPerSecond":4294967295,"inFlight":4294967295,"maxBlobBytes":9223372036854775807}"#;
    assert_eq!(admin("PUT", limits, most), 200);
    std::thread::park_timeout(std::time::Duration::from_millis(600));
    let set = send(&server, "PUT", &format!("{TTL}/k"), br#"{"value":"v","ttlSeconds":60}"#);
    assert_eq!(set.status, 200, "{}", set.body);
    for path in ["/apps/%FF/app/keys", "/apps/demo%2F/app/keys", "/apps/..%2F/app/keys"] {
        assert_eq!(admin("POST", path, ""), 400, "{path}");
    }
    for path in ["/apps/demo/app/keys/%00", "/apps/demo/app/keys/..", "/apps/none/app/keys/1"] {
        assert_eq!(admin("DELETE", path, ""), 404, "{path}");
    }
    for query in ["?after=x", "?after=a/b&after=c/d", "?after=%FF/x", "?limit=1", "?after=../.."] {
        assert_eq!(admin("GET", &format!("/apps{query}"), ""), 400, "{query}");
    }
    assert_unharmed(&server);
}
