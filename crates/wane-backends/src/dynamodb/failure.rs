//! Failures: what an answer that is no success says of the request.
//!
//! Three questions decide everything: was the condition refused, was nothing applied for certain,
//! may the same request pass later. A request that was never sent and an error of DynamoDB with a
//! status of 4xx applied nothing. Whatever else went wrong after sending (no answer in time, a
//! connection that broke, a status of 5xx, an answer that cannot be read) leaves that open.

use std::error::Error;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::put_item::PutItemError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use hyper_util::client::legacy::Error as HttpError;

use super::item::Item;
use crate::aws::{chain, reason_in_chain};

/// Codes that ask for less at once. Nothing was applied.
const THROTTLED: [&str; 4] = [
    "ProvisionedThroughputExceededException",
    "RequestLimitExceeded",
    "ThrottlingException",
    "Throttling",
];

/// Codes by which DynamoDB refuses the caller, whatever is asked.
const DENIED: [&str; 8] = [
    "AccessDeniedException",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "NotAuthorized",
    "OptInRequired",
    "UnrecognizedClientException",
];

/// What is known of a request that did not succeed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) kind: Kind,
    /// What went wrong, in one line.
    pub(super) reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Nobody was reached. Nothing was applied.
    Unsent,
    /// DynamoDB wants less at once. Nothing was applied.
    Throttled,
    /// DynamoDB does not serve this caller. Nothing was applied.
    Denied,
    /// DynamoDB refused the request as it is. Nothing was applied.
    Rejected,
    /// It was sent, and what became of it is not known.
    Unclear,
}

impl Failure {
    /// What `error` says.
    pub(super) fn of<E>(error: &SdkError<E>) -> Self
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        Self { kind: kind_of(error), reason: reason_of(error) }
    }

    /// Whether nothing was applied, for certain.
    pub(super) fn applied_nothing(&self) -> bool {
        self.kind != Kind::Unclear
    }

    /// Whether the same request may pass a little later.
    pub(super) fn may_pass(&self) -> bool {
        matches!(self.kind, Kind::Unsent | Kind::Throttled | Kind::Unclear)
    }
}

fn kind_of<E>(error: &SdkError<E>) -> Kind
where
    E: ProvideErrorMetadata + Error + 'static,
{
    if let SdkError::ServiceError(answer) = error {
        let code = answer.err().code().unwrap_or_default();
        let is = |codes: &[&str]| codes.contains(&code);
        return match answer.raw().status().as_u16() {
            400..500 if is(&THROTTLED) => Kind::Throttled,
            400..500 if is(&DENIED) => Kind::Denied,
            400..500 if !code.is_empty() => Kind::Rejected,
            // An answer of something in between, such as a proxy that gave up.
            _ => Kind::Unclear,
        };
    }
    // A request that cannot be signed is not sent.
    if chain(error).any(|cause| cause.is::<CredentialsError>()) {
        return Kind::Denied;
    }
    let never_connected =
        |cause: &(dyn Error + 'static)| cause.downcast_ref().is_some_and(HttpError::is_connect);
    if matches!(error, SdkError::ConstructionFailure(_)) || chain(error).any(never_connected) {
        return Kind::Unsent;
    }
    Kind::Unclear
}

fn reason_of<E>(error: &SdkError<E>) -> String
where
    E: ProvideErrorMetadata + Error + 'static,
{
    match (error.code(), error.message()) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.to_owned(),
        (None, _) => reason_in_chain(error),
    }
}

/// Errors of writes that may say which item stood in the way.
pub(super) trait Refusal {
    /// The item that did not meet the condition, if that is what the error says.
    fn standing(self) -> Option<Item>;
}

impl Refusal for PutItemError {
    fn standing(self) -> Option<Item> {
        let Self::ConditionalCheckFailedException(refused) = self else { return None };
        Some(refused.item.unwrap_or_default())
    }
}

impl Refusal for UpdateItemError {
    fn standing(self) -> Option<Item> {
        let Self::ConditionalCheckFailedException(refused) = self else { return None };
        Some(refused.item.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use aws_credential_types::provider::{self, ProvideCredentials, future};
    use aws_sdk_dynamodb::config::{BehaviorVersion, Credentials, Region};
    use aws_sdk_dynamodb::{Client, Config};

    use super::*;

    /// A provider that has lost its credentials.
    #[derive(Debug)]
    struct Lost;

    impl ProvideCredentials for Lost {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            let lost: provider::Result = Err(CredentialsError::not_loaded("the role is gone"));
            future::ProvideCredentials::ready(lost)
        }
    }

    /// What a request to a port that nobody listens on ends with.
    async fn failure(credentials: impl ProvideCredentials + 'static) -> Failure {
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let config = Config::builder()
            .behavior_version(BehaviorVersion::latest())
            .credentials_provider(credentials)
            .endpoint_url(format!("http://{nobody}"))
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .region(Region::new("eu-west-1"))
            .build();
        let asked = Client::from_conf(config).get_item().table_name("wane").send().await;
        Failure::of(&asked.unwrap_err())
    }

    #[tokio::test]
    async fn a_request_that_nobody_takes_was_not_sent() {
        let failure = failure(Credentials::new("id", "canary", None, None, "tests")).await;
        assert_eq!(failure.kind, Kind::Unsent, "{failure:?}");
        assert!(failure.reason.contains("refused"), "{failure:?}");
        assert!(!failure.reason.contains("canary"), "{failure:?}");
    }

    /// Credentials of a role may run out while a node serves. Nothing is sent then.
    #[tokio::test]
    async fn a_request_without_credentials_was_not_sent() {
        let failure = failure(Lost).await;
        assert_eq!(failure.kind, Kind::Denied, "{failure:?}");
        assert!(failure.applied_nothing() && !failure.may_pass());
    }
}
