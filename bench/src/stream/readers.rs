//! Readers: each has a connection, a slot and the token that it goes on with.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::line::{Answer, Line};
use super::message::BATCH;
use super::parts::parts;
use super::server::{Institution, Wane};
use super::{READERS, pause};
use crate::{BoxError, timing};

/// Connections that are opened at once: a listener holds so many until they are accepted.
const AT_ONCE: usize = 256;

/// What a reader asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Up to ten messages.
    Batch,
    /// One message.
    Single,
}

impl Form {
    /// Messages of an answer that nothing is missing from.
    fn most(self) -> usize {
        match self {
            Self::Batch => BATCH,
            Self::Single => 1,
        }
    }

    fn accepts(self) -> &'static str {
        match self {
            Self::Batch => "multipart/mixed",
            Self::Single => "application/xml",
        }
    }
}

/// A reader that has not started, or goes on.
#[derive(Debug)]
pub(super) struct Reader {
    line: Line,
    form: Form,
    /// The path of the next request.
    next: String,
    /// What follows the path in all of them.
    rest: String,
}

/// An answer to a reader.
#[derive(Debug)]
pub(super) struct Pulled<'a> {
    form: Form,
    answer: Answer<'a>,
}

impl<'a> Pulled<'a> {
    /// Ids and messages; none where the answer is empty.
    pub(super) fn messages(&'a self) -> Result<Vec<(&'a str, &'a [u8])>, BoxError> {
        match (self.answer.status, self.form) {
            (204, _) => Ok(Vec::new()),
            (_, Form::Batch) => parts(self.answer.body),
            (_, Form::Single) => {
                let id = self.answer.header("pi-resourceid").ok_or("a message without an id")?;
                Ok(vec![(id, self.answer.body)])
            }
        }
    }
}

impl Reader {
    /// One that will ask to start.
    pub(super) async fn connected(
        server: SocketAddr,
        institution: &Institution,
        form: Form,
    ) -> Result<Self, BoxError> {
        let Institution { ispb, key } = institution;
        let accepts = form.accepts();
        Ok(Self {
            line: Line::to(server).await?,
            form,
            next: format!("/api/v1/out/{ispb}/stream/start"),
            rest: format!(
                " HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {key}\r\naccept: {accepts}\r\n\r\n"
            ),
        })
    }

    /// Starts, or acknowledges and asks for more.
    pub(super) async fn pull(&mut self) -> Result<Pulled<'_>, BoxError> {
        let Pulled { form, answer } = self.ask().await?;
        let answer = if answer.status == 204 { answer } else { answer.expect(200)? };
        Ok(Pulled { form, answer })
    }

    /// Starts, unless all slots are taken.
    pub(super) async fn start(&mut self) -> Result<Option<Pulled<'_>>, BoxError> {
        let Pulled { form, answer } = self.ask().await?;
        if answer.status == 429 {
            return Ok(None);
        }
        let answer = answer.expect(200)?;
        Ok(Some(Pulled { form, answer }))
    }

    async fn ask(&mut self) -> Result<Pulled<'_>, BoxError> {
        let request = self.request("GET");
        let Self { line, form, next, .. } = self;
        let answer = line.ask(request.as_bytes()).await?;
        if matches!(answer.status, 200 | 204) {
            let token = answer.header("pi-pull-next").ok_or("an answer without a token")?;
            next.clear();
            next.push_str(token);
        }
        Ok(Pulled { form: *form, answer })
    }

    /// Asks for nothing, so that the connection has been used.
    pub(super) async fn knock(&mut self) -> Result<(), BoxError> {
        self.line.ask(b"GET / HTTP/1.1\r\nhost: bench\r\n\r\n").await?.expect(404).map(drop)
    }

    /// Sends its request, and leaves the answer to come.
    pub(super) async fn park(&mut self) -> Result<(), BoxError> {
        let request = self.request("GET");
        self.line.send(request.as_bytes()).await
    }

    /// Acknowledges, and gives the slot back.
    pub(super) async fn end(mut self) -> Result<(), BoxError> {
        let request = self.request("DELETE");
        self.line.ask(request.as_bytes()).await?.expect(200).map(drop)
    }

    fn request(&self, method: &str) -> String {
        format!("{method} {}{}", self.next, self.rest)
    }
}

/// Six readers of each institution that have started, and have had a first answer.
pub(super) async fn started(
    server: &Wane,
    institutions: &[Institution],
    form: Form,
) -> Result<Vec<Reader>, BoxError> {
    let readers = institutions.iter().flat_map(|one| std::iter::repeat_n(one.clone(), READERS));
    begun(server, readers.map(|institution| (institution, None)).collect(), form).await
}

/// Six readers of each institution, each of a replay of its own, that have had a first answer.
pub(super) async fn replaying(
    server: &Wane,
    institutions: &[Institution],
    form: Form,
) -> Result<Vec<Reader>, BoxError> {
    let replays = server.replays(institutions, READERS).await?.into_iter();
    let replays = replays.map(|(institution, start)| (institution, Some(start)));
    begun(server, replays.collect(), form).await
}

/// Readers that have had a first answer, from the start of their stream or from elsewhere.
async fn begun(
    server: &Wane,
    all: Vec<(Institution, Option<String>)>,
    form: Form,
) -> Result<Vec<Reader>, BoxError> {
    let mut readers = Vec::new();
    for some in all.chunks(AT_ONCE) {
        let tasks: Vec<_> = some
            .iter()
            .map(|(institution, start)| {
                let (http, institution) = (server.http, institution.clone());
                let start = start.clone();
                tokio::spawn(async move {
                    let mut reader = Reader::connected(http, &institution, form).await?;
                    reader.next = start.unwrap_or(reader.next);
                    reader.pull().await?;
                    Ok::<_, BoxError>(reader)
                })
            })
            .collect();
        for task in tasks {
            readers.push(task.await??);
        }
    }
    Ok(readers)
}

/// Gives all slots back.
pub(super) async fn end_all(readers: Vec<Reader>) -> Result<(), BoxError> {
    let tasks: Vec<_> = readers.into_iter().map(|reader| tokio::spawn(reader.end())).collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}

/// What came of readers that pulled as fast as they could.
#[derive(Debug)]
pub(super) struct Pulls {
    /// Answers in full, each of which acknowledged the one before.
    pub(super) answers: u64,
    pub(super) seconds: f64,
    /// What the server used of its core meanwhile.
    pub(super) cpu_seconds: f64,
    /// Calls of its store for each answer that write.
    pub(super) writes_each: f64,
    /// How long answers took, in microseconds.
    pub(super) micros: Histogram<u64>,
    pub(super) readers: Vec<Reader>,
}

impl Pulls {
    pub(super) fn rate(&self) -> f64 {
        self.answers as f64 / self.seconds
    }

    /// The columns of a row.
    pub(super) fn columns(&self) -> Vec<(String, Option<f64>)> {
        let answers = self.answers as f64;
        let millis = |quantile| self.micros.value_at_quantile(quantile) as f64 / 1e3;
        let columns = [
            ("requests/s", self.rate()),
            ("p50 ms", millis(0.5)),
            ("p99 ms", millis(0.99)),
            ("CPU us/request", self.cpu_seconds * 1e6 / answers),
            ("core %", self.cpu_seconds / self.seconds * 100.0),
            ("writes/request", self.writes_each),
            ("seconds", self.seconds),
        ];
        columns.map(|(name, value)| (name.to_owned(), Some(value))).to_vec()
    }
}

/// A stretch of time in which answers are counted.
#[derive(Debug)]
struct Stretch {
    begin: Instant,
    until: Instant,
    /// Set where it ends before.
    ended: OnceLock<Instant>,
    /// Answers, those included that came too late to count.
    answered: AtomicU64,
    micros: Mutex<Histogram<u64>>,
}

impl Stretch {
    fn end(&self) -> Instant {
        self.ended.get().copied().unwrap_or(self.until).min(self.until)
    }

    fn is_over(&self) -> bool {
        timing::now() >= self.end()
    }

    fn count(&self, took: Duration) -> Result<(), BoxError> {
        self.answered.fetch_add(1, Ordering::Relaxed);
        if !self.is_over() {
            let mut micros = self.micros.lock().unwrap_or_else(PoisonError::into_inner);
            micros.record(took.as_micros() as u64)?;
        }
        Ok(())
    }
}

/// Lets all readers pull for so long, or until the first one is not answered in full.
pub(super) async fn pull_for(
    server: &Wane,
    readers: Vec<Reader>,
    slice: Duration,
) -> Result<Pulls, BoxError> {
    let (before, cpu) = (server.counted().await?, server.cpu_seconds());
    let begin = timing::now();
    let stretch = Arc::new(Stretch {
        begin,
        until: begin + slice,
        ended: OnceLock::new(),
        answered: AtomicU64::new(0),
        micros: Mutex::new(Histogram::new(3)?),
    });
    let pulling = |reader| tokio::spawn(pull_until(reader, Arc::clone(&stretch)));
    let tasks: Vec<_> = readers.into_iter().map(pulling).collect();
    while !stretch.is_over() && tasks.iter().any(|task| !task.is_finished()) {
        pause(Duration::from_millis(5)).await;
    }
    let cpu_seconds = server.cpu_seconds() - cpu;
    let mut readers = Vec::new();
    for task in tasks {
        readers.push(task.await??);
    }
    let writes = server.counted().await?.writes - before.writes;
    let micros = stretch.micros.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(Pulls {
        answers: micros.len(),
        seconds: (stretch.end() - stretch.begin).as_secs_f64(),
        cpu_seconds,
        writes_each: writes / stretch.answered.load(Ordering::Relaxed) as f64,
        micros,
        readers,
    })
}

async fn pull_until(mut reader: Reader, stretch: Arc<Stretch>) -> Result<Reader, BoxError> {
    while !stretch.is_over() {
        let begin = timing::now();
        let most = reader.form.most();
        if reader.pull().await?.messages()?.len() < most {
            stretch.ended.get_or_init(timing::now);
            break;
        }
        stretch.count(begin.elapsed())?;
    }
    Ok(reader)
}
