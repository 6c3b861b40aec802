//! Producers: connections that post batches of ten, as fast as they can or at given times.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::line::{Answer, Line};
use super::message::{BATCH, CONTENT_TYPE, Molds};
use super::pause;
use super::server::{Institution, Wane};
use crate::{BoxError, timing};

/// Connections that post.
pub(super) const PRODUCERS: usize = 64;

/// How many posts are sent again that were told 503, and after how long. A disk that has been given
/// gigabytes may take seconds for a sync; the time counts.
const MOST_AGAIN: u64 = 1_000;
const BEFORE_ANOTHER: Duration = Duration::from_millis(200);

/// A `PI-ResourceId`.
pub(super) type Id = [u8; 32];

/// One connection that posts.
#[derive(Debug)]
pub(super) struct Producer {
    line: Line,
    key: Arc<str>,
    molds: Arc<Molds>,
    request: Vec<u8>,
}

impl Producer {
    /// Posts ten messages to an institution.
    pub(super) async fn post(&mut self, ispb: &str, number: u64) -> Result<Answer<'_>, BoxError> {
        let head = format!(
            "POST /api/v1/in/{ispb}/msgs HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {}\r\n\
             content-type: {CONTENT_TYPE}\r\ncontent-length: {}\r\n\r\n",
            self.key,
            self.molds.length()
        );
        self.request.clear();
        self.request.extend(head.into_bytes());
        self.molds.pour(number, &mut self.request);
        self.line.ask(&self.request).await
    }
}

/// Where messages come from.
#[derive(Debug)]
pub(super) struct Supply {
    server: SocketAddr,
    key: Arc<str>,
    molds: Arc<Molds>,
    /// Posts so far.
    posted: AtomicU64,
}

/// When to stop posting.
#[derive(Debug, Clone, Copy)]
enum Until {
    Posts(u64),
    Time(Duration),
}

/// What came of posts.
#[derive(Debug)]
pub(super) struct Posted {
    pub(super) posts: u64,
    pub(super) seconds: f64,
    /// How long posts took, in microseconds.
    pub(super) micros: Histogram<u64>,
    /// What the messages were named, where that is kept.
    pub(super) ids: Vec<Id>,
}

impl Posted {
    /// Messages a second.
    pub(super) fn rate(&self) -> f64 {
        (self.posts * BATCH as u64) as f64 / self.seconds
    }
}

/// What producers share.
struct Pouring {
    institutions: Vec<Institution>,
    until: Until,
    keeps_ids: bool,
    first: u64,
    begin: Instant,
    taken: AtomicU64,
    /// Posts of which nothing was stored, and that were sent again.
    again: AtomicU64,
    done: Mutex<(Histogram<u64>, Vec<Id>)>,
}

impl Supply {
    pub(super) async fn of(server: &Wane) -> Result<Self, BoxError> {
        let key = server.producer_key().await?.into();
        let molds = Arc::new(Molds::made());
        Ok(Self { server: server.http, key, molds, posted: AtomicU64::new(0) })
    }

    /// Messages that were posted so far.
    pub(super) fn messages(&self) -> u64 {
        self.posted.load(Ordering::Relaxed) * BATCH as u64
    }

    pub(super) async fn producer(&self) -> Result<Producer, BoxError> {
        let (key, molds) = (Arc::clone(&self.key), Arc::clone(&self.molds));
        Ok(Producer { line: Line::to(self.server).await?, key, molds, request: Vec::new() })
    }

    /// Posts so many batches, to institutions in turn.
    pub(super) async fn fill(
        &self,
        institutions: &[Institution],
        posts: u64,
    ) -> Result<Posted, BoxError> {
        self.pour(institutions, Until::Posts(posts), false).await
    }

    /// The same, and keeps the ids.
    pub(super) async fn fill_named(
        &self,
        institutions: &[Institution],
        posts: u64,
    ) -> Result<Posted, BoxError> {
        self.pour(institutions, Until::Posts(posts), true).await
    }

    /// Posts as fast as it goes for so long, to institutions in turn.
    pub(super) async fn pour_for(
        &self,
        institutions: &[Institution],
        slice: Duration,
    ) -> Result<Posted, BoxError> {
        self.pour(institutions, Until::Time(slice), false).await
    }

    async fn pour(
        &self,
        institutions: &[Institution],
        until: Until,
        keeps_ids: bool,
    ) -> Result<Posted, BoxError> {
        let mut producers = Vec::new();
        for _ in 0..PRODUCERS {
            producers.push(self.producer().await?);
        }
        let pouring = Arc::new(Pouring {
            institutions: institutions.to_vec(),
            until,
            keeps_ids,
            first: self.posted.load(Ordering::Relaxed),
            begin: timing::now(),
            taken: AtomicU64::new(0),
            again: AtomicU64::new(0),
            done: Mutex::new((Histogram::new(3)?, Vec::new())),
        });
        let posting = |producer| tokio::spawn(post_until(producer, Arc::clone(&pouring)));
        let tasks: Vec<_> = producers.into_iter().map(posting).collect();
        for task in tasks {
            task.await??;
        }
        let seconds = pouring.begin.elapsed().as_secs_f64();
        let again = pouring.again.load(Ordering::Relaxed);
        if again > 0 {
            timing::stage(&format!("stream: {again} posts were told 503, and sent again"));
        }
        let done = &mut *pouring.done.lock().unwrap_or_else(PoisonError::into_inner);
        let (micros, ids) = (done.0.clone(), std::mem::take(&mut done.1));
        self.posted.fetch_add(micros.len(), Ordering::Relaxed);
        Ok(Posted { posts: micros.len(), seconds, micros, ids })
    }
}

async fn post_until(mut producer: Producer, pouring: Arc<Pouring>) -> Result<(), BoxError> {
    loop {
        let taken = pouring.taken.fetch_add(1, Ordering::Relaxed);
        let is_over = match pouring.until {
            Until::Posts(posts) => taken >= posts,
            Until::Time(slice) => pouring.begin.elapsed() >= slice,
        };
        if is_over {
            return Ok(());
        }
        let number = pouring.first + taken;
        let institution = &pouring.institutions[number as usize % pouring.institutions.len()];
        let begin = timing::now();
        let ids = loop {
            let answer = producer.post(&institution.ispb, number).await?;
            if answer.status == 503 && pouring.again.fetch_add(1, Ordering::Relaxed) < MOST_AGAIN {
                pause(BEFORE_ANOTHER).await;
                continue;
            }
            let answer = answer.expect(201)?;
            let named = answer.header("pi-resourceid").ok_or("messages without ids")?;
            break if pouring.keeps_ids { ids_in(named)? } else { Vec::new() };
        };
        let took = begin.elapsed().as_micros() as u64;
        let mut done = pouring.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.0.record(took)?;
        done.1.extend(ids);
    }
}

/// `id,id`
fn ids_in(header: &str) -> Result<Vec<Id>, BoxError> {
    let ids: Vec<Id> = header.split(',').map(id_of).collect::<Result<_, _>>()?;
    if ids.len() == BATCH { Ok(ids) } else { Err(format!("{} ids", ids.len()).into()) }
}

/// The id of a message.
pub(super) fn id_of(text: &str) -> Result<Id, BoxError> {
    let id = text.trim().as_bytes().try_into();
    id.map_err(|_| format!("{text:?} is not an id of 32 characters").into())
}
