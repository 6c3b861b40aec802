//! `wane ttl`: the entries of an application. One command is one call, watches apart.

use std::ffi::OsString;
use std::io::Read;
use std::time::Duration;

use bytes::Bytes;
use clap::{Args, Subcommand};
use serde_json::{Map, Value};
use wane::services::app_ttl::{MAX_VALUE, Renewal};
use wane::services::apps::AppName;
use wane::services::elections::Guard;
use wane::store::{Timestamp, Ttl};

use super::connection::DataFlag;
use super::elections::guard;
use super::failure::Failure;
use super::output::{Output, OutputFlags, Table, put_expiry, put_value, shown_text, shown_value};
use super::{Place, Surroundings, lifetime};
use crate::client::{AppTtl, Event, Item, Notice, ScanPage, ScanRange};

#[derive(Debug, Args)]
pub(super) struct TtlArguments {
    /// The app whose entries they are
    #[arg(long, global = true, value_name = "OWNER/APP", default_value = "demo/app")]
    pub(super) app: AppName,

    #[command(flatten)]
    pub(super) data: DataFlag,

    /// Write only while this token is the newest of this election
    #[arg(long, global = true, value_name = "ELECTION;TOKEN", value_parser = guard)]
    guard: Option<Guard>,

    #[command(subcommand)]
    command: TtlCommand,
}

#[derive(Debug, Subcommand)]
enum TtlCommand {
    /// Print the value of a live entry as it is
    Get {
        /// The key
        key: String,
    },
    /// Write an entry where no live one is
    Insert {
        /// The key
        key: String,
        #[command(flatten)]
        value: ValueArgument,
        #[command(flatten)]
        life: LifeFlag,
    },
    /// Replace an entry if its value is OLD
    Swap {
        /// The key
        key: String,
        /// The value that must stand there; - reads it from standard input
        #[arg(allow_negative_numbers = true)]
        old: OsString,
        /// The value that takes its place; - reads it from standard input
        #[arg(allow_negative_numbers = true)]
        new: OsString,
        #[command(flatten)]
        renewal: RenewalFlags,
    },
    /// Delete an entry, whatever it is unless a value is expected
    Delete {
        /// The key
        key: String,
        /// Delete only this value; - reads it from standard input
        #[arg(long, value_name = "VALUE", allow_hyphen_values = true)]
        expected: Option<OsString>,
    },
    /// Write an entry over whatever is there
    Set {
        /// The key
        key: String,
        #[command(flatten)]
        value: ValueArgument,
        #[command(flatten)]
        life: LifeFlag,
    },
    /// Give a live entry another life
    Touch {
        /// The key
        key: String,
        #[command(flatten)]
        life: LifeFlag,
    },
    /// List entries in the order of their keys
    Scan(ScanArguments),
    /// Print changes and expiries as they happen
    Watch(WatchArguments),
}

#[derive(Debug, Args)]
struct ValueArgument {
    /// The value; - reads it from standard input
    #[arg(allow_negative_numbers = true)]
    value: OsString,
}

#[derive(Debug, Args)]
struct LifeFlag {
    /// How long it lives: seconds, or with a unit: 900, 500ms, 15m, 2h, 30d
    #[arg(long, value_name = "S", value_parser = lifetime::parse)]
    ttl: Ttl,
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct RenewalFlags {
    /// How long the new value lives: seconds, or with a unit: 900, 500ms, 15m, 2h, 30d
    #[arg(long, value_name = "S", value_parser = lifetime::parse)]
    ttl: Option<Ttl>,
    /// Expire when the old value would have
    #[arg(long)]
    keep_expiry: bool,
}

#[derive(Debug, Args)]
struct PrefixArgument {
    /// What the keys begin with
    prefix: Option<String>,
    /// The same, as a flag
    #[arg(long = "prefix", value_name = "PREFIX", conflicts_with = "prefix")]
    flag: Option<String>,
}

#[derive(Debug, Args)]
struct ScanArguments {
    #[command(flatten)]
    prefix: PrefixArgument,
    /// Entries of one page
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,
    /// Begin after this key
    #[arg(long, value_name = "KEY")]
    after: Option<String>,
    /// All pages, not just one
    #[arg(long)]
    all: bool,
}

#[derive(Debug, Args)]
struct WatchArguments {
    #[command(flatten)]
    prefix: PrefixArgument,
    /// Go on after the event of this id
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    /// End after this many
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

impl PrefixArgument {
    fn get(self) -> String {
        self.prefix.or(self.flag).unwrap_or_default()
    }
}

pub(super) async fn run(
    arguments: TtlArguments,
    place: &Place,
    flags: &OutputFlags,
    surroundings: &mut Surroundings,
) -> Result<(), Failure> {
    let entries = place.client.app_ttl(&arguments.app);
    let entries = match &arguments.guard {
        Some(guard) => entries.guarded(guard),
        None => entries,
    };
    let output = &mut Output::new(flags, surroundings);
    match arguments.command {
        TtlCommand::Get { key } => get(&entries, &key, output).await,
        TtlCommand::Insert { key, value, life } => {
            let value = taken(value.value, output)?;
            let end = entries.insert(&key, value, life.ttl.as_duration()).await?;
            written("inserted", Some(end), output)
        }
        TtlCommand::Swap { key, old, new, renewal } => {
            if old == "-" && new == "-" {
                return Err(Failure::Usage {
                    what: "both values cannot come from standard input".into(),
                    advice: "give one of them as an argument".into(),
                });
            }
            let (old, new) = (taken(old, output)?, taken(new, output)?);
            let ttl = renewal.ttl.map(Ttl::as_duration);
            let end = entries.swap(&key, old, new, ttl.map_or(Renewal::Keep, Renewal::For)).await?;
            written("swapped", end, output)
        }
        TtlCommand::Delete { key, expected } => {
            match expected {
                Some(expected) => {
                    entries.compare_and_delete(&key, taken(expected, output)?).await?
                }
                None => entries.delete(&key).await?,
            }
            Ok(output.answer(Map::new(), "deleted")?)
        }
        TtlCommand::Set { key, value, life } => {
            let value = taken(value.value, output)?;
            let end = entries.set(&key, value, life.ttl.as_duration()).await?;
            written("set", Some(end), output)
        }
        TtlCommand::Touch { key, life } => {
            let end = entries.touch(&key, life.ttl.as_duration()).await?;
            written("touched", Some(end), output)
        }
        TtlCommand::Scan(arguments) => scan(&entries, arguments, output).await,
        TtlCommand::Watch(arguments) => watch(&entries, arguments, output).await,
    }
}

/// A value of the command line, as bytes.
fn taken(value: OsString, output: &mut Output<'_>) -> Result<Bytes, Failure> {
    if value != "-" {
        return Ok(value.into_encoded_bytes().into());
    }
    let mut bytes = Vec::new();
    let most = MAX_VALUE as u64;
    let read = output.input().take(most + 1).read_to_end(&mut bytes);
    read.map_err(|error| {
        Failure::failed("cannot read standard input", &error, "give the value as an argument")
    })?;
    if bytes.len() > MAX_VALUE {
        return Err(Failure::Usage {
            what: format!("the value on standard input has more than {most} bytes"),
            advice: "give a shorter one".into(),
        });
    }
    Ok(bytes.into())
}

async fn get(entries: &AppTtl, key: &str, output: &mut Output<'_>) -> Result<(), Failure> {
    if !output.is_json {
        return Ok(output.raw(&entries.get_bytes(key).await?)?);
    }
    let entry = entries.get(key).await?;
    let mut object = Map::new();
    put_value(&mut object, &entry.value);
    put_expiry(&mut object, entry.expires_at);
    let millis = |left: Duration| u64::try_from(left.as_millis()).unwrap_or(u64::MAX);
    object.insert("ttlMillis".into(), entry.remaining.map(millis).into());
    Ok(output.json(object)?)
}

fn written(
    done: &str,
    expires_at: Option<Timestamp>,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let mut object = Map::new();
    put_expiry(&mut object, expires_at);
    let line = format!("{done}, left: {}", output.left(expires_at));
    Ok(output.answer(object, &line)?)
}

async fn scan(
    entries: &AppTtl,
    arguments: ScanArguments,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let ScanArguments { prefix, limit, after, all } = arguments;
    let mut range = ScanRange { prefix: prefix.get(), after, limit: Some(limit) };
    loop {
        let page = entries.scan(&range).await?;
        print_page(&page, output)?;
        let Some(next) = page.next else { return Ok(()) };
        if !all {
            if !output.is_json {
                output.note(&format!("there are more: --after {}", shown_text(&next)))?;
            }
            return Ok(());
        }
        range.after = Some(next);
    }
}

fn print_page(page: &ScanPage, output: &mut Output<'_>) -> Result<(), Failure> {
    if output.is_json {
        let items: Vec<_> =
            page.items.iter().map(|item| Value::Object(item_object(item))).collect();
        let next = page.next.as_deref().into();
        let object = [("items".to_owned(), items.into()), ("next".to_owned(), next)];
        return Ok(output.json(Map::from_iter(object))?);
    }
    let mut table = Table::new(&["KEY", "VALUE", "LEFT"]);
    for item in &page.items {
        let left = output.left(item.expires_at);
        table.push(vec![shown_text(&item.key), shown_value(&item.value), left]);
    }
    if !table.is_empty() {
        output.table(&table)?;
    }
    Ok(())
}

fn item_object(item: &Item) -> Map<String, Value> {
    let mut object = Map::from_iter([("key".to_owned(), item.key.as_str().into())]);
    put_value(&mut object, &item.value);
    put_expiry(&mut object, item.expires_at);
    object
}

async fn watch(
    entries: &AppTtl,
    arguments: WatchArguments,
    output: &mut Output<'_>,
) -> Result<(), Failure> {
    let WatchArguments { prefix, after, count } = arguments;
    let mut watch = entries.watch(&prefix.get(), after).await?;
    let mut heard = 0;
    while count.is_none_or(|count| heard < count) {
        let notice = watch.next().await?;
        print_notice(&notice, output)?;
        heard += 1;
    }
    Ok(())
}

fn print_notice(notice: &Notice, output: &mut Output<'_>) -> Result<(), Failure> {
    let name = |name: &str| ("event".to_owned(), Value::from(name));
    match notice {
        Notice::Gap if output.is_json => output.json(Map::from_iter([name("gap")]))?,
        Notice::Gap => output.line("gap       changes may have been missed: read anew")?,
        Notice::Event(Event { id, kind, key, value, expires_at }) if output.is_json => {
            let (key, value) = (key.clone(), value.clone());
            let mut object = item_object(&Item { key, value, expires_at: *expires_at });
            object.extend([name(kind.name()), ("id".to_owned(), id.as_deref().into())]);
            output.json(object)?;
        }
        Notice::Event(Event { kind, key, value, expires_at, .. }) => {
            let left = output.left(*expires_at);
            let (key, value) = (shown_text(key), shown_value(value));
            output.line(&format!("{:8}  {key}  {value}  {left}", kind.name()))?;
        }
    }
    Ok(())
}
