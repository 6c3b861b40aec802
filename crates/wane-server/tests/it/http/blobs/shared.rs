//! BLOBs on stores that several servers use: what one was given is had from the other.

use super::tus::{created, offset, patched};
use super::{Reply, ask, begin, bytes, upload};
use crate::server::Server;
use crate::shared::{OwnRedis, each_listed, start};

#[test]
fn a_blob_goes_from_server_to_server() {
    each_listed(|flags| {
        let (one, other) = (start(flags), start(flags));
        for length in [0, 1, 102_401, 3_000_000] {
            let body = bytes(length, 1);
            let blob = upload(&one, &["blob-name: a", "ttl: 15m"], &body);
            let got = ask(&other, "GET", &blob.path, &[], b"");
            assert_eq!((got.status(), got.is_whole()), (200, true), "{length}");
            assert!(got.bytes == body, "{length}: other bytes came back");
            let part = ask(&other, "GET", &blob.path, &["range: bytes=-1000"], b"");
            assert!(length == 0 || part.bytes == body[length.saturating_sub(1_000)..]);
            assert_eq!(ask(&one, "DELETE", &blob.path, &[], b"").status(), 204);
            assert_eq!(ask(&other, "GET", &blob.path, &[], b"").status(), 404);
        }
    });
}

#[test]
fn of_downloads_that_race_at_two_servers_exactly_one_gets_a_one_time_blob() {
    each_listed(|flags| {
        let servers = [start(flags), start(flags)];
        for round in 0..3 {
            let body = bytes(250_000, round);
            let blob = upload(&servers[0], &["blob-downloads: 1"], &body);
            let replies: Vec<Reply> = std::thread::scope(|scope| {
                let path = &*blob.path;
                let race = |server| scope.spawn(move || ask(server, "GET", path, &[], b""));
                let racers: Vec<_> = servers.iter().cycle().take(6).map(race).collect();
                racers.into_iter().map(|racer| racer.join().unwrap()).collect()
            });
            let won: Vec<_> = replies.iter().filter(|reply| reply.status() == 200).collect();
            assert!(won.len() == 1 && won[0].bytes == body, "{} got it", won.len());
            assert_eq!(replies.iter().filter(|reply| reply.status() == 404).count(), 5);
        }
    });
}

#[test]
fn an_upload_that_began_at_one_server_goes_on_at_the_other() {
    each_listed(|flags| {
        let (one, other) = (start(flags), start(flags));
        let body = bytes(400_000, 2);
        let upload = created(&one, body.len());
        patched(&one, &upload, 0, &body[..150_000]);
        assert_eq!(offset(&other, &upload), 150_000);
        one.kill();
        patched(&other, &upload, 150_000, &body[150_000..]);
        let blob = upload.replace("/tblobs-tus/", "/tblobs/");
        assert!(ask(&other, "GET", &blob, &[], b"").bytes == body, "other bytes");
    });
}

#[test]
fn a_blob_disappears_on_time_at_both_servers() {
    each_listed(|flags| {
        let servers = [start(flags), start(flags)];
        let body = bytes(250_000, 3);
        let blob = upload(&servers[0], &["ttl: 3s"], &body);
        assert_eq!(ask(&servers[1], "GET", &blob.path, &[], b"").status(), 200);
        super::pause(3_100);
        for server in &servers {
            assert_eq!(ask(server, "GET", &blob.path, &[], b"").status(), 404);
        }
        super::assert_gone(&servers[0], &body);
    });
}

/// The store goes in the middle of both kinds of transfers, and comes back empty-handed or not: a
/// part is never taken for the whole.
#[test]
fn transfers_whose_store_goes_fail_and_leave_nothing() {
    let Some(redis) = OwnRedis::start() else { return };
    let server: Server = redis.serve();
    let body = bytes(30_000_000, 4);
    let blob = upload(&server, &[], &body);
    let mut sending = begin(&server, "POST", super::BLOBS, &["content-length: 2000000", "ttl: 5s"]);
    sending.bytes(&body[..1_000_000]);
    let mut receiving = begin(&server, "GET", &blob.path, &[]);
    let mut first = vec![0; 1_000];
    std::io::Read::read_exact(&mut receiving.stream, &mut first).unwrap();
    redis.end();
    sending.bytes(&body[..1_000_000]);
    let (status, code) = sending.reply().problem();
    assert!(
        matches!((status, &*code), (503, "unavailable") | (504, "unknown_outcome")),
        "{status}"
    );
    let mut rest = Vec::new();
    drop(std::io::Read::read_to_end(&mut receiving.stream, &mut rest));
    let got = super::reply(&[first, rest].concat());
    assert!(got.status() == 200 && !got.is_whole(), "it had only begun");
    assert!(body.starts_with(&got.bytes), "what came is the begin of it");
    let away = ask(&server, "GET", &blob.path, &[], b"");
    assert_eq!(away.problem(), (503, "unavailable".into()), "and not absent");
}
