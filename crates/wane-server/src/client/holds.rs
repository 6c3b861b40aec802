//! The operator's calls for legal holds.

use std::ops::Range;
use std::time::Duration;

use hyper::Method;
use serde::Deserialize;
use wane::services::pull_stream::{HoldId, Ispb};

use super::app_ttl::Json;
use super::{Admin, ClientError};

/// How long a hold may take to be placed or released: every row of it is written.
const PATIENCE: Duration = Duration::from_secs(3_600);

/// A hold that was placed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PlacedHold {
    /// Its name.
    #[serde(rename = "holdId")]
    pub id: HoldId,
    /// Rows of the log that are under it so far.
    pub rows: u64,
}

/// A hold in a list. Times are in Unix milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(missing_docs, reason = "the names say it, as in the answers of the server")]
pub struct ListedHold {
    #[serde(rename = "holdId")]
    pub id: HoldId,
    pub from: u64,
    pub to: u64,
    pub reason: String,
    pub who: String,
    pub placed_at: u64,
    pub rows: u64,
    /// `placing`, `placed` or `releasing`.
    pub state: String,
}

#[derive(Deserialize)]
struct HoldsForm {
    items: Vec<ListedHold>,
}

impl Admin {
    /// Keeps the messages that came in between two moments, in Unix milliseconds.
    pub async fn hold(
        &self,
        ispb: Ispb,
        times: Range<u64>,
        reason: &str,
    ) -> Result<PlacedHold, ClientError> {
        let mut body = Json::new();
        body.insert("ispb".into(), ispb.as_str().into());
        body.insert("from".into(), times.start.into());
        body.insert("to".into(), times.end.into());
        body.insert("reason".into(), reason.into());
        let patient = self.with_patience(PATIENCE);
        patient.write(Method::POST, "/holds", Some(body)).await?.read_as(Ok)
    }

    /// The holds of an institution.
    pub async fn holds(&self, ispb: Ispb) -> Result<Vec<ListedHold>, ClientError> {
        let answer = self.read(&format!("/holds?ispb={ispb}")).await?;
        answer.read_as(|form: HoldsForm| Ok(form.items))
    }

    /// Ends a hold.
    pub async fn release_hold(&self, id: &HoldId) -> Result<(), ClientError> {
        let patient = self.with_patience(PATIENCE);
        patient.write(Method::DELETE, &format!("/holds/{id}"), None).await.map(drop)
    }
}
