//! The commands over real directories: what they leave behind, above all when they fail.

use std::fs;

use clap::Command;
use futures_util::stream;
use tempfile::TempDir;
use wane::clock::SystemClock;
use wane::store::{Fence, Key, Life, Store, Ttl, Value, Write as StoreWrite};

use super::*;

/// A directory with a store of some records, and room for everything else.
struct Fixture {
    room: TempDir,
    clock: SharedClock,
}

impl Fixture {
    async fn of(records: usize) -> Self {
        let fixture = Self { room: tempfile::tempdir().unwrap(), clock: SystemClock::shared() };
        let store = FileStore::create(&fixture.path("data"), fixture.clock.clone()).unwrap();
        let life = |index| match index % 2 {
            0 => Life::Permanent,
            _ => Life::For(Ttl::MAX),
        };
        let writes = (0..records).map(|index| {
            let value = Value::new(format!("value {index}")).unwrap();
            (key(index), StoreWrite::new(value, life(index)).fenced(Fence(index as u64)))
        });
        assert_eq!(store.put_batch(writes.collect()).await.unwrap().len(), records);
        fixture
    }

    fn path(&self, name: &str) -> PathBuf {
        self.room.path().join(name)
    }

    fn args(&self, file: &str) -> BackupArgs {
        let data = Some(self.path("data"));
        BackupArgs { file: self.path(file), data, force: false }
    }

    async fn backup(&self, file: &str) -> Result<BackupReport, BackupCommandError> {
        run_backup(&self.args(file), Source::Store(self.path("data")), &self.clock).await
    }

    async fn receive(
        &self,
        args: &BackupArgs,
        chunks: Vec<Result<Bytes, BoxError>>,
    ) -> Result<BackupReport, BackupCommandError> {
        let stream: RemoteBackup = Box::pin(stream::iter(chunks));
        run_backup(args, Source::Remote(stream), &self.clock).await
    }

    async fn restore(&self, file: &str, data: &str) -> Result<RestoreReport, BackupCommandError> {
        let args = RestoreArgs { file: self.path(file), data: self.path(data) };
        run_restore(&args, &self.clock).await
    }

    /// Everything in the room by path, without the store that it began with.
    fn left(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut folders = vec![self.room.path().to_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(self.room.path()).unwrap().display().to_string();
                if name == "data" {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path);
                }
                names.push(name);
            }
        }
        names.sort();
        names
    }
}

fn key(index: usize) -> Key {
    Key::new(b"\0\0\0\x04tests", &index.to_be_bytes()).unwrap()
}

fn chunks_of(bytes: &[u8]) -> Vec<Result<Bytes, BoxError>> {
    bytes.chunks(1_000).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect()
}

#[tokio::test]
async fn a_store_goes_to_a_file_and_back() {
    let fixture = Fixture::of(300).await;
    let written = fixture.backup("a.wane").await.unwrap();
    assert_eq!((written.summary.records, written.summary.permanent), (300, 150));
    assert_eq!(written.summary.bytes, fs::metadata(fixture.path("a.wane")).unwrap().len());
    assert_eq!(written.summary.keyspaces.get("app_ttl"), Some(&300));

    let restored = fixture.restore("a.wane", "new").await.unwrap();
    assert_eq!((restored.records, restored.permanent, restored.expired), (300, 150, 0));
    assert_eq!(
        fixture.left(),
        ["a.wane", "new", "new/acknowledged", "new/log", "new/records.redb"]
    );

    let open = |name: &str| FileStore::open(&fixture.path(name), fixture.clock.clone()).unwrap();
    let (old, new) = (open("data"), open("new"));
    for index in 0..300 {
        let record = old.get(&key(index)).await.unwrap();
        assert!(record.is_some());
        assert_eq!(new.get(&key(index)).await.unwrap(), record, "record {index}");
    }
}

#[tokio::test]
async fn a_report_is_lines_for_people_and_json_for_programs() {
    let fixture = Fixture::of(3).await;
    let report = fixture.backup("a.wane").await.unwrap();
    let text = report.to_string();
    for line in ["a.wane\ncreated    20", " UTC from file\n", "\nrecords    3\n", "\n  app_ttl "] {
        assert!(text.contains(line), "{line:?} is not in\n{text}");
    }
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["records"], 3);
    assert_eq!(json["createdAt"], report.summary.created_at);
    assert_eq!(json["keyspaces"]["app_ttl"], 3);
}

/// What a server sends ends in the same file as what is read from its directory.
#[tokio::test]
async fn a_backup_may_come_from_a_server() {
    let fixture = Fixture::of(50).await;
    fixture.backup("local.wane").await.unwrap();
    let bytes = fs::read(fixture.path("local.wane")).unwrap();
    let args = fixture.args("remote.wane");
    let report = fixture.receive(&args, chunks_of(&bytes)).await.unwrap();
    assert_eq!(report.summary.records, 50);
    assert_eq!(fs::read(fixture.path("remote.wane")).unwrap(), bytes);
}

/// A cut connection must not pass for a small store.
#[tokio::test]
async fn a_backup_that_breaks_off_leaves_no_file() {
    let fixture = Fixture::of(100).await;
    fixture.backup("sound.wane").await.unwrap();
    let bytes = fs::read(fixture.path("sound.wane")).unwrap();
    fs::remove_file(fixture.path("sound.wane")).unwrap();
    let mut reset = chunks_of(&bytes);
    reset[2] = Err("connection reset".into());
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    for chunks in [Vec::new(), chunks_of(&bytes[..bytes.len() - 1]), reset, chunks_of(&flipped)] {
        let failed = fixture.receive(&fixture.args("a.wane"), chunks).await;
        assert!(matches!(failed, Err(BackupCommandError::Backup { .. })), "{failed:?}");
        assert_eq!(fixture.left(), [""; 0]);
    }
}

/// Each write to this device fails as on a full disk.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_full_disk_leaves_no_file() {
    let fixture = Fixture::of(10).await;
    let part = PartFile::create(&fixture.path("a.wane"), false).unwrap();
    assert_eq!(fixture.left(), ["a.wane.part"]);
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let store = FileStore::open(&fixture.path("data"), fixture.clock.clone()).unwrap();
    let mut backup = Backup::begin(store, &*fixture.clock, "file").await.unwrap();
    let failed = save(part, full, &mut backup, &*fixture.clock).await.unwrap_err();
    assert!(
        matches!(&failed, BackupCommandError::Io { source, .. }
        if source.kind() == std::io::ErrorKind::StorageFull),
        "{failed}"
    );
    assert_eq!(fixture.left(), [""; 0]);
}

#[tokio::test]
async fn a_file_is_replaced_only_by_force_and_only_by_a_complete_backup() {
    let fixture = Fixture::of(10).await;
    fs::write(fixture.path("a.wane"), "precious").unwrap();
    let kept = || fs::read(fixture.path("a.wane")).unwrap() == b"precious";

    let unasked: RemoteBackup = Box::pin(stream::poll_fn(|_| panic!("the server was asked")));
    let source = Source::Remote(unasked);
    let refused = run_backup(&fixture.args("a.wane"), source, &fixture.clock).await.unwrap_err();
    assert!(matches!(refused, BackupCommandError::FileExists { .. }), "{refused}");
    assert_eq!(refused.exit_code(), 3);
    assert!(kept());

    let force = BackupArgs { force: true, ..fixture.args("a.wane") };
    assert!(fixture.receive(&force, Vec::new()).await.is_err());
    assert!(kept());
    assert_eq!(fixture.left(), ["a.wane"]);

    let source = Source::Store(fixture.path("data"));
    run_backup(&force, source, &fixture.clock).await.unwrap();
    assert!(!kept());
    assert_eq!(fixture.left(), ["a.wane"]);
}

/// The file appeared while the backup was written: it is not ours.
#[tokio::test]
async fn a_file_that_appears_meanwhile_is_not_replaced() {
    let fixture = Fixture::of(1).await;
    let part = PartFile::create(&fixture.path("a.wane"), false).unwrap();
    fs::write(fixture.path("a.wane"), "precious").unwrap();
    let refused = part.publish().unwrap_err();
    assert!(matches!(refused, BackupCommandError::FileExists { .. }), "{refused}");
    assert_eq!(fs::read(fixture.path("a.wane")).unwrap(), b"precious");
    assert_eq!(fixture.left(), ["a.wane"]);
}

#[tokio::test]
async fn another_backup_under_way_is_not_disturbed() {
    let fixture = Fixture::of(1).await;
    fs::write(fixture.path("a.wane.part"), "half").unwrap();
    let refused = fixture.backup("a.wane").await.unwrap_err();
    assert!(matches!(refused, BackupCommandError::PartExists { .. }), "{refused}");
    assert_eq!(fs::read(fixture.path("a.wane.part")).unwrap(), b"half");
}

#[cfg(unix)]
#[tokio::test]
async fn a_backup_is_for_its_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let fixture = Fixture::of(1).await;
    fixture.backup("a.wane").await.unwrap();
    let mode = fs::metadata(fixture.path("a.wane")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[tokio::test]
async fn a_store_is_never_restored_over_another() {
    let fixture = Fixture::of(5).await;
    fixture.backup("a.wane").await.unwrap();
    let refused = fixture.restore("a.wane", "data").await.unwrap_err();
    assert!(matches!(refused, BackupCommandError::Open(OpenError::Exists { .. })), "{refused}");
    assert_eq!(refused.exit_code(), 3);
    assert!(!fixture.path("data/restoring").exists());
    let verify = VerifyArgs { file: None, data: Some(fixture.path("data")) };
    assert_eq!(run_verify(&verify, &fixture.clock).await.unwrap().summary.records, 5);
}

#[tokio::test]
async fn a_damaged_file_makes_no_store_and_no_directory() {
    let fixture = Fixture::of(5).await;
    fixture.backup("a.wane").await.unwrap();
    let mut bytes = fs::read(fixture.path("a.wane")).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(fixture.path("a.wane"), bytes).unwrap();
    let refused = fixture.restore("a.wane", "new").await.unwrap_err();
    assert!(matches!(refused, BackupCommandError::Backup { .. }), "{refused}");
    assert_eq!(fixture.left(), ["a.wane"]);

    let absent = fixture.restore("b.wane", "new").await.unwrap_err();
    assert_eq!(absent.exit_code(), 4, "{absent}");
    assert_eq!(fixture.left(), ["a.wane"]);
}

/// Half of the records are in the draft when the pipe ends, and durable.
#[tokio::test]
async fn a_restoration_that_fails_half_way_leaves_the_directory_as_it_was() {
    let fixture = Fixture::of(20_000).await;
    fixture.backup("a.wane").await.unwrap();
    let bytes = fs::read(fixture.path("a.wane")).unwrap();
    fs::create_dir(fixture.path("new")).unwrap();
    fs::write(fixture.path("new/admin.key"), "kept").unwrap();

    let mut in_draft = 0;
    let new = fixture.path("new");
    let failed = fill(&new, &fixture.clock, async |store| {
        let mut chunks = ReadChunks::new(&bytes[..bytes.len() - 1]);
        let cut = restore_stream(store, &*fixture.clock, &mut chunks, |_| ()).await;
        in_draft = store.stored_records().await.unwrap();
        assert!(!FileStore::exists(&new), "not before it is complete");
        cut.map_err(BackupCommandError::backup(Path::new(STDIN)))
    });
    let failed = failed.await.unwrap_err();

    assert!(matches!(failed, BackupCommandError::Backup { .. }), "{failed}");
    assert!(in_draft > 0, "it failed before half way");
    assert_eq!(fixture.left(), ["a.wane", "new", "new/admin.key"]);
    let absent = FileStore::open(&fixture.path("new"), fixture.clock.clone());
    assert!(matches!(absent, Err(OpenError::Absent { .. })), "{absent:?}");

    assert_eq!(fixture.restore("a.wane", "new").await.unwrap().records, 20_000);
    assert_eq!(fs::read(fixture.path("new/admin.key")).unwrap(), b"kept");
}

/// A kill leaves the draft, which nobody takes for the store.
#[tokio::test]
async fn what_a_killed_restoration_left_is_no_store_and_is_named() {
    let fixture = Fixture::of(5).await;
    fixture.backup("a.wane").await.unwrap();
    let (draft, store) = DraftStore::create(&fixture.path("new"), &fixture.clock).unwrap();
    drop(store);
    std::mem::forget(draft);

    let absent = FileStore::open(&fixture.path("new"), fixture.clock.clone());
    assert!(matches!(absent, Err(OpenError::Absent { .. })), "{absent:?}");
    let refused = fixture.restore("a.wane", "new").await.unwrap_err();
    let message = refused.to_string();
    assert!(message.contains("restoring exists") && message.contains("delete it"), "{message}");

    fs::remove_dir_all(fixture.path("new/restoring")).unwrap();
    assert_eq!(fixture.restore("a.wane", "new").await.unwrap().records, 5);
}

#[tokio::test]
async fn a_file_and_the_store_it_came_from_verify_alike() {
    let fixture = Fixture::of(40).await;
    fixture.backup("a.wane").await.unwrap();
    let file = VerifyArgs { file: Some(fixture.path("a.wane")), data: None };
    let data = VerifyArgs { file: None, data: Some(fixture.path("data")) };
    let of_file = run_verify(&file, &fixture.clock).await.unwrap();
    let of_store = run_verify(&data, &fixture.clock).await.unwrap();
    assert!(of_file.to_string().contains("a.wane is sound\n"), "{of_file}");
    let created_at = of_file.summary.created_at;
    let files = of_store.files.expect("what its files hold");
    assert_eq!((files.tree_records, files.young), (40, 0));
    assert!(of_store.to_string().contains("\ntree       40 records, 0 large"), "{of_store}");
    assert_eq!(Summary { created_at, ..of_store.summary }, of_file.summary);
    assert_eq!(of_file.files, None);
}

/// The lock is taken through another handle of the file, as another process would.
#[tokio::test]
async fn a_store_in_use_points_to_the_running_server() {
    let fixture = Fixture::of(1).await;
    let server = File::open(fixture.path("data/records.redb")).unwrap();
    server.lock().unwrap();
    let refused = fixture.backup("a.wane").await.unwrap_err();
    let message = refused.to_string();
    assert!(message.contains("is open in another process"), "{message}");
    assert!(message.contains("admin address"), "{message}");
    assert_eq!(refused.exit_code(), 3);
    assert_eq!(fixture.left(), [""; 0]);
    drop(server);
    fixture.backup("a.wane").await.unwrap();
}

fn parsed<A: clap::Args>(line: &str) -> Result<A, clap::Error> {
    let command = A::augment_args(Command::new("wane"));
    let matches = command.try_get_matches_from(line.split(' '))?;
    A::from_arg_matches(&matches)
}

#[test]
fn arguments_are_as_the_interface_says() {
    let backup: BackupArgs = parsed("wane a.wane --data dir --force").unwrap();
    assert_eq!(backup.file, Path::new("a.wane"));
    assert!(backup.force && backup.data.as_deref() == Some(Path::new("dir")));
    assert!(parsed::<BackupArgs>("wane a.wane").unwrap().data.is_none());
    assert!(parsed::<RestoreArgs>("wane a.wane").is_err(), "a restoration names its directory");
    assert!(parsed::<RestoreArgs>("wane a.wane --data dir").is_ok());
    assert!(parsed::<VerifyArgs>("wane a.wane").is_ok());
    assert!(parsed::<VerifyArgs>("wane --data dir").is_ok());
    assert!(parsed::<VerifyArgs>("wane a.wane --data dir").is_err(), "one of the two");
    assert!(parsed::<VerifyArgs>("wane").is_err(), "one of the two");
}
