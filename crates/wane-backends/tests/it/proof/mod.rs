//! What the crash proofs share: callers that note what they do, and a verifier that compares the
//! notes with what a store holds after a crash.
//!
//! ```text
//! workload -> ledger (outside of the store) -> verifier <- the store, opened again
//! ```
//!
//! A caller notes each operation before it begins and after it was answered. Each key has one
//! caller, so its notes are a history in order, and at most its last operation is undecided. Keys
//! that all callers race for are checked by what must hold of them in any order.

pub(crate) mod child;
pub(crate) mod ledger;
pub(crate) mod script;
pub(crate) mod verifier;
pub(crate) mod workload;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::Runtime;
use wane::clock::{Clock, ManualClock, SharedClock, SystemClock};
use wane_backends::file::FileStore;

use self::verifier::Verifier;

/// How often a proof goes round: `name` in the environment, or what each CI run does.
pub(crate) fn count(name: &str, in_ci: u64) -> u64 {
    let set = std::env::var(name).ok();
    set.map_or(in_ci, |set| set.parse().unwrap_or_else(|_| panic!("{name} is not a number")))
}

/// Chance from a seed.
#[derive(Debug, Clone)]
pub(crate) struct Chance(Arc<ManualClock>);

impl Chance {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(ManualClock::seeded(seed))
    }

    /// A number below `bound`.
    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.0.random_u64() % bound
    }
}

pub(crate) fn runtime() -> Runtime {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build();
    runtime.expect("a runtime")
}

/// Lets real time pass, while another process works or the writer tidies up.
#[expect(clippy::disallowed_methods, reason = "another process or thread works meanwhile")]
pub(crate) fn wait(duration: Duration) {
    std::thread::sleep(duration);
}

/// Does `work` while what it logs is brought into the tree over and over, so that whatever strikes
/// strikes checkpoints too.
pub(crate) async fn beside_checkpoints<T>(store: &FileStore, work: impl Future<Output = T>) -> T {
    let clock = SystemClock::shared();
    let checkpoints = async {
        loop {
            // A store that has failed says so to the callers at work.
            drop(store.flush().await);
            clock.sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::select! {
        done = work => done,
        () = checkpoints => unreachable!("checkpoints go on"),
    }
}

/// Bytes of all segments of the log.
pub(crate) fn size_of_log(directory: &Path) -> u64 {
    let segments = std::fs::read_dir(directory.join("log")).expect("the folder of the log");
    // One may be renamed or removed between the list and the look.
    let files = segments.filter_map(|entry| entry.expect("an entry of it").metadata().ok());
    files.map(|file| file.len()).sum()
}

/// A copy of what is in the directory of a store, as a kill at this moment would leave it.
pub(crate) fn copied(directory: &Path) -> TempDir {
    let copy = tempfile::tempdir().expect("a temporary directory");
    for folder in ["", "log"] {
        let (from, to) = (directory.join(folder), copy.path().join(folder));
        std::fs::create_dir_all(&to).expect("a folder");
        for file in std::fs::read_dir(from).expect("a folder").flatten() {
            if file.path().is_file() {
                std::fs::copy(file.path(), to.join(file.file_name())).expect("a copy");
            }
        }
    }
    copy
}

/// Opens the store as the next process would, and checks it against the verifier's notes. Its files
/// must agree with each other before.
pub(crate) fn check_reopened(directory: &Path, verifier: &mut Verifier) {
    if FileStore::exists(directory) {
        FileStore::verify(directory).expect("the files agree");
    }
    let clock = SystemClock::shared();
    let store = FileStore::open_or_create(directory, Arc::clone(&clock)).expect("the store opens");
    runtime().block_on(verifier.check(&store, &clock));
}

/// Checks that all that has expired leaves the file by itself: what stays is permanent.
pub(crate) fn expired_records_leave(directory: &Path) {
    const LONG: Duration = Duration::from_secs(24 * 60 * 60);
    let clock = ManualClock::seeded(0);
    let store = FileStore::open(directory, Arc::clone(&clock) as SharedClock).expect("it opens");
    runtime().block_on(async {
        clock.advance(LONG);
        let live = verifier::scan(&store).await.expect("the store is read").len() as u64;
        for _ in 0..15_000 {
            if store.stored_records().await.expect("the store is read") == live {
                return;
            }
            clock.advance(Duration::from_secs(1));
            wait(Duration::from_millis(2));
        }
        panic!("of {:?} records only {live} live", store.stored_records().await);
    });
}
