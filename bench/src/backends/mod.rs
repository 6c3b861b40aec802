//! The benchmark of backends on servers: each beside the bare call of its own driver, the spread
//! beside one partition, the cache beside none.
//!
//! The servers are those that `scripts/servers` has started; one that is missing is a ratio that was
//! not measured, and so below its bar. Contestants take turns, so that whatever else the machine
//! does hits all of them.

mod bare;
mod servers;

use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::runtime::Runtime;
use wane::clock::{SharedClock, SystemClock};
use wane::store::{
    CacheSettings, CachedStore, Key, Keyspace, Life, SpreadStore, Store, Ttl, Value, Write,
};
use wane_backends::cassandra::{CassandraSettings, CassandraStore};
use wane_backends::dynamodb::{DynamodbSettings, DynamodbStore};
use wane_backends::redis::{RedisSettings, RedisStore};

use self::bare::{BareCassandra, BareDynamodb, BareRedis};
pub(crate) use self::servers::{address_of, pids_of};
use crate::measured::Measured;
use crate::plot::{Chart, Scale};
use crate::report::{Report, Row};
use crate::{BoxError, Options, timing};

const TABLE: &str = "backends: real servers over loopback";

/// What each record holds, and for how long.
const VALUE: &[u8] = &[7; 100];
const LIFE: Duration = Duration::from_secs(3_600);

/// Runs everything and returns what came out.
pub(crate) fn run(options: &Options) -> Result<Report, BoxError> {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (rounds, slice) = if options.quick { (3, 1_000) } else { (7, 3_000) };
    let trials = Trials { runtime, rounds, slice: Duration::from_millis(slice) };
    let mut report = Report::default();
    trials.redis(&mut report)?;
    trials.cassandra(&mut report)?;
    trials.dynamodb(&mut report)?;
    bars(&mut report);
    options.write_plot("backends", &chart(&report));
    report.note(
        "backends: callers, drivers and servers share the cores; Redis syncs every write, \
         Cassandra is one node with batch commits, DynamoDB is DynamoDB Local in memory.",
    );
    Ok(report)
}

/// One that inserts a record of its own with each call, or reads the same one.
type Call = Arc<dyn Fn(u64) -> Calling + Send + Sync>;
type Calling = std::pin::Pin<Box<dyn Future<Output = Result<(), BoxError>> + Send>>;

/// Makes a call of an async closure over something shared.
fn call<T, F>(shared: &Arc<T>, make: impl Fn(Arc<T>, u64) -> F + Send + Sync + 'static) -> Call
where
    T: Send + Sync + 'static,
    F: Future<Output = Result<(), BoxError>> + Send + 'static,
{
    let shared = Arc::clone(shared);
    Arc::new(move |number| Box::pin(make(Arc::clone(&shared), number)))
}

/// Inserts through a store, into the partition of an app.
fn inserts<S: Store>(store: &Arc<S>) -> Call {
    call(store, async |store: Arc<S>, number| {
        let outcome = store.insert_if_not_exists(&key(number)?, record()?).await?;
        if outcome.is_applied() { Ok(()) } else { Err("the key is not new".into()) }
    })
}

/// Reads one record through a store.
fn gets<S: Store>(store: &Arc<S>) -> Call {
    call(store, async |store: Arc<S>, _| match store.get(&key(HOT)?).await? {
        Some(_) => Ok(()),
        None => Err("the hot record is gone".into()),
    })
}

/// The record that gets ask for.
const HOT: u64 = u64::MAX;

fn key(number: u64) -> Result<Key, BoxError> {
    let partition = Keyspace::AppTtl.partition(&1_u32.to_be_bytes())?;
    Ok(Key::new(partition.as_bytes(), format!("r{number:x}").as_bytes())?)
}

fn record() -> Result<Write, BoxError> {
    Ok(Write::new(Value::copy_from_slice(VALUE)?, Life::For(Ttl::try_from(LIFE)?)))
}

struct Trials {
    runtime: Runtime,
    rounds: usize,
    slice: Duration,
}

impl Trials {
    fn redis(&self, report: &mut Report) -> Result<(), BoxError> {
        let Some(url) = address_of("redis", "WANE_REDIS_URL") else {
            report.note("backends: redis was not started: scripts/servers start redis");
            return Ok(());
        };
        let clock = SystemClock::shared();
        let settings = |prefix: &str| RedisSettings::from_url(&format!("{url}?prefix={prefix}"));
        let run = format!("bench{:x}", clock.random_u64());
        let store = RedisStore::connect(settings(&run)?, Arc::clone(&clock));
        let store = Arc::new(self.runtime.block_on(store)?);
        let bare = Arc::new(self.runtime.block_on(BareRedis::connect(&url, &run))?);
        let bare = call(&bare, async |bare: Arc<BareRedis>, number| bare.insert(number).await);
        let contest = [("redis", inserts(&store)), ("bare script", bare)];
        self.contest("redis insert", 64, &contest, report)?;
        self.contest("redis insert", 1, &contest, report)?;
        self.cache("redis", &store, &clock, report)
    }

    fn cassandra(&self, report: &mut Report) -> Result<(), BoxError> {
        let Some(hosts) = address_of("cas1", "WANE_CASSANDRA_HOSTS") else {
            report.note("backends: cas1 was not started: scripts/servers start cas1");
            return Ok(());
        };
        let clock = SystemClock::shared();
        let run = clock.random_u64();
        let connect = |keyspace: &str| {
            let settings = CassandraSettings::from_url(&format!("cas1://{hosts}/{keyspace}"));
            let clock = Arc::clone(&clock);
            self.runtime.block_on(async { CassandraStore::connect(settings?, clock).await })
        };
        let (one, many) = (format!("one{run:x}"), format!("many{run:x}"));
        let (narrow, wide) = (connect(&one)?, connect(&many)?);
        let plain = Arc::new(narrow.clone());
        let narrow = Arc::new(self.runtime.block_on(SpreadStore::open(narrow, 1))?);
        let wide = Arc::new(self.runtime.block_on(SpreadStore::open(wide, 256))?);
        let contest = [("256 buckets", inserts(&wide)), ("1 bucket", inserts(&narrow))];
        self.contest("cassandra insert", 64, &contest, report)?;
        let bare = Arc::new(self.runtime.block_on(BareCassandra::connect(&hosts, &one))?);
        let bare = call(&bare, async |bare: Arc<BareCassandra>, number| bare.insert(number).await);
        let contest = [("cassandra", inserts(&plain)), ("bare statement", bare)];
        self.contest("cassandra insert", 1, &contest, report)?;
        self.cache("cassandra", &plain, &clock, report)
    }

    fn dynamodb(&self, report: &mut Report) -> Result<(), BoxError> {
        let Some(endpoint) = address_of("dynamodb", "WANE_DYNAMODB_ENDPOINT") else {
            report.note("backends: dynamodb was not started: scripts/servers start dynamodb");
            return Ok(());
        };
        let clock = SystemClock::shared();
        let table = format!("bench{:x}", clock.random_u64());
        let escaped = endpoint.replace(':', "%3A").replace('/', "%2F");
        let url = format!("dynamodb://local:local@/{table}?endpoint={escaped}&region=us-east-1");
        let settings = DynamodbSettings::from_url(&url)?;
        let store = DynamodbStore::connect(settings, Arc::clone(&clock));
        let store = Arc::new(self.runtime.block_on(store)?);
        let bare = Arc::new(BareDynamodb::connect(&endpoint, &table));
        let bare = call(&bare, async |bare: Arc<BareDynamodb>, number| bare.insert(number).await);
        let contest = [("dynamodb", inserts(&store)), ("bare SDK call", bare)];
        self.contest("dynamodb insert", 1, &contest, report)?;
        self.contest("dynamodb insert", 16, &contest, report)
    }

    /// A record that everyone reads, with a cache and without.
    fn cache<S: Store + Clone>(
        &self,
        backend: &str,
        store: &Arc<S>,
        clock: &SharedClock,
        report: &mut Report,
    ) -> Result<(), BoxError> {
        self.runtime.block_on(inserts(store)(HOT))?;
        let settings = CacheSettings { max_stale: Duration::from_secs(1), max_bytes: 64 << 20 };
        let cached = CachedStore::new(S::clone(store), Some(settings), Arc::clone(clock));
        let contest = [("cached", gets(&Arc::new(cached))), ("uncached", gets(store))];
        self.contest(&format!("{backend} get of one record"), 1, &contest, report)
    }

    fn contest(
        &self,
        what: &str,
        callers: u64,
        contestants: &[(&str, Call)],
        report: &mut Report,
    ) -> Result<(), BoxError> {
        let setting = setting(what, callers);
        timing::stage(&format!("backends: {setting}"));
        let mut measured = vec![Vec::new(); contestants.len()];
        for round in 0..self.rounds as u64 {
            for ((_, call), measured) in contestants.iter().zip(&mut measured) {
                measured.push(self.load(callers, round, call)?);
            }
        }
        for ((subject, _), rounds) in contestants.iter().zip(&measured) {
            let measures =
                Measured::median(rounds).map_or_else(Measured::missing, Measured::columns);
            let (table, subject) = (TABLE.into(), (*subject).to_owned());
            report.row(Row { table, subject, setting: setting.clone(), measures, note: None });
        }
        Ok(())
    }

    /// Calls one after the other by each caller, for a slice of time.
    fn load(&self, callers: u64, round: u64, call: &Call) -> Result<Measured, BoxError> {
        let begin = timing::now();
        let tasks: Vec<_> = (0..callers)
            .map(|caller| {
                let (call, slice) = (Arc::clone(call), self.slice);
                self.runtime.spawn(async move {
                    let mut times = Histogram::<u64>::new(3)?;
                    let first = (callers << 48) | (round << 40) | (caller << 32);
                    while begin.elapsed() < slice {
                        let start = timing::now();
                        call(first + times.len()).await?;
                        times.record(start.elapsed().as_nanos() as u64)?;
                    }
                    Ok::<_, BoxError>(times)
                })
            })
            .collect();
        let mut all = Histogram::<u64>::new(3)?;
        for task in tasks {
            all.add(self.runtime.block_on(task)??)?;
        }
        let micros = |quantile| all.value_at_quantile(quantile) as f64 / 1e3;
        Ok(Measured {
            rate: all.len() as f64 / begin.elapsed().as_secs_f64(),
            p50: micros(0.5),
            p99: micros(0.99),
            p999: micros(0.999),
        })
    }
}

fn setting(what: &str, callers: u64) -> String {
    let plural = if callers == 1 { "" } else { "s" };
    format!("{what}, {callers} caller{plural}")
}

/// What is asked: who against whom, and the least ratio of their rates.
const BARS: [(&str, u64, &str, &str, Option<f64>); 8] = [
    ("cassandra insert", 64, "256 buckets", "1 bucket", Some(3.0)),
    // At most a tenth more than the statement alone.
    ("cassandra insert", 1, "cassandra", "bare statement", Some(1.0 / 1.1)),
    ("redis insert", 64, "redis", "bare script", Some(0.9)),
    ("redis insert", 1, "redis", "bare script", None),
    ("dynamodb insert", 1, "dynamodb", "bare SDK call", Some(0.9)),
    ("dynamodb insert", 16, "dynamodb", "bare SDK call", Some(0.9)),
    ("redis get of one record", 1, "cached", "uncached", Some(50.0)),
    ("cassandra get of one record", 1, "cached", "uncached", Some(50.0)),
];

fn bars(report: &mut Report) {
    for (what, callers, ours, theirs, bar) in BARS {
        let setting = setting(what, callers);
        let rate = |subject| report.find(subject, &setting, "ops/s");
        let pair = (rate(ours), rate(theirs));
        let name = format!("{setting}: {ours} / {theirs}");
        match bar {
            Some(bar) => report.bar(name, pair, bar),
            None => report.ratio(name, pair),
        }
    }
}

fn chart(report: &Report) -> Chart {
    let groups = BARS.iter().map(|(what, callers, ours, theirs, _)| {
        let setting = setting(what, *callers);
        let values = [ours, theirs].map(|subject| report.find(subject, &setting, "ops/s"));
        (setting.replace(", ", "\n"), values.to_vec())
    });
    Chart {
        title: "backends: calls over loopback (more is better)".into(),
        y_label: "calls a second, log scale".into(),
        scale: Scale::Log,
        series: vec!["wane".into(), "bare, 1 bucket, or uncached".into()],
        groups: groups.collect(),
    }
}
