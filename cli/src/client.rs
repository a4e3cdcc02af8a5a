//! Calls to a server.

use anyhow::{Context, Result, bail};
use bytes::Buf;
use prost::Message;
use std::marker::PhantomData;
use std::time::Duration;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Endpoint;

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
    let address = target.strip_prefix("grpc://").unwrap_or(target);
    if address.is_empty() || address.contains('/') {
        bail!("{target:?} is not the address of a server; write it as grpc://HOST:PORT");
    }
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .with_context(|| format!("{target:?} is not the address of a server; write it as grpc://HOST:PORT"))?
        .connect_timeout(CONNECT_TIMEOUT)
        .timeout(CALL_TIMEOUT);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let channel = endpoint
            .connect()
            .await
            .with_context(|| format!("no server answers at {target}; start one with graphmill serve"))?;
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await.with_context(|| format!("the connection to {target} broke off"))?;
        let path = http::uri::PathAndQuery::from_static(path);
        let answer = client.unary(tonic::Request::new(request), path, MessageCodec::<Q, A>(PhantomData)).await;
        match answer {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) => bail!("{target} answers: {}: {}", status.code(), status.message()),
        }
    })
}

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
