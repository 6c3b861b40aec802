//! The control: a store that guesses where it should say "unknown".

use std::sync::Arc;

use wane::clock::SharedClock;
use wane::store::{
    ClusteringRange, Fence, Key, Life, Outcome, Page, PageLimit, Partition, Record, Remaining,
    ScanPage, Store, StoreError, Write,
};

/// What a [`Liar`] does about an unclear answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guess {
    /// Takes the write for applied.
    Applied,
    /// Sends the write again and tells what became of that.
    SendAgain,
}

/// A store whose unclear answers are guessed.
#[derive(Debug)]
pub(crate) struct Liar<S> {
    pub(crate) inner: Arc<S>,
    pub(crate) clock: SharedClock,
    pub(crate) guess: Guess,
}

impl<S: Store> Liar<S> {
    async fn guessed<F>(&self, life: Life, send: impl Fn() -> F) -> Result<Outcome, StoreError>
    where
        F: Future<Output = Result<Outcome, StoreError>> + Send,
    {
        match send().await {
            Err(error @ StoreError::Unknown { .. }) => match (self.guess, life) {
                (Guess::SendAgain, _) => send().await,
                (Guess::Applied, Life::Permanent) => Ok(Outcome::Applied { expires_at: None }),
                (Guess::Applied, Life::Until(at)) => Ok(Outcome::Applied { expires_at: Some(at) }),
                (Guess::Applied, Life::For(ttl)) => {
                    Ok(Outcome::Applied { expires_at: Some(self.clock.now().after(ttl)) })
                }
                // The expiry that was kept cannot even be guessed.
                (Guess::Applied, Life::Keep) => Err(error),
            },
            clear => clear,
        }
    }
}

impl<S: Store> Store for Liar<S> {
    type ScanCursor = S::ScanCursor;

    async fn get(&self, key: &Key) -> Result<Option<Record>, StoreError> {
        self.inner.get(key).await
    }

    async fn get_batch(&self, keys: &[Key]) -> Result<Vec<Option<Record>>, StoreError> {
        self.inner.get_batch(keys).await
    }

    async fn read(
        &self,
        partition: &Partition,
        range: &ClusteringRange,
        limit: PageLimit,
    ) -> Result<Page, StoreError> {
        self.inner.read(partition, range, limit).await
    }

    async fn scan(
        &self,
        after: Option<Self::ScanCursor>,
        limit: PageLimit,
    ) -> Result<ScanPage<Self::ScanCursor>, StoreError> {
        self.inner.scan(after, limit).await
    }

    async fn put(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.guessed(write.life, || self.inner.put(key, write.clone())).await
    }

    async fn put_batch(&self, writes: Vec<(Key, Write)>) -> Result<Vec<Outcome>, StoreError> {
        self.inner.put_batch(writes).await
    }

    async fn insert_if_not_exists(&self, key: &Key, write: Write) -> Result<Outcome, StoreError> {
        self.guessed(write.life, || self.inner.insert_if_not_exists(key, write.clone())).await
    }

    async fn compare_and_swap(
        &self,
        key: &Key,
        expected: &[u8],
        write: Write,
    ) -> Result<Outcome, StoreError> {
        let send = || self.inner.compare_and_swap(key, expected, write.clone());
        self.guessed(write.life, send).await
    }

    async fn compare_and_delete(
        &self,
        key: &Key,
        expected: &[u8],
        fence: Fence,
    ) -> Result<Outcome, StoreError> {
        let send = || self.inner.compare_and_delete(key, expected, fence);
        self.guessed(Life::Keep, send).await
    }

    async fn query_ttl(&self, key: &Key) -> Result<Remaining, StoreError> {
        self.inner.query_ttl(key).await
    }
}
