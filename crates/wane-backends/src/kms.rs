//! AWS KMS: draws the secrets that sign tokens, and opens them.
//!
//! Secrets are data keys: KMS draws one and hands out what only it can open, bound by the encryption
//! context to the id of the key that it is for. What was closed is opened by the very key that closed
//! it, which KMS names, so that an alias can be moved to another key at any time.
//!
//! Nothing is sent twice: whoever asks comes again by itself.

use std::error::Error;
use std::time::Duration;

use aws_config::SdkConfig;
use aws_sdk_kms::Client;
use aws_sdk_kms::config::retry::RetryConfig;
use aws_sdk_kms::config::{Builder, StalledStreamProtectionConfig};
use aws_sdk_kms::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_kms::primitives::Blob;
use wane::services::pull_stream::{KeyWrap, WrapError, WrapFuture, WrappedSecret};

use crate::OpenError;
use crate::aws::{self, Missing, reason_in_chain};

const BACKEND: &str = "kms";

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(3);

/// How long an unused connection is kept: below what servers do.
const IDLE: Duration = Duration::from_secs(10);

/// Bytes of a secret.
const SECRET: i32 = 64;

/// What the secrets are for, and the id of the key: opened with the same alone.
const PURPOSE: (&str, &str) = ("wane", "pull_stream");
const KID: &str = "kid";

/// Codes of errors that pass, whatever their status.
const PASSING: [&str; 7] = [
    "DependencyTimeoutException",
    "KMSInternalException",
    "KeyUnavailableException",
    "LimitExceededException",
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
];

/// The longest name of a key that is taken.
const MAX_KEY_ID: usize = 2_048;

/// Whether KMS may have a key of this id, ARN or alias.
fn is_key_id(id: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b":/_-".contains(&byte);
    (1..=MAX_KEY_ID).contains(&id.len()) && id.bytes().all(legal)
}

/// A key of KMS, which others are closed with.
#[derive(Debug)]
pub struct KmsKey {
    client: Client,
    id: String,
}

impl KmsKey {
    /// The key of this id, ARN or alias, in the region and with the credentials of this process. Asks
    /// nothing of KMS yet. `AWS_ENDPOINT_URL_KMS` names one that is elsewhere.
    pub async fn find(id: &str) -> Result<Self, OpenError> {
        if !is_key_id(id) {
            let reason = "give the id, the ARN or the alias of a key".to_owned();
            return Err(OpenError::BadUrl { backend: BACKEND, reason });
        }
        let (found, _) = aws::found(aws::loader(IDLE)).await.map_err(not_found)?;
        Ok(Self::with(&found, id))
    }

    /// The key of this id, reached so.
    #[must_use]
    pub fn with(config: &SdkConfig, id: &str) -> Self {
        let config = Builder::from(config)
            .retry_config(RetryConfig::disabled())
            .timeout_config(aws::time_limits(TIMEOUT))
            .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
            .build();
        Self { client: Client::from_conf(config), id: id.to_owned() }
    }

    async fn drawn(&self, kid: &str) -> Result<WrappedSecret, WrapError> {
        let asked = self.client.generate_data_key_without_plaintext().key_id(&self.id);
        let asked = asked.number_of_bytes(SECRET).encryption_context(PURPOSE.0, PURPOSE.1);
        let drawn = asked.encryption_context(KID, kid).send().await.map_err(|e| failed(&e))?;
        match (drawn.key_id, drawn.ciphertext_blob) {
            (Some(by), Some(bytes)) => Ok(WrappedSecret { by, bytes: bytes.into_inner() }),
            (_, _) => Err(WrapError::Away { reason: "it answered with no key".to_owned() }),
        }
    }

    async fn opened(&self, kid: &str, secret: &WrappedSecret) -> Result<Vec<u8>, WrapError> {
        let asked = self.client.decrypt().key_id(&secret.by);
        let asked = asked.ciphertext_blob(Blob::new(secret.bytes.clone()));
        let asked = asked.encryption_context(PURPOSE.0, PURPOSE.1).encryption_context(KID, kid);
        let opened = asked.send().await.map_err(|error| failed(&error))?;
        let nothing = || WrapError::Away { reason: "it answered with nothing".to_owned() };
        opened.plaintext.map(Blob::into_inner).ok_or_else(nothing)
    }
}

impl KeyWrap for KmsKey {
    fn draw<'a>(&'a self, kid: &'a str) -> WrapFuture<'a, WrappedSecret> {
        Box::pin(self.drawn(kid))
    }

    fn open<'a>(&'a self, kid: &'a str, secret: &'a WrappedSecret) -> WrapFuture<'a, Vec<u8>> {
        Box::pin(self.opened(kid, secret))
    }
}

fn not_found(missing: Missing) -> OpenError {
    match missing {
        Missing::Region => {
            let reason = "no region is named; set AWS_REGION".to_owned();
            OpenError::BadUrl { backend: BACKEND, reason }
        }
        Missing::Credentials { region, reason } => OpenError::Refused {
            backend: BACKEND,
            address: region.unwrap_or_else(|| "the region of this machine".to_owned()),
            check: aws::CREDENTIALS,
            source: reason.into(),
        },
    }
}

fn failed<E>(error: &SdkError<E>) -> WrapError
where
    E: ProvideErrorMetadata + Error + 'static,
{
    let reason = match (error.code(), error.message()) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        (None, _) => reason_in_chain(error),
    };
    let is_refusal = |error: &SdkError<E>| {
        let code = error.code().unwrap_or_default();
        let status = error.raw_response().map_or(0, |answer| answer.status().as_u16());
        (400..500).contains(&status) && !code.is_empty() && !PASSING.contains(&code)
    };
    if is_refusal(error) { WrapError::Refused { reason } } else { WrapError::Away { reason } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_arns_and_aliases_name_keys() {
        for legal in [
            "1234abcd-12ab-34cd-56ef-1234567890ab",
            "alias/wane",
            "arn:aws:kms:eu-west-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab",
        ] {
            assert!(is_key_id(legal), "{legal}");
        }
        for wrong in ["", "a b", "key?", "key\n", &"k".repeat(MAX_KEY_ID + 1)] {
            assert!(!is_key_id(wrong), "{wrong}");
        }
    }
}
