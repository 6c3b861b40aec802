//! Pulling: a call from its token to its messages, waiting for them if need be.
//!
//! The token is checked first, without I/O. The call then joins its institution's line. Where there
//! is no message, the call holds what it was issued and parks: it is woken by messages, by a lease
//! that ends, by its own lease that fades, and at the end of the hold. Woken, it asks again with
//! the same token, which is answered with whatever comes first.
//!
//! Invariant: a batch is handed out only while its lease lasts. A process that was stopped in
//! between asks again, and the record decides whose the messages are. A call that was issued a token
//! is told of it, even if the store fails while it waits, or another region takes over, where the token
//! is good too: else its slot would be nobody's.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::oneshot;

use super::audit::{Action, AuditEntry, Remark, Verdict};
use super::body::Delivery;
use super::log::{self, SealedRow};
use super::reader::{Client, Reader};
use super::record::{Answer, Call, Held, Presented, Span};
use super::rounds::{self, Answered, Waiting};
use super::strangers::Coming;
use super::token::{self, Claims, TokenHash};
use super::{Ispb, PullStream, PullStreamError, Pulled, Refusal, audit, parking};
use crate::store::{Store, StoreError, Timestamp};

/// The longest time that a parked reader goes without a look at the record.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

/// How often a call whose lease ended before it could be answered asks again.
const ATTEMPTS: usize = 3;

impl<S: Store> PullStream<S> {
    /// Takes a slot, and delivers the first batch, or none after the hold.
    ///
    /// [`Refusal::TooManyReaders`] where all slots are taken; nothing is changed then. Needs a tokio
    /// runtime. Dropping the future leaves the slot to its lease.
    pub async fn start(&self, ispb: Ispb, reader: &Reader) -> Result<Pulled, PullStreamError> {
        let opened_by = self.core.clock.random_u64();
        let call = Call::Start { reader: reader.clone(), opened_by };
        self.pull(Pull { ispb, action: Action::Start, reader }, call).await
    }

    /// Acknowledges what was delivered with the token, and delivers what comes next, or nothing
    /// after the hold. The same token again is answered the same, until the next one is used.
    pub async fn next(
        &self,
        ispb: Ispb,
        token: &str,
        reader: &Reader,
    ) -> Result<Pulled, PullStreamError> {
        let presented = self.presented(ispb, token, Action::Next, &reader.client).await?;
        let call = Call::Next { reader: reader.clone(), presented };
        self.pull(Pull { ispb, action: Action::Next, reader }, call).await
    }

    /// Acknowledges what was delivered with the token, and gives the slot back.
    ///
    /// [`Refusal::Gone`] where that was done before, or the lease is over.
    pub async fn end(
        &self,
        ispb: Ispb,
        token: &str,
        client: &Client,
    ) -> Result<(), PullStreamError> {
        let presented = self.presented(ispb, token, Action::End, client).await?;
        let call = Call::End { client: client.clone(), presented };
        let asked = self.ask(ispb, call).await;
        let asked = self.noted(ispb, asked, Action::End, client, presented.hash).await;
        match asked?.answer {
            Answer::Refused(refusal) => {
                self.refused(ispb, refusal, Action::End, client, presented.hash).await
            }
            Answer::Unsigned => Err(key_unknown().into()),
            Answer::Ended | Answer::Batch { .. } | Answer::Empty { .. } => {
                // What the slot had not acknowledged is there for others.
                self.core.parking.wake(ispb, 1, None);
                Ok(())
            }
        }
    }

    /// Answers whoever is held, and holds nobody from now on: for a node that is about to stop. What
    /// a reader is told then is good on every other node.
    pub fn end_holds(&self) {
        self.core.parking.close();
    }

    /// Notes in the audit of an institution that somebody who is not it was turned away: once a
    /// second, with how many others there were, so that nobody fills another's audit.
    pub async fn turned_away(&self, ispb: Ispb, who: &Client) -> Result<(), PullStreamError> {
        let unnoted = match self.core.strangers.come(ispb, self.core.clock.monotonic()) {
            Coming::Noted { unnoted } => unnoted,
            Coming::Counted => return Ok(()),
            Coming::Lost => {
                self.core.remarks_lost.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
        };
        let entry = self.entry(Action::Start, Verdict::Foreign, who, None);
        let noted = self.remark(ispb, AuditEntry { unnoted, ..entry }).await;
        if noted.is_err() {
            self.core.strangers.put_back(ispb, unnoted + 1);
        }
        noted
    }

    /// What a token claims. A token that claims nothing is refused before anything is read.
    async fn presented(
        &self,
        ispb: Ispb,
        token: &str,
        action: Action,
        client: &Client,
    ) -> Result<Presented, PullStreamError> {
        let keys = self.core.keys.keys();
        let hash = TokenHash::of(token);
        match token::verify::<Claims>(&keys, ispb, self.core.clock.now(), token) {
            Ok(claims) => Ok(Presented {
                thread: claims.thread,
                epoch: claims.epoch,
                seq: claims.cursor_seq,
                hash: Some(hash),
            }),
            Err(refusal) => self.refused(ispb, refusal, action, client, Some(hash)).await,
        }
    }

    async fn pull(&self, pull: Pull<'_>, call: Call) -> Result<Pulled, PullStreamError> {
        let (mut issued, used) = (None, call.token_hash());
        match (self.wait(pull, call, &mut issued).await, issued) {
            (Err(PullStreamError::Refused(refusal)), _) => {
                let client = &pull.reader.client;
                Box::pin(self.refused(pull.ispb, refusal, pull.action, client, used)).await
            }
            (Err(error), Some(next)) if is_passing(&error) => Ok(Pulled { batch: None, next }),
            (pulled, _) => {
                let client = &pull.reader.client;
                Box::pin(self.noted(pull.ispb, pulled, pull.action, client, used)).await
            }
        }
    }

    /// Asks until there are messages or the hold is over. `issued` is the token that the caller may
    /// go on with from what it was told last, which is that there is nothing.
    ///
    /// Thousands wait here. What they do before and after is boxed, so that it takes no room meanwhile.
    async fn wait(
        &self,
        pull: Pull<'_>,
        mut call: Call,
        issued: &mut Option<String>,
    ) -> Result<Pulled, PullStreamError> {
        let Pull { ispb, action, reader } = pull;
        let until = self.core.clock.monotonic() + self.core.settings.hold;
        let mut place = self.core.parking.take(ispb);
        let mut late = 0;
        loop {
            let used = call.token_hash();
            let Answered { answer, rows } = self.ask(ispb, call).await?;
            let held = match answer {
                Answer::Refused(refusal) => return Err(PullStreamError::Refused(refusal)),
                Answer::Ended => return Err(PullStreamError::Refused(Refusal::Gone)),
                Answer::Unsigned => return Err(key_unknown().into()),
                Answer::Batch { held, spans, is_unnoted } => {
                    let delivery = Box::pin(self.delivery(ispb, &held, &spans, rows)).await?;
                    if delivery.messages().len() < held.form.capacity() {
                        place.took_all();
                    }
                    if is_unnoted {
                        let entry = self.entry(action, Verdict::Replayed, &reader.client, used);
                        let messages = delivery.messages().len() as u64;
                        let thread = Some(held.presented.thread);
                        Box::pin(self.remark(ispb, AuditEntry { messages, thread, ..entry }))
                            .await?;
                    }
                    if self.is_held(&held) {
                        return Ok(Pulled { batch: Some(delivery), next: held.token });
                    }
                    late += 1;
                    if late >= ATTEMPTS {
                        return Err(PullStreamError::Refused(Refusal::Expired));
                    }
                    held
                }
                Answer::Empty { held, look_at, head_row } => {
                    let left = until.saturating_sub(self.core.clock.monotonic());
                    if left.is_zero() || self.core.parking.is_closed() {
                        return Ok(Pulled { batch: None, next: held.token });
                    }
                    *issued = Some(held.token.clone());
                    place.waits_for(held.presented.thread, head_row);
                    self.keep_lookout();
                    let sleep = left.min(self.next_look(&held, look_at));
                    tokio::select! {
                        biased;
                        () = place.woken() => {}
                        () = self.core.clock.sleep(sleep) => {}
                    }
                    held
                }
            };
            call = Call::Next { reader: reader.clone(), presented: held.presented };
        }
    }

    /// Whether the reader still has its lease.
    fn is_held(&self, held: &Held) -> bool {
        self.core.clock.now().as_unix_millis() < held.lease_until
    }

    /// When a parked reader looks at the record again, unless it is woken.
    fn next_look(&self, held: &Held, look_at: Option<u64>) -> Duration {
        let now = self.core.clock.now();
        let until = |millis: u64| now.until(Timestamp::from_unix_millis(millis));
        let half = self.core.settings.lease / 2;
        let own = until(held.lease_until).saturating_sub(half) + Duration::from_millis(1);
        // At once where it has passed: no sooner than this, as another node's clock may be ahead.
        let others = look_at.map_or(LOOK_AGAIN, until).max(Duration::from_millis(50));
        own.min(others).min(LOOK_AGAIN)
    }

    fn keep_lookout(&self) {
        if let Some(lookout) = parking::missing_lookout(&self.core) {
            self.serve(parking::look_out(Arc::clone(&self.core), lookout));
        }
    }

    /// Lets a call wait in line, and gives its answer.
    async fn ask(&self, ispb: Ispb, call: Call) -> Result<Answered, PullStreamError> {
        let (answer, answered) = oneshot::channel();
        if let Some(line) = self.core.readers.join(ispb, Waiting { call, answer })? {
            self.serve(rounds::attend(Arc::clone(&self.core), line));
        }
        answered.await.unwrap_or_else(|_| Err(unserved().into()))
    }

    /// Puts a batch together from its rows, reading those that are not at hand.
    async fn delivery(
        &self,
        ispb: Ispb,
        held: &Held,
        spans: &[Span],
        mut rows: Vec<(u64, Arc<SealedRow>)>,
    ) -> Result<Delivery, PullStreamError> {
        let mut missing: Vec<u64> = spans.iter().map(|span| span.row).collect();
        missing.retain(|row| rows.iter().all(|(known, _)| known != row));
        missing.dedup();
        let place = self.core.place(ispb);
        rows.extend(log::read_rows(&self.core.store, place, &missing).await?);
        // Retention has taken some since they were delivered first.
        Delivery::of(held.form, spans, &rows).ok_or(PullStreamError::Refused(Refusal::Expired))
    }

    /// Refuses, and remarks on it. Whoever is refused is told so whether or not that succeeds.
    pub(super) async fn refused<T>(
        &self,
        ispb: Ispb,
        refusal: Refusal,
        action: Action,
        client: &Client,
        used: Option<TokenHash>,
    ) -> Result<T, PullStreamError> {
        let entry = self.entry(action, refusal.verdict(), client, used);
        self.remark_or_count(ispb, entry).await;
        Err(PullStreamError::Refused(refusal))
    }

    /// Remarks on a call that another region has to answer: once a second, with how many others
    /// there were, for who does not understand the answer asks again and again.
    async fn noted<T>(
        &self,
        ispb: Ispb,
        told: Result<T, PullStreamError>,
        action: Action,
        client: &Client,
        used: Option<TokenHash>,
    ) -> Result<T, PullStreamError> {
        if !matches!(told, Err(PullStreamError::Elsewhere { .. })) {
            return told;
        }
        match self.core.misdirected.come(ispb, self.core.clock.monotonic()) {
            Coming::Counted => {}
            Coming::Lost => drop(self.core.remarks_lost.fetch_add(1, Ordering::Relaxed)),
            Coming::Noted { unnoted } => {
                let entry = self.entry(action, Verdict::Elsewhere, client, used);
                self.remark_or_count(ispb, AuditEntry { unnoted, ..entry }).await;
            }
        }
        told
    }

    pub(super) fn entry(
        &self,
        action: Action,
        verdict: Verdict,
        client: &Client,
        used: Option<TokenHash>,
    ) -> AuditEntry {
        AuditEntry {
            at: self.core.clock.now().as_unix_millis(),
            who: client.clone(),
            action,
            verdict,
            thread: None,
            messages: 0,
            unnoted: 0,
            reason: None,
            used,
            issued: None,
        }
    }

    /// Appends an entry to the chain of remarks, or counts it as lost: for calls whose answer does not
    /// wait for the audit.
    pub(super) async fn remark_or_count(&self, ispb: Ispb, entry: AuditEntry) {
        if self.remark(ispb, entry).await.is_err() {
            self.core.remarks_lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Appends an entry to the chain of remarks.
    pub(super) async fn remark(
        &self,
        ispb: Ispb,
        entry: AuditEntry,
    ) -> Result<(), PullStreamError> {
        let (answer, answered) = oneshot::channel();
        if let Some(line) = self.core.remarks.join(ispb, Remark { entry, answer })? {
            self.serve(audit::attend(Arc::clone(&self.core), line));
        }
        Ok(answered.await.unwrap_or_else(|_| Err(unserved()))?)
    }
}

/// Who pulls, and by which call.
#[derive(Debug, Clone, Copy)]
struct Pull<'a> {
    ispb: Ispb,
    action: Action,
    reader: &'a Reader,
}

/// Whether what a call was issued is good a little later, or in another region.
fn is_passing(error: &PullStreamError) -> bool {
    match error {
        PullStreamError::Busy | PullStreamError::Contended | PullStreamError::Elsewhere { .. } => {
            true
        }
        PullStreamError::Store(error) => {
            matches!(error, StoreError::Unavailable { .. } | StoreError::Unknown { .. })
        }
        PullStreamError::Invalid { .. }
        | PullStreamError::Refused(_)
        | PullStreamError::Absent { .. }
        | PullStreamError::Archive(_)
        | PullStreamError::BrokenChain { .. } => false,
    }
}

impl Call {
    fn token_hash(&self) -> Option<TokenHash> {
        match self {
            Self::Start { .. } => None,
            Self::Next { presented, .. } | Self::End { presented, .. } => presented.hash,
        }
    }
}

/// Another node signed with a key that has not come here yet.
pub(super) fn key_unknown() -> StoreError {
    let source = "the key of the token to give again is not known on this node; try again".into();
    StoreError::Unavailable { backend: "keys", source }
}

/// The runtime that served the line was shut down under it.
pub(super) fn unserved() -> StoreError {
    let source = "the task that served the stream was ended".into();
    StoreError::Unknown { backend: "pull_stream", source }
}
