//! A log is written, everything stops, and it is read back: whole, cut, or refused.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

use super::frame::{HEAD, TAIL};
use super::*;

const STORE: u64 = 77;

/// Young records of so many bytes have segments of the full size.
const YOUNG: usize = 256 << 20;

/// A folder with a log.
struct Bench {
    home: TempDir,
}

/// A change as it was read back: its segment, its key, and what that holds.
type Change = (u64, String, Option<String>);

impl Bench {
    fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap() }
    }

    fn shelf(&self) -> Arc<dyn Shelf> {
        Arc::new(Folder::new(self.home.path()))
    }

    fn path(&self, segment: u64) -> PathBuf {
        self.home.path().join(segment_name(segment))
    }

    /// Reads the log back, of which the tree has all up to `checkpointed`.
    fn read(&self, checkpointed: u64) -> Result<(Recovered, Vec<Change>), Unread> {
        let mut changes = Vec::new();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let recovered = recover(&*self.shelf(), STORE, checkpointed, |segment, logged| {
            changes.push((segment, text(logged.key), logged.entry.map(text)));
            Ok(())
        })?;
        Ok((recovered, changes))
    }

    fn refused(&self) -> String {
        self.read(0).expect_err("it was not refused").to_string()
    }

    /// Opens the log, with everything that is in it.
    fn open(&self) -> Log {
        let (recovered, _) = self.read(0).unwrap();
        let segments = Segments::new(self.shelf(), STORE, &recovered.segments);
        Log::go_on(segments, &recovered, YOUNG).unwrap()
    }

    /// A log of frames `1..=count`, one change in each, all in segment 1.
    fn filled(count: u64) -> Self {
        let bench = Self::new();
        let mut log = bench.open();
        (1..=count).for_each(|frame| log_one(&mut log, &format!("k{frame}"), "v"));
        bench
    }

    /// Changes the bytes of a segment.
    fn tamper(&self, segment: u64, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(self.path(segment)).unwrap();
        change(&mut bytes);
        fs::write(self.path(segment), bytes).unwrap();
    }
}

fn now() -> Timestamp {
    Timestamp::from_unix_millis(1_700_000_000_000)
}

fn log_one(log: &mut Log, key: &str, entry: &str) {
    let mut draft = Draft::default();
    draft.push(key.as_bytes(), entry.as_bytes());
    if !log.fits(&draft) {
        log.rotate(&draft).unwrap();
    }
    log.append(&mut draft, now()).unwrap();
}

fn keys(changes: &[Change]) -> Vec<&str> {
    changes.iter().map(|(_, key, _)| key.as_str()).collect()
}

/// Where the frame `number` of [`Bench::filled`] begins.
fn frame_at(number: u64) -> usize {
    number as usize * BLOCK
}

#[test]
fn what_was_logged_is_read_back_in_order() {
    let bench = Bench::new();
    let mut log = bench.open();
    log_one(&mut log, "a", "1");
    log_one(&mut log, "b", "2");
    log_one(&mut log, "a", "");
    drop(log);
    let (recovered, changes) = bench.read(0).unwrap();
    assert_eq!(recovered.last, 3);
    assert_eq!(recovered.time, Some(now()));
    let expected = [("a", Some("1")), ("b", Some("2")), ("a", None)];
    let expected = expected.map(|(key, entry)| (1, key.to_owned(), entry.map(str::to_owned)));
    assert_eq!(changes, expected);
}

#[test]
fn what_the_tree_has_is_not_read_again() {
    let bench = Bench::filled(5);
    let (recovered, changes) = bench.read(3).unwrap();
    assert_eq!((recovered.last, keys(&changes)), (5, vec!["k4", "k5"]));
    let (recovered, changes) = bench.read(5).unwrap();
    assert_eq!((recovered.last, changes), (5, Vec::new()));
    assert_eq!(recovered.segments[0].last, None);
}

#[test]
fn an_empty_log_is_a_log() {
    let bench = Bench::new();
    let (recovered, changes) = bench.read(9).unwrap();
    assert_eq!((recovered.last, recovered.segments, changes), (9, Vec::new(), Vec::new()));
    drop(bench.open());
    assert_eq!(bench.read(0).unwrap().0.last, 0);
}

#[test]
fn a_frame_that_was_being_written_is_cut_off_wherever_it_is_torn() {
    let whole = Bench::filled(3);
    let bytes = fs::read(whole.path(1)).unwrap();
    let len = HEAD + 6 + 2 + 1;
    for cut in 0..len {
        whole.tamper(1, |bytes| bytes[frame_at(3) + cut..frame_at(4)].fill(0));
        let (recovered, changes) = whole.read(0).unwrap();
        assert_eq!((recovered.last, keys(&changes)), (2, vec!["k1", "k2"]), "cut at {cut}");
        fs::write(whole.path(1), &bytes).unwrap();
    }
    // Nothing is missing but zeros and what ends it.
    whole.tamper(1, |bytes| bytes[frame_at(4) - TAIL..frame_at(4)].fill(0));
    assert_eq!(whole.read(0).unwrap().0.last, 2);
}

/// A store that wrote to a torn segment could not tell its end from damage.
#[test]
fn the_log_goes_on_in_another_segment_after_a_torn_one() {
    let bench = Bench::filled(3);
    bench.tamper(1, |bytes| bytes[frame_at(3) + HEAD] ^= 1);
    let mut log = bench.open();
    assert_eq!(log.segment(), 2);
    log_one(&mut log, "again", "v");
    drop(log);
    let (recovered, changes) = bench.read(0).unwrap();
    assert_eq!((recovered.last, keys(&changes)), (3, vec!["k1", "k2", "again"]));
    let mut log = bench.open();
    log_one(&mut log, "more", "v");
    drop(log);
    assert_eq!(bench.read(0).unwrap().0.last, 4);
}

#[test]
fn a_flipped_bit_in_a_frame_with_others_behind_it_is_refused() {
    let bench = Bench::filled(3);
    let len = HEAD + 6 + 2 + 1;
    for frame in [1, 2] {
        for bit in 0..8 * len {
            let flip = |bytes: &mut Vec<u8>| bytes[frame_at(frame) + bit / 8] ^= 1 << (bit % 8);
            bench.tamper(1, flip);
            let refused = bench.refused();
            assert!(
                refused.contains("was written after it"),
                "frame {frame}, bit {bit}: {refused}"
            );
            bench.tamper(1, flip);
        }
    }
    assert!(bench.read(0).is_ok());
}

#[test]
fn a_flipped_bit_in_a_header_is_refused() {
    let bench = Bench::filled(1);
    for bit in 0..8 * 40 {
        let flip = |bytes: &mut Vec<u8>| bytes[bit / 8] ^= 1 << (bit % 8);
        bench.tamper(1, flip);
        assert!(bench.refused().contains("its header cannot be read"), "bit {bit}");
        bench.tamper(1, flip);
    }
}

#[test]
fn a_segment_that_is_cut_short_or_of_another_store_is_refused() {
    let bench = Bench::filled(2);
    let bytes = fs::read(bench.path(1)).unwrap();
    for (len, reason) in [(100, "less than its header"), (bytes.len() - 1, "of 1048576 bytes")] {
        fs::write(bench.path(1), &bytes[..len]).unwrap();
        assert!(bench.refused().contains(reason), "{}", bench.refused());
    }
    fs::write(bench.path(1), &bytes).unwrap();
    let other = recover(&*bench.shelf(), STORE + 1, 0, |_, _| Ok(())).unwrap_err();
    assert!(other.to_string().contains("another store"), "{other}");
    fs::rename(bench.path(1), bench.path(4)).unwrap();
    assert!(bench.refused().contains("under another name"), "{}", bench.refused());
}

#[test]
fn a_frame_that_is_missing_between_segments_is_refused() {
    let bench = Bench::new();
    for key in ["a", "b", "c"] {
        let mut log = bench.open();
        log_one(&mut log, key, "v");
    }
    assert_eq!(keys(&bench.read(0).unwrap().1), ["a", "b", "c"]);
    fs::remove_file(bench.path(2)).unwrap();
    assert!(bench.refused().contains("frame 2 is missing"), "{}", bench.refused());
    fs::remove_file(bench.path(1)).unwrap();
    assert!(bench.refused().contains("frame 1 is missing"), "{}", bench.refused());
    assert_eq!(keys(&bench.read(2).unwrap().1), ["c"], "the tree has the others");
}

#[test]
fn segments_grow_and_the_next_one_is_there_when_one_is_full() {
    let bench = Bench::new();
    let mut log = bench.open();
    let entry = "x".repeat(100_000);
    (0..60).for_each(|change| log_one(&mut log, &change.to_string(), &entry));
    drop(log);
    let (recovered, changes) = bench.read(0).unwrap();
    assert_eq!((changes.len(), recovered.last), (60, 60));
    let sizes: Vec<_> = recovered.segments.iter().map(|found| found.size >> 20).collect();
    assert_eq!(sizes[..3], [1, 2, 4]);
}

#[test]
fn a_frame_larger_than_a_segment_gets_one_of_its_own() {
    let bench = Bench::new();
    let mut log = bench.open();
    log_one(&mut log, "small", "v");
    log_one(&mut log, "large", &"x".repeat(5 << 20));
    log_one(&mut log, "small again", "v");
    drop(log);
    let (_, changes) = bench.read(0).unwrap();
    assert_eq!(keys(&changes), ["small", "large", "small again"]);
}

/// What is left in it of the segment that it was before is no part of the log.
#[test]
fn a_segment_that_the_tree_made_superfluous_is_written_over() {
    let bench = Bench::new();
    let mut log = bench.open();
    let entry = "x".repeat(100_000);
    let sizes = |log: &Log| log.segments.size();
    for round in 0..40 {
        (0..20).for_each(|change| log_one(&mut log, &format!("{round} {change}"), &entry));
        log.segments.give_up_before(log.segment());
    }
    assert!(sizes(&log) < 3 * FULL_SIZE, "{}", sizes(&log));
    let (sequence, segment) = (log.sequence, log.segment());
    drop(log);
    let needed = fs::metadata(bench.path(segment)).unwrap().len();
    assert_eq!(needed, FULL_SIZE);
    let (recovered, _) = bench.read(sequence - 1).unwrap();
    assert_eq!(recovered.last, sequence);
}

#[test]
fn what_was_being_prepared_is_removed_or_prepared_again() {
    let bench = Bench::filled(1);
    let draft = bench.home.path().join(shelf::draft_name(2));
    fs::write(&draft, b"half of it").unwrap();
    let mut log = bench.open();
    assert!(!draft.exists());
    log_one(&mut log, "k2", "v");
    drop(log);
    assert_eq!(bench.read(0).unwrap().0.last, 2);
}

/// Segments that the tree has made superfluous go one after the other, and a kill may leave some.
#[test]
fn a_gap_in_what_the_tree_has_is_none_in_the_log() {
    let bench = Bench::new();
    for key in ["a", "b", "c"] {
        let mut log = bench.open();
        log_one(&mut log, key, "v");
    }
    let (recovered, _) = bench.read(2).unwrap();
    let segments = Segments::new(bench.shelf(), STORE, &recovered.segments);
    let mut log = Log::go_on(segments, &recovered, YOUNG).unwrap();
    log_one(&mut log, "d", "v");
    drop(log);
    assert!(!bench.path(1).exists(), "the oldest is written over first");
    assert_eq!(keys(&bench.read(2).unwrap().1), ["c", "d"]);
    fs::remove_file(bench.path(2)).unwrap();
    assert_eq!(keys(&bench.read(2).unwrap().1), ["c", "d"]);
    assert!(bench.read(1).unwrap_err().to_string().contains("frame 2 is missing"));
    fs::remove_file(bench.path(3)).unwrap();
    assert!(bench.read(2).unwrap_err().to_string().contains("frame 3 is missing"));
}

/// A kill may come between writing a frame and its sync, and a power cut after the next start.
#[test]
fn the_last_frame_is_made_durable_before_the_log_goes_on() {
    let bench = Bench::filled(2);
    let (recovered, _) = bench.read(0).unwrap();
    let end = recovered.end.unwrap();
    assert_eq!((end.segment, end.offset as usize, end.size), (1, frame_at(2), BLOCK));
    assert_eq!(bench.read(2).unwrap().0.end, None, "the tree has it");
}
