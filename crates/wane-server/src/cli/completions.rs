//! `wane completions`: what a shell needs to complete our command lines.

use std::io::Write;

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use super::Arguments;
use super::failure::Failure;

#[derive(Debug, Args)]
pub(super) struct CompletionsArguments {
    /// The shell
    shell: Shell,
}

pub(super) fn run(arguments: &CompletionsArguments, out: &mut dyn Write) -> Result<(), Failure> {
    // The generator panics where it cannot write, and pipes end early.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "wane", &mut script);
    Ok(out.write_all(&script)?)
}
