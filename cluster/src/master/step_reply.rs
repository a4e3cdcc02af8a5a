//! The answer to `RunStep`, written without copying tensors.

use crate::grpc::{Reply, ReplyBuilder};
use graphmill_tensor::{Result, Status, Tensor};
use graphmill_wire::tensorflow::{RunMetadata, RunStepResponse, TensorProto};
use prost::Message;
use prost::bytes::{BufMut, Bytes};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

// Field numbers of the messages that are written by hand.
const RESPONSE_TENSOR: u32 = 1;
const RESPONSE_METADATA: u32 = 2;
const NAMED_NAME: u32 = 1;
const NAMED_TENSOR: u32 = 2;
const TENSOR_CONTENT: u32 = 4;

/// A `NamedTensorProto` in parts.
struct Named<'a> {
    name: &'a str,
    /// The `TensorProto` without its content.
    head: TensorProto,
    head_len: usize,
    content: Bytes,
}

impl Named<'_> {
    fn tensor_len(&self) -> usize {
        let content = if self.content.is_empty() { 0 } else { field_len(TENSOR_CONTENT, self.content.len()) };
        self.head_len + content
    }

    fn len(&self) -> usize {
        let name = if self.name.is_empty() { 0 } else { field_len(NAMED_NAME, self.name.len()) };
        name + field_len(NAMED_TENSOR, self.tensor_len())
    }
}

/// The answer of a step that succeeded: tensors under the names of the request, and what became known about the run.
///
/// # Errors
/// `RESOURCE_EXHAUSTED` for tensors that do not fit into a message.
pub(super) fn success<'a>(tensors: impl Iterator<Item = (&'a str, Tensor)>, metadata: &RunMetadata) -> Result<Reply> {
    let tensors: Vec<Named<'a>> = tensors
        .map(|(name, tensor)| {
            let mut head = tensor.to_proto();
            let content = std::mem::take(&mut head.tensor_content);
            Named { name, head_len: head.encoded_len(), head, content }
        })
        .collect();
    let metadata_len = metadata.encoded_len();
    let length = tensors.iter().map(|named| field_len(RESPONSE_TENSOR, named.len())).sum::<usize>()
        + field_len(RESPONSE_METADATA, metadata_len);
    let mut reply = ReplyBuilder::new(length)?;
    for named in tensors {
        let buffer = reply.buffer();
        begin(buffer, RESPONSE_TENSOR, named.len());
        if !named.name.is_empty() {
            begin(buffer, NAMED_NAME, named.name.len());
            buffer.put_slice(named.name.as_bytes());
        }
        begin(buffer, NAMED_TENSOR, named.tensor_len());
        named.head.encode_raw(buffer);
        if !named.content.is_empty() {
            begin(buffer, TENSOR_CONTENT, named.content.len());
            reply.append(named.content);
        }
    }
    let buffer = reply.buffer();
    begin(buffer, RESPONSE_METADATA, metadata_len);
    metadata.encode_raw(buffer);
    Ok(reply.finish())
}

/// The answer of a step that failed, for clients that want the status in the message.
///
/// # Errors
/// `RESOURCE_EXHAUSTED` for a text that does not fit into a message.
pub(super) fn failure(status: &Status) -> Result<Reply> {
    Reply::message(&RunStepResponse {
        metadata: Some(RunMetadata::default()),
        status_code: status.code() as i32,
        status_error_message: status.message().to_owned(),
        ..Default::default()
    })
}

fn field_len(tag: u32, length: usize) -> usize {
    key_len(tag) + encoded_len_varint(length as u64) + length
}

fn begin(buffer: &mut impl BufMut, tag: u32, length: usize) {
    encode_key(tag, WireType::LengthDelimited, buffer);
    encode_varint(length as u64, buffer);
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::{Code, DType, Shape};
    use graphmill_wire::tensorflow::{NamedTensorProto, StepStats};

    #[test]
    fn the_bytes_are_those_of_the_plain_encoder() {
        let tensors = [
            ("a:0", Tensor::scalar(1.5f32).unwrap()),
            ("", Tensor::vector(&[1i64, 2, 3]).unwrap()),
            ("empty:0", Tensor::zeros(DType::Int32, Shape::new(&[0, 2]).unwrap()).unwrap()),
            ("s:0", Tensor::from_strings(Shape::vector(2), vec![Bytes::from("x"), Bytes::new()]).unwrap()),
            ("big:0", Tensor::zeros(DType::Double, Shape::vector(5000)).unwrap()),
        ];
        let metadata = RunMetadata { step_stats: Some(StepStats::default()), ..Default::default() };
        for metadata in [RunMetadata::default(), metadata] {
            let reply = success(tensors.iter().map(|(name, t)| (*name, t.clone())), &metadata).unwrap();
            let bytes: Vec<u8> = reply.frames().flat_map(|f| f.iter().copied()).collect();
            let plain = RunStepResponse {
                tensor: tensors
                    .iter()
                    .map(|(name, t)| NamedTensorProto { name: (*name).to_owned(), tensor: Some(t.to_proto()) })
                    .collect(),
                metadata: Some(metadata),
                ..Default::default()
            };
            assert_eq!(bytes[5..], plain.encode_to_vec());
            assert_eq!(bytes[..5], [&[0], &((bytes.len() - 5) as u32).to_be_bytes()[..]].concat());
        }
    }

    #[test]
    fn large_tensors_are_shared() {
        let tensor = Tensor::zeros(DType::Float, Shape::vector(10_000)).unwrap();
        let data = tensor.as_bytes().unwrap().as_ptr();
        let reply = success([("t:0", tensor)].into_iter(), &RunMetadata::default()).unwrap();
        assert!(reply.frames().any(|frame| frame.as_ptr() == data && frame.len() == 40_000));
    }

    #[test]
    fn failures_have_metadata_too() {
        let reply = failure(&Status::new(Code::Aborted, "gone")).unwrap();
        let bytes: Vec<u8> = reply.frames().flat_map(|f| f.iter().copied()).collect();
        let response = RunStepResponse::decode(&bytes[5..]).unwrap();
        assert_eq!(response.status_code, 10);
        assert_eq!(response.status_error_message, "gone");
        assert!(response.metadata.is_some() && response.tensor.is_empty());
    }
}
