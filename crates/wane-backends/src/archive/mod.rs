//! Archives of pull streams in object storage: a directory, or a bucket of S3.
//!
//! A segment is an object under its name. It is put whole or not at all: in a directory it is
//! written beside its place, made durable and given its name then; S3 shows an object once all of
//! it has come.
//!
//! What lies there under other names is not ours, and is passed by.

use std::fs;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{Error, GetOptions, ObjectStore, PutOptions};
use wane::services::pull_stream::{
    Archive, ArchiveError, ArchiveFuture, Ispb, LONGEST_SEGMENT, SegmentName,
};

use crate::OpenError;

#[cfg(feature = "archive-s3")]
mod s3;

/// Segments in object storage.
#[derive(Debug, Clone)]
pub struct ObjectArchive {
    objects: Arc<dyn ObjectStore>,
    /// What all names begin with.
    prefix: Path,
    /// Whether names are listed in their order: then no more are asked for than are wanted.
    is_ordered: bool,
}

impl ObjectArchive {
    /// The archive that `url` names: `dir:PATH`, which is made where it is missing, or
    /// `s3://BUCKET/PREFIX`.
    ///
    /// Region and credentials of S3 come from `AWS_*` as usual; `endpoint` is another server that
    /// speaks its protocol. Whether that one answers shows with the first call.
    pub fn open(url: &str, endpoint: Option<&str>) -> Result<Self, OpenError> {
        match url.split_once(':') {
            Some(("dir", path)) if !path.is_empty() => Self::in_directory(path),
            #[cfg(feature = "archive-s3")]
            Some(("s3", rest)) => s3::open(rest, endpoint),
            #[cfg(not(feature = "archive-s3"))]
            Some(("s3", _)) => {
                let _ = endpoint;
                Err(OpenError::NotBuilt { backend: "archive in S3", feature: "aws" })
            }
            _ => {
                let reason = format!("{url:?} is none; give dir:PATH or s3://BUCKET/PREFIX");
                Err(OpenError::BadUrl { backend: "archive", reason })
            }
        }
    }

    fn in_directory(path: &str) -> Result<Self, OpenError> {
        let refused = |source| OpenError::Io { path: path.into(), source };
        fs::create_dir_all(path).map_err(|error| refused(error.into()))?;
        let directory = LocalFileSystem::new_with_prefix(path);
        let directory = directory.map_err(|error| refused(error.into()))?;
        let objects = Arc::new(directory.with_fsync(true));
        Ok(Self { objects, prefix: Path::default(), is_ordered: false })
    }

    fn place(&self, name: &str) -> Result<Path, ArchiveError> {
        let path = match self.prefix.as_ref() {
            "" => name.to_owned(),
            prefix => format!("{prefix}/{name}"),
        };
        Path::parse(path).map_err(|error| ArchiveError::Unavailable { source: error.into() })
    }

    /// The segment whose object this is, if it is one.
    fn name_of(&self, object: &Path) -> Option<SegmentName> {
        let text = object.as_ref();
        let name = match self.prefix.as_ref() {
            "" => text,
            prefix => text.strip_prefix(prefix)?.strip_prefix('/')?,
        };
        name.parse().ok()
    }
}

fn unavailable(error: Error) -> ArchiveError {
    ArchiveError::Unavailable { source: error.into() }
}

impl Archive for ObjectArchive {
    fn put(&self, name: &SegmentName, segment: Bytes) -> ArchiveFuture<'_, ()> {
        let place = self.place(&name.to_string());
        Box::pin(async move {
            let place = place?;
            let put = self.objects.put_opts(&place, segment.into(), PutOptions::default());
            put.await.map(drop).map_err(unavailable)
        })
    }

    fn get(&self, name: &SegmentName) -> ArchiveFuture<'_, Option<Bytes>> {
        let (place, segment) = (self.place(&name.to_string()), name.clone());
        Box::pin(async move {
            let object = match self.objects.get_opts(&place?, GetOptions::default()).await {
                Ok(object) => object,
                Err(Error::NotFound { .. }) => return Ok(None),
                Err(error) => return Err(unavailable(error)),
            };
            if object.meta.size > LONGEST_SEGMENT as u64 {
                let reason = format!("it has {} bytes, which no segment has", object.meta.size);
                return Err(ArchiveError::Damaged { segment, reason });
            }
            object.bytes().await.map(Some).map_err(unavailable)
        })
    }

    fn list(
        &self,
        region: &str,
        ispb: Ispb,
        from_row: u64,
        most: usize,
    ) -> ArchiveFuture<'_, Vec<SegmentName>> {
        let place = self.place(&format!("{region}/{ispb}"));
        // Before the names of all segments that begin there, which go on behind it.
        let before = self.place(&format!("{region}/{ispb}/{from_row:020}"));
        Box::pin(async move {
            let (place, before) = (place?, before?);
            let objects = self.objects.list_with_offset(Some(&place), &before);
            let names = objects
                .map_err(unavailable)
                .try_filter_map(|object| std::future::ready(Ok(self.name_of(&object.location))));
            if self.is_ordered {
                return names.take(most).try_collect().await;
            }
            let mut names: Vec<SegmentName> = names.try_collect().await?;
            names.sort_by_key(|name| (name.rows.start, name.rows.end));
            names.truncate(most);
            Ok(names)
        })
    }
}
