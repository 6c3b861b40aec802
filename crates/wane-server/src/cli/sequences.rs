//! `wane sequence`: numbers that nobody else has.

use clap::{Args, Subcommand};
use serde_json::Map;
use wane::services::apps::AppName;
use wane::services::elections::Guard;

use super::connection::DataFlag;
use super::elections::guard;
use super::failure::Failure;
use super::output::{Output, OutputFlags};
use super::{Place, Surroundings};

#[derive(Debug, Args)]
pub(super) struct SequenceArguments {
    /// The app whose sequences they are
    #[arg(long, global = true, value_name = "OWNER/APP", default_value = "demo/app")]
    pub(super) app: AppName,

    #[command(flatten)]
    pub(super) data: DataFlag,

    #[command(subcommand)]
    command: SequenceCommand,
}

#[derive(Debug, Subcommand)]
enum SequenceCommand {
    /// Take the next numbers; prints the first, and the last if there are more
    Next {
        /// The name of the sequence
        name: String,
        /// How many numbers
        #[arg(long, value_name = "N", default_value_t = 1)]
        count: u64,
        /// Get the same numbers again when this is repeated
        #[arg(long, value_name = "KEY")]
        idempotency_key: Option<String>,
        /// Take them only while this token is the newest of this election
        #[arg(long, value_name = "ELECTION;TOKEN", value_parser = guard)]
        guard: Option<Guard>,
    },
    /// Print the number that comes next
    Show {
        /// The name of the sequence
        name: String,
    },
}

pub(super) async fn run(
    arguments: SequenceArguments,
    place: &Place,
    flags: &OutputFlags,
    surroundings: &mut Surroundings,
) -> Result<(), Failure> {
    let sequences = place.client.sequences(&arguments.app);
    let output = &mut Output::new(flags, surroundings);
    match arguments.command {
        SequenceCommand::Next { name, count, idempotency_key, guard } => {
            let sequences = match &guard {
                Some(guard) => sequences.guarded(guard),
                None => sequences,
            };
            let block = sequences.next(&name, count, idempotency_key.as_deref()).await?;
            let object = Map::from_iter([
                ("first".to_owned(), block.first.into()),
                ("count".to_owned(), block.count.into()),
            ]);
            let numbers = block.numbers();
            let line = match numbers.end - 1 {
                last if last == numbers.start => last.to_string(),
                last => format!("{} {last}", numbers.start),
            };
            Ok(output.answer(object, &line)?)
        }
        SequenceCommand::Show { name } => {
            let next = sequences.show(&name).await?;
            Ok(output
                .answer(Map::from_iter([("next".to_owned(), next.into())]), &next.to_string())?)
        }
    }
}
