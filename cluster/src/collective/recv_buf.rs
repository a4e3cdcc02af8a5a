//! `RecvBuf` on the wire: a buffer travels as a list of chunks within an `Any`.

use crate::encoded::{begin, field_len};
use crate::grpc::{Frames, FramesBuilder};
use graphmill_runtime::CollectiveMember;
use graphmill_tensor::{DType, Result, Shape, Tensor, internal};
use graphmill_wire::Any;
use graphmill_wire::tensorflow::{DeviceLocality, RecvBufRequest};
use prost::bytes::{Buf, BufMut, Bytes};
use prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, encode_key, encode_varint, skip_field};
use std::time::{SystemTime, UNIX_EPOCH};

/// The name of the message that holds the chunks.
const EXTRA: &str = "type.googleapis.com/tensorflow.RecvBufRespExtra";
/// Longest chunk for those who do not say that they take longer ones, as TensorFlow's servers send them.
pub(super) const CHUNK: usize = 4096;

/// Field numbers of `RecvBufResponse`, `Any` and `RecvBufRespExtra`, which are written and read by hand.
const TRANSPORT_OPTIONS: u32 = 4;
const SEND_START: u32 = 5;
const TYPE_URL: u32 = 1;
const VALUE: u32 = 2;
const CHUNKS: u32 = 1;

/// Asks a member for a buffer. Transport options, which TensorFlow's servers leave unread, say that one long chunk is fine.
pub(super) fn request(
    (step_id, request_id): (i64, i64),
    key: &str,
    member: &CollectiveMember,
    own_device: &str,
    bytes: usize,
) -> RecvBufRequest {
    RecvBufRequest {
        step_id,
        buf_rendezvous_key: key.to_owned(),
        num_bytes: i64::try_from(bytes).unwrap_or(i64::MAX),
        client_locality: Some(DeviceLocality::default()),
        server_locality: Some(DeviceLocality::default()),
        transport_options: Some(Any { type_url: EXTRA.to_owned(), value: Vec::new() }),
        src_device: member.device.clone(),
        dst_device: own_device.to_owned(),
        src_incarnation: member.incarnation,
        request_id,
        ..Default::default()
    }
}

/// The answer with a buffer: in one chunk, whose bytes are not copied, where the request permits it, else in chunks of `longest` bytes.
///
/// # Errors
/// `INTERNAL` for elements without a fixed size, `RESOURCE_EXHAUSTED` for more than a message can hold.
pub(super) fn answer(request: &RecvBufRequest, buffer: &Tensor, longest: usize) -> Result<Frames> {
    let content = buffer.to_bytes().ok_or_else(|| internal!("{} has no plain elements", buffer.dtype()))?;
    let takes_long_chunks = request.transport_options.as_ref().is_some_and(|options| options.type_url == EXTRA);
    let chunk = if takes_long_chunks { content.len() } else { longest.min(content.len()) }.max(1);
    let (full, rest) = (content.len() / chunk, content.len() % chunk);
    let extra = full * field_len(CHUNKS, chunk) + if rest > 0 { field_len(CHUNKS, rest) } else { 0 };
    let any = field_len(TYPE_URL, EXTRA.len()) + field_len(VALUE, extra);
    let start = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64);
    let mut tail = Vec::new();
    encode_key(SEND_START, WireType::Varint, &mut tail);
    encode_varint(start, &mut tail);
    let length = field_len(TRANSPORT_OPTIONS, any) + tail.len();
    let mut frames = FramesBuilder::new(length)?;
    if !takes_long_chunks {
        frames.buffer().reserve(length);
    }
    begin(frames.buffer(), TRANSPORT_OPTIONS, any);
    begin(frames.buffer(), TYPE_URL, EXTRA.len());
    frames.buffer().put_slice(EXTRA.as_bytes());
    begin(frames.buffer(), VALUE, extra);
    let mut left = content;
    while !left.is_empty() {
        let next = left.split_to(chunk.min(left.len()));
        begin(frames.buffer(), CHUNKS, next.len());
        frames.append(next);
    }
    frames.buffer().put_slice(&tail);
    Ok(frames.finish())
}

/// The buffer of an answer.
///
/// # Errors
/// `INTERNAL` for an answer that cannot be read or is of another size.
pub(super) fn tensor(answer: Bytes, dtype: DType, elements: usize) -> Result<Tensor> {
    let mut chunks = Vec::new();
    for options in fields(answer, TRANSPORT_OPTIONS)? {
        for extra in fields(options, VALUE)? {
            chunks.extend(fields(extra, CHUNKS)?);
        }
    }
    let (received, expected) = (chunks.iter().map(Bytes::len).sum::<usize>(), elements.saturating_mul(dtype.size()));
    if received != expected {
        return Err(internal!("Tensor Size Mismatch: RecvBufResponse returned {received} bytes, expected: {expected}"));
    }
    if let [chunk] = chunks.as_slice() {
        return Tensor::from_bytes(dtype, Shape::vector(elements), chunk.clone());
    }
    let mut tensor = Tensor::alloc(dtype, Shape::vector(elements))?;
    tensor.fill_bytes(0..elements, |mut bytes| {
        chunks.iter().for_each(|chunk| bytes.put_slice(chunk));
        Ok(())
    })?;
    Ok(tensor)
}

/// The contents of a field of a message, as slices of it.
fn fields(mut message: Bytes, wanted: u32) -> Result<Vec<Bytes>> {
    let damaged = |_| internal!("The answer to RecvBuf cannot be read");
    let mut found = Vec::new();
    while message.has_remaining() {
        let (tag, wire) = decode_key(&mut message).map_err(damaged)?;
        if (tag, wire) != (wanted, WireType::LengthDelimited) {
            skip_field(wire, tag, &mut message, DecodeContext::default()).map_err(damaged)?;
            continue;
        }
        let length = decode_varint(&mut message).map_err(damaged)?;
        match usize::try_from(length) {
            Ok(length) if length <= message.len() => found.push(message.split_to(length)),
            _ => return Err(internal!("The answer to RecvBuf is too short")),
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_wire::tensorflow::{RecvBufRespExtra, RecvBufResponse};
    use prost::Message;

    fn answered(request: &RecvBufRequest, buffer: &Tensor) -> Bytes {
        let frames = answer(request, buffer, CHUNK).unwrap();
        let bytes: Vec<u8> = frames.frames().flat_map(|frame| frame.iter().copied()).collect();
        Bytes::from(bytes).slice(5..)
    }

    #[test]
    fn buffers_come_in_the_chunks_that_the_other_takes() {
        let buffer = Tensor::vector(&(0..3000).map(|n| n as f32).collect::<Vec<_>>()).unwrap();
        let member = CollectiveMember { device: "d".into(), task: "t".into(), incarnation: 1 };
        let long = request((1, 2), "k", &member, "o", 12_000);
        for (request, expected) in [(RecvBufRequest::default(), vec![4096, 4096, 3808]), (long, vec![12_000])] {
            let answer = answered(&request, &buffer);
            let response = RecvBufResponse::decode(answer.clone()).unwrap();
            let any = response.transport_options.unwrap();
            assert_eq!(any.type_url, EXTRA);
            let extra = RecvBufRespExtra::decode(any.value.as_slice()).unwrap();
            assert_eq!(extra.tensor_content.iter().map(Bytes::len).collect::<Vec<_>>(), expected);
            assert!(response.send_start_micros > 0);
            let read = tensor(answer.clone(), DType::Float, 3000).unwrap();
            assert_eq!(read.as_slice::<f32>().unwrap(), buffer.as_slice::<f32>().unwrap());
            assert!(tensor(answer.clone(), DType::Float, 2999).is_err());
            assert!(tensor(answer.slice(..answer.len() / 2), DType::Float, 3000).is_err());
        }
    }
}
