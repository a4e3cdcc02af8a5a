//! The one message of a request or an answer, as the frames that go into the socket.

use super::trailers;
use bytes::{Buf, BufMut, Bytes, BytesMut};
use graphmill_tensor::{Result, resource_exhausted};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use prost::Message;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Longest message in either direction: 2^31 - 1 bytes, as TensorFlow has it.
pub const MAX_MESSAGE: usize = i32::MAX as usize;

/// Length of what gRPC puts before a message: one byte of flags and four of length.
const HEADER: usize = 5;

/// From this length on, bytes are worth a frame of their own instead of a copy.
const OWN_FRAME: usize = 8 << 10;

/// A message ready to be sent, with gRPC's header.
#[derive(Debug, Default)]
pub struct Frames {
    frames: VecDeque<Bytes>,
}

impl Frames {
    /// Encodes a message.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` for a message beyond [`MAX_MESSAGE`].
    pub fn message(message: &impl Message) -> Result<Frames> {
        let mut builder = FramesBuilder::new(message.encoded_len())?;
        message.encode_raw(builder.buffer());
        Ok(builder.finish())
    }

    /// The message alone, for a receiver in this process: nothing is copied.
    pub fn into_message(self) -> MessageBytes {
        let mut pieces = self.frames;
        let mut message = MessageBytes { first: pieces.pop_front().unwrap_or_default(), rest: pieces };
        message.advance(HEADER.min(message.remaining()));
        message
    }

    /// The bytes with gRPC's header, in the pieces in which they are sent.
    pub fn frames(&self) -> impl Iterator<Item = &Bytes> {
        self.frames.iter()
    }
}

/// The bytes of a message, in one piece off the wire or in several from this process. Messages decoded from it share its bytes.
#[derive(Debug, Default)]
pub struct MessageBytes {
    first: Bytes,
    rest: VecDeque<Bytes>,
}

impl MessageBytes {
    /// Goes on to the next piece where the first one is used up.
    fn refill(&mut self) {
        while self.first.is_empty() {
            match self.rest.pop_front() {
                Some(next) => self.first = next,
                None => return,
            }
        }
    }
}

impl From<Bytes> for MessageBytes {
    fn from(bytes: Bytes) -> MessageBytes {
        MessageBytes { first: bytes, rest: VecDeque::new() }
    }
}

impl Buf for MessageBytes {
    fn remaining(&self) -> usize {
        self.first.len() + self.rest.iter().map(Bytes::len).sum::<usize>()
    }

    fn chunk(&self) -> &[u8] {
        &self.first
    }

    fn advance(&mut self, mut count: usize) {
        while count > self.first.len() {
            count -= self.first.len();
            // As of every buffer: nobody advances beyond the end.
            self.first = self.rest.pop_front().unwrap_or_default();
        }
        self.first.advance(count);
        self.refill();
    }

    fn copy_to_bytes(&mut self, count: usize) -> Bytes {
        if count <= self.first.len() {
            let bytes = self.first.split_to(count);
            self.refill();
            return bytes;
        }
        let mut bytes = BytesMut::with_capacity(count);
        bytes.put(self.take(count));
        bytes.freeze()
    }
}

/// Builds a [`Frames`] of a known length, piece by piece.
pub struct FramesBuilder {
    frames: VecDeque<Bytes>,
    buffer: BytesMut,
}

impl FramesBuilder {
    /// For a message of `length` bytes.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` for a length beyond [`MAX_MESSAGE`].
    pub fn new(length: usize) -> Result<FramesBuilder> {
        let header = match u32::try_from(length) {
            Ok(header) if length <= MAX_MESSAGE => header,
            _ => {
                return Err(resource_exhausted!(
                    "The message has {length} bytes, but a message can have at most {MAX_MESSAGE}"
                ));
            }
        };
        let mut buffer = BytesMut::with_capacity(HEADER + length.min(OWN_FRAME));
        buffer.put_u8(0);
        buffer.put_u32(header);
        Ok(FramesBuilder { frames: VecDeque::new(), buffer })
    }

    /// Where the next bytes of the message are written.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// Appends bytes, without a copy if they are many.
    pub fn append(&mut self, bytes: Bytes) {
        if bytes.len() < OWN_FRAME {
            self.buffer.put_slice(&bytes);
            return;
        }
        let before = self.buffer.split().freeze();
        if !before.is_empty() {
            self.frames.push_back(before);
        }
        self.frames.push_back(bytes);
    }

    /// The reply. What was written has to have the announced length.
    pub fn finish(mut self) -> Frames {
        if !self.buffer.is_empty() {
            self.frames.push_back(self.buffer.freeze());
        }
        Frames { frames: self.frames }
    }
}

/// A body: the frames of a message, and behind an answer the trailers of success.
pub(super) struct FramesBody {
    frames: VecDeque<Bytes>,
    trailers_sent: bool,
}

impl FramesBody {
    pub(super) fn answer(message: Frames) -> FramesBody {
        FramesBody { frames: message.frames, trailers_sent: false }
    }

    pub(super) fn request(message: Frames) -> FramesBody {
        FramesBody { frames: message.frames, trailers_sent: true }
    }
}

impl Body for FramesBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Frame<Bytes>, Infallible>>> {
        if let Some(frame) = self.frames.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(frame))));
        }
        if self.trailers_sent {
            return Poll::Ready(None);
        }
        self.trailers_sent = true;
        let trailers: HeaderMap = trailers::ok();
        Poll::Ready(Some(Ok(Frame::trailers(trailers))))
    }

    fn is_end_stream(&self) -> bool {
        self.trailers_sent && self.frames.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.frames.iter().map(|frame| frame.len() as u64).sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::Code;
    use graphmill_wire::tensorflow::CreateSessionResponse;

    #[test]
    fn a_message_gets_the_header() {
        let message = CreateSessionResponse { session_handle: "ab".into(), graph_version: 0 };
        let reply = Frames::message(&message).unwrap();
        let all: Vec<u8> = reply.frames().flat_map(|f| f.iter().copied()).collect();
        assert_eq!(all, [0, 0, 0, 0, 4, 0x0a, 2, b'a', b'b']);
        let empty = Frames::message(&CreateSessionResponse::default()).unwrap();
        assert_eq!(empty.frames().map(|f| f.len()).sum::<usize>(), HEADER);
    }

    #[test]
    fn long_pieces_are_not_copied() {
        let long = Bytes::from(vec![7u8; OWN_FRAME]);
        let mut builder = FramesBuilder::new(2 + long.len() + 3).unwrap();
        builder.append(Bytes::from_static(b"ab"));
        builder.append(long.clone());
        builder.append(Bytes::from_static(b"cde"));
        let reply = builder.finish();
        let lengths: Vec<usize> = reply.frames().map(Bytes::len).collect();
        assert_eq!(lengths, [7, OWN_FRAME, 3]);
        assert_eq!(reply.frames().nth(1).unwrap().as_ptr(), long.as_ptr());
    }

    #[test]
    fn a_message_in_pieces_reads_as_one() {
        let pieces = [&b"ab"[..], b"", b"cdef", b"g"];
        for cut in 0..=7 {
            let [first, rest @ ..] = pieces.map(Bytes::from_static);
            let mut message = MessageBytes { first, rest: rest.into_iter().collect() };
            assert_eq!(message.remaining(), 7);
            let begin = message.copy_to_bytes(cut);
            assert_eq!(message.remaining(), 7 - cut);
            assert_eq!([begin, message.copy_to_bytes(7 - cut)].concat(), b"abcdefg", "{cut}");
            assert!(!message.has_remaining());
        }
    }

    #[test]
    fn messages_within_the_process_share_their_bytes() {
        let long = Bytes::from(vec![7u8; OWN_FRAME]);
        let mut builder = FramesBuilder::new(2 + long.len() + 3).unwrap();
        builder.append(Bytes::from_static(b"ab"));
        builder.append(long.clone());
        builder.append(Bytes::from_static(b"cde"));
        let mut message = builder.finish().into_message();
        assert_eq!(message.remaining(), OWN_FRAME + 5);
        message.advance(2);
        assert_eq!(message.copy_to_bytes(OWN_FRAME).as_ptr(), long.as_ptr());
        assert_eq!(message.copy_to_bytes(3), "cde");
        assert_eq!(Frames::default().into_message().remaining(), 0);
    }

    #[test]
    fn too_long_messages_are_refused() {
        assert_eq!(FramesBuilder::new(MAX_MESSAGE + 1).err().unwrap().code(), Code::ResourceExhausted);
        assert_eq!(FramesBuilder::new(usize::MAX).err().unwrap().code(), Code::ResourceExhausted);
        assert!(FramesBuilder::new(MAX_MESSAGE).is_ok());
    }
}
