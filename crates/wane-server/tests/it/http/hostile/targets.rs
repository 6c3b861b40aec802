//! Targets: what a path or a query may be taken for, and is not.

use super::{TTL, assert_unharmed, keys};
use crate::http::conversation::{Conversation, Request};
use crate::server::{Answer, Server};

fn ask(server: &Server, method: &str, target: &str, body: &str) -> Answer {
    let request = Request::new(method, target).key(&server.key).body(body);
    Conversation::with(server.http).ask(&request)
}

/// What a segment in place of a key means: a key, or a refusal with this code.
#[rustfmt::skip]
const KEYS: &[(&str, Result<&str, &str>)] = &[
    ("..", Ok("..")),
    (".", Ok(".")),
    ("%2e%2e", Ok("..")),
    ("%2e%2e%2f%2e%2e%2fadmin", Ok("../../admin")),
    ("..%2F..%2Fetc%2Fpasswd", Ok("../../etc/passwd")),
    ("..%5C..%5Cboot", Ok("..\\..\\boot")),
    ("a%2Fb", Ok("a/b")),
    ("a%252Fb", Ok("a%2Fb")),
    ("a%25252Fb", Ok("a%252Fb")),
    ("a%00b", Ok("a\0b")),
    ("%00", Ok("\0")),
    ("%0d%0aset-cookie:%20x", Ok("\r\nset-cookie: x")),
    ("a+b", Ok("a+b")),
    ("a;b=c", Ok("a;b=c")),
    ("a,b", Ok("a,b")),
    ("%3F%23", Ok("?#")),
    ("%EF%BB%BF", Ok("\u{feff}")),
    ("%F4%8F%BF%BF", Ok("\u{10ffff}")),
    ("%27%20OR%201=1--", Ok("' OR 1=1--")),
    ("$(id)", Ok("$(id)")),
    ("{key}", Ok("{key}")),
    ("%c0%af", Err("key_not_utf8")),
    ("%c0%ae%c0%ae%c0%af", Err("key_not_utf8")),
    ("%e0%80%af", Err("key_not_utf8")),
    ("%f0%80%80%af", Err("key_not_utf8")),
    ("%c0%80", Err("key_not_utf8")),
    ("%ed%a0%80", Err("key_not_utf8")),
    ("%f4%90%80%80", Err("key_not_utf8")),
    ("%80", Err("key_not_utf8")),
    ("ab%e2%82", Err("key_not_utf8")),
    ("%", Err("invalid_request")),
    ("%0", Err("invalid_request")),
    ("%u0041", Err("invalid_request")),
    ("%%32%66", Err("invalid_request")),
];

#[test]
fn a_key_is_decoded_once_and_is_data_or_refused() {
    for server in [Server::in_memory(), Server::on_file()] {
        let mut expected: Vec<_> = KEYS.iter().filter_map(|(_, key)| key.ok()).collect();
        for (segment, meaning) in KEYS {
            let path = format!("{TTL}/{segment}");
            let body = r#"{"value":"v","ttlSeconds":60}"#;
            let put = ask(&server, "PUT", &path, body);
            match meaning {
                Ok(_) => {
                    assert_eq!(put.status, 200, "{segment}: {}", put.body);
                    assert_eq!(ask(&server, "GET", &path, "").status, 200, "{segment}");
                }
                Err(code) => assert_eq!((put.status, &*put.code()), (400, *code), "{segment}"),
            }
        }
        expected.sort_unstable();
        expected.dedup();
        assert_eq!(keys(&server), expected);
        assert_unharmed(&server);
    }
}

#[test]
fn an_app_is_named_by_its_own_name_only() {
    let server = Server::in_memory();
    let at = |app: &str| ask(&server, "GET", &format!("/api/v2/apps/{app}/ttl"), "").status;
    assert_eq!(at("demo/app"), 200);
    assert_eq!(at("dem%6f/%61pp"), 200, "decoded once");
    for app in [
        "dem%256f/app",
        "DEMO/app",
        "demo%00/app",
        "demo/app%00",
        "demo%2Fapp/x",
        "demo%20/app",
        "demo./app",
        "demo;x/app",
        "%2e%2e/app",
        "../app",
        "demo/..",
        "demo/%2e",
        "demo/app%2F..",
        "%c0%80demo/app",
        "%FFdemo/app",
        "demo%/app",
        "demo/app%2",
        "wane/system",
        "%00/%00",
        "demo/app/../../demo/app",
        "./demo/app",
        "demo//app",
        "/demo/app",
        "demo/app/",
    ] {
        assert_eq!(at(app), 404, "{app}");
    }
    for path in [
        "//api/v2/apps/demo/app/ttl",
        "/api/v2/../v2/apps/demo/app/ttl",
        "/api%2Fv2/apps/demo/app/ttl",
        "/API/v2/apps/demo/app/ttl",
        "/api/v2/apps/demo/app/ttl;x",
        "/api/v2/apps/demo/app/%74tl",
        "/api/v2/apps/demo/app/ttl%3Abatch",
        "/api/v2/apps/demo/app/ttl:nothing",
    ] {
        assert_eq!(ask(&server, "GET", path, "").status, 404, "{path}");
    }
    assert_unharmed(&server);
}

#[test]
fn a_query_is_read_strictly() {
    let server = Server::in_memory();
    let scan = |query: &str| ask(&server, "GET", &format!("{TTL}?{query}"), "");
    let long = "k".repeat(1_024);
    let longer = "k".repeat(1_025);
    for query in [
        "",
        "&&&",
        "prefix=",
        "prefix",
        "limit=%31",
        "prefix=%00",
        "prefix=%2525",
        "prefix=..%2f",
        "after=%00",
        "prefix=b&after=a",
        "prefix=a&after=z",
        "prefix=%F4%8F%BF%BF",
        &format!("after={long}"),
        &format!("prefix={long}"),
        "prefix=a=b",
        "prefix=a;limit=0",
        "prefix=?",
    ] {
        assert_eq!(scan(query).status, 200, "{query:.60}: {}", scan(query).body);
    }
    for query in [
        "limit=1&limit=1",
        "prefix=a&prefix=b",
        "prefix=a&%70refix=b",
        "Limit=1",
        "limit[]=1",
        "prefix[0]=a",
        "limit=",
        "limit=0",
        "limit=-1",
        "limit=1001",
        "limit=1e2",
        "limit=0x10",
        "limit=1.0",
        "limit=%201",
        "limit=99999999999999999999",
        "prefix=%FF",
        "prefix=%c0%af",
        "prefix=%",
        "prefix=%2",
        "=",
        "=a",
        "%FF=a",
        "unknown",
        &format!("after={longer}"),
        &format!("prefix={longer}"),
    ] {
        let answer = scan(query);
        assert_eq!(answer.status, 400, "{query:.60}: {}", answer.body);
    }
    let watch = |id: &str| {
        let path = format!("{TTL}:watch");
        let request = Request::new("GET", &path).key(&server.key);
        let mut connection = Conversation::with(server.http);
        connection.ask(&request.header(&format!("last-event-id: {id}"))).status
    };
    for id in ["0", "1", "18446744073709551615", "9223372036854775808"] {
        assert_eq!(watch(id), 200, "{id}");
    }
    for id in ["-1", "18446744073709551616", "1e3", "x", "1 2", ""] {
        assert_eq!(watch(id), 400, "{id}");
    }
    assert_unharmed(&server);
}

#[test]
fn unusual_forms_of_a_request_get_usual_answers() {
    let server = Server::in_memory();
    let key = &server.key;
    let send = |line: &str, headers: &str| {
        let mut connection = Conversation::with(server.http);
        let head = format!("{line}\r\nhost: t\r\nauthorization: Bearer {key}\r\n{headers}\r\n");
        connection.send(head.as_bytes());
        connection.answer().map(|answer| answer.status)
    };
    #[rustfmt::skip]
    let cases: &[(&str, &str, u16)] = &[
        (&format!("GET {TTL} HTTP/1.0"), "", 200),
        (&format!("GET {TTL} HTTP/1.0"), "connection: keep-alive\r\n", 200),
        (&format!("GET http://elsewhere.example{TTL} HTTP/1.1"), "", 200),
        ("GET http://elsewhere.example/metrics HTTP/1.1", "", 404),
        ("GET http://elsewhere.example HTTP/1.1", "", 404),
        (&format!("GET ftp://elsewhere.example{TTL} HTTP/1.1"), "", 200),
        ("OPTIONS * HTTP/1.1", "", 404),
        ("GET * HTTP/1.1", "", 404),
        (&format!("OPTIONS {TTL} HTTP/1.1"), "", 405),
        ("CONNECT elsewhere.example:443 HTTP/1.1", "", 404),
        (&format!("CONNECT {TTL} HTTP/1.1"), "", 405),
        (&format!("TRACE {TTL} HTTP/1.1"), "", 405),
        (&format!("PROPFIND {TTL} HTTP/1.1"), "", 405),
        (&format!("M-SEARCH {TTL} HTTP/1.1"), "", 405),
        (&format!("GET {TTL} HTTP/1.1"), "upgrade: h2c\r\nconnection: upgrade, http2-settings\r\nhttp2-settings: AAMAAABkAARAAAAAAAIAAAAA\r\n", 200),
        (&format!("GET {TTL} HTTP/1.1"), "upgrade: websocket\r\nconnection: upgrade\r\n", 200),
        (&format!("GET {TTL} HTTP/1.1"), "x-http-method-override: DELETE\r\nx-original-url: /metrics\r\n", 200),
        (&format!("GET {TTL} HTTP/1.1"), "expect: 200-ok\r\n", 200),
    ];
    for (line, headers, status) in cases {
        assert_eq!(send(line, headers), Some(*status), "{line} {headers}");
    }
    assert_unharmed(&server);
}
