//! `wane stream region` and `wane stream failover`: where an institution is served.

use clap::Args;
use serde_json::{Map, Value};
use wane::services::pull_stream::{Failover, Ispb, RegionMap};
use wane::store::Timestamp;

use crate::cli::failure::Failure;
use crate::cli::output::{Output, Table};
use crate::client::Admin;

#[derive(Debug, Args)]
pub(super) struct RegionArguments {
    /// The institution: eight digits
    #[arg(long, value_name = "N")]
    ispb: Ispb,

    /// Let this region serve it
    #[arg(long, value_name = "REGION", requires = "secondary")]
    primary: Option<String>,

    /// Let this region take over where it must
    #[arg(long, value_name = "REGION", requires = "primary")]
    secondary: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct FailoverArguments {
    /// The institution: eight digits
    #[arg(long, value_name = "N")]
    ispb: Ispb,

    /// The region that takes over; typed again, the command changes nothing
    #[arg(long, value_name = "REGION")]
    to: String,

    /// Why, for the audit
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

pub(super) async fn region(
    arguments: &RegionArguments,
    admin: &Admin,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    if let (Some(primary), Some(secondary)) = (&arguments.primary, &arguments.secondary) {
        let epoch = admin.set_regions(arguments.ispb, primary, secondary).await?;
        return told(epoch, primary, output);
    }
    let map = admin.region_map(arguments.ispb).await?;
    show(arguments.ispb, &map, output)
}

pub(super) async fn failover(
    arguments: &FailoverArguments,
    admin: &Admin,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let (to, reason) = (Some(arguments.to.clone()), Some(arguments.reason.clone()));
    let epoch = admin.fail_over(arguments.ispb, &Failover { to, epoch: None, reason }).await?;
    told(epoch, &arguments.to, output)
}

/// Who serves since which epoch.
fn told(epoch: u64, region: &str, output: &mut Output<'_>) -> Result<(), Failure> {
    let object: [(String, Value); 2] =
        [("epoch".to_owned(), epoch.into()), ("primary".to_owned(), region.into())];
    let line = format!("{region} serves it, epoch {epoch}");
    Ok(output.answer(Map::from_iter(object), &line)?)
}

fn show(ispb: Ispb, map: &RegionMap, output: &mut Output<'_>) -> Result<(), Failure> {
    let failed_over_at = map.failed_over_at.map(Timestamp::as_unix_millis);
    if output.is_json {
        let object: [(String, Value); 5] = [
            ("ispb".to_owned(), ispb.as_str().into()),
            ("primary".to_owned(), map.primary.as_str().into()),
            ("secondary".to_owned(), map.secondary.as_str().into()),
            ("epoch".to_owned(), map.epoch.into()),
            ("failedOverAt".to_owned(), failed_over_at.into()),
        ];
        return Ok(output.json(Map::from_iter(object))?);
    }
    let mut table = Table::default();
    for (name, value) in [
        ("ispb", ispb.to_string()),
        ("primary", map.primary.clone()),
        ("secondary", map.secondary.clone()),
        ("epoch", map.epoch.to_string()),
        ("failed over at", failed_over_at.map_or_else(|| "never".into(), |at| at.to_string())),
    ] {
        table.push(vec![name.into(), value]);
    }
    Ok(output.table(&table)?)
}
