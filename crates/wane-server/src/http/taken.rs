//! Answers that count as under way until they were taken.
//!
//! A client that asks and does not read makes the server keep its answers. So what was admitted with
//! the request stays so until the last piece of the answer went to the protocol, which takes the next
//! piece once the client has taken enough of those before.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use axum::response::{IntoResponseParts, Response, ResponseParts};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

use super::limiters::Admitted;

/// The largest piece that is handed over at once.
const PIECE: usize = 64 * 1024;

/// Marks an answer without an end. It is held to another limit than that of requests under way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lasting;

impl IntoResponseParts for Lasting {
    type Error = Infallible;

    fn into_response_parts(self, mut parts: ResponseParts) -> Result<ResponseParts, Infallible> {
        parts.extensions_mut().insert(self);
        Ok(parts)
    }
}

/// The answer, with what was admitted for it.
pub(super) fn until_taken(response: Response, admitted: Admitted) -> Response {
    if response.extensions().get::<Lasting>().is_some() {
        return response;
    }
    response.map(|body| Body::new(Taken { body, rest: Bytes::new(), _admitted: admitted }))
}

struct Taken {
    body: Body,
    /// What was produced and not handed over.
    rest: Bytes,
    _admitted: Admitted,
}

impl hyper::body::Body for Taken {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                ended => return Poll::Ready(ended),
            };
            match frame.into_data() {
                Ok(data) => self.rest = data,
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let piece = self.rest.len().min(PIECE);
        Poll::Ready(Some(Ok(Frame::data(self.rest.split_to(piece)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (rest, mut hint) = (self.rest.len() as u64, self.body.size_hint());
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}
