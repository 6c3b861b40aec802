//! `wane stream hold`, `holds` and `release`: messages that stay until somebody lets them go.

use clap::Args;
use serde_json::{Map, Value};
use wane::services::pull_stream::{HoldId, Ispb};

use super::IspbFlag;
use crate::cli::failure::Failure;
use crate::cli::output::{Output, Table};
use crate::client::{Admin, ListedHold};

#[derive(Debug, Args)]
pub(super) struct HoldArguments {
    #[command(flatten)]
    who: IspbFlag,

    /// The first moment whose messages are held, in Unix milliseconds
    #[arg(long, value_name = "MS")]
    from: u64,

    /// The first moment after it; it may be later than now
    #[arg(long, value_name = "MS")]
    to: u64,

    /// Why, for the audit
    #[arg(long, value_name = "TEXT")]
    reason: String,
}

pub(super) async fn place(
    arguments: &HoldArguments,
    admin: &Admin,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let HoldArguments { who, from, to, reason } = arguments;
    let placed = admin.hold(who.ispb, *from..*to, reason).await?;
    if output.is_json {
        let object: [(String, Value); 2] = [
            ("holdId".to_owned(), placed.id.to_string().into()),
            ("rows".to_owned(), placed.rows.into()),
        ];
        return Ok(output.json(Map::from_iter(object))?);
    }
    let mut table = Table::default();
    table.push(vec!["hold".into(), placed.id.to_string()]);
    table.push(vec!["rows".into(), placed.rows.to_string()]);
    Ok(output.table(&table)?)
}

pub(super) async fn list(
    ispb: Ispb,
    admin: &Admin,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let holds = admin.holds(ispb).await?;
    if output.is_json {
        for hold in &holds {
            output.json(object_of(hold))?;
        }
        return Ok(());
    }
    let mut table = Table::default();
    for hold in &holds {
        let ListedHold { id, from, to, reason, rows, state, .. } = hold;
        let rows = format!("{rows} rows");
        table.push(vec![
            id.to_string(),
            state.clone(),
            rows,
            format!("{from}..{to}"),
            reason.clone(),
        ]);
    }
    Ok(output.table(&table)?)
}

fn object_of(hold: &ListedHold) -> Map<String, Value> {
    let members: [(&str, Value); 8] = [
        ("holdId", hold.id.to_string().into()),
        ("from", hold.from.into()),
        ("to", hold.to.into()),
        ("reason", hold.reason.as_str().into()),
        ("who", hold.who.as_str().into()),
        ("placedAt", hold.placed_at.into()),
        ("rows", hold.rows.into()),
        ("state", hold.state.as_str().into()),
    ];
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

pub(super) async fn release(id: &HoldId, admin: &Admin) -> Result<(), Failure> {
    Ok(admin.release_hold(id).await?)
}
