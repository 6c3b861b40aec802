//! One request and its answer, between hyper and the router.
//!
//! The request is told who asks ([`ConnectInfo`] and, after mutual TLS, [`ClientCertificate`]) and
//! its body is put under time limits. The answer reports whose turn it is: ours while the router
//! or the answer's body has nothing to give, the peer's once there is something to take.
//!
//! What is asked over HTTP/1 is answered at a [`Desk`], one request at a time, and may be taken from
//! it: an exchange that takes long is then waited for without the protocol, and put back when there
//! is an answer for the protocol to write.

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
use hyper::service::Service;
use parking_lot::Mutex;

use super::asked_again::AskedAgain;
use super::patience::{Patience, Turn};
use super::request_body::RequestBody;
use super::tls::ClientCertificate;

/// Who is at the other end of a connection.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) address: SocketAddr,
    pub(super) certificate: Option<ClientCertificate>,
}

/// An answer on its way.
pub(super) type Exchange = Pin<Box<dyn Future<Output = Response<Answer>> + Send>>;

/// Where the requests of one connection are answered.
#[derive(Debug)]
pub(super) struct Exchanges {
    router: Router,
    client: Client,
    patience: Arc<Patience>,
}

impl Exchanges {
    pub(super) fn new(router: Router, client: Client, patience: &Arc<Patience>) -> Self {
        Self { router, client, patience: Arc::clone(patience) }
    }

    fn begin(&self, request: Request<Incoming>) -> Exchange {
        let is_multiplexed = request.version() == Version::HTTP_2;
        let mut turn = self.patience.request(is_multiplexed);
        let request = self.attributed(request);
        let mut router = self.router.clone();
        Box::pin(async move {
            let Ok(mut response) = tower::Service::call(&mut router, request).await;
            // The router counts their bytes too, and HTTP/2 would send the count.
            if matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) {
                response.headers_mut().remove(CONTENT_LENGTH);
            }
            // HTTP/1 looks at the body at once; HTTP/2 waits until the peer can take something of it.
            if is_multiplexed {
                turn.theirs();
            }
            response.map(|body| Answer { body, turn })
        })
    }

    fn attributed(&self, request: Request<Incoming>) -> Request<AxumBody> {
        let is_http2 = request.version() == Version::HTTP_2;
        let patience = Arc::clone(&self.patience);
        let mut request =
            request.map(|body| AxumBody::new(RequestBody::new(body, is_http2, patience)));
        request.extensions_mut().insert(ConnectInfo(self.client.address));
        if let Some(certificate) = &self.client.certificate {
            request.extensions_mut().insert(certificate.clone());
        }
        request
    }
}

/// The router as hyper calls it for one connection of HTTP/2.
impl Service<Request<Incoming>> for Exchanges {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = Answering;

    fn call(&self, request: Request<Incoming>) -> Answering {
        Answering(self.begin(request))
    }
}

/// An exchange as hyper waits for it.
pub(super) struct Answering(Exchange);

impl Future for Answering {
    type Output = Result<Response<Answer>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context).map(Ok)
    }
}

/// Where one connection of HTTP/1 is answered. Clones are the same desk.
#[derive(Clone)]
pub(super) struct Desk(Arc<Top>);

struct Top {
    exchanges: Exchanges,
    /// What lies on it: nothing between two requests.
    paper: Mutex<Paper>,
}

#[derive(Default)]
struct Paper {
    exchange: Option<Exchange>,
    /// What brings the protocol to ask for the answer once more.
    again: Option<AskedAgain>,
}

impl Desk {
    pub(super) fn new(exchanges: Exchanges) -> Self {
        Self(Arc::new(Top { exchanges, paper: Mutex::default() }))
    }

    /// What is being answered, and how to ask for it again. Whoever takes it drops the protocol next.
    /// Nothing where it cannot be asked for again, or where its answer has begun.
    pub(super) fn take(&self) -> Option<(Exchange, AskedAgain)> {
        let mut paper = self.0.paper.lock();
        let again = paper.again.take()?;
        Some((paper.exchange.take()?, again))
    }

    /// What the next request is answered with, whatever it asks.
    pub(super) fn put(&self, answer: Response<Answer>) {
        self.0.paper.lock().exchange = Some(Box::pin(std::future::ready(answer)));
    }
}

impl Service<Request<Incoming>> for Desk {
    type Response = Response<Answer>;
    type Error = Infallible;
    type Future = AtDesk;

    fn call(&self, request: Request<Incoming>) -> AtDesk {
        let mut paper = self.0.paper.lock();
        if paper.exchange.is_none() {
            let again = AskedAgain::of(&request);
            let exchange = Some(self.0.exchanges.begin(request));
            *paper = Paper { exchange, again };
        }
        AtDesk(Arc::clone(&self.0))
    }
}

/// What lies on a desk, as hyper waits for it. Dropped, nobody does.
pub(super) struct AtDesk(Arc<Top>);

impl Future for AtDesk {
    type Output = Result<Response<Answer>, Infallible>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut paper = self.0.paper.lock();
        match &mut paper.exchange {
            Some(exchange) => exchange.as_mut().poll(context).map(Ok),
            // It was taken away, and the protocol with it.
            None => Poll::Pending,
        }
    }
}

impl Drop for AtDesk {
    fn drop(&mut self) {
        // Dropped where nobody has the lock: what ends with an exchange may look at the desk.
        let paper = std::mem::take(&mut *self.0.paper.lock());
        drop(paper);
    }
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
        } else if !self.body.is_end_stream() {
            self.turn.theirs();
        }
        // After the last frame the protocol drops the body, which ends the turn.
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
