//! An archive in a directory.

use std::fs;
use std::path::Path;

use bytes::Bytes;
use wane::services::pull_stream::{Archive, ArchiveError, LONGEST_SEGMENT};
use wane_backends::{ObjectArchive, OpenError};

use super::{ispb, keeps_what_it_is_given, name};

fn open(path: &Path) -> ObjectArchive {
    ObjectArchive::open(&format!("dir:{}", path.display()), None).expect("it can be made")
}

#[tokio::test]
async fn a_directory_keeps_what_it_is_given() {
    let place = tempfile::tempdir().unwrap();
    let deep = place.path().join("made/as/needed");
    keeps_what_it_is_given(&open(&deep)).await.unwrap();
    let again = open(&deep);
    assert_eq!(
        again.list("local", ispb(), 0, 100).await.unwrap().len(),
        4,
        "another process finds it"
    );
    let file = deep.join(name(900).to_string());
    assert_eq!(fs::metadata(file).unwrap().len(), 3 << 20, "a segment is a file of its name");
}

#[tokio::test]
async fn what_lies_beside_segments_is_passed_by_and_what_is_too_long_is_damage() {
    let place = tempfile::tempdir().unwrap();
    let archive = open(place.path());
    archive.put(&name(0), Bytes::from_static(b"segment")).await.unwrap();
    let directory = place.path().join("local/00000208");
    fs::write(directory.join("notes.txt"), "somebody's").unwrap();
    fs::create_dir(directory.join("old")).unwrap();
    fs::write(directory.join("old/file"), "somebody's").unwrap();
    assert_eq!(archive.list("local", ispb(), 0, 100).await.unwrap(), [name(0)]);

    let file = fs::File::create(directory.join(name(5).to_string().rsplit('/').next().unwrap()));
    file.unwrap().set_len(LONGEST_SEGMENT as u64 + 1).unwrap();
    let told = archive.get(&name(5)).await;
    assert!(matches!(&told, Err(ArchiveError::Damaged { segment, .. }) if *segment == name(5)));
}

/// A full disk, or a directory that went away: nothing is kept of what could not be kept whole.
#[tokio::test]
async fn what_cannot_be_written_is_told_and_leaves_nothing() {
    let place = tempfile::tempdir().unwrap();
    let archive = open(&place.path().join("archive"));
    // A file where a directory has to be.
    fs::write(place.path().join("archive/local"), "in the way").unwrap();
    let told = archive.put(&name(0), Bytes::from_static(b"segment")).await;
    assert!(matches!(told, Err(ArchiveError::Unavailable { .. })), "{told:?}");
    fs::remove_file(place.path().join("archive/local")).unwrap();
    assert_eq!(archive.list("local", ispb(), 0, 100).await.unwrap(), []);
    archive.put(&name(0), Bytes::from_static(b"segment")).await.unwrap();
    assert_eq!(archive.get(&name(0)).await.unwrap().unwrap(), "segment");
}

#[test]
fn what_is_no_archive_is_refused_with_what_would_be_one() {
    for wrong in ["", "dir:", "archive", "file:/x", "http://x", "s3", "s3:", "s3:bucket", "s3:///x"]
    {
        let told = ObjectArchive::open(wrong, None).map(drop);
        let is_bad = matches!(&told, Err(OpenError::BadUrl { .. } | OpenError::NotBuilt { .. }));
        assert!(is_bad, "{wrong:?}: {told:?}");
    }
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("file");
    fs::write(&file, "in the way").unwrap();
    let told = ObjectArchive::open(&format!("dir:{}", file.display()), None).map(drop);
    assert!(matches!(told, Err(OpenError::Io { .. })), "{told:?}");
}
