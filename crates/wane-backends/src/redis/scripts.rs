//! The scripts: one for each operation, constant, decided on the server in one step.
//!
//! They are in `lua/`, each after what it shares with others. A writing script begins with a line
//! for the server, which then refuses it whole, before its first step, where it takes no writes.
//! A reading one has none: it goes on where nothing can be written.

use std::fmt;
use std::sync::LazyLock;

use redis::{Cmd, cmd};

/// A script, and the name under which the server remembers it.
pub(super) struct Script {
    source: &'static str,
    hash: String,
}

impl Script {
    fn new(source: &'static str) -> Self {
        Self { source, hash: redis::Script::new(source).get_hash().to_owned() }
    }

    /// The call of a script that the server knows.
    pub(super) fn by_hash(&self, keys: &[String]) -> Cmd {
        Self::call("EVALSHA", &self.hash, keys)
    }

    /// The call that also makes the script known.
    pub(super) fn by_source(&self, keys: &[String]) -> Cmd {
        Self::call("EVAL", self.source, keys)
    }

    fn call(command: &str, script: &str, keys: &[String]) -> Cmd {
        let mut call = cmd(command);
        call.arg(script).arg(keys.len());
        for key in keys {
            call.arg(key);
        }
        call
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Script").field(&self.hash).finish()
    }
}

/// A script that reads.
macro_rules! reading {
    ($file:literal) => {
        LazyLock::new(|| {
            Script::new(concat!(
                include_str!("lua/record.lua"),
                include_str!(concat!("lua/", $file))
            ))
        })
    };
}

/// A script that writes, after the line that tells the server so.
macro_rules! writing {
    ($line:literal, $file:literal) => {
        LazyLock::new(|| {
            Script::new(concat!(
                $line,
                "\n",
                include_str!("lua/record.lua"),
                include_str!("lua/write.lua"),
                include_str!(concat!("lua/", $file))
            ))
        })
    };
}

pub(super) static GET: LazyLock<Script> = reading!("get.lua");
pub(super) static QUERY_TTL: LazyLock<Script> = reading!("query_ttl.lua");
pub(super) static READ: LazyLock<Script> = reading!("read.lua");
pub(super) static READ_BACK: LazyLock<Script> = reading!("read_back.lua");
pub(super) static PUT: LazyLock<Script> = writing!("#!lua", "put.lua");
pub(super) static INSERT: LazyLock<Script> = writing!("#!lua", "insert.lua");
pub(super) static SWAP: LazyLock<Script> = writing!("#!lua", "swap.lua");
// What makes room is allowed where there is none.
pub(super) static DELETE: LazyLock<Script> = writing!("#!lua flags=allow-oom", "delete.lua");
pub(super) static SWEEP: LazyLock<Script> = writing!("#!lua flags=allow-oom", "sweep.lua");

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> [(&'static str, &'static Script); 9] {
        [
            ("get", &GET),
            ("query_ttl", &QUERY_TTL),
            ("read", &READ),
            ("read_back", &READ_BACK),
            ("put", &PUT),
            ("insert", &INSERT),
            ("swap", &SWAP),
            ("delete", &DELETE),
            ("sweep", &SWEEP),
        ]
    }

    /// The commands of a script, each with what it has as its key.
    fn commands(source: &str) -> Vec<(&str, &str)> {
        let calls = source.split("redis.").skip(1).map(|rest| {
            let (_, arguments) = rest.split_once('(').expect("a call");
            let (command, rest) =
                arguments.split_once('\'').expect("a name").1.split_once('\'').expect("its end");
            let key = rest.trim_start_matches([',', ' ']);
            (command, key.split([',', ')']).next().expect("something"))
        });
        calls.collect()
    }

    /// A cluster sends a script where its keys are, and can know only of those that it is given.
    #[test]
    fn a_script_touches_only_keys_that_it_is_given() {
        let given = ["KEYS[1]", "KEYS[2]", "KEYS[3]", "KEYS[4]"];
        for (name, script) in all() {
            let commands = commands(script.source);
            assert!(commands.iter().any(|(_, key)| given.contains(key)), "{name} does something");
            for (command, key) in commands {
                assert!(command == "TIME" || given.contains(&key), "{name}: {command} {key}");
            }
        }
        let control = commands("redis.call('TIME') redis.pcall('DEL', ARGV[1])");
        assert_eq!(control, [("TIME", ""), ("DEL", "ARGV[1]")]);
    }

    /// Reads go on where nothing can be written, so a server must not take them for writes.
    #[test]
    fn only_writing_scripts_are_announced_as_such() {
        for (name, script) in all() {
            let writes = ["put", "insert", "swap", "delete", "sweep"].contains(&name);
            assert_eq!(script.source.starts_with("#!lua"), writes, "{name}");
        }
    }
}
