//! The connection: SDK, credentials and time limits, and errors that say what to check.
//!
//! The SDK retries nothing. Reads are repeated here, a few times and with growing pauses; writes
//! never are, but for the rows of a batch that DynamoDB was too busy for, which were not applied.

use std::error::Error;
use std::time::Duration;

use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{Builder, Region, StalledStreamProtectionConfig};
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use wane::clock::SharedClock;
use wane::store::StoreError;

use super::failure::{Failure, Kind};
use super::{BACKEND, DynamodbSettings};
use crate::OpenError;
use crate::aws::{self, Missing};

/// How long an unused connection is kept: well below what servers do. One that the server closes
/// just as a write goes out over it leaves that write unknown.
const IDLE: Duration = Duration::from_secs(10);

/// How often a read is sent before its failure counts.
const READ_ATTEMPTS: u32 = 4;

/// The first pause before something is sent again, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(25);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A table of DynamoDB, and how it is reached.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) client: Client,
    pub(super) name: String,
    /// Where it is, for errors.
    pub(super) place: String,
    pub(super) clock: SharedClock,
}

impl Table {
    /// Prepares the client. Asks for credentials, but nothing of DynamoDB yet.
    pub(super) async fn reach(
        settings: DynamodbSettings,
        clock: SharedClock,
    ) -> Result<Self, OpenError> {
        let mut loader = aws::loader(IDLE);
        if let Some(region) = &settings.region {
            loader = loader.region(Region::new(region.clone()));
        }
        if let Some(endpoint) = &settings.endpoint {
            loader = loader.endpoint_url(endpoint);
        }
        if let Some(credentials) = settings.credentials() {
            loader = loader.credentials_provider(credentials);
        }
        let not_found = |missing: Missing| match missing {
            Missing::Region => {
                let reason = "no region is named; give region=.. or set AWS_REGION".to_owned();
                OpenError::BadUrl { backend: BACKEND, reason }
            }
            Missing::Credentials { region, reason } => {
                let region = region.as_deref().unwrap_or("the region of this machine");
                no_credentials(&settings.place(region), reason)
            }
        };
        let (found, region) = aws::found(loader).await.map_err(not_found)?;
        let place = settings.place(&region);
        let config = Builder::from(&found)
            .retry_config(RetryConfig::disabled())
            .timeout_config(aws::time_limits(settings.timeout))
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .build();
        Ok(Self { client: Client::from_conf(config), name: settings.table, place, clock })
    }

    /// Sends a read until it is answered, a few times.
    pub(super) async fn reading<T, E, F>(&self, send: impl Fn() -> F) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, SdkError<E>>>,
        E: ProvideErrorMetadata + Error + 'static,
    {
        let mut sent = 0;
        loop {
            let failure = match send().await {
                Ok(answer) => return Ok(answer),
                Err(error) => Failure::of(&error),
            };
            sent += 1;
            if !failure.may_pass() || sent >= READ_ATTEMPTS {
                return Err(self.unavailable(&failure));
            }
            self.pause(sent).await;
        }
    }

    /// Waits before something is sent again: longer each time, and not all callers alike.
    pub(super) async fn pause(&self, times: u32) {
        let most = FIRST_PAUSE.saturating_mul(1 << times.min(16)).min(LONGEST_PAUSE);
        let part = self.clock.random_u64() % 1_000;
        self.clock.sleep(most / 2 + most.mul_f64(part as f64 / 2_000.0)).await;
    }

    /// Nothing was applied.
    pub(super) fn unavailable(&self, failure: &Failure) -> StoreError {
        StoreError::Unavailable { backend: BACKEND, source: self.told(failure).into() }
    }

    /// The write may have been applied.
    pub(super) fn unknown(&self, failure: &Failure) -> StoreError {
        StoreError::Unknown { backend: BACKEND, source: self.told(failure).into() }
    }

    fn told(&self, failure: &Failure) -> String {
        format!("{}: {}; check {}", self.place, failure.reason, what_to_check(failure.kind))
    }

    /// The store cannot be opened.
    pub(super) fn not_open(&self, failure: Failure) -> OpenError {
        let (address, check) = (self.place.clone(), what_to_check(failure.kind));
        let source = failure.reason.into();
        match failure.kind {
            Kind::Unsent | Kind::Unclear | Kind::Throttled => {
                OpenError::Unreachable { backend: BACKEND, address, check, source }
            }
            Kind::Denied | Kind::Rejected => {
                OpenError::Refused { backend: BACKEND, address, check, source }
            }
        }
    }

    /// What is stored in the table is not laid out as this program has it.
    pub(super) fn mismatch(&self, reason: impl Into<String>) -> OpenError {
        OpenError::Mismatch { backend: BACKEND, address: self.place.clone(), reason: reason.into() }
    }
}

fn what_to_check(kind: Kind) -> &'static str {
    match kind {
        Kind::Unsent => "the region or endpoint, and that this machine may reach it",
        Kind::Unclear => "that DynamoDB is well and the network to it, or raise timeout_ms",
        Kind::Throttled => "the throughput limits of table and account",
        Kind::Denied => "the credentials of this process and what they may do with the table",
        Kind::Rejected => "the name, state and region of the table",
    }
}

fn no_credentials(place: &str, reason: String) -> OpenError {
    OpenError::Refused {
        backend: BACKEND,
        address: place.to_owned(),
        check: aws::CREDENTIALS,
        source: reason.into(),
    }
}
