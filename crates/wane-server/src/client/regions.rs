//! The operator's calls of regions: which of two serves an institution, and the other takes over.

use hyper::Method;
use serde::Deserialize;
use wane::services::pull_stream::{Failover, Ispb, RegionMap};
use wane::store::Timestamp;

use super::app_ttl::Json;
use super::{Admin, ClientError};

impl Admin {
    /// Which regions serve an institution; [`ClientError::Absent`] where every region does.
    pub async fn region_map(&self, ispb: Ispb) -> Result<RegionMap, ClientError> {
        self.read(&format!("/regions/{ispb}")).await?.read_as(|form: MapForm| {
            Ok(RegionMap {
                primary: form.primary,
                secondary: form.secondary,
                epoch: form.epoch,
                failed_over_at: form.failed_over_at.map(Timestamp::from_unix_millis),
            })
        })
    }

    /// Says which region serves an institution, and which may take over: the epoch that holds.
    pub async fn set_regions(
        &self,
        ispb: Ispb,
        primary: &str,
        secondary: &str,
    ) -> Result<u64, ClientError> {
        let body = Json::from_iter([
            ("primary".to_owned(), primary.into()),
            ("secondary".to_owned(), secondary.into()),
        ]);
        let answer = self.write(Method::PUT, &format!("/regions/{ispb}"), Some(body)).await?;
        answer.read_as(|form: EpochForm| Ok(form.epoch))
    }

    /// Lets the other region serve an institution: the epoch that holds. Where it names the region,
    /// the same call may be made again after [`ClientError::UnknownOutcome`].
    pub async fn fail_over(&self, ispb: Ispb, failover: &Failover) -> Result<u64, ClientError> {
        let named = [("to", &failover.to), ("reason", &failover.reason)];
        let named = named.into_iter().filter_map(|(name, text)| Some((name, text.as_deref()?)));
        let mut body: Json = named.map(|(name, text)| (name.to_owned(), text.into())).collect();
        if let Some(epoch) = failover.epoch {
            body.insert("epoch".into(), epoch.into());
        }
        let path = format!("/regions/{ispb}/failover");
        let answer = self.write(Method::POST, &path, Some(body)).await?;
        answer.read_as(|form: EpochForm| Ok(form.epoch))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MapForm {
    primary: String,
    secondary: String,
    epoch: u64,
    failed_over_at: Option<u64>,
}

#[derive(Deserialize)]
struct EpochForm {
    epoch: u64,
}
