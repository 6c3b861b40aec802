//! The `wane` binary: arguments in, exit code out.

use std::process::ExitCode;

use clap::Parser;
use wane_server::settings::{ServeFlags, Settings};

#[derive(Debug, Parser)]
#[command(version)]
enum Command {
    /// Serve.
    Serve(ServeFlags),
}

fn main() -> ExitCode {
    let Command::Serve(flags) = Command::parse();
    let loaded = match Settings::load(&flags, std::env::vars_os()) {
        Ok(loaded) => loaded,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    if flags.print_settings {
        print!("{}", loaded.print_settings());
        return ExitCode::SUCCESS;
    }
    wane_server::telemetry::start(&loaded.settings);
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    match runtime.block_on(wane_server::serve::serve(&loaded.settings, flags.ready_file.as_deref()))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
