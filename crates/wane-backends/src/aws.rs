//! What all services of AWS are reached by: connections, region, credentials, and errors in one line.
//!
//! Region and credentials come from where AWS programs look for them: environment, profile,
//! container, instance. The SDK retries nothing.

use std::error::Error;
use std::time::Duration;

use aws_config::timeout::TimeoutConfig;
use aws_config::{BehaviorVersion, ConfigLoader, SdkConfig};
use aws_credential_types::provider::ProvideCredentials;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};

/// How long region and credentials may take to be found: a machine's own may be asked for over
/// the network.
const FINDING: Duration = Duration::from_secs(15);

/// What to look at where credentials are not to be had.
pub(crate) const CREDENTIALS: &str =
    "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the profile, or the role of this machine";

/// What could not be found.
#[derive(Debug)]
pub(crate) enum Missing {
    Region,
    Credentials { region: Option<String>, reason: String },
}

/// A loader of settings. Connections that lie idle for so long are given up.
pub(crate) fn loader(idle: Duration) -> ConfigLoader {
    let http = aws_smithy_http_client::Builder::new().pool_idle_timeout(idle);
    let http = http.tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https();
    aws_config::defaults(BehaviorVersion::latest()).http_client(http)
}

/// What is to be had of region and credentials, with the name of the region.
pub(crate) async fn found(loader: ConfigLoader) -> Result<(SdkConfig, String), Missing> {
    let finding = tokio::time::timeout(FINDING, async {
        let found = loader.load().await;
        let region = found.region().map(ToString::to_string).ok_or(Missing::Region)?;
        match missing_credentials(&found).await {
            None => Ok((found, region)),
            Some(reason) => Err(Missing::Credentials { region: Some(region), reason }),
        }
    });
    finding.await.unwrap_or_else(|_| {
        let reason = "nothing was found in 15 s".to_owned();
        Err(Missing::Credentials { region: None, reason })
    })
}

/// Why there are no credentials.
async fn missing_credentials(found: &SdkConfig) -> Option<String> {
    let Some(provider) = found.credentials_provider() else {
        return Some("there are none".to_owned());
    };
    let credentials = provider.provide_credentials().await;
    credentials.err().map(|error| reason_in_chain(&error))
}

/// How long one request may take.
pub(crate) fn time_limits(timeout: Duration) -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(timeout.min(Duration::from_secs(2)))
        .operation_attempt_timeout(timeout)
        .build()
}

/// The error and what caused it, outermost first.
pub(crate) fn chain<'e>(
    error: &'e (dyn Error + 'static),
) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |cause| Error::source(*cause))
}

/// What the error and its causes say, each once.
pub(crate) fn reason_in_chain(error: &(dyn Error + 'static)) -> String {
    let mut told: Vec<String> = Vec::new();
    for cause in chain(error).map(ToString::to_string) {
        if !told.last().is_some_and(|before| before.contains(&cause)) {
            told.push(cause);
        }
    }
    told.join(": ")
}
