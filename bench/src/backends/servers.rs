//! Where the servers are, as `scripts/servers` tells it.

use std::path::Path;
use std::process::Command;

/// The setting `variable` of the server `name`, where it was started.
pub(super) fn address_of(name: &str, variable: &str) -> Option<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/servers");
    let told = Command::new(script).args(["env", name]).output().ok()?;
    let told = String::from_utf8(told.stdout).ok()?;
    let line = told.lines().find_map(|line| line.strip_prefix(&format!("export {variable}=")))?;
    Some(line.trim_matches('\'').to_owned())
}
