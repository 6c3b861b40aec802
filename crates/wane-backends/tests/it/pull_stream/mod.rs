//! The pull stream on every backend, by two nodes: six readers and never a seventh (P1), one answer
//! to a token wherever it is used (P2, P4), every message accounted for by id and bytes when a node
//! vanishes with batches in flight (P3), keys that are rotated from node to node (P5), holds (P7).
//!
//! `network` does the same over connections that are cut and answers that are lost. Whatever a
//! store does not answer is asked again, as readers do; only wrong answers fail a case. Each check
//! goes red over a store that is not what it should be.

mod account;
mod archiving;
mod controls;
mod doctored;
mod holds;
mod network;
mod readers;
mod redis_tier;
mod regions;
mod replays;
mod run;
mod sharing;
mod stage;
mod three_masters;
mod tokens;
