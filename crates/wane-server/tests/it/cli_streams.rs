//! `wane stream` as people type it: the real binary at both ends of a real server, killed, asked to
//! stop, and cut off from it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use serde_json::Value as Json;
use tempfile::TempDir;
use wane::clock::SystemClock;
use wane::services::apps::Scope;
use wane_server::client::{Client, Endpoint, Secret, Trust};

use crate::server::{Server, eventually, wane};

const ISPB: &str = "00000208";

/// Calls are held for a moment, and leases end soon.
const BRISK: [&str; 6] =
    ["--stream-hold-ms", "300", "--stream-lease-ms", "2000", "--stream-token-ms", "60000"];

/// A producer and a reader at their desk.
struct Desk {
    place: TempDir,
    url: String,
    admin_url: String,
    data: PathBuf,
    produce: String,
    pull: String,
}

fn credential(server: &Server, body: &str) -> String {
    let made = server.administer("POST", "/api/v1/admin/credentials", body);
    assert_eq!(made.status, 201, "{}", made.body);
    made.json()["key"].as_str().unwrap().to_owned()
}

/// A credential as an operator makes it.
fn made(server: &Server, words: &[&str]) -> String {
    let mut command = wane();
    command.args(["stream", "credential"]).args(words);
    command.env("WANE_ADMIN_URL", format!("http://{}", server.admin));
    let (code, key, err) = told(&command.env("WANE_DATA", server.data()).output().unwrap());
    assert_eq!(code, 0, "{err}");
    key.trim().to_owned()
}

impl Desk {
    fn at(server: &Server) -> Self {
        let keys = [&[][..], &["--ispb", ISPB]].map(|words| made(server, words));
        Self::with_keys(server, "http", keys)
    }

    fn with_keys(server: &Server, scheme: &str, [produce, pull]: [String; 2]) -> Self {
        Self {
            place: tempfile::tempdir().unwrap(),
            url: format!("{scheme}://{}", server.http),
            admin_url: format!("{scheme}://{}", server.admin),
            data: server.data().to_path_buf(),
            produce,
            pull,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    fn command(&self, key: &str, words: &[&str]) -> Command {
        let mut command = wane();
        command.arg("stream").args(words).args(["--ispb", ISPB]);
        command.current_dir(self.place.path()).env("WANE_URL", &self.url);
        if !key.is_empty() {
            command.env("WANE_KEY", key);
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Pushes messages as files with these names, and returns their ids.
    fn push(&self, messages: &[(&str, &[u8])], flags: &[&str]) -> Vec<String> {
        for (name, bytes) in messages {
            fs::write(self.path(name), bytes).unwrap();
        }
        let names: Vec<_> = messages.iter().map(|(name, _)| *name).collect();
        let output = self.command(&self.produce, &[&["push"], flags, &names].concat()).output();
        let (code, out, err) = told(&output.unwrap());
        assert_eq!(code, 0, "{err}");
        out.lines().map(ToOwned::to_owned).collect()
    }

    fn pull(&self, flags: &[&str]) -> (i32, String, String) {
        told(&self.command(&self.pull, &[&["pull"], flags].concat()).output().unwrap())
    }

    /// A pull that goes on.
    fn pulling(&self, flags: &[&str]) -> Pulling {
        Pulling(self.command(&self.pull, &[&["pull"], flags].concat()).spawn().unwrap())
    }

    fn status(&self) -> Json {
        let mut command = self.command("", &["status", "--json"]);
        command.env("WANE_ADMIN_URL", &self.admin_url).env("WANE_DATA", &self.data);
        let (code, out, err) = told(&command.output().unwrap());
        assert_eq!(code, 0, "{err}");
        serde_json::from_str(&out).unwrap()
    }

    /// Nobody reads, and nothing is left to be delivered.
    fn is_done(&self) -> bool {
        let status = self.status();
        ["liveReaders", "inFlight", "requeued", "lagMillis"].iter().all(|name| status[name] == 0)
    }
}

fn told(output: &Output) -> (i32, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// The file that a message is written to.
fn file_of(directory: &Path, id: &str) -> PathBuf {
    directory.join(format!("{}.xml", id.replace('/', "_").replace('+', "-")))
}

/// A process that is killed when the test ends.
struct Pulling(Child);

impl Pulling {
    fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// Its exit code, its standard output and its standard error.
    fn ended(mut self) -> (i32, String, String) {
        assert!(eventually(|| self.has_ended()), "it goes on");
        let (out, err) = (self.0.stdout.take(), self.0.stderr.take());
        let code = self.0.wait().unwrap().code().unwrap_or(-1);
        (
            code,
            std::io::read_to_string(out.unwrap()).unwrap(),
            std::io::read_to_string(err.unwrap()).unwrap(),
        )
    }
}

impl Drop for Pulling {
    fn drop(&mut self) {
        // It may have ended already, which is what is wanted.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Signatures span line breaks, and a message may be anything.
#[test]
fn what_is_pushed_is_pulled_byte_for_byte() {
    let server = Server::with(&BRISK);
    let desk = Desk::at(&server);
    let mut messages: Vec<(String, Vec<u8>)> =
        (0..23).map(|n| (format!("{n:02}.xml"), format!("<m n=\"{n}\"/>").into_bytes())).collect();
    messages.push(("23.xml".into(), b"\r\n<a>\r\n--x\r\n\xFF\0</a>\r\n\r\n".to_vec()));
    messages.push(("24.xml".into(), vec![b'y'; 204_800]));
    let named: Vec<_> = messages.iter().map(|(name, bytes)| (&**name, &**bytes)).collect();
    for (count, flags) in [&[][..], &["--gzip"]].into_iter().enumerate() {
        let ids = desk.push(&named, flags);
        assert_eq!(ids.len(), 25);
        let inbox = desk.path(&format!("inbox-{count}"));
        let out = [&["--out", inbox.to_str().unwrap()], flags].concat();
        let (code, paths, err) = desk.pull(&out);
        assert_eq!(code, 0, "{err}");
        let expected: Vec<_> = ids.iter().map(|id| file_of(&inbox, id)).collect();
        let paths: Vec<_> = paths.lines().map(PathBuf::from).collect();
        assert_eq!(paths, expected, "in their order");
        for (path, (name, bytes)) in paths.iter().zip(&messages) {
            assert!(fs::read(path).unwrap() == *bytes, "{name}");
        }
        assert_eq!(fs::read_dir(&inbox).unwrap().count(), 25, "no draft is left");
        assert!(desk.is_done(), "{}", desk.status());
        assert_eq!(desk.pull(&out), (0, String::new(), String::new()), "all is acknowledged");
    }
}

#[test]
fn messages_can_be_piped_in_and_out() {
    let server = Server::with(&[&BRISK[..], &["--storage", "mem"]].concat());
    let desk = Desk::at(&server);
    let mut child = desk.command(&desk.produce, &["push", "-", "--json"]);
    let mut child = child.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"<one>\n</one>").unwrap();
    let (code, out, err) = told(&child.wait_with_output().unwrap());
    assert_eq!(code, 0, "{err}");
    let pushed: Json = serde_json::from_str(&out).unwrap();
    desk.push(&[("two.xml", b"\xFF")], &[]);
    desk.push(&[("three.xml", b"<three/>"), ("four.xml", b"<four/>")], &[]);

    let (code, out, err) = desk.pull(&["--json", "--single", "--max-batches", "2"]);
    assert_eq!(code, 0, "{err}");
    let lines: Vec<Json> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["id"], &lines[0]["message"]), (&pushed["id"], &"<one>\n</one>".into()));
    assert_eq!(lines[1]["messageBase64"], "/w==");
    let (code, out, err) = desk.pull(&[]);
    assert_eq!((code, &*out), (0, "<three/>\n<four/>\n"), "{err}");
    assert!(desk.is_done(), "{}", desk.status());

    let mut command = desk.command("", &["status"]);
    command.env("WANE_ADMIN_URL", &desk.admin_url).env("WANE_DATA", &desk.data);
    let (code, table, err) = told(&command.output().unwrap());
    assert_eq!(code, 0, "{err}");
    assert!(table.starts_with("ispb          00000208\nlive readers  0\n"), "{table}");
}

/// A crash between writing and acknowledging: the message comes again, its file stays.
#[test]
fn what_was_not_acknowledged_comes_again_and_is_not_written_twice() {
    let server = Server::with(&BRISK);
    let desk = Desk::at(&server);
    let ids = desk.push(&[("1.xml", b"<one/>"), ("2.xml", b"<two/>"), ("3.xml", b"<three/>")], &[]);
    let inbox = desk.path("inbox");
    let out = ["--out", "inbox", "--exec", "test -e go-on && cat >> seen"];
    let (code, printed, err) = desk.pull(&out);
    assert_eq!((code, &*printed), (1, ""), "{err}");
    assert!(err.contains(&format!("the command failed for {}: exit code 1", ids[0])), "{err}");
    let inodes = |ids: &[String]| -> BTreeMap<String, (u64, i64)> {
        let stamp = |id: &String| {
            let metadata = fs::metadata(file_of(&inbox, id)).unwrap();
            (id.clone(), (metadata.ino(), metadata.mtime_nsec()))
        };
        ids.iter().map(stamp).collect()
    };
    let before = inodes(&ids);

    // Killed in the middle of a batch, while its command runs.
    let hangs = "echo $$ > pid; touch started; exec sleep 600";
    let mut killed = desk.pulling(&["--out", "inbox", "--follow", "--exec", hangs]);
    assert!(eventually(|| desk.path("started").exists()), "{}", desk.status());
    assert!(!killed.has_ended());
    killed.signal("KILL");
    let pid = fs::read_to_string(desk.path("pid")).unwrap();
    assert!(Command::new("kill").arg(pid.trim()).status().unwrap().success());
    assert_eq!(killed.ended().0, -1);

    fs::write(desk.path("go-on"), "").unwrap();
    let flags = [&out[..], &["--follow", "--max-batches", "1"]].concat();
    let pulled = desk.pulling(&flags).ended();
    assert_eq!(pulled.0, 0, "{}", pulled.2);
    assert_eq!(fs::read_to_string(desk.path("seen")).unwrap(), "<one/><two/><three/>");
    assert_eq!(pulled.1.lines().count(), 3, "whoever reads the paths hears of them");
    assert_eq!(inodes(&ids), before);
    assert!(desk.is_done(), "{}", desk.status());
}

/// With a token to give it back by, a batch waits for no lease.
#[test]
fn a_batch_that_could_not_be_kept_is_there_for_others_at_once() {
    let server = Server::with(&["--stream-hold-ms", "300"]);
    let desk = Desk::at(&server);
    desk.push(&[("1.xml", b"<one/>"), ("2.xml", b"<two/>")], &[]);
    let (code, _, err) = desk.pull(&["--single", "--exec", "! grep -q two"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("the batch was given back"), "{err}");
    let status = desk.status();
    assert_eq!((&status["liveReaders"], &status["requeued"]), (&0.into(), &1.into()), "{status}");
    assert_eq!(desk.pull(&[]).1, "<two/>\n");
}

#[test]
fn a_reader_that_follows_ends_in_good_order_when_it_is_asked_to() {
    let server = Server::with(&BRISK);
    let desk = Desk::at(&server);
    for (signal, flags) in [("TERM", &[][..]), ("INT", &["--gzip", "--single"])] {
        let inbox = desk.path(signal);
        let mut reader =
            desk.pulling(&[&["--follow", "--out", inbox.to_str().unwrap()], flags].concat());
        assert!(eventually(|| desk.status()["liveReaders"] == 1), "{}", desk.status());
        let ids = desk.push(&[("1.xml", b"<one/>"), ("2.xml", b"<two/>")], &[]);
        assert!(eventually(|| file_of(&inbox, &ids[1]).exists()), "it waits for messages");
        assert!(!reader.has_ended());
        reader.signal(signal);
        let (code, _, err) = reader.ended();
        assert_eq!((code, &*err), (0, ""));
        assert!(desk.is_done(), "{}", desk.status());
    }
}

/// What was delivered is dealt with first; whoever cannot wait asks twice.
#[test]
fn a_command_that_runs_is_let_finish_unless_somebody_asks_twice() {
    let server = Server::with(&BRISK);
    let desk = Desk::at(&server);
    desk.push(&[("1.xml", b"<one/>"), ("2.xml", b"<two/>")], &[]);
    let reader = desk.pulling(&["--follow", "--exec", "touch started; sleep 1; cat >> seen"]);
    assert!(eventually(|| desk.path("started").exists()));
    reader.signal("INT");
    let (code, _, err) = reader.ended();
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("stopping in good order"), "{err}");
    assert_eq!(fs::read_to_string(desk.path("seen")).unwrap(), "<one/><two/>");
    assert!(desk.is_done(), "{}", desk.status());

    desk.push(&[("3.xml", b"<three/>")], &[]);
    fs::remove_file(desk.path("started")).unwrap();
    let reader = desk.pulling(&["--follow", "--exec", "echo $$ > pid; touch started; sleep 600"]);
    assert!(eventually(|| desk.path("started").exists()));
    reader.signal("TERM");
    crate::wait(Duration::from_millis(300));
    reader.signal("TERM");
    assert_eq!(reader.ended().0, 130);
    let pid = fs::read_to_string(desk.path("pid")).unwrap();
    let is_gone = || !Path::new("/proc").join(pid.trim()).exists();
    assert!(eventually(is_gone), "the command was left running");
    let again = desk.pulling(&["--follow", "--max-batches", "1"]).ended();
    assert_eq!(again.1, "<three/>\n", "{}", again.2);
}

#[test]
fn a_reader_goes_on_over_a_restart_of_the_server() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start(&data, &BRISK);
    let address = server.http;
    let desk = Desk::at(&server);
    desk.push(&[("1.xml", b"<one/>")], &[]);
    let reader = desk.pulling(&["--follow", "--out", "inbox"]);
    let count = || fs::read_dir(desk.path("inbox")).map_or(0, Iterator::count);
    assert!(eventually(|| count() == 1));
    server.kill();
    crate::wait(Duration::from_millis(500));
    let server = Server::start_at(address, &data, &BRISK);
    let desk = Desk { admin_url: format!("http://{}", server.admin), ..desk };
    desk.push(&[("2.xml", b"<two/>")], &[]);
    let count = || fs::read_dir(desk.path("inbox")).map_or(0, Iterator::count);
    assert!(eventually(|| count() == 2), "{}", desk.status());
    reader.signal("TERM");
    let (code, _, err) = reader.ended();
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("asking again\ngoing on\n"), "{err}");
    assert!(desk.is_done(), "{}", desk.status());
}

#[test]
fn a_seventh_reader_is_told_so_or_waits() {
    let server = Server::with(&["--storage", "mem", "--stream-hold-ms", "300"]);
    let desk = Desk::at(&server);
    let mut readers: Vec<_> = (0..6).map(|_| desk.pulling(&["--follow"])).collect();
    assert!(eventually(|| desk.status()["liveReaders"] == 6), "{}", desk.status());
    let (code, out, err) = desk.pull(&[]);
    assert_eq!((code, &*out), (1, ""), "{err}");
    assert!(err.contains("limited") && err.contains("--follow"), "{err}");
    assert!(readers.iter_mut().all(|reader| !reader.has_ended()));
    for reader in readers {
        reader.signal("TERM");
        assert_eq!(reader.ended().0, 0);
    }
    desk.push(&[("1.xml", b"<one/>")], &[]);
    assert_eq!(desk.pull(&["--max-batches", "1"]).1, "<one/>\n");
}

#[test]
fn keys_open_their_own_side_of_their_own_stream() {
    let server = Server::with(&[&BRISK[..], &["--storage", "mem"]].concat());
    let desk = Desk::at(&server);
    fs::write(desk.path("1.xml"), "<one/>").unwrap();
    let foreign = credential(&server, r#"{"scopes":["pull"],"ispb":"99999999"}"#);
    for (key, words) in [
        (&desk.pull, &["push", "1.xml"][..]),
        (&desk.produce, &["pull"]),
        (&foreign, &["pull"]),
        (&server.key, &["pull"]),
    ] {
        let (code, out, err) = told(&desk.command(key, words).output().unwrap());
        assert_eq!((code, &*out), (1, ""), "{words:?}: {err}");
        assert!(err.contains("forbidden") || err.contains("unauthorized"), "{words:?}: {err}");
        let (_, secret) = key.split_once('.').unwrap();
        assert!(!err.contains(secret) && !server.log().contains(secret));
    }
    assert!(desk.is_done(), "{}", desk.status());
}

/// An authority that certifies the server and institutions.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn write(place: &Path) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        fs::write(place.join("ca.pem"), params.self_signed(&key).unwrap().pem()).unwrap();
        Self { issuer: Issuer::new(params, key) }
    }

    fn certify(&self, place: &Path, name: &str) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        fs::write(place.join(format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(place.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
}

#[tokio::test]
async fn a_certificate_opens_the_stream_of_its_institution() {
    let files = tempfile::tempdir().unwrap();
    let authority = Authority::write(files.path());
    for name in ["server", ISPB, "99999999"] {
        authority.certify(files.path(), name);
    }
    let path = |name: &str| files.path().join(name).to_str().unwrap().to_owned();
    let (ca, cert, key) = (path("ca.pem"), path("server.pem"), path("server.key"));
    let tls = ["--tls-cert", &cert, "--tls-key", &key, "--tls-client-ca", &ca, "--storage", "mem"];
    let server = Server::with(&[&BRISK[..], &tls].concat());
    let endpoint = Endpoint {
        url: format!("https://{}", server.admin),
        key: Some(Secret::from(&*server.admin_key)),
        trust: Trust::CaFile(ca.clone().into()),
    };
    let admin = Client::new(&endpoint, SystemClock::shared()).unwrap().admin();
    let produce = admin.add_credential(&[Scope::Produce], None).await.unwrap();
    let pull = admin.add_credential(&[Scope::Pull], Some(ISPB)).await.unwrap();
    let keys = [produce, pull].map(|key| key.reveal().to_owned());
    let desk = Desk::with_keys(&server, "https", keys);
    fs::write(desk.path("1.xml"), "<one/>").unwrap();
    let run = |key: &str, words: &[&str]| {
        told(&desk.command(key, words).args(["--ca", &ca]).output().unwrap())
    };
    let shown = |name: &str| [path(&format!("{name}.pem")), path(&format!("{name}.key"))];
    let pull = |key: &str, name: &str| {
        let [cert, key_file] = shown(name);
        run(key, &["pull", "--cert", &cert, "--key-file", &key_file])
    };
    let (code, _, err) = run(&desk.produce, &["push", "1.xml"]);
    assert_eq!(code, 0, "{err}");
    let (code, out, err) = pull("", "99999999");
    assert_eq!((code, &*out), (1, ""), "{err}");
    assert!(err.contains("HTTP 403"), "{err}");
    let (code, out, err) = run(&desk.pull, &["pull"]);
    assert_eq!((code, &*out), (1, ""), "a key does not do: {err}");
    assert!(err.contains("HTTP 401"), "{err}");
    let (code, out, err) = pull("", ISPB);
    assert_eq!((code, &*out), (0, "<one/>\n"), "{err}");
}

/// What an operator types about holds, and what is printed.
#[test]
fn holds_are_placed_listed_and_released() {
    let server = Server::with(&[&["--storage", "mem"], &BRISK[..]].concat());
    let desk = Desk::at(&server);
    desk.push(&[("a.xml", b"<a/>")], &[]);
    let operator = |words: &[&str]| {
        let mut command = wane();
        command.arg("stream").args(words).env("WANE_ADMIN_URL", &desk.admin_url);
        told(&command.env("WANE_DATA", &desk.data).output().unwrap())
    };
    let whose = ["--ispb", ISPB];
    let far = "9000000000000";
    let hold = ["hold", "--from", "0", "--to", far, "--reason", "case 17"];
    let (code, out, err) = operator(&[&hold, &whose[..]].concat());
    assert_eq!(code, 0, "{err}");
    let id = out.lines().next().unwrap().split_whitespace().nth(1).unwrap().to_owned();
    assert!(id.starts_with("00000208-") && out.contains("rows  1"), "{out}");
    let (_, listed, _) = operator(&[&["holds"], &whose[..]].concat());
    assert!(listed.contains(&id) && listed.contains("case 17"), "{listed}");
    let (_, listed, _) = operator(&[&["holds", "--json"], &whose[..]].concat());
    assert_eq!(serde_json::from_str::<Json>(&listed).unwrap()["holdId"], id);
    assert_eq!(operator(&["release", &id]), (0, String::new(), String::new()));
    let (code, _, err) = operator(&["release", &id]);
    assert_eq!(code, 4, "{err}");
    assert_eq!(operator(&[&["holds"], &whose[..]].concat()).1, "");
    let inverted = ["hold", "--from", "2", "--to", "1", "--reason", "case 17"];
    let (code, _, err) = operator(&[&inverted, &whose[..]].concat());
    assert_eq!(code, 2, "{err}");
}
