//! Archives in object storage: a directory, and a bucket of a real server that speaks S3. What is put
//! is there whole, or not at all.

mod directory;
#[cfg(feature = "archive-s3")]
mod s3;

use bytes::Bytes;
use wane::services::pull_stream::{Archive, ArchiveError, Ispb, SegmentName};
use wane::store::Timestamp;

fn ispb() -> Ispb {
    "00000208".parse().expect("eight digits")
}

fn name(first: u64) -> SegmentName {
    let moment = Timestamp::from_unix_millis;
    SegmentName {
        region: "local".into(),
        ispb: ispb(),
        rows: first..first + 100,
        times: moment(1_800_000_000_000 + first)..moment(1_800_000_000_100 + first),
        count: 100,
    }
}

/// What every archive does.
async fn keeps_what_it_is_given(archive: &impl Archive) -> Result<(), ArchiveError> {
    assert_eq!(archive.list("local", ispb(), 0, 100).await?, []);
    assert_eq!(archive.get(&name(0)).await?, None);
    let bytes = |first: u64| Bytes::from(vec![first as u8; 3 << 20]);
    // By numbers, and not by the digits they begin with.
    for first in [1_000, 0, 900, 20_000] {
        archive.put(&name(first), bytes(first)).await?;
    }
    archive.put(&name(0), bytes(0)).await?;
    let listed = archive.list("local", ispb(), 0, 100).await?;
    assert_eq!(listed, [0, 900, 1_000, 20_000].map(name));
    assert_eq!(archive.list("local", ispb(), 900, 100).await?, listed[1..]);
    assert_eq!(archive.list("local", ispb(), 901, 1).await?, listed[2..3]);
    assert_eq!(archive.list("local", ispb(), 0, 2).await?, listed[..2]);
    assert_eq!(archive.list("local", ispb(), 20_001, 100).await?, []);
    for segment in &listed {
        assert_eq!(archive.get(segment).await?, Some(bytes(segment.rows.start)), "{segment}");
    }
    let others = [
        SegmentName { region: "elsewhere".into(), ..name(0) },
        SegmentName { ispb: "00000209".parse().expect("eight digits"), ..name(0) },
        // A name that another one begins with.
        SegmentName { region: "local-2".into(), ..name(0) },
    ];
    for other in &others {
        archive.put(other, Bytes::from_static(b"another's")).await?;
        let theirs = archive.list(&other.region, other.ispb, 0, 100).await?;
        assert_eq!(theirs, std::slice::from_ref(other));
    }
    assert_eq!(archive.list("local", ispb(), 0, 100).await?.len(), 4);
    Ok(())
}
