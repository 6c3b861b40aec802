//! One request and its answer, between hyper and the router.
//!
//! The request is told who asks ([`ConnectInfo`] and, after mutual TLS, [`ClientCertificate`]) and
//! its body is put under time limits. The answer reports whose turn it is: ours while the router
//! or the answer's body has nothing to give, the peer's once there is something to take.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::Body as AxumBody;
use axum::extract::ConnectInfo;
use axum::http::header::CONTENT_LENGTH;
use axum::http::{Request, Response, StatusCode, Version};
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::{Service, service_fn};

use super::patience::{Patience, Turn};
use super::request_body::RequestBody;
use super::tls::ClientCertificate;

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) address: SocketAddr,
    pub(super) certificate: Option<ClientCertificate>,
}

/// The router as hyper calls it for one connection.
pub(super) fn exchanges(
    router: Router,
    client: Client,
    patience: Arc<Patience>,
) -> impl Service<
    Request<Incoming>,
    Response = Response<Answer>,
    Error = Infallible,
    Future: Send + 'static,
> {
    service_fn(move |request: Request<Incoming>| {
        let mut turn = patience.request(request.version() == Version::HTTP_2);
        let mut router = router.clone();
        let request = attributed(request, &client, &patience);
        async move {
            let mut response = tower::Service::call(&mut router, request).await?;
            // The router counts their bytes too, and HTTP/2 would send the count.
            if matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
                response.headers_mut().remove(CONTENT_LENGTH);
            }
            turn.theirs();
            Ok(response.map(|body| Answer { body, turn }))
        }
    })
}

fn attributed(
    request: Request<Incoming>,
    client: &Client,
    patience: &Arc<Patience>,
) -> Request<AxumBody> {
    let is_http2 = request.version() == Version::HTTP_2;
    let mut request =
        request.map(|body| AxumBody::new(RequestBody::new(body, is_http2, Arc::clone(patience))));
    request.extensions_mut().insert(ConnectInfo(client.address));
    if let Some(certificate) = &client.certificate {
        request.extensions_mut().insert(certificate.clone());
    }
    request
}

/// The body of an answer, which ends the request's turn when it is dropped.
#[derive(Debug)]
pub(super) struct Answer {
    body: AxumBody,
    turn: Turn,
}

impl Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if frame.is_pending() {
            self.turn.ours();
        } else {
            // Even if it was theirs: they have taken the frame before this one.
            self.turn.ours();
            self.turn.theirs();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
