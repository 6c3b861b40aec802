//! The auditor's calls: what happened to an institution's stream, and whether the account is whole.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, Value};
use wane::services::pull_stream::Ispb;

use super::app_ttl::escaped;
use super::{Admin, ClientError};

/// How long a part of a check may take.
const CHECK: Duration = Duration::from_secs(300);

/// Entries of a page, and rows of a part of a check: the most that there may be.
const PAGE: usize = 1_000;

/// Times in Unix milliseconds, the second one excluded; without them everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AuditSpan {
    /// The first one.
    pub from: Option<u64>,
    /// The one behind the last one.
    pub to: Option<u64>,
}

/// Entries of the audit.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AuditPage {
    /// The entries, as the server tells them.
    pub entries: Vec<Map<String, Value>>,
    /// What to go on after; `None` on the last page.
    pub next: Option<String>,
}

/// A chain of the audit that is whole.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct VerifiedChain {
    /// Its name.
    pub chain: String,
    /// How many rows it has.
    pub rows: u64,
    /// How many entries they have.
    pub entries: u64,
}

#[derive(Deserialize)]
struct VerifiedForm {
    chains: Vec<VerifiedChain>,
    next: Option<String>,
}

impl Admin {
    /// A page of what happened to the stream of an institution, after `after`.
    pub async fn audit(
        &self,
        ispb: Ispb,
        span: AuditSpan,
        after: Option<&str>,
    ) -> Result<AuditPage, ClientError> {
        let mut path = format!("/audit?ispb={ispb}&limit={PAGE}");
        for (name, time) in [("from", span.from), ("to", span.to)] {
            if let Some(millis) = time {
                path += &format!("&{name}={millis}");
            }
        }
        if let Some(after) = after {
            path += &format!("&after={}", escaped(after));
        }
        self.read(&path).await?.read()
    }

    /// Checks the audit of an institution to its end, part by part. A row that is not as it was written is a
    /// [`ClientError::Problem`] with the code `audit_broken`, which names it.
    pub async fn verify_audit(&self, ispb: Ispb) -> Result<Vec<VerifiedChain>, ClientError> {
        let first = format!("/audit/verify?ispb={ispb}&limit={PAGE}");
        let mut path = first.clone();
        loop {
            let answer = self.read_within(CHECK, &path).await?;
            let VerifiedForm { chains, next } = answer.read_as(Ok)?;
            match next {
                Some(next) => path = format!("{first}&after={}", escaped(&next)),
                None => return Ok(chains),
            }
        }
    }
}
