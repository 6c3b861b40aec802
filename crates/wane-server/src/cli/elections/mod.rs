//! `wane election`: one command is one step, except that `campaign --exec` leads as long as it can.

mod exec;
pub(super) mod keeper;

use std::time::Duration;

use clap::{Args, Subcommand};
use serde_json::{Map, Value};
use wane::clock::Clock;
use wane::services::apps::AppName;
use wane::services::elections::{
    Campaigned, Guard, Lease, LeaseId, Renewed, Resigned, Standing, Token,
};
use wane::store::{Timestamp, Ttl};

use super::connection::DataFlag;
use super::failure::{Exit, Failure};
use super::output::{Output, OutputFlags, left, put_expiry, shown_text};
use super::{Place, Surroundings, lifetime};
use crate::client::{ClientError, Elections};

#[derive(Debug, Args)]
pub(super) struct ElectionArguments {
    /// The app whose elections they are
    #[arg(long, global = true, value_name = "OWNER/APP", default_value = "demo/app")]
    pub(super) app: AppName,

    #[command(flatten)]
    pub(super) data: DataFlag,

    #[command(subcommand)]
    command: ElectionCommand,
}

#[derive(Debug, Subcommand)]
enum ElectionCommand {
    /// Take an election where nobody holds it, or run a command while holding it
    Campaign(CampaignArguments),
    /// Move the end of a lease
    Renew {
        /// The name of the election
        name: String,
        #[command(flatten)]
        lease: LeaseFlags,
    },
    /// End a lease; stop acting on it first
    Resign {
        /// The name of the election
        name: String,
        #[command(flatten)]
        lease: LeaseFlags,
    },
    /// Say who holds an election
    Observe {
        /// The name of the election
        name: String,
        /// Go on saying so whenever it changes hands
        #[arg(long)]
        watch: bool,
    },
}

#[derive(Debug, Args)]
struct CampaignArguments {
    /// The name of the election
    name: String,
    /// Who campaigns, for people [the name of this machine and the number of this process]
    #[arg(long)]
    holder: Option<String>,
    /// How long the lease lasts: seconds, or with a unit
    #[arg(long, value_name = "S", value_parser = lifetime::parse, default_value = "10")]
    ttl: Ttl,
    /// Wait until the election is won
    #[arg(long)]
    wait: bool,
    /// Wait, then run this command by `sh -c` for as long as the election is held, and resign when
    /// it ends. It finds the token in WANE_TOKEN
    #[arg(long, value_name = "CMD")]
    exec: Option<String>,
    /// How long before the end of the right CMD is asked to stop, by SIGTERM; at the end it is
    /// killed [a tenth of the lease]
    #[arg(long, value_name = "S", value_parser = lifetime::parse, requires = "exec")]
    grace: Option<Ttl>,
}

impl CampaignArguments {
    fn holder(&self) -> String {
        self.holder.clone().unwrap_or_else(|| {
            let machine = rustix::system::uname();
            format!("{}-{}", machine.nodename().to_string_lossy(), std::process::id())
        })
    }
}

#[derive(Debug, Args)]
struct LeaseFlags {
    /// The lease, as the campaign said it
    #[arg(long, value_name = "ID")]
    lease_id: LeaseId,
    /// Its token
    #[arg(long, value_name = "N", value_parser = token)]
    token: Token,
}

fn token(text: &str) -> Result<Token, String> {
    let number = text.parse().ok().and_then(Token::new);
    number.ok_or_else(|| "give the number that the campaign said".to_owned())
}

/// A guard as people write it.
pub(super) fn guard(text: &str) -> Result<Guard, String> {
    let parts = text.rsplit_once(';');
    let token = parts.and_then(|(_, token)| token.parse().ok()).and_then(Token::new);
    match (parts, token) {
        (Some((election, _)), Some(token)) if !election.is_empty() => {
            Ok(Guard { election: election.to_owned(), token })
        }
        _ => Err("give the name of the election and the leader's token, as leader;17".into()),
    }
}

pub(super) async fn run(
    arguments: ElectionArguments,
    place: &Place,
    flags: &OutputFlags,
    surroundings: &mut Surroundings,
) -> Result<Exit, Failure> {
    let elections = place.client.elections(&arguments.app);
    let clock = std::sync::Arc::clone(&surroundings.clock);
    let output = &mut Output::new(flags, surroundings);
    match arguments.command {
        ElectionCommand::Campaign(campaign) => match &campaign.exec {
            Some(command) => return exec::run(&elections, &campaign, command, clock, output).await,
            None => campaigned(&elections, &campaign, &*clock, output).await?,
        },
        ElectionCommand::Renew { name, lease } => {
            renewed(&elections, &name, &lease, output).await?
        }
        ElectionCommand::Resign { name, lease } => {
            resigned(&elections, &name, &lease, output).await?;
        }
        ElectionCommand::Observe { name, watch: false } => {
            standing(&elections.observe(&name).await?, output)?;
        }
        ElectionCommand::Observe { name, watch: true } => {
            let mut watch = elections.watch(&name).await?;
            loop {
                standing(&watch.changed().await?, output)?;
            }
        }
    }
    Ok(Exit::Done)
}

async fn campaigned(
    elections: &Elections,
    campaign: &CampaignArguments,
    clock: &dyn Clock,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let (name, holder, ttl) = (&campaign.name, campaign.holder(), campaign.ttl.as_duration());
    let lease = match campaign.wait {
        true => exec::win(elections, campaign, clock, output).await?.0,
        false => match elections.campaign(name, &holder, ttl).await? {
            Campaigned::Won(lease) => lease,
            Campaigned::Held(standing) => {
                let detail = "somebody else holds the election".into();
                return Err(ClientError::Contested { standing, detail }.into());
            }
        },
    };
    leased("won", &lease, output)
}

async fn renewed(
    elections: &Elections,
    name: &str,
    flags: &LeaseFlags,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let lease = Lease {
        id: flags.lease_id,
        token: flags.token,
        // What the lease was is in the server's record; it answers what it is from now on.
        expires_at: Timestamp::from_unix_millis(0),
        ttl: Duration::ZERO,
        right: Duration::ZERO,
    };
    match elections.renew(name, &lease).await? {
        Renewed::Renewed(lease) => leased("renewed", &lease, output),
        Renewed::Lost(standing) => Err(lost(standing, "the lease has ended")),
    }
}

async fn resigned(
    elections: &Elections,
    name: &str,
    flags: &LeaseFlags,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    match elections.resign(name, flags.lease_id, flags.token).await? {
        Resigned::Resigned => Ok(output.answer(Map::new(), "resigned")?),
        Resigned::Lost(standing) => Err(lost(standing, "this is not the lease of the election")),
    }
}

fn lost(standing: Option<Standing>, detail: &str) -> Failure {
    let detail = detail.to_owned();
    match standing {
        Some(standing) => ClientError::Contested { standing, detail }.into(),
        None => ClientError::Absent.into(),
    }
}

fn leased(done: &str, lease: &Lease, output: &mut Output<'_>) -> Result<(), Failure> {
    let mut object = Map::from_iter([
        ("token".to_owned(), lease.token.get().into()),
        ("leaseId".to_owned(), lease.id.to_string().into()),
        ("renewWithinMillis".to_owned(), millis(lease.right)),
    ]);
    put_expiry(&mut object, Some(lease.expires_at));
    let end = output.left(Some(lease.expires_at));
    let line = format!("{done}, token: {}, left: {end}, lease id: {}", lease.token, lease.id);
    Ok(output.answer(object, &line)?)
}

fn standing(standing: &Standing, output: &mut Output<'_>) -> Result<(), Failure> {
    let holder = standing.holder.as_deref();
    let object = Map::from_iter([
        ("holder".to_owned(), holder.into()),
        ("token".to_owned(), standing.token.get().into()),
        ("remainingMillis".to_owned(), millis(standing.remaining)),
    ]);
    if output.is_json {
        return Ok(output.json(object)?);
    }
    let line = match holder {
        Some(holder) => {
            let end = left(Some(standing.remaining));
            format!("held by {}, token: {}, left: {end}", shown_text(holder), standing.token)
        }
        None => format!("held by nobody, last token: {}", standing.token),
    };
    Ok(output.line(&line)?)
}

fn millis(duration: Duration) -> Value {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX).into()
}
