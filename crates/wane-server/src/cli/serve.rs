//! `wane serve`: the settings that the command line gives to the server.

use clap::Args;

use super::failure::Failure;

/// What can be said about the server on the command line.
#[derive(Debug, Args)]
pub(super) struct ServeFlags {}

pub(super) fn run(_flags: &ServeFlags) -> Result<(), Failure> {
    Err(Failure::Failed {
        what: "this build has no server in it".into(),
        advice: "use a build that has one".into(),
    })
}
