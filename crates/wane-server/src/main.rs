//! The `wane` binary: arguments in, exit code out.

use std::process::ExitCode;

use mimalloc::MiMalloc;
use wane_server::cli::{self, Surroundings};

/// After a rush of requests its memory goes back to the system.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    let exit = cli::run(std::env::args_os(), &mut Surroundings::of_process());
    ExitCode::from(exit.code())
}
