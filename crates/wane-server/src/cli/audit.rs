//! `wane audit`: what happened to an institution's stream, for auditors, and whether it is all there.

use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};
use wane::services::pull_stream::Ispb;

use super::connection::DataFlag;
use super::failure::Failure;
use super::output::{Output, OutputFlags, Table, shown_text};
use super::{Place, Surroundings};
use crate::client::{AuditSpan, VerifiedChain};

#[derive(Debug, Args)]
pub(super) struct AuditArguments {
    #[command(flatten)]
    pub(super) data: DataFlag,

    #[command(subcommand)]
    command: AuditCommand,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// Check that nothing of an institution's audit was changed, moved, taken out or cut off
    Verify {
        /// The institution: eight digits
        #[arg(long, value_name = "N")]
        ispb: Ispb,
    },
    /// Print what happened to an institution's stream, a JSON object a line
    Export {
        /// The institution: eight digits
        #[arg(long, value_name = "N")]
        ispb: Ispb,
        /// From this time on, in Unix milliseconds
        #[arg(long, value_name = "T")]
        from: Option<u64>,
        /// To before this time, in Unix milliseconds
        #[arg(long, value_name = "T")]
        to: Option<u64>,
    },
}

pub(super) async fn run(
    arguments: AuditArguments,
    place: &Place,
    flags: &OutputFlags,
    surroundings: &mut Surroundings,
) -> Result<(), Failure> {
    let output = &mut Output::new(flags, surroundings);
    match arguments.command {
        AuditCommand::Verify { ispb } => {
            let chains = place.client.admin().verify_audit(ispb).await?;
            show(ispb, &chains, output)
        }
        AuditCommand::Export { ispb, from, to } => {
            export(place, ispb, AuditSpan { from, to }, output).await
        }
    }
}

fn show(ispb: Ispb, chains: &[VerifiedChain], output: &mut Output<'_>) -> Result<(), Failure> {
    if output.is_json {
        let told = chains.iter().map(|VerifiedChain { chain, rows, entries }| {
            json!({ "chain": chain, "rows": rows, "entries": entries })
        });
        let object: [(String, Value); 2] =
            [("ispb".to_owned(), ispb.as_str().into()), ("chains".to_owned(), told.collect())];
        return Ok(output.json(Map::from_iter(object))?);
    }
    let mut table = Table::new(&["CHAIN", "ROWS", "ENTRIES"]);
    for VerifiedChain { chain, rows, entries } in chains {
        table.push(vec![shown_text(chain), rows.to_string(), entries.to_string()]);
    }
    Ok(output.table(&table)?)
}

/// Prints page by page. Where it fails, what was printed is right, and not all.
async fn export(
    place: &Place,
    ispb: Ispb,
    span: AuditSpan,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let admin = place.client.admin();
    let mut after = None;
    loop {
        let page = admin.audit(ispb, span, after.as_deref()).await?;
        let mut lines = String::new();
        for entry in page.entries {
            lines += &Value::Object(entry).to_string();
            lines.push('\n');
        }
        output.bytes(lines.as_bytes())?;
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}
