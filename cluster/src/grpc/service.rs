//! The tower service that the HTTP/2 server calls.

use super::frames::FramesBody;
use super::message::{Encoding, read_message};
use super::{Frames, Handler, SERVES_STREAMS, deadline, trailers};
use crate::network::Peer;
use graphmill_tensor::{Result, Status, unimplemented_op};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::Instant;
use tonic::body::Body;
use tower_service::Service;

/// Serves a [`Handler`] over HTTP/2.
pub struct GrpcService<H>(Arc<H>);

impl<H> GrpcService<H> {
    /// For this handler.
    pub fn new(handler: Arc<H>) -> GrpcService<H> {
        GrpcService(handler)
    }
}

impl<H> Clone for GrpcService<H> {
    fn clone(&self) -> Self {
        GrpcService(self.0.clone())
    }
}

impl<H: Handler> Service<Request<Body>> for GrpcService<H> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = std::result::Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<std::result::Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let handler = self.0.clone();
        Box::pin(async move { Ok(respond(&*handler, request).await) })
    }
}

async fn respond<H: Handler>(handler: &H, request: Request<Body>) -> Response<Body> {
    let (head, body) = request.into_parts();
    if head.method != Method::POST || !is_grpc(&head.headers) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return response;
    }
    match answer(handler, head, body).await {
        Ok(reply) => success(reply),
        Err(status) => failure(&status),
    }
}

async fn answer<H: Handler>(handler: &H, head: http::request::Parts, mut body: Body) -> Result<Frames> {
    let path = head.uri.path();
    let method = handler.method(path).ok_or_else(|| unimplemented_op!("Method {path} is not implemented"))?;
    let peer = head.extensions.get::<Peer>().and_then(|peer| peer.0);
    handler.permit(method, peer)?;
    // A time that cannot be added is so far away that there is no deadline.
    let deadline = deadline::timeout(&head.headers).and_then(|timeout| Instant::now().checked_add(timeout));
    let message = read_message(&mut body, Encoding::of(&head.headers)?).await?;
    handler.call(method, message, deadline).await
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_TYPE).is_some_and(|value| value.as_bytes().starts_with(b"application/grpc"))
}

fn success(reply: Frames) -> Response<Body> {
    let mut response = Response::new(Body::new(FramesBody::answer(reply)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    response.headers_mut().insert(SERVES_STREAMS, HeaderValue::from_static("1"));
    response
}

/// An answer without a message, so that its headers are its trailers.
fn failure(status: &Status) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(SERVES_STREAMS, HeaderValue::from_static("1"));
    headers.insert("grpc-accept-encoding", HeaderValue::from_static("identity,deflate,gzip"));
    trailers::insert(headers, status);
    response
}
