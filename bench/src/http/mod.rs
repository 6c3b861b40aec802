//! The HTTP benchmark: the server over loopback, beside an axum handler that does nothing and beside
//! the library without HTTP.
//!
//! Servers are processes of their own, started anew for each contestant; the client shares the two
//! cores with them. Requests are sent one after the other on each of the kept connections.

mod load;
mod server;

pub(crate) use load::{Load, answer};
pub(crate) use server::{Kind, SERVE, Server, serve};

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use wane::clock::SystemClock;
use wane::services::ClusterAppId;
use wane::services::app_ttl::{AppTtl, Quota};

use crate::measured::Measured;
use crate::plot::{Chart, Scale};
use crate::report::{Report, Row};
use crate::workload::Chance;
use crate::{BoxError, Options, timing};

/// Connections of the bars.
const CONNECTIONS: usize = 64;

/// Records that gets ask for.
const RECORDS: u64 = 10_000;

/// Inserts of one batch, where they come in batches.
const BATCH: u64 = 100;

const TABLE: &str = "http: requests a second over loopback, keep-alive";

/// Runs everything and returns what came out.
pub(crate) fn run(options: &Options) -> Result<Report, BoxError> {
    let mut report = Report::default();
    let scratch = options.scratch()?;
    let client =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let (rounds, slice) = if options.quick { (3, 500) } else { (5, 3_000) };
    let trials = Trials { client, rounds, slice: Duration::from_millis(slice) };
    let empty = Server::start(Kind::Empty, scratch.path())?;
    let mem = Server::start(Kind::Mem, scratch.path())?;
    let file = Server::start(Kind::File, scratch.path())?;
    for server in [&mem, &file] {
        server.raise_limits(&trials.client)?;
        server.fill(&trials.client, RECORDS)?;
    }
    for connections in [1, 16, CONNECTIONS] {
        trials.gets(&[&empty, &mem, &file], connections, &mut report)?;
    }
    for connections in [1, 16, CONNECTIONS] {
        trials.inserts(&[&mem, &file], connections, &mut report)?;
    }
    trials.batches(&[&mem, &file], &mut report)?;
    drop((empty, mem, file));
    let own = library_inserts(scratch.path(), &trials)?;
    report.row(row("library, file", "insert, 64 callers", Some(own)));
    bars(&mut report);
    options.write_plot("http", &chart(&report));
    report.note(
        "http: client and server share the cores; insert on file is durable before it is answered; \
         the empty handler is served by axum itself and answers 200 with a short text.",
    );
    Ok(report)
}

struct Trials {
    client: Runtime,
    rounds: usize,
    slice: Duration,
}

impl Trials {
    /// Contestants take turns, so that whatever else the machine does hits all of them.
    fn gets(
        &self,
        servers: &[&Server],
        connections: usize,
        report: &mut Report,
    ) -> Result<(), BoxError> {
        timing::stage(&format!("http: get, {connections} connections"));
        let load = |server: &Server, round: usize| {
            // Made before: all contestants cost the client the same.
            let requests = server.clone_for_requests();
            let requests: Vec<_> = (0..RECORDS).map(|index| requests.get_request(index)).collect();
            let request = move |connection: usize, sent: u64| {
                let seed = (round * 1_000 + connection) as u64;
                requests[Chance::seeded(seed << 32 | sent).below(RECORDS) as usize].clone()
            };
            self.load(server, connections, Arc::new(request), 200)
        };
        let setting = format!("get, {connections} connections");
        self.take_turns(servers, load, |server, median| {
            report.row(row(server.kind.name(), &setting, median));
        })
    }

    fn inserts(
        &self,
        servers: &[&Server],
        connections: usize,
        report: &mut Report,
    ) -> Result<(), BoxError> {
        timing::stage(&format!("http: insert, {connections} connections"));
        let load = |server: &Server, round: usize| {
            let server_ = server.clone_for_requests();
            let request = move |connection: usize, sent: u64| {
                server_.insert_request(&format!("i{connections}-{round}-{connection}-{sent}"))
            };
            self.load(server, connections, Arc::new(request), 201)
        };
        let setting = format!("insert, {connections} connections");
        self.take_turns(servers, load, |server, median| {
            report.row(row(server.kind.name(), &setting, median));
        })
    }

    /// The same inserts, many to a request. Rates are of inserts, times of whole requests.
    fn batches(&self, servers: &[&Server], report: &mut Report) -> Result<(), BoxError> {
        timing::stage("http: inserts in batches");
        let load = |server: &Server, round: usize| {
            let server_ = server.clone_for_requests();
            let request = move |connection: usize, sent: u64| {
                let key = |number| format!("b{round}-{connection}-{sent}-{number}");
                server_.batch_request((0..BATCH).map(key))
            };
            let load = self.load(server, CONNECTIONS, Arc::new(request), 200);
            Load { says: &[r#"{"status":201"#], ..load }
        };
        self.take_turns(servers, load, |server, batches| {
            let inserts =
                |batches: Measured| Measured { rate: batches.rate * BATCH as f64, ..batches };
            report.row(row(server.kind.name(), &batched(), batches.map(inserts)));
        })
    }

    fn load(
        &self,
        server: &Server,
        connections: usize,
        request: load::MakeRequest,
        status: u16,
    ) -> Load {
        Load { server: server.http, connections, slice: self.slice, request, status, says: &[] }
    }

    /// Hands the median of the rounds of each server to `came_out`.
    fn take_turns<'a>(
        &self,
        servers: &[&'a Server],
        load: impl Fn(&Server, usize) -> Load,
        mut came_out: impl FnMut(&'a Server, Option<Measured>),
    ) -> Result<(), BoxError> {
        let mut measured = vec![Vec::new(); servers.len()];
        for round in 0..self.rounds {
            for (server, measured) in servers.iter().zip(&mut measured) {
                measured.push(load(server, round).run(&self.client)?);
            }
        }
        for (server, rounds) in servers.iter().zip(&measured) {
            came_out(server, Measured::median(rounds));
        }
        Ok(())
    }
}

/// The same inserts without HTTP: 64 callers on the service itself.
fn library_inserts(scratch: &std::path::Path, trials: &Trials) -> Result<Measured, BoxError> {
    timing::stage("http: insert by the library");
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let clock = SystemClock::shared();
    let url = format!("file:{}", scratch.join("library").display());
    let store = runtime.block_on(wane_backends::open(&url, Arc::clone(&clock)))?;
    let storage = AppTtl::new(store, clock).of(ClusterAppId(1), Quota::default());
    let mut rounds = Vec::new();
    for round in 0..trials.rounds {
        let begin = timing::now();
        let slice = trials.slice;
        let callers: Vec<_> = (0..CONNECTIONS)
            .map(|caller| {
                let storage = storage.clone();
                runtime.spawn(async move {
                    let mut done = 0_u64;
                    while begin.elapsed() < slice {
                        let key = format!("{round}-{caller}-{done}");
                        let life = Duration::from_secs(3_600);
                        let outcome =
                            storage.insert_if_not_exists(&key, server::VALUE, life).await?;
                        assert!(outcome.is_applied(), "the key is new");
                        done += 1;
                    }
                    Ok::<_, BoxError>(done)
                })
            })
            .collect();
        let mut done = 0;
        for caller in callers {
            done += runtime.block_on(caller)??;
        }
        let rate = done as f64 / begin.elapsed().as_secs_f64();
        rounds.push(Measured { rate, p50: 0.0, p99: 0.0, p999: 0.0 });
    }
    Measured::median(&rounds).ok_or_else(|| "no round was measured".into())
}

fn row(subject: &str, setting: &str, measured: Option<Measured>) -> Row {
    Row {
        table: TABLE.into(),
        subject: subject.into(),
        setting: setting.into(),
        measures: measured.map_or_else(Measured::missing, Measured::columns),
        note: None,
    }
}

/// The setting of inserts that come in batches.
fn batched() -> String {
    format!("insert, {CONNECTIONS} connections, {BATCH} at a time")
}

fn bars(report: &mut Report) {
    let rate =
        |report: &Report, subject: &str, setting: &str| report.find(subject, setting, "ops/s");
    let get = format!("get, {CONNECTIONS} connections");
    let empty = rate(report, Kind::Empty.name(), &get);
    for (kind, bar) in [(Kind::Mem, Some(0.7)), (Kind::File, None)] {
        let pair = (rate(report, kind.name(), &get), empty);
        let name = format!("http {get}: {} / empty handler", kind.name());
        match bar {
            Some(bar) => report.bar(name, pair, bar),
            None => report.ratio(name, pair),
        }
    }
    for connections in [1, 16] {
        let get = format!("get, {connections} connections");
        let pair = (rate(report, Kind::Mem.name(), &get), rate(report, Kind::Empty.name(), &get));
        report.ratio(format!("http {get}: {} / empty handler", Kind::Mem.name()), pair);
    }
    let insert = format!("insert, {CONNECTIONS} connections");
    let pair = (
        rate(report, Kind::File.name(), &insert),
        rate(report, "library, file", "insert, 64 callers"),
    );
    report.bar(format!("http durable {insert}: wane file / library"), pair, 0.5);
    let pair = (rate(report, Kind::File.name(), &batched()), pair.1);
    report.ratio(format!("http durable {}: wane file / library", batched()), pair);
}

fn chart(report: &Report) -> Chart {
    let series = [Kind::Empty, Kind::Mem, Kind::File].map(|kind| kind.name().to_owned()).to_vec();
    let settings = [
        "get, 1 connections",
        "get, 16 connections",
        "get, 64 connections",
        "insert, 1 connections",
        "insert, 16 connections",
        "insert, 64 connections",
    ];
    let group = |setting: &str| {
        let values = series.iter().map(|name| report.find(name, setting, "ops/s")).collect();
        (setting.replace(", ", "\n"), values)
    };
    let groups = settings.map(group).to_vec();
    Chart {
        title: "http: requests over loopback (more is better)".into(),
        y_label: "requests a second, log scale".into(),
        scale: Scale::Log,
        series,
        groups,
    }
}
