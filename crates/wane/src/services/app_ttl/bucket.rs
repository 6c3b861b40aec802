//! Buckets: groups of keys by name, within the keys of an application.
//!
//! The entry `key` of the bucket `name` is the entry `name:key` of the application. A colon or a
//! backslash in the name is written with a backslash before it, so that the first bare colon ends
//! the name and no two pairs of bucket and key meet in one.

use std::time::Duration;

use super::{AppTtlError, AppTtlStorage, Entry, Page, Renewal};
use crate::store::{Outcome, PageLimit, Remaining, Store};

/// The entries of one bucket.
#[derive(Debug)]
pub struct Bucket<'a, S> {
    storage: &'a AppTtlStorage<S>,
    prefix: String,
}

impl<'a, S: Store> Bucket<'a, S> {
    pub(super) fn new(storage: &'a AppTtlStorage<S>, name: &str) -> Self {
        let mut prefix = String::with_capacity(name.len() + 1);
        for letter in name.chars() {
            if matches!(letter, ':' | '\\') {
                prefix.push('\\');
            }
            prefix.push(letter);
        }
        prefix.push(':');
        Self { storage, prefix }
    }

    /// The key of the application that `key` in this bucket is.
    pub fn key(&self, key: &str) -> Result<String, AppTtlError> {
        if key.is_empty() {
            return Err(AppTtlError::KeyEmpty);
        }
        Ok(format!("{}{key}", self.prefix))
    }

    /// See [`AppTtlStorage::ttl_get`].
    pub async fn ttl_get(&self, key: &str) -> Result<Option<Entry>, AppTtlError> {
        self.storage.ttl_get(self.key(key)?).await
    }

    /// See [`AppTtlStorage::insert_if_not_exists`].
    pub async fn insert_if_not_exists(
        &self,
        key: &str,
        value: impl AsRef<[u8]>,
        ttl: Duration,
    ) -> Result<Outcome, AppTtlError> {
        self.storage.insert_if_not_exists(self.key(key)?, value, ttl).await
    }

    /// See [`AppTtlStorage::compare_and_swap`].
    pub async fn compare_and_swap(
        &self,
        key: &str,
        expected: impl AsRef<[u8]>,
        new: impl AsRef<[u8]>,
        renewal: Renewal,
    ) -> Result<Outcome, AppTtlError> {
        self.storage.compare_and_swap(self.key(key)?, expected, new, renewal).await
    }

    /// See [`AppTtlStorage::compare_and_delete`].
    pub async fn compare_and_delete(
        &self,
        key: &str,
        expected: impl AsRef<[u8]>,
    ) -> Result<Outcome, AppTtlError> {
        self.storage.compare_and_delete(self.key(key)?, expected).await
    }

    /// See [`AppTtlStorage::query_ttl`].
    pub async fn query_ttl(&self, key: &str) -> Result<Remaining, AppTtlError> {
        self.storage.query_ttl(self.key(key)?).await
    }

    /// Returns a page of the bucket's entries, after the key `after`. Keys come without the bucket.
    pub async fn scan(&self, after: Option<&str>, limit: PageLimit) -> Result<Page, AppTtlError> {
        let after = after.map(|after| format!("{}{after}", self.prefix).into_bytes());
        let mut page = self.storage.scan(&self.prefix, after.as_deref(), limit).await?;
        let prefix = self.prefix.len();
        for (key, _) in &mut page.entries {
            *key = key.slice(prefix..);
        }
        page.next = page.next.map(|next| next.slice(prefix.min(next.len())..));
        Ok(page)
    }
}
