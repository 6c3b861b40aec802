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
use super::limiters::Counted;
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

impl<H> Fronted<H> {
    async fn answer<T>(self, request: Request, services: &Services) -> Response
    where
        H: Handler<T, Services>,
    {
        if let Err(problem) = head::check(&request) {
            return problem.into_response();
        }
        let (mut parts, body) = request.into_parts();
        let admitted = match admit(self.access, self.counted, &mut parts, services).await {
            Ok(admitted) => admitted,
            Err(problem) => return problem.into_response(),
        };
        let request = Request::from_parts(parts, body);
        let response = self.inner.call(request, services.clone()).await;
        match admitted {
            Some(admitted) => until_taken(response, admitted),
            None => response,
        }
    }
}

impl<T: 'static, H: Handler<T, Services>> Handler<T, Services> for Fronted<H> {
    type Future = Pin<Box<dyn Future<Output = Response> + Send>>;

    fn call(self, request: Request, services: Services) -> Self::Future {
        Box::pin(async move {
            let seen = Seen::begin(self.route, &request, &services);
            let route = self.route;
            let dialect = Dialect::of(services.stream_profile, request.uri().path());
            let mut response = self.answer(request, &services).await;
            tus::introduce(route, &mut response);
            dialect.closed(seen.end(dialect.spoken(response)))
        })
    }
}
