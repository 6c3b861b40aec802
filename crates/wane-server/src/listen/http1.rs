//! A connection of HTTP/1: one request at a time, and no protocol while nothing moves.
//!
//! ```text
//!        speaking  <------ bytes came, or an answer is there ------  resting
//!   hyper, its buffers  ----- nothing has moved for a moment --->  a socket, and an answer on its way
//! ```
//!
//! hyper keeps two buffers of 8 KiB and its own state for as long as a connection lasts. Most
//! connections wait: for their next request, or, where a reader is parked, for an answer. Such a one
//! gives the protocol back and begins another when there is something for it to do: bytes of the next
//! request are put in front of it, and for an answer that is there the request is asked
//! [again](AskedAgain), which the desk answers with it.
//!
//! Invariant: a protocol is dropped only where it has written all that it was given and has read no
//! part of a request that it has not handed over.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::http::Response;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

use super::asked_again::AskedAgain;
use super::connection::{Attended, Connection, End};
use super::exchange::{Answer, Desk, Exchange, Exchanges};
use super::patience::{Patience, Rest};
use super::rewound::Rewound;

/// How long nothing must have moved: longer than a busy client takes between two requests.
const REST_AFTER: Duration = Duration::from_millis(20);

/// The same where a connection could not rest before: an answer that has begun may go on for hours.
const REST_LATEST: Duration = Duration::from_secs(1);

/// What is read or written of a body at once, at most: whoever sends gigabytes fills it, others do not.
const BODY_BYTES: usize = 64 * 1024;

impl Connection {
    pub(super) async fn converse_in_http1(
        &mut self,
        mut io: Rewound<impl AsyncRead + AsyncWrite + Unpin + Send + 'static>,
        exchanges: Exchanges,
        patience: &Arc<Patience>,
    ) -> End {
        let desk = Desk::new(exchanges);
        loop {
            let (resting, held) = match self.speak(io, &desk, patience).await {
                Ok(resting) => resting,
                Err(end) => return end,
            };
            io = resting;
            let rested = match held {
                None => self.rest_idle(&mut io, patience).await,
                Some((exchange, again)) => {
                    let answer = self.rest_held(&mut io, exchange, patience).await;
                    answer.map(|answer| {
                        desk.put(answer);
                        io.put_back(again.0);
                    })
                }
            };
            if let Err(end) = rested {
                return end;
            }
        }
    }

    /// Serves requests until the connection ends, or nothing moves; what is still to be answered then.
    async fn speak<I: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        &mut self,
        io: Rewound<I>,
        desk: &Desk,
        patience: &Patience,
    ) -> Result<(Rewound<I>, Option<(Exchange, AskedAgain)>), End> {
        let mut http1 = http1::Builder::new();
        let header_bytes = self.host.limits.header_bytes;
        // hyper's own limit would also end connections between requests.
        http1.header_read_timeout(None).max_header_size(header_bytes);
        http1.max_buf_size(BODY_BYTES.max(header_bytes));
        http1.keep_alive(!self.is_finishing());
        let mut protocol = Box::new(http1.serve_connection(TokioIo::new(io), desk.clone()));
        let mut rest_after = REST_AFTER;
        let held = loop {
            let ended_or_rests = async {
                tokio::select! {
                    biased;
                    result = &mut *protocol => Err(result),
                    rest = patience.rests(rest_after, REST_LATEST) => Ok(rest),
                }
            };
            match self.attend(patience, ended_or_rests).await {
                Attended::Done(Ok(Rest::Idle)) => break None,
                Attended::Done(Ok(Rest::Held)) => {
                    if let Some(held) = desk.take() {
                        break Some(held);
                    }
                    rest_after = (2 * rest_after).min(REST_LATEST);
                }
                Attended::Done(Err(result)) => return Err(self.done(result)),
                Attended::Finish => Pin::new(&mut *protocol).graceful_shutdown(),
                Attended::Cut(reason) => return Err(End::Cut(reason)),
            }
        };
        let parts = protocol.into_parts();
        let mut io = parts.io.into_inner();
        io.put_back(without_empty_lines(&parts.read_buf));
        Ok((io, held))
    }

    /// Waits for the next request.
    async fn rest_idle(
        &mut self,
        io: &mut Rewound<impl AsyncRead + AsyncWrite + Unpin>,
        patience: &Patience,
    ) -> Result<(), End> {
        if !io.ahead().is_empty() {
            // A head that began together with the request before it: its time runs like any other's.
            patience.received();
            return Ok(());
        }
        match self.attend(patience, io.fill()).await {
            Attended::Done(Ok(true)) => Ok(()),
            Attended::Done(Ok(false)) | Attended::Finish => Err(self.leave(io, patience).await),
            Attended::Done(Err(error)) => Err(self.done(Err(error))),
            Attended::Cut(reason) => Err(End::Cut(reason)),
        }
    }

    /// Waits for the answer, as long as somebody is there for it.
    async fn rest_held(
        &mut self,
        io: &mut Rewound<impl AsyncRead + AsyncWrite + Unpin>,
        mut exchange: Exchange,
        patience: &Patience,
    ) -> Result<Response<Answer>, End> {
        loop {
            let answered_or_gone = async {
                tokio::select! {
                    biased;
                    answer = exchange.as_mut() => Ok(answer),
                    gone = io.hung_up() => Err(gone),
                }
            };
            match self.attend(patience, answered_or_gone).await {
                Attended::Done(Ok(answer)) => return Ok(answer),
                Attended::Done(Err(gone)) => return Err(self.done(gone)),
                // Whoever holds the answer back is told on its own.
                Attended::Finish => {}
                Attended::Cut(reason) => return Err(End::Cut(reason)),
            }
        }
    }

    /// Ends an idle connection, with what TLS has to say at the end.
    async fn leave(
        &mut self,
        io: &mut Rewound<impl AsyncRead + AsyncWrite + Unpin>,
        patience: &Patience,
    ) -> End {
        loop {
            match self.attend(patience, io.shutdown()).await {
                Attended::Done(result) => return self.done(result),
                Attended::Finish => {}
                Attended::Cut(reason) => return End::Cut(reason),
            }
        }
    }
}

/// What was read of the next request. Lines in front of it that are empty stand for nothing.
fn without_empty_lines(read: &[u8]) -> &[u8] {
    let begin = read.iter().position(|byte| !b"\r\n".contains(byte));
    &read[begin.unwrap_or(read.len())..]
}
