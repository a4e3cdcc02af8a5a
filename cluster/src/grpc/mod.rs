//! The seam between graphmill and its gRPC library: calls are a method, the bytes of one message and a deadline; answers are
//! the frames of one message or a [`Status`].
//!
//! The library's own codec is not used: it would copy every tensor on its way in and out.

mod channel;
mod deadline;
mod frames;
mod message;
mod service;
mod trailers;

pub use channel::Channel;
pub use frames::{Frames, FramesBuilder, MAX_MESSAGE, MessageBytes};
pub use service::GrpcService;

use bytes::{Buf, Bytes};
use graphmill_tensor::{Result, internal};
use prost::Message;
use std::net::SocketAddr;
use tokio::time::Instant;

/// The header by which a task of graphmill tells others that it serves streams of tensors.
const SERVES_STREAMS: &str = "graphmill-streams";

/// What answers the calls of a server. All methods are unary.
pub trait Handler: Send + Sync + 'static {
    /// Names one method.
    type Method: Copy + Send + 'static;

    /// The method at a path such as `/tensorflow.MasterService/RunStep`; `None` is answered with UNIMPLEMENTED.
    fn method(&self, path: &str) -> Option<Self::Method>;

    /// Whether a peer may call a method; its address is absent if it is not known.
    ///
    /// # Errors
    /// The status of a call that is refused.
    fn permit(&self, method: Self::Method, peer: Option<SocketAddr>) -> Result<()> {
        let _ = (method, peer);
        Ok(())
    }

    /// Answers one call. The future is dropped when the caller goes away; it has to observe `deadline` itself.
    fn call(
        &self,
        method: Self::Method,
        message: Bytes,
        deadline: Option<Instant>,
    ) -> impl Future<Output = Result<Frames>> + Send;
}

/// The message of a request.
///
/// # Errors
/// `INTERNAL`, as gRPC has it, for bytes that are no such message.
pub fn decode<M: Message + Default>(bytes: impl Buf) -> Result<M> {
    M::decode(bytes).map_err(|error| {
        let name = std::any::type_name::<M>();
        let name = name.rsplit_once("::").map_or(name, |(_, last)| last);
        internal!("The request is not a valid {name}: {error}")
    })
}
