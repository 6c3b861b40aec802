//! Two nodes, one resource outside of Wane, and why the token must travel with every write.
//!
//! `cargo run -p wane-backends --example leader` elects one of two nodes. The leader writes to a
//! ledger that knows nothing of Wane, except that it remembers the highest token and refuses lower
//! ones. Then the leader stalls for longer than its lease, as a garbage collection or a stopped
//! machine would have it. The other node takes over, and the late write of the first is refused:
//! by the ledger, as nobody else can.

use std::error::Error;
use std::time::Duration;

use wane::clock::{SharedClock, SystemClock};
use wane::services::ClusterAppId;
use wane::services::elections::{AppElections, Elections, Leader, LeaseRules, Token};
use wane::store::WatchedStore;
use wane_backends::AnyStore;

const LEASE: Duration = Duration::from_secs(1);

/// What the leader looks after: a table, a queue, a printer.
#[derive(Debug, Default)]
struct Ledger {
    highest: Option<Token>,
    lines: Vec<String>,
}

impl Ledger {
    /// Adds a line, unless somebody with a higher token was here before.
    fn append(&mut self, token: Token, line: &str) -> Result<(), String> {
        if let Some(highest) = self.highest.filter(|highest| token < *highest) {
            return Err(format!("token {token} is stale, {highest} was here"));
        }
        self.highest = Some(token);
        self.lines.push(format!("{token}: {line}"));
        Ok(())
    }
}

async fn elections(clock: &SharedClock) -> Result<AppElections<AnyStore>, Box<dyn Error>> {
    let url = std::env::args().nth(1).unwrap_or_else(|| "mem:".into());
    let store = wane_backends::open(&url, SharedClock::clone(clock)).await?;
    let store = WatchedStore::new(store, SharedClock::clone(clock));
    let rules = LeaseRules::ONE_PROCESS;
    Ok(Elections::new(store, SharedClock::clone(clock), rules).of(ClusterAppId(1)))
}

/// Acts as the leader once. The check saves a round trip; the token is what protects.
fn act(leader: &Leader, ledger: &mut Ledger, line: &str) {
    println!("{line}: is_leader says {}", leader.is_leader());
    match ledger.append(leader.token(), line) {
        Ok(()) => println!("{line}: written with token {}", leader.token()),
        Err(refused) => println!("{line}: refused, {refused}"),
    }
}

#[expect(clippy::disallowed_methods, reason = "a stall is the point: not even timers run")]
fn stall(duration: Duration) {
    std::thread::sleep(duration);
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let clock = SystemClock::shared();
    let elections = elections(&clock).await?;
    let mut ledger = Ledger::default();

    let first = elections.lead("ledger", "node-1", LEASE).await?;
    act(&first, &mut ledger, "node-1 works");

    // Nothing of this process runs meanwhile, not even its renewals.
    stall(LEASE * 2);

    let second = elections.lead("ledger", "node-2", LEASE).await?;
    act(&second, &mut ledger, "node-2 takes over");
    act(&first, &mut ledger, "node-1 wakes up late");
    println!("node-1 lost: {:?}", first.lost().await);

    second.resign().await?;
    println!("the ledger holds {:?}", ledger.lines);
    Ok(())
}
