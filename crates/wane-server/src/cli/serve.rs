//! `wane serve`: the settings that the command line gives to the server.

use super::Surroundings;
use super::failure::Failure;
use crate::settings::{ServeFlags, Settings};
use crate::{serve, telemetry};

pub(super) fn run(flags: &ServeFlags, surroundings: &mut Surroundings) -> Result<(), Failure> {
    let loaded = Settings::load(flags, std::env::vars_os()).map_err(|error| Failure::Usage {
        what: error.to_string(),
        advice: "`wane serve --help` lists every setting".into(),
    })?;
    if flags.print_settings {
        return Ok(write!(surroundings.out, "{}", loaded.print_settings())?);
    }
    let failed = |error| Failure::failed("cannot start", &error, "free some memory");
    let _log = telemetry::start(&loaded.settings).map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let served = runtime
        .map_err(failed)?
        .block_on(serve::serve(&loaded.settings, flags.ready_file.as_deref()));
    served.map_err(|error| Failure::Failed {
        what: error.to_string(),
        advice: "the server is not running; correct this and start it again".into(),
    })
}
