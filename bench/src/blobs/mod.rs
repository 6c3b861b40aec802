//! The BLOB benchmark: transfers over loopback beside nginx and `cp`, memory, and the first byte of
//! a download while others upload.
//!
//! The server is `wane serve` itself, the program beside this one, on the file backend. nginx and it
//! are asked by the same client. Contestants take turns; the median round counts. Every upload is on
//! disk before it is answered. It is removed after its round, as the copy is, and the server left
//! alone until its file is small again: both write to new blocks of the disk each time.

mod client;
mod load;
mod nginx;
mod server;

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use self::client::Client;
use self::nginx::Nginx;
use self::server::Wane;
use crate::report::{Report, Row};
use crate::timing::{self, millis};
use crate::workload::Chance;
use crate::{BoxError, Options};

const MIB: usize = 1 << 20;

/// What one client moves at a time.
const SIZE: usize = 256 * MIB;

/// What each of many uploads moves.
const SMALL: usize = 16 * MIB;

/// Uploads at once whose memory is measured, and the bytes of memory that they may take together.
const MANY: usize = 64;
const MEMORY: f64 = 128e6;

/// Uploads at once beside which downloads begin, and how soon their first byte must be there.
const BESIDE: usize = 32;
const FIRST_BYTE: Duration = Duration::from_millis(50);

/// How long the server is left alone to give the room of a BLOB back.
const TIDIED: Duration = Duration::from_millis(2_500);

const TRANSFERS: &str = "blobs: 256 MiB over loopback, one client";

/// Runs everything and returns what came out.
pub(crate) fn run(options: &Options) -> Result<Report, BoxError> {
    let mut report = Report::default();
    let scratch = options.scratch()?;
    let content = content();
    let file = scratch.path().join("content");
    std::fs::write(&file, &content)?;
    File::open(&file)?.sync_all()?;
    let rounds = if options.quick { 3 } else { 9 };
    let server = Wane::start(&scratch.path().join("transfers"))?;
    let id = uploads(&server, &content, scratch.path(), rounds, &mut report)?;
    downloads(&server, &id, &content, scratch.path(), rounds, &mut report)?;
    drop(server);
    memory(&scratch.path().join("memory"), &content[..SMALL], &mut report)?;
    first_bytes(&scratch.path().join("first"), &content[..SMALL], options.quick, &mut report)?;
    report.note(
        "blobs: client and server share the cores; wane hashes what comes in and is durable before \
         it answers; nginx serves the same bytes from a file that was just written, with sendfile \
         off; cp is followed by fsync.",
    );
    Ok(report)
}

/// Bytes that do not repeat, and that no file system makes smaller.
fn content() -> Vec<u8> {
    let mut chance = Chance::seeded(7);
    let words = (0..SIZE / size_of::<u64>()).map(|_| chance.below(u64::MAX).to_le_bytes());
    words.flatten().collect()
}

/// Uploads, and copies of the same bytes, by turns. Returns the id of the last BLOB.
fn uploads(
    server: &Wane,
    content: &[u8],
    scratch: &Path,
    rounds: usize,
    report: &mut Report,
) -> Result<String, BoxError> {
    timing::stage("blobs: uploads, and cp with fsync");
    let (mut wane, mut cp, mut id) = (Vec::new(), Vec::new(), String::new());
    for round in 0..rounds {
        let mut client = Client::connect(server.http)?;
        let (uploaded, took) = timing::timed(|| client.upload(&server.upload_head(SIZE), content));
        id = uploaded?;
        wane.push(took);
        if round + 1 < rounds {
            client.delete(&server.delete_head(&id))?;
            timing::pause(TIDIED);
        }
        cp.push(copy(scratch)?);
    }
    let rate = |times: &mut Vec<Duration>| median(times).map(|took| SIZE as f64 / took / 1e6);
    let (wane, cp) = (rate(&mut wane), rate(&mut cp));
    transfer_row(report, "wane file", "upload", wane);
    transfer_row(report, "cp + fsync", "upload", cp);
    report.bar("blobs upload, durable: wane file / cp + fsync", (wane, cp), 0.5);
    Ok(id)
}

/// How long `cp` takes to a new file, with an fsync of that.
fn copy(scratch: &Path) -> Result<Duration, BoxError> {
    let (from, to) = (scratch.join("content"), scratch.join("copy"));
    let (copied, took) = timing::timed(|| -> Result<(), BoxError> {
        let status = Command::new("cp").args([&from, &to]).status()?;
        if !status.success() {
            return Err("cp failed".into());
        }
        Ok(File::open(&to)?.sync_all()?)
    });
    copied?;
    std::fs::remove_file(&to)?;
    Ok(took)
}

/// The BLOB, and a file with the same bytes, downloaded by turns.
fn downloads(
    server: &Wane,
    id: &str,
    content: &[u8],
    scratch: &Path,
    rounds: usize,
    report: &mut Report,
) -> Result<(), BoxError> {
    timing::stage("blobs: downloads, and nginx");
    let nginx = Nginx::start(scratch, &scratch.join("content"));
    if let Err(reason) = &nginx {
        report.note(format!("blobs: nginx was not measured: {reason}"));
    }
    let nginx = nginx.ok();
    let blob = server.download_head(id);
    Client::connect(server.http)?.download(&blob, Some(content))?;
    if let Some(nginx) = &nginx {
        Client::connect(nginx.http)?.download(&nginx.download_head(), Some(content))?;
    }
    let (mut of_wane, mut of_nginx) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        of_wane.push(Client::connect(server.http)?.download(&blob, None)?.whole);
        if let Some(nginx) = &nginx {
            let mut client = Client::connect(nginx.http)?;
            of_nginx.push(client.download(&nginx.download_head(), None)?.whole);
        }
    }
    let rate = |times: &mut Vec<Duration>| median(times).map(|took| SIZE as f64 / took / 1e6);
    let (wane, nginx) = (rate(&mut of_wane), rate(&mut of_nginx));
    transfer_row(report, "wane file", "download", wane);
    transfer_row(report, "nginx", "download, sendfile off", nginx);
    report.bar("blobs download: wane file / nginx, sendfile off", (wane, nginx), 0.5);
    Ok(())
}

fn memory(data: &Path, content: &[u8], report: &mut Report) -> Result<(), BoxError> {
    timing::stage("blobs: memory of 64 uploads at once");
    let server = Wane::start(data)?;
    let idle = server.resident()?;
    server.forget_peak()?;
    let (loaded, took) = timing::timed(|| load::at_once(&server, content, MANY));
    loaded?;
    let above = server.peak()?.saturating_sub(idle) as f64;
    report.row(Row {
        table: "blobs: memory of the server, 64 uploads of 16 MiB at once".into(),
        subject: "wane file".into(),
        setting: "resident".into(),
        measures: vec![
            ("idle MB".into(), Some(idle as f64 / 1e6)),
            ("above idle MB".into(), Some(above / 1e6)),
            ("MB/s".into(), Some((MANY * SMALL) as f64 / took.as_secs_f64() / 1e6)),
        ],
        note: None,
    });
    let name = "blobs memory, 64 uploads of 16 MiB: 128 MB / resident above idle";
    report.bar(name, (Some(MEMORY), Some(above.max(1.0))), 1.0);
    Ok(())
}

fn first_bytes(
    data: &Path,
    content: &[u8],
    quick: bool,
    report: &mut Report,
) -> Result<(), BoxError> {
    timing::stage("blobs: first byte of a download beside 32 uploads");
    let server = Wane::start(data)?;
    let mut client = Client::connect(server.http)?;
    let id = client.upload(&server.upload_head(MIB), &content[..MIB])?;
    let head = server.download_head(&id);
    let downloads = if quick { 200 } else { 1_000 };
    let load = load::Load::start(&server, content, BESIDE)?;
    let mut times = Vec::new();
    for _ in 0..downloads {
        times.push(client.download(&head, None)?.first_byte);
    }
    let rate = load.stop()?;
    times.sort();
    let at = |share: f64| times.get((times.len() as f64 * share) as usize).copied();
    let p99 = at(0.99);
    report.row(Row {
        table: "blobs: first byte of a download of 1 MiB, beside 32 uploads of 16 MiB".into(),
        subject: "wane file".into(),
        setting: format!("{downloads} downloads"),
        measures: vec![
            ("p50 ms".into(), at(0.5).map(millis)),
            ("p99 ms".into(), p99.map(millis)),
            ("uploads MB/s".into(), Some(rate / 1e6)),
        ],
        note: None,
    });
    let name = "blobs first byte beside 32 uploads: 50 ms / 99th percentile";
    report.bar(name, (Some(millis(FIRST_BYTE)), p99.map(millis)), 1.0);
    Ok(())
}

fn transfer_row(report: &mut Report, subject: &str, setting: &str, rate: Option<f64>) {
    report.row(Row {
        table: TRANSFERS.into(),
        subject: subject.into(),
        setting: setting.into(),
        measures: vec![("MB/s".into(), rate)],
        note: None,
    });
}

/// The median in seconds.
fn median(times: &mut [Duration]) -> Option<f64> {
    times.sort();
    times.get(times.len() / 2).map(Duration::as_secs_f64)
}
