//! The `wane` binary: arguments in, exit code out.

use std::process::ExitCode;

use wane_server::cli::{self, Surroundings};

fn main() -> ExitCode {
    let exit = cli::run(std::env::args_os(), &mut Surroundings::of_process());
    ExitCode::from(exit.code())
}
