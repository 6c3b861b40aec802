//! A case: a rule of the contract as data, and what it is given to run with.

use std::fmt;
use std::pin::Pin;

use super::{CaseResult, Harness};
use crate::store::{Key, Partition, Ttl};

/// The part of the contract that a case belongs to; each has its file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "each is the name of the file that holds its cases")]
pub enum Part {
    Batches,
    Cleaning,
    ConditionalWrites,
    Expiry,
    Fences,
    Limits,
    Races,
    Ranges,
    Reads,
    Restart,
    Scan,
}

/// What a case needs beyond a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Need {
    /// Nothing more.
    Store,
    /// Records that expire while it runs.
    Time,
    /// A clock that stands still between two calls.
    Clock,
    /// A store that keeps its records when it is closed.
    Restart,
    /// A store that can tell its size.
    Footprint,
}

impl Need {
    /// What is missing where the need cannot be met, in one word.
    pub(super) fn missing(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Time => "time",
            Self::Clock => "manual clock",
            Self::Restart => "restart",
            Self::Footprint => "footprint",
        }
    }
}

/// A case while it runs.
pub(super) type Running<'t> = Pin<Box<dyn Future<Output = CaseResult> + Send + 't>>;

/// One rule of the contract, ready to run on the stores of a harness.
pub struct Case<H: Harness> {
    /// The rule, as the name of the function that checks it.
    pub name: &'static str,
    /// The part of the contract it belongs to.
    pub part: Part,
    /// What it needs beyond a store.
    pub need: Need,
    /// Runs it.
    pub run: for<'t> fn(&'t Trial<'t, H>) -> Running<'t>,
}

impl<H: Harness> fmt::Debug for Case<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}::{} ({:?})", self.part, self.name, self.need)
    }
}

/// Lists the functions of a part as cases: `cases![Reads; Store: one, two; Clock: three]`.
macro_rules! cases {
    ($part:ident; $($need:ident: $($name:ident),+ $(,)?);+ $(;)?) => {
        vec![$($(
            $crate::conformance::Case {
                name: stringify!($name),
                part: $crate::conformance::Part::$part,
                need: $crate::conformance::Need::$need,
                run: |trial| Box::pin($name(trial)),
            }
        ),+),+]
    };
}
pub(super) use cases;

/// What a case runs with: the harness, and names that no other case uses.
#[derive(Debug)]
pub struct Trial<'h, H> {
    harness: &'h H,
    prefix: String,
}

impl<'h, H: Harness> Trial<'h, H> {
    /// A trial of `case` in the run that drew `run`.
    pub(super) fn new(harness: &'h H, case: &str, run: u64) -> Self {
        Self { harness, prefix: format!("kit/{run:016x}/{case}/") }
    }

    /// The harness, for what only some cases need.
    pub fn harness(&self) -> &'h H {
        self.harness
    }

    /// A handle on the store under test.
    pub fn store(&self) -> H::Store {
        self.harness.store()
    }

    /// Lets a life pass.
    pub async fn outlive(&self, ttl: Ttl) {
        self.harness.outlive(ttl).await;
    }

    /// The bytes that every partition of this trial begins with.
    pub fn prefix(&self) -> &[u8] {
        self.prefix.as_bytes()
    }

    /// A partition of this trial: the same one for the same tag.
    pub fn partition(&self, tag: impl AsRef<[u8]>) -> Partition {
        let bytes = [self.prefix(), tag.as_ref()].concat();
        Partition::new(bytes).expect("prefix and tag are short")
    }

    /// A key in a partition of its own.
    pub fn key(&self, tag: impl AsRef<[u8]>) -> Key {
        self.row(tag, "row")
    }

    /// A row of the partition with this tag.
    pub fn row(&self, tag: impl AsRef<[u8]>, clustering: impl AsRef<[u8]>) -> Key {
        let partition = self.partition(tag);
        Key::new(partition.as_bytes(), clustering.as_ref()).expect("the clustering is legal")
    }
}
