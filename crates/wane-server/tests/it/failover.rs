//! Failovers with real processes: `wane election campaign --exec` leads, is killed or stopped, and
//! another takes over. The commands write down when they act; by that no two ever overlap.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::listed::servers;
use crate::server::{Server, eventually, wane};
use crate::{count, measuring, shared, stopwatch, wait};

/// Writes a line each hundredth of a second: who leads with which token, and when.
const ACT: &str = r#"while :; do echo "$WANE_TOKEN $(date +%s%N)"; sleep 0.01; done >> "$LOG""#;

/// The same, but out of reach of whoever would end it.
const ESCAPE: &str = r#"setsid sh -c 'echo $$ >> "$LOG.escaped"; '"$ACT" & wait"#;

/// One of several that campaign.
struct Candidate {
    process: Child,
    holder: String,
    address: String,
    data: PathBuf,
}

impl Candidate {
    fn start(stage: &Stage, place: usize) -> Self {
        let (address, data) = stage.servers[place % stage.servers.len()].clone();
        let holder = format!("candidate-{place}");
        let process = Self::campaign(stage, &holder, &address, &data);
        Self { process, holder, address, data }
    }

    fn campaign(stage: &Stage, holder: &str, address: &str, data: &Path) -> Child {
        wane()
            .args(["--url", address, "election", "campaign", "leader", "--holder", holder])
            .args(["--ttl", &format!("{}ms", stage.ttl.as_millis())])
            .args(["--exec", stage.command, "--data"])
            .arg(data)
            .envs([("LOG", stage.log.as_os_str()), ("ACT", ACT.as_ref())])
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Campaigns again, after the process has ended.
    fn again(&mut self, stage: &Stage) -> Option<i32> {
        let ended = eventually(|| self.process.try_wait().unwrap().is_some());
        assert!(ended, "it did not end");
        let code = self.process.wait().unwrap().code();
        self.process = Self::campaign(stage, &self.holder, &self.address, &self.data);
        code
    }

    fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([format!("-{name}"), pid]).status().unwrap().success());
    }
}

impl Drop for Candidate {
    fn drop(&mut self) {
        // The keeper ends the command when it hears nothing more.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Servers, what their commands write down, and how long leases are.
struct Stage {
    servers: Vec<(String, PathBuf)>,
    log: PathBuf,
    ttl: Duration,
    command: &'static str,
    _directory: TempDir,
}

impl Stage {
    fn new(servers: &[Server], ttl: Duration) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let place =
            |server: &Server| (format!("http://{}", server.http), server.data().to_path_buf());
        let servers = servers.iter().map(place).collect();
        let log = directory.path().join("acts");
        Self { servers, log, ttl, command: ACT, _directory: directory }
    }

    /// What the commands did: token, and when in nanoseconds.
    fn acts(&self) -> Vec<(u64, u64)> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        let whole = text.rsplit_once('\n').map_or("", |(lines, _)| lines);
        let act = |line: &str| {
            let (token, nanos) = line.split_once(' ').unwrap();
            (token.parse().unwrap(), nanos.parse().unwrap())
        };
        whole.lines().map(act).collect()
    }

    fn newest(&self) -> u64 {
        self.acts().iter().map(|(token, _)| *token).max().unwrap_or(0)
    }

    fn wait_for_token_above(&self, token: u64, patience: Duration) -> Duration {
        let passed = stopwatch();
        while self.newest() <= token {
            assert!(passed() < patience, "nobody leads after {:?}", passed());
            wait(Duration::from_millis(5));
        }
        passed()
    }
}

/// What two leaders did at once, if they ever did.
fn overlap(acts: &[(u64, u64)]) -> Option<String> {
    let mut acts = acts.to_vec();
    acts.sort_by_key(|(_, nanos)| *nanos);
    let back = acts.windows(2).find(|pair| pair[1].0 < pair[0].0)?;
    let (newer, older) = (back[0], back[1]);
    let late = Duration::from_nanos(older.1 - newer.1);
    Some(format!("token {} acted {late:?} after token {}", older.0, newer.0))
}

#[test]
fn an_overlap_is_seen() {
    assert_eq!(overlap(&[(1, 10), (1, 20), (2, 30), (2, 40)]), None);
    assert!(overlap(&[(1, 10), (2, 30), (1, 35), (2, 40)]).is_some());
}

/// Which of the candidates holds the election, by the server.
fn leader(stage: &Stage, server: &Server, candidates: &[Candidate]) -> usize {
    let path = "/api/v2/apps/demo/app/elections/leader";
    let mut found = None;
    let is_found = eventually(|| {
        let holder = server.ask("GET", path, "").json()["holder"].as_str().map(str::to_owned);
        let is_holder = |it: &Candidate| Some(&it.holder) == holder.as_ref();
        found = candidates.iter().position(is_holder);
        found.is_some()
    });
    assert!(is_found, "nobody of us leads, token {}", stage.newest());
    found.unwrap()
}

/// Kills and stops leaders in turn, and looks at who acts when.
fn fail_over(stage: &Stage, server: &Server, rounds: u64, mut between: impl FnMut(u64)) {
    let mut candidates: Vec<_> = (0..3).map(|place| Candidate::start(stage, place)).collect();
    stage.wait_for_token_above(0, stage.ttl + Duration::from_secs(10));
    for round in 0..rounds {
        between(round);
        let token = stage.newest();
        let place = leader(stage, server, &candidates);
        let is_stopped = round % 2 == 1;
        candidates[place].signal(if is_stopped { "STOP" } else { "KILL" });
        let took = stage.wait_for_token_above(token, stage.ttl + Duration::from_secs(20));
        println!("round {round}, {}: {took:?}", if is_stopped { "stopped" } else { "killed" });
        assert!(took <= stage.ttl + Duration::from_secs(1), "takeover took {took:?}");
        if is_stopped {
            candidates[place].signal("CONT");
        }
        let code = candidates[place].again(stage);
        assert_eq!(code, is_stopped.then_some(3), "a stopped leader finds that it lost");
        assert_eq!(overlap(&stage.acts()), None);
    }
    println!("{rounds} failovers, {} acts, no overlap", stage.acts().len());
}

/// The control: a command that nobody ends acts beside its successor, and that is seen.
#[test]
fn a_command_that_escapes_its_keeper_overlaps() {
    let _machine = measuring();
    let servers = [Server::in_memory()];
    let stage = Stage { command: ESCAPE, ..Stage::new(&servers, Duration::from_secs(1)) };
    let candidates = [Candidate::start(&stage, 0), Candidate::start(&stage, 1)];
    stage.wait_for_token_above(0, Duration::from_secs(10));
    candidates[leader(&stage, &servers[0], &candidates)].signal("KILL");
    stage.wait_for_token_above(1, Duration::from_secs(10));
    let is_seen = eventually(|| overlap(&stage.acts()).is_some());
    for pid in fs::read_to_string(stage.log.with_extension("escaped")).unwrap().lines() {
        assert!(Command::new("kill").args(["-KILL", pid]).status().unwrap().success());
    }
    assert!(is_seen);
}

#[test]
fn killed_and_stopped_leaders_are_followed_on_file_without_overlap() {
    let _machine = measuring();
    let servers = [Server::on_file()];
    let stage = Stage::new(&servers, Duration::from_secs(2));
    fail_over(&stage, &servers[0], count("WANE_TEST_FAILOVERS", 10), |_| {});
}

/// Three servers on three Cassandra nodes, one of which is killed on the way.
#[test]
fn killed_and_stopped_leaders_are_followed_on_cas3_without_overlap() {
    let Some(flags) = shared::flags("cas3") else { return };
    let _machine = measuring();
    let wanes = [(); 3].map(|()| shared::start(&flags));
    let stage = Stage::new(&wanes, Duration::from_secs(5));
    let rounds = count("WANE_TEST_CAS3_FAILOVERS", 5);
    let pids = servers(&["pids", "cas3"]).unwrap();
    let victim = pids.split_whitespace().last().expect("three nodes");
    fail_over(&stage, &wanes[0], rounds, |round| {
        if round == rounds / 2 {
            let killed = Command::new("kill").args(["-KILL", victim]).status().unwrap();
            assert!(killed.success());
        }
    });
    servers(&["revive", "cas3"]).map(drop).unwrap();
}
