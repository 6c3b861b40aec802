//! Which servers a run is to be tested with, and where they are.
//!
//! `WANE_TEST_BACKENDS` lists them, as `redis,cas1`. What is not listed is skipped and said so;
//! what is listed must answer. `scripts/servers` starts them and tells their addresses.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The settings under which the server `name` is reached, as `WANE_REDIS_URL`; none where the run
/// does not list it.
///
/// # Panics
///
/// If it is listed and `scripts/servers` does not know where it is.
pub(crate) fn settings_of(name: &str) -> Option<BTreeMap<String, String>> {
    if !is_listed(name) {
        return None;
    }
    let told = servers(&["env", name]).unwrap_or_else(|error| {
        panic!("{name} is listed in WANE_TEST_BACKENDS and was not started: {error}")
    });
    Some(told.lines().filter_map(exported).collect())
}

/// Whether the run lists the server, so that one of a test's own can be started as well.
pub(crate) fn is_listed(name: &str) -> bool {
    let listed = std::env::var("WANE_TEST_BACKENDS").unwrap_or_default();
    let is_listed = listed.split(',').any(|listed| listed.trim() == name);
    if !is_listed {
        println!("skipped: {name} is not in WANE_TEST_BACKENDS={listed:?}");
    }
    is_listed
}

/// What `scripts/servers` prints to these arguments, or what it says is wrong.
pub(crate) fn servers(arguments: &[&str]) -> Result<String, String> {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/servers");
    let told = Command::new(&scripts).args(arguments).output().expect("scripts/servers runs");
    let text = |bytes| String::from_utf8(bytes).expect("scripts/servers prints text");
    if told.status.success() { Ok(text(told.stdout)) } else { Err(text(told.stderr)) }
}

/// The name and value of a line `export NAME='value'`.
fn exported(line: &str) -> Option<(String, String)> {
    let (name, value) = line.strip_prefix("export ")?.split_once('=')?;
    Some((name.to_owned(), value.trim_matches('\'').to_owned()))
}
