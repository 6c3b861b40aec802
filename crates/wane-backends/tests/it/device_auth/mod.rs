//! Device authorization on every backend, by two nodes: one decision (D1), one token (D2), nothing
//! after the expiry (D3), and nothing that a removal leaves. Each check goes red over a store, or a
//! clock, that is not what it should be.

mod cluster;
mod controls;
mod deciding;
mod expiring;
mod hasty;
mod redeeming;
mod stage;
