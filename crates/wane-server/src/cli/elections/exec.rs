//! `campaign --exec`: wins, runs a command while leading, and resigns when it has ended.
//!
//! The command is run by a process of its own, the keeper, which is told until when it may run and
//! ends it by then. So it ends in time also where this process is stopped or killed.
//!
//! Invariant: the lease is released only after the command is gone.

use std::pin::{Pin, pin};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};
use wane::clock::{Clock, SharedClock};
use wane::services::elections::{Campaigned, Leader, Lease, Loss};

use super::CampaignArguments;
use super::keeper::{Order, PROGRAM};
use crate::cli::failure::{Exit, Failure};
use crate::cli::output::{Output, shown_text};
use crate::client::{ClientError, Elections, Seat};
use crate::shutdown::asked_to_stop;

/// The pause before a server is asked again that did not answer.
const WAITED_OUT: Duration = Duration::from_secs(1);

/// How long a command that is asked to stop may take, as long as the lease goes on.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) async fn run(
    elections: &Elections,
    campaign: &CampaignArguments,
    command: &str,
    clock: SharedClock,
    output: &mut Output<'_>,
) -> Result<Exit, Failure> {
    // One for all of it: a signal between two of them would be lost.
    let mut stop = pin!(asked_to_stop());
    let won = tokio::select! {
        won = win(elections, campaign, &*clock, output) => Some(won?),
        stop = &mut stop => {
            stop.map_err(|error| Failure::failed("cannot hear signals", &error, "start it anew"))?;
            None
        }
    };
    // Asked to stop while waiting: nothing is held and nothing runs.
    let Some((lease, sent)) = won else { return Ok(Exit::Done) };
    let token = lease.token;
    output.note(&format!("won {}, token {token}", shown_text(&campaign.name)))?;
    let ttl = campaign.ttl.as_duration();
    let grace = campaign.grace.map_or(ttl / 10, |grace| grace.as_duration());
    let seat = Seat { elections: elections.clone(), name: campaign.name.clone() };
    let leader = Leader::keep(seat, lease, sent, Arc::clone(&clock));
    let ended = match Kept::start(command, &campaign.name, &leader, grace, &*clock) {
        Ok(mut kept) => {
            let ended = kept.supervise(&leader, &*clock, ttl / 16, stop).await;
            kept.end().await;
            ended
        }
        Err(failure) => Err(failure),
    };
    let loss = if leader.is_leader() { None } else { Some(leader.lost().await) };
    if let Err(error) = leader.resign().await {
        output.note(&error.to_string())?;
    }
    match (ended?, loss) {
        (Ended::ByItself(code), None) => Ok(Exit::Of(code)),
        (Ended::AskedTo, None) => Ok(Exit::Done),
        (_, loss) => {
            output.note(&format!(
                "lost {}: {}",
                shown_text(&campaign.name),
                said(loss.as_ref())
            ))?;
            Ok(Exit::Refused)
        }
    }
}

fn said(loss: Option<&Loss>) -> String {
    match loss {
        Some(Loss::Taken(Some(standing))) => match &standing.holder {
            Some(holder) => format!("held by {}, token {}", shown_text(holder), standing.token),
            None => "the lease has ended".into(),
        },
        Some(Loss::Expired { last_failure: Some(failure) }) => {
            format!("not renewed in time: {}", shown_text(failure))
        }
        Some(Loss::Taken(None) | Loss::Expired { last_failure: None } | Loss::Resigned) | None => {
            "not renewed in time".into()
        }
    }
}

/// Waits until the election is won, and says when the request that won it was sent.
pub(super) async fn win(
    elections: &Elections,
    campaign: &CampaignArguments,
    clock: &dyn Clock,
    output: &mut Output<'_>,
) -> Result<(Lease, Duration), Failure> {
    let (holder, ttl) = (campaign.holder(), campaign.ttl.as_duration());
    let mut was_said = false;
    loop {
        let sent = clock.monotonic();
        match elections.campaign(&campaign.name, &holder, ttl).await {
            Ok(Campaigned::Won(lease)) => return Ok((lease, sent)),
            Ok(Campaigned::Held(standing)) => {
                if !std::mem::replace(&mut was_said, true) {
                    let holder = standing.holder.as_deref().unwrap_or("nobody");
                    let (name, holder) = (shown_text(&campaign.name), shown_text(holder));
                    output.note(&format!("{name} is held by {holder}; waiting"))?;
                }
                vacancy(elections, &campaign.name, standing.remaining, clock).await;
            }
            Err(error) if may_pass(&error) => {
                output.note(&format!("{error}; trying again"))?;
                clock.sleep(WAITED_OUT).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn may_pass(error: &ClientError) -> bool {
    match error {
        ClientError::Unreachable { .. } | ClientError::UnknownOutcome { .. } => true,
        ClientError::Problem { status, .. } => matches!(status, 429 | 503),
        ClientError::Refused { .. }
        | ClientError::Contested { .. }
        | ClientError::Absent
        | ClientError::Protocol { .. }
        | ClientError::Source { .. }
        | ClientError::DigestMismatch { .. }
        | ClientError::Spent { .. } => false,
    }
}

/// Waits until nobody seems to hold the election: told by a watch, and where that fails by what was
/// left of the lease.
async fn vacancy(elections: &Elections, name: &str, remaining: Duration, clock: &dyn Clock) {
    let told = async {
        let mut watch = elections.watch(name).await?;
        while watch.changed().await?.holder.is_some() {}
        Ok::<(), ClientError>(())
    };
    if told.await.is_err() {
        let jitter = Duration::from_millis(clock.random_u64() % 50);
        clock.sleep(remaining.min(WAITED_OUT) + jitter).await;
    }
}

/// How a command came to its end.
enum Ended {
    /// With this exit code.
    ByItself(u8),
    /// Because somebody stopped this process.
    AskedTo,
    /// Because the election was lost.
    Lost,
}

/// A command that runs under its keeper.
struct Kept {
    process: Child,
    orders: ChildStdin,
    /// What the keeper was told last.
    until: Duration,
}

impl Kept {
    fn start(
        command: &str,
        election: &str,
        leader: &Leader,
        grace: Duration,
        clock: &dyn Clock,
    ) -> Result<Self, Failure> {
        let failed = |error: std::io::Error| {
            Failure::failed("cannot run the command", &error, "free some memory or processes")
        };
        let until = end(leader, clock);
        let program = std::env::current_exe().map_err(failed)?;
        let mut process = Command::new(program)
            .arg(PROGRAM)
            .args(["--until", &until.as_nanos().to_string()])
            .args(["--grace", &grace.as_nanos().to_string()])
            .args(["--", command])
            .env("WANE_TOKEN", leader.token().to_string())
            .env("WANE_ELECTION", election)
            // Its own group: a Ctrl-C in the terminal is for this process to pass on.
            .process_group(0)
            .stdin(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let orders =
            process.stdin.take().ok_or_else(|| failed(std::io::ErrorKind::BrokenPipe.into()))?;
        Ok(Self { process, orders, until })
    }

    /// Tells the keeper how the lease goes, until the command has ended.
    async fn supervise(
        &mut self,
        leader: &Leader,
        clock: &dyn Clock,
        tick: Duration,
        mut stop: Pin<&mut impl Future<Output = std::io::Result<()>>>,
    ) -> Result<Ended, Failure> {
        let failed = |error| Failure::failed("cannot watch the command", &error, "start it anew");
        let mut patience: Option<Duration> = None;
        loop {
            tokio::select! {
                biased;
                status = self.process.wait() => {
                    let code = status.map_err(failed)?.code();
                    return Ok(match code.and_then(|code| u8::try_from(code).ok()) {
                        _ if !leader.is_leader() => Ended::Lost,
                        _ if patience.is_some() => Ended::AskedTo,
                        Some(code) => Ended::ByItself(code),
                        None => Ended::Lost,
                    });
                }
                stopped = &mut stop, if patience.is_none() => {
                    stopped.map_err(failed)?;
                    patience = Some(clock.monotonic() + PATIENCE);
                    self.order(Order::Stop).await;
                }
                () = clock.sleep(tick) => {
                    let is_over = patience.is_some_and(|end| clock.monotonic() >= end);
                    let until = if is_over { Duration::ZERO } else { end(leader, clock) };
                    if until != self.until {
                        self.until = until;
                        self.order(Order::Until(until)).await;
                    }
                }
            }
        }
    }

    /// Waits until the command is gone, however it was left: a keeper without orders ends it.
    async fn end(mut self) {
        drop(self.orders);
        // It fails only where there is nothing left to wait for.
        drop(self.process.wait().await);
    }

    async fn order(&mut self, order: Order) {
        // A keeper that hears nothing has ended, and the wait for it says so.
        drop(self.orders.write_all(format!("{order}\n").as_bytes()).await);
    }
}

/// Until when the command may run. The clock is read first: a pause before the rest is read makes
/// the end earlier, never later.
fn end(leader: &Leader, clock: &dyn Clock) -> Duration {
    let now = clock.monotonic();
    match leader.remaining() {
        Duration::ZERO => Duration::ZERO,
        left => now + left,
    }
}
