//! The keeper of a command: runs it, and ends it when its time is up, whatever becomes of the
//! process that said so.
//!
//! Orders come as lines on standard input: `until NANOS` on the monotonic clock of the machine,
//! `stop`, or the end of input, which means that whoever gave them is gone. The command is asked to
//! stop by SIGTERM a grace before its time is up and killed when it is, with everything that it
//! started and that is still in its group.

use std::fmt;
use std::process::{ExitStatus, Stdio};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use tokio::process::{Child, Command};
use tokio::signal::unix::{SignalKind, signal};
use wane::clock::Clock;

use crate::cli::failure::{Exit, Failure};

/// The command of this program that does it.
pub(super) const PROGRAM: &str = "election-keeper";

/// How often the clock is looked at: timers stand still while a machine sleeps.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Debug, Args)]
pub(in crate::cli) struct KeeperArguments {
    /// When the time is up, on the monotonic clock
    #[arg(long, value_name = "NANOS")]
    until: u64,
    /// How long before it the command is asked to stop
    #[arg(long, value_name = "NANOS")]
    grace: u64,
    /// The command, for `sh -c`
    command: String,
}

/// What a keeper is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// The command may run until then.
    Until(Duration),
    /// The command shall stop.
    Stop,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Until(end) => write!(f, "until {}", end.as_nanos()),
            Self::Stop => f.write_str("stop"),
        }
    }
}

impl FromStr for Order {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        match line.split_once(' ') {
            None if line == "stop" => Ok(Self::Stop),
            Some(("until", nanos)) => {
                nanos.parse().map(|nanos| Self::Until(Duration::from_nanos(nanos))).map_err(|_| ())
            }
            _ => Err(()),
        }
    }
}

/// Runs the command to its end, and ends as it did.
pub(in crate::cli) async fn run(
    arguments: &KeeperArguments,
    clock: &dyn Clock,
) -> Result<Exit, Failure> {
    let failed = |error| Failure::failed("cannot run the command", &error, "look at it");
    // Heard and left aside: whoever ends the group of the terminal does not end the keeper.
    let _signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()]
        .map(signal)
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    let process = Command::new("sh")
        .args(["-c", &arguments.command])
        .stdin(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let mut keeper = Keeper {
        group: process.id().and_then(|id| Pid::from_raw(id as i32)),
        process,
        until: Duration::from_nanos(arguments.until),
        grace: Duration::from_nanos(arguments.grace),
        was_asked: false,
    };
    let ended = keeper.keep(clock).await.map_err(failed);
    keeper.signal(Signal::KILL);
    ended.map(|status| Exit::Of(code(status)))
}

/// As shells say it: a signal is 128 and its number.
fn code(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// A command and the rest of its time.
#[derive(Debug)]
struct Keeper {
    process: Child,
    group: Option<Pid>,
    until: Duration,
    grace: Duration,
    /// Whether the command was asked to stop. From then on its time is not extended.
    was_asked: bool,
}

impl Keeper {
    async fn keep(&mut self, clock: &dyn Clock) -> std::io::Result<ExitStatus> {
        let mut orders = Some(BufReader::new(tokio::io::stdin()).lines());
        loop {
            self.look(clock.monotonic());
            let pause = clock.sleep(self.pause(clock.monotonic()));
            tokio::select! {
                biased;
                status = self.process.wait() => return status,
                order = next(&mut orders) => self.take(order, clock.monotonic()),
                () = pause => {}
            }
        }
    }

    /// Does what is due.
    fn look(&mut self, now: Duration) {
        if now >= self.until {
            self.signal(Signal::KILL);
        } else if now + self.grace >= self.until {
            self.ask();
        }
    }

    /// The time until something may be due.
    fn pause(&self, now: Duration) -> Duration {
        let due = if self.was_asked { self.until } else { self.until.saturating_sub(self.grace) };
        due.saturating_sub(now).clamp(Duration::from_millis(1), LOOK)
    }

    /// Follows an order; `None` where nobody is left to give any.
    fn take(&mut self, order: Option<Order>, now: Duration) {
        match order {
            // An end at once is always heard.
            Some(Order::Until(end)) if !self.was_asked || end < self.until => self.until = end,
            Some(Order::Until(_)) => {}
            Some(Order::Stop) => self.ask(),
            None => {
                self.ask();
                self.until = self.until.min(now + self.grace);
            }
        }
    }

    fn ask(&mut self) {
        if !std::mem::replace(&mut self.was_asked, true) {
            self.signal(Signal::TERM);
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // Fails where nothing is left in the group, which is what is wanted.
            let _gone = kill_process_group(group, signal);
        }
    }
}

/// The next order; `None` once, when there will be no more. Lines that are no orders are passed
/// over.
async fn next(orders: &mut Option<Lines<BufReader<Stdin>>>) -> Option<Order> {
    let Some(lines) = orders else { return std::future::pending().await };
    while let Ok(Some(line)) = lines.next_line().await {
        if let Ok(order) = line.parse() {
            return Some(order);
        }
    }
    *orders = None;
    None
}
