//! Where the servers are, as `scripts/servers` tells it.

use std::path::Path;
use std::process::Command;

/// The setting `variable` of the server `name`, where it was started.
pub(crate) fn address_of(name: &str, variable: &str) -> Option<String> {
    let told = told_of("env", name)?;
    let line = told.lines().find_map(|line| line.strip_prefix(&format!("export {variable}=")))?;
    Some(line.trim_matches('\'').to_owned())
}

/// The processes of the server `name`.
pub(crate) fn pids_of(name: &str) -> Vec<u32> {
    let told = told_of("pids", name).unwrap_or_default();
    told.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn told_of(what: &str, name: &str) -> Option<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/servers");
    let told = Command::new(script).args([what, name]).output().ok()?;
    String::from_utf8(told.stdout).ok()
}
