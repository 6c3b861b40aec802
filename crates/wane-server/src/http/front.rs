//! What stands in front of every route: its id, its line in the log and its place in the counters,
//! the check of its head, and the gate.
//!
//! One handler around the route's own. As layers of the router the same would clone a service and
//! box a future for each of them, with every request.

use std::pin::Pin;

use axum::extract::Request;
use axum::handler::Handler;
use axum::response::{IntoResponse, Response};

use super::blobs::tus;
use super::caller::{Access, admit};
use super::head;
use super::limiters::{Admitted, Counted};
use super::problem::Problem;
use super::pull_stream::Dialect;
use super::requests::Seen;
use super::taken::until_taken;
use crate::wiring::Services;

/// A handler and what it takes to reach it.
#[derive(Debug, Clone)]
pub(super) struct Fronted<H> {
    /// The route's path, as log and counters name it.
    pub(super) route: &'static str,
    pub(super) access: Access,
    pub(super) counted: Counted,
    pub(super) inner: H,
}

/// The request, with whoever asks in it, and what is to be kept until its answer was taken.
type Admission = Result<(Request, Option<Admitted>), Problem>;

/// Checks the head, and lets the request through the gate. In a box of its own, which is gone when the
/// request waits for its answer.
fn admission(
    access: Access,
    counted: Counted,
    request: Request,
    services: Services,
) -> Pin<Box<dyn Future<Output = Admission> + Send>> {
    Box::pin(async move {
        head::check(&request)?;
        let (mut parts, body) = request.into_parts();
        let admitted = admit(access, counted, &mut parts, &services).await?;
        Ok((Request::from_parts(parts, body), admitted))
    })
}

/// What is common to the answers of all routes.
fn finished(seen: Seen, dialect: Dialect, mut response: Response) -> Response {
    tus::introduce(seen.route(), &mut response);
    dialect.closed(seen.end(dialect.spoken(response)))
}

impl<T: 'static, H: Handler<T, Services>> Handler<T, Services> for Fronted<H> {
    type Future = Pin<Box<dyn Future<Output = Response> + Send>>;

    fn call(self, request: Request, services: Services) -> Self::Future {
        let Self { route, access, counted, inner } = self;
        let seen = Seen::begin(route, &request, &services);
        let dialect = Dialect::of(services.stream_profile, request.uri().path());
        let admission = admission(access, counted, request, services.clone());
        Box::pin(async move {
            // Nothing of the request is a local here: it would stay while the answer is waited for.
            let call = |(request, admitted)| (inner.call(request, services), admitted);
            let response = match admission.await.map(call) {
                Ok((answer, None)) => answer.await,
                Ok((answer, Some(admitted))) => until_taken(answer.await, admitted),
                Err(problem) => problem.into_response(),
            };
            finished(seen, dialect, response)
        })
    }
}
