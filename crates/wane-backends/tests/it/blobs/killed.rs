//! A process that uploads to a file is killed: what it acknowledged is whole, nothing else can be
//! read, and nothing is left after its life. The same where the power is cut.

use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use wane::clock::{ManualClock, SharedClock, SystemClock};
use wane::services::ClusterAppId;
use wane::services::blobs::{AppBlobs, BlobLimits, Blobs, BlobsError, Keeping, NewBlob, Suuid};
use wane::store::{Fence, PageLimit, Row, Store};
use wane_backends::file::{Fault, FaultyDisk, FileStore};

use super::{
    CHUNK, LONG, WORKSPACE, announced, chunk_number, content, download, is_state, living, upload,
};
use crate::proof::{Chance, count, runtime, wait};

const APP: ClusterAppId = ClusterAppId(1);

/// Bytes of every upload here.
const SIZE: usize = CHUNK * 3 + 7;

fn blobs_of(store: FileStore, clock: SharedClock) -> AppBlobs<FileStore> {
    Blobs::new(store, clock).of(APP, BlobLimits::default())
}

/// The bytes of upload number so and so, which its name tells.
fn numbered(number: u64) -> (NewBlob, Vec<u8>) {
    let bytes = content(SIZE, number);
    (NewBlob { name: number.to_string(), ..announced(&bytes) }, bytes)
}

/// Uploads one by one, in one go and in appends by turns, and notes what was acknowledged.
async fn keep_uploading(
    blobs: &AppBlobs<FileStore>,
    note: impl Fn(String),
) -> Result<(), BlobsError> {
    for number in 0.. {
        let (blob, bytes) = numbered(number);
        if number % 2 == 0 {
            let id = upload(blobs, blob, &bytes, 16_384).await?.id;
            note(format!("whole {id} {SIZE}"));
            continue;
        }
        let id = blobs.create(WORKSPACE, blob).await?.id;
        note(format!("kept {id} 0"));
        for (turn, part) in bytes.chunks(70_001).enumerate() {
            let offset = turn as u64 * 70_001;
            let append = blobs.append(WORKSPACE, id, offset, Keeping::AsItComes).await?;
            let mut append = append.ok_or(BlobsError::Ended)?;
            append.write(part).await?;
            note(format!("kept {id} {}", append.keep().await?.offset));
        }
    }
    Ok(())
}

#[test]
#[ignore = "the process that is killed"]
fn process_that_uploads() {
    let Ok(directory) = std::env::var("WANE_TEST_DIRECTORY") else { return };
    let clock = SystemClock::shared();
    let path = Path::new(&directory).join("notes");
    let notes = std::fs::File::options().create(true).append(true).open(path);
    let notes = notes.expect("the notes open");
    let store = FileStore::open_or_create(&Path::new(&directory).join("store"), clock.clone());
    let blobs = blobs_of(store.expect("the store opens"), clock);
    let note = |line| writeln!(&notes, "{line}").expect("it is noted");
    runtime().block_on(keep_uploading(&blobs, note)).expect("it goes on");
}

fn start(directory: &Path) -> Child {
    Command::new(std::env::current_exe().expect("the test binary"))
        .args(["--exact", "blobs::killed::process_that_uploads", "--ignored"])
        .env("WANE_TEST_DIRECTORY", directory)
        .stdout(Stdio::null())
        .spawn()
        .expect("the process starts")
}

/// What was acknowledged: how many bytes of which upload, by lines that came to their end.
fn acknowledged(notes: &str) -> Vec<(Suuid, u64)> {
    let whole = notes.rfind('\n').map_or("", |end| &notes[..end]);
    let mut kept: Vec<(Suuid, u64)> = Vec::new();
    for line in whole.lines() {
        let [_, id, bytes] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let note = (id.parse().expect("an id"), bytes.parse().expect("a number"));
        kept.retain(|(known, _)| *known != note.0);
        kept.push(note);
    }
    kept
}

/// Every live row of the store.
async fn rows(store: &FileStore) -> Vec<Row> {
    let (mut rows, mut after) = (Vec::new(), None);
    loop {
        let page = store.scan(after, PageLimit::MAX).await.expect("it can be scanned");
        rows.extend(page.rows);
        after = page.next;
        if after.is_none() {
            return rows;
        }
    }
}

/// Checks a store after a crash: whatever says that it is a BLOB is one, and so is all that was
/// acknowledged, as far as it was.
async fn check(store: &FileStore, clock: &SharedClock, acknowledged: &[(Suuid, u64)]) -> usize {
    let blobs = blobs_of(store.clone(), Arc::clone(clock));
    let mut whole = 0;
    for row in rows(store).await.iter().filter(|row| is_state(&row.key)) {
        let state: serde_json::Value = serde_json::from_slice(&row.record.value).expect("JSON");
        if state["status"] != "complete" {
            continue;
        }
        let id = id_of(row);
        let number = state["name"].as_str().expect("its name").parse().expect("a number");
        let back = download(&blobs, id).await.expect("what is there is whole");
        assert!(back.expect("it is there") == numbered(number).1, "upload {number}");
        whole += 1;
    }
    for (id, bytes) in acknowledged {
        let progress = blobs.resume(WORKSPACE, *id).await.expect("it answers");
        let progress = progress.expect("it was acknowledged");
        assert!(progress.offset >= *bytes, "{} bytes of {bytes}", progress.offset);
        if !progress.is_complete {
            finish(&blobs, *id, progress.offset).await;
        }
    }
    whole
}

fn id_of(row: &Row) -> Suuid {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits = row.key.partition()[16..]
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |at| byte >> at & 1));
    let bits: Vec<u8> = bits.collect();
    let letter = |six: &[u8]| {
        let number = (0..6).fold(0, |number, at| number << 1 | six.get(at).copied().unwrap_or(0));
        char::from(ALPHABET[usize::from(number)])
    };
    bits.chunks(6).map(letter).collect::<String>().parse().expect("32 bytes are an id")
}

/// Goes on with an upload that a crash left, to its end. Its number is found by trying.
async fn finish(blobs: &AppBlobs<FileStore>, id: Suuid, offset: u64) {
    let append = blobs.append(WORKSPACE, id, offset, Keeping::AsItComes).await.expect("it goes on");
    let mut append = append.expect("it is an upload");
    append.write(&vec![7; SIZE - offset as usize]).await.expect("it is taken");
    assert!(append.keep().await.expect("it is kept").is_complete);
    let back = download(blobs, id).await.expect("it is whole").expect("it is there");
    let (kept, sent) = back.split_at(offset as usize);
    assert!(sent.iter().all(|byte| *byte == 7));
    assert!((0..500).any(|number| numbered(2 * number + 1).1.starts_with(kept)), "other bytes");
}

/// What is left goes with its life: the store is opened as a process would a day later.
fn assert_gone_in_time(directory: &Path) {
    const LATER: Duration = Duration::from_secs(24 * 60 * 60);
    let clock = ManualClock::starting_at(SystemClock::shared().now(), 1);
    clock.advance(LATER);
    let store = FileStore::open(directory, clock.clone()).expect("it opens");
    let runtime = runtime();
    assert!(runtime.block_on(rows(&store)).is_empty());
    let swept = (0..2_000).any(|_| {
        clock.advance(Duration::from_secs(1));
        wait(Duration::from_millis(2));
        runtime.block_on(store.stored_records()).expect("it is read") == 0
    });
    assert!(swept, "{:?} records are left", runtime.block_on(store.stored_records()));
}

#[test]
fn a_process_that_is_killed_leaves_whole_blobs_and_uploads_that_go_on() {
    let chance = Chance::seeded(1);
    let (mut whole, mut kept) = (0, 0);
    for _ in 0..count("WANE_TEST_KILLS", 50) / 10 {
        let home = tempfile::tempdir().expect("a directory");
        let mut process = start(home.path());
        let notes = || std::fs::read_to_string(home.path().join("notes")).unwrap_or_default();
        while notes().is_empty() {
            assert!(process.try_wait().expect("it is asked").is_none(), "it does not start");
            wait(Duration::from_millis(2));
        }
        wait(Duration::from_micros(chance.below(300_000)));
        process.kill().expect("it can be killed");
        process.wait().expect("it ends");
        let (clock, directory) = (SystemClock::shared(), home.path().join("store"));
        let store = FileStore::open(&directory, clock.clone()).expect("it opens again");
        let acknowledged = acknowledged(&notes());
        kept += acknowledged.len();
        whole += runtime().block_on(check(&store, &clock, &acknowledged));
        drop(store);
        assert_gone_in_time(&directory);
    }
    eprintln!("{kept} uploads were acknowledged in whole or in part, {whole} BLOBs were there");
    assert!(whole > 0 && kept > 0, "the process hardly came to work");
}

/// What a store on this disk tells of its uploads until the power is cut after so many calls, and
/// what the disk holds then.
fn cut_after(disk: &FaultyDisk, home: &Path, calls: u64) -> Vec<(Suuid, u64)> {
    let clock = SystemClock::shared();
    drop(FileStore::create(home, clock.clone()).expect("a new store"));
    let store = FileStore::open_on(disk, home, clock.clone()).expect("it opens");
    disk.arm(Fault::PowerCut, calls);
    let notes = parking_lot::Mutex::new(String::new());
    let note = |line: String| {
        let mut notes = notes.lock();
        notes.push_str(&line);
        notes.push('\n');
    };
    let blobs = blobs_of(store, clock);
    let ended = runtime().block_on(keep_uploading(&blobs, note));
    assert!(matches!(ended, Err(BlobsError::Store(_) | BlobsError::Overtaken)), "{ended:?}");
    assert_eq!(disk.struck(), Some(Fault::PowerCut));
    disk.lose_what_was_not_synced(home).expect("what is left is written");
    acknowledged(&notes.into_inner())
}

#[test]
fn a_power_cut_leaves_whole_blobs_and_uploads_that_go_on() {
    let chance = Chance::seeded(2);
    let (mut whole, mut kept) = (0, 0);
    for seed in 0..count("WANE_TEST_POWER_CUTS", 30) / 2 {
        let home = tempfile::tempdir().expect("a directory");
        let disk = FaultyDisk::seeded(seed);
        let acknowledged = cut_after(&disk, home.path(), 5 + chance.below(400));
        let clock = SystemClock::shared();
        let store = FileStore::open(home.path(), clock.clone()).expect("it opens again");
        kept += acknowledged.len();
        whole += runtime().block_on(check(&store, &clock, &acknowledged));
        drop(store);
        assert_gone_in_time(home.path());
    }
    eprintln!("{kept} uploads were acknowledged in whole or in part, {whole} BLOBs were there");
    assert!(whole > 0 && kept > 0, "the store hardly came to work");
}

/// The controls: a store that is back at an older state, and one that lacks a chunk, are caught.
#[test]
fn a_store_that_lost_something_is_caught() {
    let (home, clock) = (tempfile::tempdir().expect("a directory"), SystemClock::shared());
    let open = || FileStore::open_or_create(home.path(), clock.clone()).expect("it opens");
    let uploaded = |number| {
        let (store, (blob, bytes)) = (open(), numbered(number));
        let blobs = blobs_of(store, clock.clone());
        let id = runtime().block_on(upload(&blobs, blob, &bytes, 16_384)).expect("taken").id;
        (id, SIZE as u64)
    };
    let is_red = |acknowledged: &[(Suuid, u64)]| {
        let (store, runtime) = (open(), runtime());
        let check = || runtime.block_on(check(&store, &clock, acknowledged));
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).is_err()
    };
    let file = home.path().join("records.redb");
    let first = uploaded(0);
    let older = std::fs::read(&file).expect("the file");
    let both = [first, uploaded(2)];
    assert!(!is_red(&both), "and it is green where nothing is wrong");
    std::fs::write(&file, older).expect("it is written");
    // The store itself would notice, were it not for this.
    for note in ["acknowledged", "log/acknowledged"] {
        std::fs::remove_file(home.path().join(note)).expect("it is removed");
    }
    assert!(is_red(&both), "an upload is missing, and nobody noticed");
    assert!(!is_red(&[first]));
    runtime().block_on(async {
        let store = open();
        let rows = rows(&store).await;
        let chunk = rows.iter().find(|row| chunk_number(&row.key) == Some(2));
        let chunk = chunk.expect("it is there");
        let gone = store.compare_and_delete(&chunk.key, &chunk.record.value, Fence::NONE).await;
        assert!(gone.expect("an answer").is_applied());
    });
    assert!(is_red(&[first]), "a chunk is missing, and nobody noticed");
}

/// The disk is full in the middle of an upload, and has room again: the upload leaves nothing, a
/// download goes on meanwhile.
#[test]
fn a_full_disk_breaks_an_upload_and_nothing_of_it_is_left() {
    let mut broken = 0;
    for calls in [0, 1, 2, 3, 4, 6, 8, 10] {
        let (home, clock) = (tempfile::tempdir().expect("a directory"), SystemClock::shared());
        drop(FileStore::create(home.path(), clock.clone()).expect("a new store"));
        let disk = FaultyDisk::seeded(calls);
        let store = FileStore::open_on(&disk, home.path(), clock.clone()).expect("it opens");
        let service = Blobs::new(store.clone(), Arc::clone(&clock));
        let blobs = service.of(APP, BlobLimits::default());
        runtime().block_on(async {
            let (blob, bytes) = numbered(1);
            let kept = upload(&blobs, blob, &bytes, 16_384).await.expect("there is room").id;
            let before = rows(&store).await.len();
            disk.arm(Fault::DiskFull, calls);
            let full = upload(&blobs, living(LONG), &content(CHUNK * 8, 2), 16_384).await;
            assert!(download(&blobs, kept).await.expect("reads go on").expect("it is") == bytes);
            disk.make_room();
            let taken = async || upload(&blobs, living(LONG), b"abc", 3).await;
            let mut again = taken().await;
            while again.is_err() {
                clock.sleep(Duration::from_millis(50)).await;
                again = taken().await;
            }
            assert!(blobs.delete(WORKSPACE, again.expect("taken").id).await.expect("it answers"));
            service.settle().await;
            let Err(error) = full else { return };
            assert!(matches!(error, BlobsError::Store(_)), "{error:?}");
            broken += 1;
            let left = rows(&store).await;
            let is_blob = |row: &&Row| is_state(&row.key) && id_of(row) != kept;
            assert_eq!(left.iter().filter(is_blob).count(), 0, "it looks like a BLOB");
            // Where even the removal found no room, the chunks are left to their expiry.
            let is_clean = service.left_to_expiry() > 0 || left.len() == before;
            assert!(is_clean, "{} rows instead of {before}", left.len());
        });
    }
    assert!(broken >= 5, "the disk was full in {broken} uploads only");
}
