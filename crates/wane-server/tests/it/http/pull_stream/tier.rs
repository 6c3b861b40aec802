//! The Redis tier and the lock, as operators turn them on: servers that are not there change nothing.

use std::net::TcpListener;

use super::*;
use crate::server::eventually;

/// A URL under which nobody answers.
fn nobody() -> String {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    format!("redis://{free}/1")
}

#[test]
fn without_its_redis_servers_a_stream_answers_as_ever_and_says_so() {
    let masters = [nobody(), nobody(), nobody()].join(",");
    let (tier, masters) = (nobody(), masters);
    let flags = ["--stream-redis-url", &tier, "--stream-redlock-urls", &masters];
    let streams = Streams::with(&flags);
    let sent = streams.push_numbers(0..25);
    let first = streams.start();
    let second = streams.after(&first);
    let third = streams.after(&second);
    let read: Vec<_> = [&first, &second, &third].iter().flat_map(|pulled| pulled.ids()).collect();
    assert_eq!(read, sent);
    streams.end(&third);
    let value = |name: &str, label: &str| streams.metric(name, label).unwrap_or(-1.0);
    assert!(eventually(|| value("wane_stream_tier_updates_total", "outcome=\"failed\"") > 0.0));
    assert_eq!(value("wane_stream_tier_updates_total", "outcome=\"shown\""), 0.0);
    assert!(value("wane_stream_lock_total", "outcome=\"away\"") > 0.0);
    assert_eq!(value("wane_stream_lock_total", "outcome=\"held\""), 0.0);
    let log = streams.server.log();
    assert!(log.contains("the tier of pull streams shows nothing new"), "{log}");
}

/// The control: where nobody asks for them, there are none.
#[test]
fn without_the_settings_there_is_neither_tier_nor_lock() {
    let streams = Streams::new();
    assert_eq!(streams.metric("wane_stream_tier_updates_total", ""), None);
    assert_eq!(streams.metric("wane_stream_lock_total", ""), None);
}

#[test]
fn servers_that_cannot_be_meant_end_the_start() {
    for (flag, told) in [
        ("--stream-redis-url=http://h", "stream_redis_url"),
        ("--stream-redis-url=redis://a,b", "one server"),
        ("--stream-redis-url=redis://canary:canary@h?prefix=p", "database"),
        ("--stream-redlock-urls=redis://a,redis://b", "stream_redlock_urls"),
        ("--stream-redlock-urls=redis://a,redis://b,http://c", "stream_redlock_urls"),
        ("--stream-redlock-urls=redis://a,redis://b,redis://a", "two of the masters are one"),
    ] {
        let home = tempfile::tempdir().unwrap();
        let ended = crate::server::wane()
            .args(["serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--storage=mem"])
            .arg(flag)
            .arg("--data")
            .arg(home.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert!(!ended.status.success(), "{flag}: it started");
        let dashed = told.replace('_', "-");
        assert!(said.contains(told) || said.contains(&dashed), "{flag} is told: {said}");
        assert!(!said.contains("panicked") && !said.contains("canary"), "{flag}: {said}");
    }
}
