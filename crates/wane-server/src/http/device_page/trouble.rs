//! What a visitor is told where the service fails or is full: what happened, and what to do.

use axum::http::StatusCode;
use std::time::Duration;
use wane::services::apps::AppsError;
use wane::services::device_auth::DeviceAuthError;
use wane::store::StoreError;

/// Why a step could not be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Too many wrong codes, or passwords, were tried.
    Limited(Duration),
    /// The store does not answer. Nothing was changed.
    Away,
    /// The store did not confirm what it was asked to write.
    Unsure,
}

impl From<DeviceAuthError> for Trouble {
    fn from(error: DeviceAuthError) -> Self {
        match &error {
            DeviceAuthError::Limited { retry_after, .. } => Self::Limited(*retry_after),
            DeviceAuthError::Store(StoreError::Unknown { .. }) => Self::Unsure,
            // What the store said goes to the log, not to strangers. No error of the service has a
            // code in it.
            DeviceAuthError::Store(_)
            | DeviceAuthError::Contended
            | DeviceAuthError::Broken { .. }
            | DeviceAuthError::Invalid { .. }
            | DeviceAuthError::InvalidClient
            | DeviceAuthError::InvalidScope { .. }
            | DeviceAuthError::ClientExists
            | DeviceAuthError::PublicClient
            | _ => {
                tracing::warn!(%error, "the page of device login cannot answer");
                Self::Away
            }
        }
    }
}

impl From<AppsError> for Trouble {
    fn from(error: AppsError) -> Self {
        tracing::warn!(%error, "the page of device login cannot answer");
        Self::Away
    }
}

impl Trouble {
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Limited(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Away => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unsure => StatusCode::GATEWAY_TIMEOUT,
        }
    }

    pub(super) fn retry_after(self) -> u64 {
        match self {
            Self::Limited(wait) => seconds(wait),
            Self::Away | Self::Unsure => 5,
        }
    }

    /// A headline, and what to do.
    pub(super) fn words(self) -> (&'static str, String) {
        match self {
            Self::Limited(wait) => {
                ("Too many wrong tries.", format!("Please wait {} and try again.", spoken(wait)))
            }
            Self::Away => (
                "This does not work right now.",
                "Nothing was changed. Please try again in a moment.".into(),
            ),
            Self::Unsure => (
                "We cannot say whether that was done.",
                "Please try again in a moment: you will see how things stand.".into(),
            ),
        }
    }
}

fn seconds(wait: Duration) -> u64 {
    u64::try_from(wait.as_millis().div_ceil(1_000)).unwrap_or(u64::MAX).max(1)
}

/// A time to wait, in words: seconds up to a minute and a half, then minutes.
fn spoken(wait: Duration) -> String {
    let seconds = seconds(wait);
    match (seconds, seconds.div_ceil(60)) {
        (1, _) => "1 second".into(),
        (..=90, _) => format!("{seconds} seconds"),
        (_, minutes) => format!("{minutes} minutes"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::views;
    use super::*;

    /// What the store says is for the log: the page says what to do, and browsers when.
    #[test]
    fn a_store_that_is_away_is_told_from_one_that_does_not_confirm() {
        let away = |error| Trouble::from(DeviceAuthError::Store(error));
        let source = || "connection to 10.0.0.7 refused".into();
        let backend = "redis";
        let cases = [
            (
                away(StoreError::Unavailable { backend, source: source() }),
                503,
                "Nothing was changed",
            ),
            (away(StoreError::Unknown { backend, source: source() }), 504, "how things stand"),
            (Trouble::from(DeviceAuthError::Contended), 503, "try again"),
        ];
        for (trouble, status, words) in cases {
            let page = views::trouble("", trouble, "/device/confirm");
            assert_eq!((page.status.as_u16(), page.retry_after), (status, Some(5)));
            let html = page.content.0;
            assert!(html.contains(words) && html.contains("href=\"/device/confirm\""), "{html}");
            assert!(!html.contains("10.0.0.7"), "{html}");
        }
    }

    #[test]
    fn a_wait_is_never_said_to_be_shorter_than_it_is() {
        for (millis, words) in [
            (1, "1 second"),
            (1_000, "1 second"),
            (1_001, "2 seconds"),
            (90_000, "90 seconds"),
            (90_001, "2 minutes"),
            (120_001, "3 minutes"),
            (900_000, "15 minutes"),
        ] {
            assert_eq!(spoken(Duration::from_millis(millis)), words, "{millis}");
        }
    }
}
