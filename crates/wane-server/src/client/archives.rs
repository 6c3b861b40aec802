//! The operator's calls for the archive of pull streams.

use std::ops::Range;

use hyper::Method;
use serde::Deserialize;
use serde_json::json;
use wane::services::pull_stream::{ArchiveReport, Ispb};
use wane::store::Timestamp;

use super::app_ttl::Json;
use super::{Admin, ClientError};

/// A segment of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArchivedSegment {
    /// Where it lies.
    pub name: String,
    /// Its first row in the log.
    pub first_row: u64,
    /// Behind its last row.
    pub end_row: u64,
    /// How many rows it has.
    pub rows: u64,
    /// When its messages came in: Unix milliseconds.
    pub from: u64,
    /// Up to when.
    pub to: u64,
}

/// What was read of an archive, and is whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub struct Verified {
    /// Segments.
    pub segments: u64,
    /// Rows in them.
    pub rows: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Segments of an archive, by their first rows.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ArchivedSegments {
    /// The segments.
    pub items: Vec<ArchivedSegment>,
    /// The row to go on from; `None` at the end.
    pub next: Option<u64>,
    /// What was read, where that was asked for.
    pub verified: Option<Verified>,
}

#[derive(Deserialize)]
struct ReportForm {
    segments: u64,
    rows: u64,
    messages: u64,
    bytes: u64,
    #[serde(default)]
    damaged: u64,
    done: bool,
    reached: Option<u64>,
}

impl Admin {
    /// Archives messages of a time, up to a number of segments. What is archived is not copied again.
    pub async fn archive(
        &self,
        ispb: Ispb,
        times: Range<Timestamp>,
        segments: u64,
    ) -> Result<ArchiveReport, ClientError> {
        let [from, to] = [times.start, times.end].map(Timestamp::as_unix_millis);
        let body: Json = [
            ("ispb", json!(ispb)),
            ("from", json!(from)),
            ("to", json!(to)),
            ("segments", json!(segments)),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect();
        let answer = self.write(Method::POST, "/archives", Some(body)).await?;
        answer.read_as(|form: ReportForm| {
            Ok(ArchiveReport {
                segments: form.segments,
                rows: form.rows,
                messages: form.messages,
                bytes: form.bytes,
                gone: 0,
                damaged: form.damaged,
                first_damaged: None,
                reached: form.reached.map(Timestamp::from_unix_millis),
                is_done: form.done,
            })
        })
    }

    /// The segments of an institution from a row on; read and checked, where that is asked for.
    pub async fn archives(
        &self,
        ispb: Ispb,
        from_row: u64,
        verify: bool,
    ) -> Result<ArchivedSegments, ClientError> {
        let path = format!("/archives?ispb={ispb}&fromRow={from_row}&verify={verify}");
        self.read(&path).await?.read_as(Ok)
    }
}
