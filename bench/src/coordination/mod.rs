//! The coordination benchmark: leases kept alive, elections that change hands, numbers given out.
//!
//! Leases and elections are asked for over HTTP, from servers that are processes of their own, by
//! the client that the command line uses. Numbers come from the library.

mod leases;
mod numbers;
mod takeover;

use crate::http::{Kind, Server};
use crate::report::Report;
use crate::{BoxError, Options};

/// Runs everything and returns what came out.
pub(crate) fn run(options: &Options) -> Result<Report, BoxError> {
    let mut report = Report::default();
    let scratch = options.scratch()?;
    let client =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    for kind in [Kind::Mem, Kind::File] {
        let server = Server::start(kind, scratch.path())?;
        server.raise_limits(&client)?;
        takeover::run(&server, &client, options.quick, &mut report)?;
        if kind == Kind::File {
            leases::run(&server, &client, options.quick, &mut report)?;
        }
    }
    numbers::run(scratch.path(), options.quick, &mut report)?;
    report.note(
        "coordination: client and servers share the cores; everything on file is durable before it \
         is answered.",
    );
    Ok(report)
}
