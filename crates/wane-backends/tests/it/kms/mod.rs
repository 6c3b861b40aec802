//! Keys of tokens that KMS keeps closed, against a real server that speaks its protocol: the drill of
//! a rotation after 90 days, and a service that is away meanwhile.

mod away;
mod drill;
mod stage;
