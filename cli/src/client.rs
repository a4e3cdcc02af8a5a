//! Calls to a server.

use anyhow::{Context, Result, anyhow, bail};
use bytes::Buf;
use graphmill_cluster::control::ControlMethod;
use prost::Message;
use std::error::Error;
use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Endpoint;
use tonic::{Code, Status};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// One call to the server at `target` (`grpc://host:port` or `host:port`).
///
/// # Errors
/// If the server cannot be reached or answers with an error.
pub fn call<Q, A>(target: &str, path: &'static str, request: Q) -> Result<A>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(call_async(target, path, request))
}

/// As [`call`], for one of graphmill's own methods.
///
/// # Errors
/// As [`call`]; a server that does not know the method is none of graphmill's.
pub fn call_graphmill<Q, A>(target: &str, method: ControlMethod, request: Q) -> Result<A>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    call(target, method.path(), request).map_err(|error| match error.downcast_ref::<Refusal>() {
        Some(refusal) if refusal.status.code() == Code::Unimplemented => {
            anyhow!("{target} does not know this command; it is no graphmill server, or an older one")
        }
        _ => error,
    })
}

/// As [`call`], within a runtime.
///
/// # Errors
/// As [`call`].
pub async fn call_async<Q, A>(target: &str, path: &'static str, request: Q) -> Result<A>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let address = address(target)?;
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .with_context(|| format!("{target:?} is not the address of a server; write it as grpc://HOST:PORT"))?
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(CALL_TIMEOUT);
    let channel = endpoint
        .connect()
        .await
        .with_context(|| format!("no server answers at {target}; start one with graphmill serve"))?;
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.with_context(|| format!("the connection to {target} broke off"))?;
    let path = http::uri::PathAndQuery::from_static(path);
    let answer = client.unary(tonic::Request::new(request), path, MessageCodec::<Q, A>(PhantomData)).await;
    answer.map(tonic::Response::into_inner).map_err(|status| Refusal { target: target.to_owned(), status }.into())
}

/// Host and port of a target.
///
/// # Errors
/// If it has another form.
pub fn address(target: &str) -> Result<&str> {
    let address = target.strip_prefix("grpc://").unwrap_or(target);
    if address.is_empty() || address.contains('/') {
        bail!("{target:?} is not the address of a server; write it as grpc://HOST:PORT");
    }
    Ok(address)
}

/// The error that a server has answered.
#[derive(Debug)]
struct Refusal {
    target: String,
    status: Status,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answers: {}: {}", self.target, self.status.code(), self.status.message())
    }
}

impl Error for Refusal {}

struct MessageCodec<Q, A>(PhantomData<(Q, A)>);

struct MessageEncoder<Q>(PhantomData<Q>);

struct MessageDecoder<A>(PhantomData<A>);

impl<Q: Message + 'static, A: Message + Default + 'static> Codec for MessageCodec<Q, A> {
    type Encode = Q;
    type Decode = A;
    type Encoder = MessageEncoder<Q>;
    type Decoder = MessageDecoder<A>;

    fn encoder(&mut self) -> MessageEncoder<Q> {
        MessageEncoder(PhantomData)
    }

    fn decoder(&mut self) -> MessageDecoder<A> {
        MessageDecoder(PhantomData)
    }
}

impl<Q: Message> Encoder for MessageEncoder<Q> {
    type Item = Q;
    type Error = Status;

    fn encode(&mut self, message: Q, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        message.encode(buffer).map_err(|error| Status::internal(error.to_string()))
    }
}

impl<A: Message + Default> Decoder for MessageDecoder<A> {
    type Item = A;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<A>, Status> {
        let bytes = buffer.copy_to_bytes(buffer.remaining());
        A::decode(bytes).map(Some).map_err(|error| Status::internal(format!("the answer is damaged: {error}")))
    }
}
