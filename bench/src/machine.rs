//! How busy the machine was with other things while a benchmark ran.
//!
//! Ratios of one run survive a busy machine better than numbers do, but not any amount of it: each
//! run says what it had to share. The kernel's counters are read before and after; what was busy
//! and is neither this process nor a child it waited for was somebody else.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

/// The kernel's counters at one moment, in clock ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counters {
    total: u64,
    busy: u64,
    own: u64,
}

/// What happened between two moments.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Usage {
    /// The share of all cores that others kept busy, 0 to 1.
    pub(crate) others: f64,
    /// The share of all cores that this process and its children kept busy, 0 to 1.
    pub(crate) own: f64,
}

impl Counters {
    /// The counters now.
    pub(crate) fn read() -> Self {
        let machine = fs::read_to_string("/proc/stat").unwrap_or_default();
        let process = fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let (total, busy) = machine_ticks(&machine);
        Self { total, busy, own: process_ticks(&process) }
    }

    /// The usage since these counters.
    pub(crate) fn since(self) -> Usage {
        usage(self, Self::read())
    }
}

fn usage(before: Counters, after: Counters) -> Usage {
    let total = after.total.saturating_sub(before.total).max(1) as f64;
    let busy = after.busy.saturating_sub(before.busy);
    let own = after.own.saturating_sub(before.own);
    Usage { others: busy.saturating_sub(own) as f64 / total, own: own as f64 / total }
}

/// The first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal; the guest
/// columns after them are contained in user.
fn machine_ticks(stat: &str) -> (u64, u64) {
    let fields = stat.lines().next().unwrap_or_default().split_whitespace().skip(1).take(8);
    let ticks: Vec<u64> = fields.map(|field| field.parse().unwrap_or(0)).collect();
    let total = ticks.iter().sum::<u64>();
    let idle = ticks.iter().skip(3).take(2).sum::<u64>();
    (total, total - idle)
}

/// The times of the process and of children it waited for: the name before them may hold spaces,
/// so fields are counted from its closing parenthesis.
fn process_ticks(stat: &str) -> u64 {
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let times = after_name.split_whitespace().skip(11).take(4);
    times.map(|field| field.parse::<u64>().unwrap_or(0)).sum()
}

/// What another process has used of the cores so far.
pub(crate) fn cpu_seconds(pid: u32) -> f64 {
    /// Ticks of /proc are hundredths of a second on every Linux.
    const TICKS: f64 = 100.0;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    process_ticks(&stat) as f64 / TICKS
}

/// A line of /proc/PID/status that counts memory, in bytes.
pub(crate) fn memory_of(pid: u32, name: &str) -> Result<u64, crate::BoxError> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kibibytes = kibibytes_of(&status, name).ok_or_else(|| format!("no {name} is told"))?;
    Ok(kibibytes << 10)
}

/// `VmRSS:      1234 kB`
fn kibibytes_of(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

/// The load averages of 1, 5 and 15 minutes, as the kernel prints them.
pub(crate) fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split_whitespace().take(3).collect::<Vec<_>>().join(" ")
}

/// The number of cores this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// How long this thread was ready to run while the cores were busy with something else.
#[derive(Debug)]
pub(crate) struct ThreadWaits(Option<File>);

impl ThreadWaits {
    /// The counter of the calling thread.
    pub(crate) fn open() -> Self {
        Self(File::open("/proc/thread-self/schedstat").ok())
    }

    /// All waits so far; zero where the kernel does not tell.
    pub(crate) fn total(&self) -> Duration {
        let mut text = [0; 96];
        let read = self.0.as_ref().and_then(|file| file.read_at(&mut text, 0).ok());
        Duration::from_nanos(waited_nanos(&text[..read.unwrap_or(0)]))
    }
}

/// The second of three numbers: time run, time waited to run, slices run.
fn waited_nanos(schedstat: &[u8]) -> u64 {
    let text = String::from_utf8_lossy(schedstat);
    text.split_whitespace().nth(1).and_then(|field| field.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_waiting_for_disks_are_not_busy() {
        assert_eq!(machine_ticks("cpu  10 1 5 80 4 0 0 2 7 0\ncpu0 ..."), (102, 18));
    }

    #[test]
    fn a_process_name_with_spaces_does_not_shift_the_fields() {
        let stat = "7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 100 20 3 4 20 0 9 0";
        assert_eq!(process_ticks(stat), 127);
    }

    #[test]
    fn memory_is_found_by_its_name() {
        let status = "VmPeak:\t  9 kB\nVmRSS:\t    1234 kB\nRssAnon:\t 7 kB\n";
        assert_eq!(kibibytes_of(status, "VmRSS"), Some(1_234));
        assert_eq!(kibibytes_of(status, "VmHWM"), None);
    }

    #[test]
    fn waits_are_the_second_number() {
        assert_eq!(waited_nanos(b"1234 567 8\n"), 567);
        assert_eq!(waited_nanos(b""), 0, "a kernel without the counter tells nothing");
    }

    #[test]
    fn what_is_busy_and_not_ours_is_others() {
        let before = Counters { total: 1_000, busy: 500, own: 100 };
        let after = Counters { total: 1_200, busy: 650, own: 200 };
        assert_eq!(usage(before, after), Usage { others: 0.25, own: 0.5 });
    }
}
