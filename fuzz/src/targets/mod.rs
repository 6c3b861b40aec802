//! The properties, one file per format or parser. Each file says what must hold.
//!
//! Every file has a `target`, which checks the real thing, and a `check`, which takes the code
//! under test as an argument: the controls hand it broken code and expect to be caught.

pub mod backup;
pub mod due;
pub mod frame;
pub mod key;
pub mod limits;
pub mod range;
pub mod record;

use crate::Target;

/// Every target, by the name of its corpus.
pub const ALL: [(&str, Target); 7] = [
    ("record", record::target),
    ("key", key::target),
    ("due", due::target),
    ("range", range::target),
    ("limits", limits::target),
    ("backup", backup::target),
    ("frame", frame::target),
];
