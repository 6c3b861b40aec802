//! Cores: one for the server, another for the load generator, so that neither takes from the other.
//!
//! `taskset` sees to it: the server is started through it, and it is told of this process. When this
//! is dropped, the process may use what it could before.

use std::path::Path;
use std::process::{Command, Stdio};

/// Which cores are whose.
#[derive(Debug)]
pub(super) struct Cores {
    /// What this process may use otherwise.
    before: String,
    /// The server's; `None` where there are not two, or no `taskset`.
    server: Option<u32>,
}

impl Cores {
    /// Leaves the first core to servers and takes the second one.
    pub(super) fn divided() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let before = allowed.unwrap_or_default().trim().to_owned();
        let server = match cores_of(&before)[..] {
            [server, generator, ..] if confine(&generator.to_string()) => Some(server),
            _ => None,
        };
        Self { before, server }
    }

    /// The command that runs the program on the servers' core.
    pub(super) fn server_command(&self, program: &Path) -> Command {
        let Some(core) = self.server else { return Command::new(program) };
        let mut command = Command::new("taskset");
        command.args(["-c", &core.to_string()]).arg(program);
        command
    }

    /// What a reader of the results must know.
    pub(super) fn note(&self) -> &'static str {
        match self.server {
            Some(_) => "server and load generator have one core each",
            None => "NOT PINNED: server and load generator share what cores there are",
        }
    }
}

impl Drop for Cores {
    fn drop(&mut self) {
        if self.server.is_some() {
            confine(&self.before);
        }
    }
}

/// Lets all threads of this process run on these cores only; false where that was not done.
fn confine(cores: &str) -> bool {
    let process = std::process::id().to_string();
    let mut command = Command::new("taskset");
    command.args(["-a", "-p", "-c", cores, &process]);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// `0-1,4`
fn cores_of(list: &str) -> Vec<u32> {
    let ranges = list.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
    });
    ranges.flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_read_from_ranges_and_single_ones() {
        assert_eq!(cores_of("0-1"), [0, 1]);
        assert_eq!(cores_of("2,5-7"), [2, 5, 6, 7]);
        assert!(cores_of("").is_empty());
    }
}
