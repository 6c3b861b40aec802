//! Integration tests of the backends: one binary, one module per concern.

mod any;
#[cfg(feature = "archive")]
mod archive;
mod backup;
#[cfg(all(feature = "redis", feature = "cassandra", feature = "dynamodb"))]
mod blobs;
mod carried_over;
#[cfg(feature = "cassandra")]
mod cassandra;
mod clock_steps;
mod conformance;
mod controls;
mod cut_histories;
mod cut_values;
#[cfg(all(feature = "redis", feature = "cassandra", feature = "dynamodb"))]
mod device_auth;
mod disk_faults;
mod dropped_writes;
#[cfg(feature = "dynamodb")]
mod dynamodb;
mod each_step;
mod full_disk;
mod full_of_values;
mod harness;
mod kept_rows;
mod kill;
#[cfg(feature = "kms")]
mod kms;
mod late_groups;
mod moving_ranges;
mod opening;
mod placing;
mod power_cut;
mod proof;
mod proxy;
#[cfg(all(feature = "archive", feature = "redis", feature = "cassandra", feature = "dynamodb"))]
mod pull_stream;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "redis")]
mod redis_cluster;
#[cfg(feature = "redis")]
mod redis_faults;
#[cfg(feature = "redis")]
mod redis_opening;
#[cfg(any(feature = "cassandra", feature = "dynamodb", feature = "redis"))]
mod remote_faults;
mod second_process;
#[cfg(all(feature = "redis", feature = "cassandra", feature = "dynamodb"))]
mod services;
#[cfg(all(feature = "redis", feature = "cassandra", feature = "dynamodb"))]
mod shared_stores;
mod sweep_debt;
mod tidying;
mod unheard;
mod verifying;
mod young;
