//! Stops: asked by SIGTERM, the server answers what was asked, ends watches, keeps everything.

use std::time::Duration;

use super::load::Load;
use super::{blank, check};
use crate::connection::{Connection, Ended};
use crate::server::Server;
use crate::{loading, stopwatch, wait};

const TTL: &str = "/api/v2/apps/demo/app/ttl";

/// How long requests under way may take to finish.
const DRAIN: Duration = Duration::from_secs(10);

#[test]
fn a_stop_under_load_truncates_no_answer_and_loses_nothing() {
    let _machine = loading();
    let home = tempfile::tempdir().unwrap();
    let mut ledgers = blank();
    for cycle in 0..3 {
        let server = Server::start(home.path(), &[]);
        let load = Load::start(&server, ledgers, 100 + cycle);
        wait(Duration::from_millis(300));
        let took = stopwatch();
        let code = server.stop();
        let took = took();
        let (noted, ends) = load.end();
        assert_eq!(code, Some(0));
        assert!(took < DRAIN, "it took {took:?}");
        assert!(ends.iter().all(|end| *end == Ended::Closed), "{ends:?}");
        eprintln!("stopped under load within {took:?}");
        ledgers = noted;
        check(&Server::start(home.path(), &[]), &mut ledgers);
    }
}

#[test]
fn a_watch_ends_whole_when_the_server_stops() {
    let server = Server::on_file();
    let mut watch = Connection::open(&server);
    watch.send("GET", &format!("{TTL}:watch"), "").unwrap();
    let head = watch.head().unwrap();
    let waiting = std::thread::spawn(move || (watch.rest_of(head), watch.is_closed()));
    let mut writer = Connection::open(&server);
    let body = r#"{"value":"v","ttlSeconds":60}"#;
    assert_eq!(writer.ask("POST", &format!("{TTL}/seen"), body).unwrap().status, 201);
    wait(Duration::from_millis(100));
    let took = stopwatch();
    assert_eq!(server.stop(), Some(0));
    assert!(took() < Duration::from_secs(2), "a watch holds the server up: {:?}", took());
    let (told, closed) = waiting.join().unwrap();
    let told = told.expect("the stream ends with its last chunk");
    assert!(told.body.contains("event: inserted") && closed, "{}", told.body);
}

/// Its head was taken, so it is answered: the body may come while the server drains.
#[test]
fn a_request_whose_body_is_on_its_way_is_answered() {
    let server = Server::on_file();
    let mut slow = Connection::open(&server);
    let (key, body) = (&server.key, r#"{"value":"v","ttlSeconds":60}"#);
    let head = format!(
        "POST {TTL}/slow HTTP/1.1\r\nhost: test\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    slow.send_raw(head.as_bytes()).unwrap();
    slow.send_raw(&body.as_bytes()[..5]).unwrap();
    wait(Duration::from_millis(100));
    server.ask_to_stop();
    wait(Duration::from_millis(300));
    slow.send_raw(&body.as_bytes()[5..]).unwrap();
    assert_eq!(slow.answer().unwrap().status, 201);
    assert!(slow.is_closed());
    assert_eq!(server.stop(), Some(0));
}

/// A request that crosses the server's close on a kept connection: it must look like a close, which
/// every client may answer by asking again, and not like a failure.
#[test]
fn a_request_that_comes_too_late_meets_a_clean_close() {
    let server = Server::in_memory();
    let mut idle: Vec<_> = (0..20).map(|_| Connection::open(&server)).collect();
    for connection in &mut idle {
        assert_eq!(connection.ask("GET", "/livez", "").unwrap().status, 200);
    }
    server.ask_to_stop();
    wait(Duration::from_millis(50));
    let ends: Vec<_> = idle.iter_mut().map(|late| late.ask("GET", "/livez", "").err()).collect();
    assert!(ends.iter().all(|end| *end == Some(Ended::Closed)), "{ends:?}");
    drop(idle);
    assert_eq!(server.stop(), Some(0));
}

/// The server is held still meanwhile, so that the system makes the connections alone.
#[test]
fn a_connection_that_was_not_taken_yet_is_answered_or_closed() {
    for _ in 0..6 {
        let server = Server::in_memory();
        server.signal("STOP");
        let mut strangers: Vec<_> = (0..30).map(|_| Connection::open(&server)).collect();
        for stranger in &mut strangers {
            stranger.send("GET", "/livez", "").unwrap();
        }
        server.ask_to_stop();
        server.signal("CONT");
        for mut stranger in strangers {
            let end = stranger.answer().map(|answer| answer.status);
            assert!(matches!(end, Ok(200) | Err(Ended::Closed)), "{end:?}");
        }
        assert_eq!(server.stop(), Some(0));
    }
}
