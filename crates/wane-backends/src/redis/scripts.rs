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
