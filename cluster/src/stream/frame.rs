//! Frames: a length, a kind, and fields in little-endian order.

use super::{CHUNK, MAX_HEAD};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use graphmill_tensor::{Code, DType, Shape, Status};
use graphmill_wire::tensorflow::distributed_runtime::GrpcPayloadContainer;
use prost::Message;
use tokio::io::{AsyncRead, AsyncReadExt};

/// What a receive is answered with is told apart by the number that the receiver gave it.
pub(super) type Id = u64;

/// Longest text of a failure, in bytes, so that it fits into a frame.
const MAX_TEXT: usize = 64 << 10;

/// A random number that proves that two processes look at the same memory.
pub(super) type Token = [u8; 16];

/// Where a segment of shared memory is: a file descriptor of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SegmentName {
    pub process: u32,
    pub descriptor: i32,
    pub token: Token,
    /// Length of the memory, its head included.
    pub length: u64,
}

/// A tensor without its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// The value is dead.
    Dead,
    /// Elements of a fixed size follow.
    Plain { dtype: DType, shape: Shape },
    /// A `TensorProto` follows.
    Message,
}

impl Head {
    /// Whether this is the length of the content.
    pub fn fits(&self, length: u64) -> bool {
        match self {
            Head::Dead => length == 0,
            Head::Message => true,
            Head::Plain { dtype, shape } => {
                let expected = dtype.size().checked_mul(shape.num_elements()).map(u64::try_from);
                expected.is_some_and(|expected| expected == Ok(length))
            }
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Frame {
    /// From a receiver, first: the host as it sees it.
    Hello {
        host: String,
    },
    /// From a sender, first.
    Welcome,
    /// From a sender: memory that the receiver may try to look at.
    Probe {
        segment: SegmentName,
    },
    /// From a receiver: it has seen the memory.
    ProbeSeen,
    Receive {
        id: Id,
        step: i64,
        key: String,
    },
    /// From a receiver that no longer wants an answer.
    Withdraw {
        id: Id,
    },
    /// An answer, whose content has `length` bytes in all.
    Value {
        id: Id,
        head: Head,
        length: u64,
    },
    /// A part of the content of an answer.
    Chunk {
        id: Id,
        content: Bytes,
    },
    /// An answer whose content lies in shared memory.
    Segment {
        id: Id,
        head: Head,
        length: u64,
        segment: SegmentName,
    },
    Failure {
        id: Id,
        status: Status,
    },
}

impl Frame {
    fn kind(&self) -> u8 {
        match self {
            Frame::Hello { .. } => 1,
            Frame::Probe { .. } => 2,
            Frame::ProbeSeen => 3,
            Frame::Receive { .. } => 4,
            Frame::Withdraw { .. } => 5,
            Frame::Value { .. } => 6,
            Frame::Chunk { .. } => 7,
            Frame::Segment { .. } => 8,
            Frame::Failure { .. } => 9,
            Frame::Welcome => 10,
        }
    }

    /// Appends the frame.
    pub fn write(&self, buffer: &mut BytesMut) {
        let start = buffer.len();
        buffer.put_u32_le(0);
        buffer.put_u8(self.kind());
        match self {
            Frame::Hello { host } => buffer.put_slice(host.as_bytes()),
            Frame::Probe { segment } => put_segment(buffer, segment),
            Frame::ProbeSeen | Frame::Welcome => {}
            Frame::Receive { id, step, key } => {
                buffer.put_u64_le(*id);
                buffer.put_i64_le(*step);
                buffer.put_slice(key.as_bytes());
            }
            Frame::Withdraw { id } => buffer.put_u64_le(*id),
            Frame::Value { id, head, length } => {
                buffer.put_u64_le(*id);
                buffer.put_u64_le(*length);
                put_head(buffer, head);
            }
            Frame::Chunk { id, content } => {
                buffer.put_u64_le(*id);
                buffer.put_slice(content);
            }
            Frame::Segment { id, head, length, segment } => {
                buffer.put_u64_le(*id);
                buffer.put_u64_le(*length);
                put_segment(buffer, segment);
                put_head(buffer, head);
            }
            Frame::Failure { id, status } => {
                buffer.put_u64_le(*id);
                buffer.put_i32_le(status.code() as i32);
                let text = status.message();
                let text = text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or(text).as_bytes();
                buffer.put_u32_le(u32::try_from(text.len()).unwrap_or(0));
                buffer.put_slice(text);
                let payloads = status.payloads().iter().cloned().collect();
                buffer.put_slice(&GrpcPayloadContainer { payloads }.encode_to_vec());
            }
        }
        let length = u32::try_from(buffer.len() - start - 4).unwrap_or(u32::MAX);
        if let Some(place) = buffer.get_mut(start..start + 4) {
            place.copy_from_slice(&length.to_le_bytes());
        }
    }

    /// What stands before the content of a chunk of this length.
    pub fn chunk_head(id: Id, length: usize) -> [u8; 13] {
        let mut head = [0; 13];
        let all = u32::try_from(length + 9).unwrap_or(u32::MAX);
        head[..4].copy_from_slice(&all.to_le_bytes());
        head[4] = 7;
        head[5..].copy_from_slice(&id.to_le_bytes());
        head
    }

    /// The next frame; `None` where the connection ends between frames.
    ///
    /// # Errors
    /// A text for a connection that breaks off, and for bytes that are no frame.
    pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Option<Frame>, String> {
        let mut length = [0; 4];
        match stream.read_exact(&mut length).await {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error.to_string()),
        }
        let length = u32::from_le_bytes(length) as usize;
        if length == 0 || length > MAX_HEAD.max(CHUNK) + 64 {
            return Err(format!("a frame of {length} bytes"));
        }
        let mut body = BytesMut::zeroed(length);
        stream.read_exact(&mut body).await.map_err(|error| error.to_string())?;
        Frame::parse(body.freeze()).map(Some).ok_or_else(|| "a frame that is malformed".to_owned())
    }

    fn parse(mut body: Bytes) -> Option<Frame> {
        let body = &mut body;
        Some(match body.try_get_u8().ok()? {
            1 => Frame::Hello { host: text(body)? },
            2 => Frame::Probe { segment: get_segment(body)? },
            3 => Frame::ProbeSeen,
            4 => {
                let (id, step) = (body.try_get_u64_le().ok()?, body.try_get_i64_le().ok()?);
                Frame::Receive { id, step, key: text(body)? }
            }
            5 => Frame::Withdraw { id: body.try_get_u64_le().ok()? },
            6 => {
                let (id, length) = (body.try_get_u64_le().ok()?, body.try_get_u64_le().ok()?);
                Frame::Value { id, head: get_head(body)?, length }
            }
            7 => Frame::Chunk { id: body.try_get_u64_le().ok()?, content: body.split_to(body.len()) },
            8 => {
                let (id, length) = (body.try_get_u64_le().ok()?, body.try_get_u64_le().ok()?);
                let segment = get_segment(body)?;
                Frame::Segment { id, head: get_head(body)?, length, segment }
            }
            9 => {
                let (id, code) = (body.try_get_u64_le().ok()?, body.try_get_i32_le().ok()?);
                let length = body.try_get_u32_le().ok()? as usize;
                let mut message = (length <= body.len()).then(|| body.split_to(length))?;
                let mut status = Status::new(Code::from_number(code), text(&mut message)?);
                for (key, value) in GrpcPayloadContainer::decode(body.clone()).ok()?.payloads {
                    status = status.with_payload(&key, value);
                }
                Frame::Failure { id, status }
            }
            10 => Frame::Welcome,
            _ => return None,
        })
    }
}

fn text(body: &mut Bytes) -> Option<String> {
    String::from_utf8(body.split_to(body.len()).to_vec()).ok()
}

fn put_segment(buffer: &mut BytesMut, segment: &SegmentName) {
    buffer.put_u32_le(segment.process);
    buffer.put_i32_le(segment.descriptor);
    buffer.put_slice(&segment.token);
    buffer.put_u64_le(segment.length);
}

fn get_segment(body: &mut Bytes) -> Option<SegmentName> {
    let (process, descriptor) = (body.try_get_u32_le().ok()?, body.try_get_i32_le().ok()?);
    let mut token = Token::default();
    body.try_copy_to_slice(&mut token).ok()?;
    Some(SegmentName { process, descriptor, token, length: body.try_get_u64_le().ok()? })
}

fn put_head(buffer: &mut BytesMut, head: &Head) {
    match head {
        Head::Dead => buffer.put_u8(0),
        Head::Message => buffer.put_u8(1),
        Head::Plain { dtype, shape } => {
            buffer.put_u8(2);
            buffer.put_i32_le(dtype.number());
            shape.dims_i64().for_each(|size| buffer.put_i64_le(size));
        }
    }
}

fn get_head(body: &mut Bytes) -> Option<Head> {
    Some(match body.try_get_u8().ok()? {
        0 => Head::Dead,
        1 => Head::Message,
        2 => {
            let dtype = DType::from_number(body.try_get_i32_le().ok()?).filter(|dtype| dtype.is_fixed_size())?;
            let mut dims = Vec::with_capacity(body.len() / 8);
            while !body.is_empty() {
                dims.push(body.try_get_i64_le().ok()?);
            }
            Head::Plain { dtype, shape: Shape::new(&dims).ok()? }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::aborted;

    fn frames() -> Vec<Frame> {
        let segment = SegmentName { process: 7, descriptor: 8, token: [9; 16], length: 10 };
        let head = Head::Plain { dtype: DType::Half, shape: Shape::new(&[2, 0, 3]).unwrap() };
        vec![
            Frame::Hello { host: "here".into() },
            Frame::Probe { segment },
            Frame::ProbeSeen,
            Frame::Welcome,
            Frame::Receive { id: 1, step: -2, key: "a;b".into() },
            Frame::Withdraw { id: u64::MAX },
            Frame::Value { id: 3, head: head.clone(), length: 5 },
            Frame::Value { id: 3, head: Head::Dead, length: 0 },
            Frame::Chunk { id: 4, content: Bytes::from_static(b"xyz") },
            Frame::Segment { id: 5, head: Head::Message, length: 6, segment },
            Frame::Failure { id: 6, status: aborted!("gone").derived() },
        ]
    }

    async fn read_all(bytes: &[u8]) -> Result<Vec<Frame>, String> {
        let mut stream = bytes;
        let mut read = Vec::new();
        while let Some(frame) = Frame::read(&mut stream).await? {
            read.push(frame);
        }
        Ok(read)
    }

    #[tokio::test]
    async fn frames_come_back() {
        let mut buffer = BytesMut::new();
        frames().iter().for_each(|frame| frame.write(&mut buffer));
        assert_eq!(read_all(&buffer).await.unwrap(), frames());
        let mut chunk = BytesMut::new();
        chunk.put_slice(&Frame::chunk_head(4, 3));
        chunk.put_slice(b"xyz");
        assert_eq!(read_all(&chunk).await.unwrap(), [Frame::Chunk { id: 4, content: Bytes::from_static(b"xyz") }]);
    }

    #[tokio::test]
    async fn long_texts_are_cut() {
        let mut buffer = BytesMut::new();
        Frame::Failure { id: 1, status: aborted!("{}", "é".repeat(2 << 20)) }.write(&mut buffer);
        let frames = read_all(&buffer).await.unwrap();
        assert!(matches!(&frames[..], [Frame::Failure { status, .. }] if status.message().len() == MAX_TEXT));
    }

    #[test]
    fn lengths_that_fit() {
        let head = Head::Plain { dtype: DType::Half, shape: Shape::new(&[2, 3]).unwrap() };
        assert!(head.fits(12) && !head.fits(11) && Head::Dead.fits(0) && !Head::Dead.fits(1));
    }

    #[tokio::test]
    async fn damaged_frames_are_refused_or_read_as_others() {
        let mut buffer = BytesMut::new();
        frames().iter().for_each(|frame| frame.write(&mut buffer));
        for at in 0..buffer.len() {
            for change in [1u8, 0x80, 0xff] {
                let mut damaged = buffer.clone();
                damaged[at] ^= change;
                let _ = read_all(&damaged).await;
            }
            let _ = read_all(&buffer[..at]).await;
        }
        assert!(read_all(&[0xff, 0xff, 0xff, 0xff, 1]).await.is_err());
        assert!(read_all(&[0, 0, 0, 0]).await.is_err());
        assert!(read_all(&[1, 0, 0, 0, 99]).await.is_err());
    }
}
