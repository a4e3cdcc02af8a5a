//! The road that tensors take between graphmill's own tasks: one TCP connection from a receiver to a sender, with small frames
//! instead of an HTTP/2 call for each tensor.
//!
//! A connection begins with [`GREETING`] on the port of the gRPC services, where HTTP/2 begins otherwise, and a `Hello` of the
//! receiver. Receives are then asked for with `Receive` and answered with `Value` and `Chunk`s, `Segment`, or `Failure`, in any order.
//! Large tensors travel in chunks, between which others go, and on one host through shared memory. Tasks of TensorFlow do not know
//! of this: they are asked by `RecvTensor`, as are tasks that a connection cannot be made to.

mod frame;
mod receiver;
mod sender;
mod writer;

pub(crate) use frame::SegmentName;
pub(crate) use receiver::StreamReceiver;
pub(crate) use sender::serve;

/// What a connection begins with. No HTTP/2 connection does.
pub(crate) const GREETING: &[u8] = b"GRAPHMILL STREAM 1\n";

/// Longest frame, but for its content: a key, or a tensor's type and shape.
const MAX_HEAD: usize = 1 << 20;
/// Longest content of one frame. Longer tensors are cut, so that others need not wait for them.
const CHUNK: usize = 256 << 10;
