//! The answers to `RunStep` and `RunCallable`, written without copying tensors.

use crate::encoded::{EncodedNamed, EncodedTensor, begin, field_len};
use crate::grpc::{Frames, FramesBuilder};
use graphmill_tensor::{Result, Status, Tensor};
use graphmill_wire::tensorflow::{RunMetadata, RunStepResponse};
use prost::Message;

// Field numbers of the messages that are written by hand. Both answers have the same ones.
const RESPONSE_TENSOR: u32 = 1;
const RESPONSE_METADATA: u32 = 2;

/// The answer to `RunStep`: tensors under the names of the request, and what became known about the run.
///
/// # Errors
/// `RESOURCE_EXHAUSTED` for tensors that do not fit into a message.
pub(super) fn named_tensors(tensors: Vec<(&str, Tensor)>, metadata: &RunMetadata) -> Result<Frames> {
    let tensors = EncodedNamed::new(RESPONSE_TENSOR, tensors);
    let mut reply = with_metadata(tensors.encoded_len(), metadata)?;
    tensors.write(&mut reply);
    Ok(finish(reply, metadata))
}

/// The answer to `RunCallable`: tensors in the order of the callable's fetches.
///
/// # Errors
/// `RESOURCE_EXHAUSTED` for tensors that do not fit into a message.
pub(super) fn tensors(tensors: &[Tensor], metadata: &RunMetadata) -> Result<Frames> {
    let tensors: Vec<EncodedTensor> = tensors.iter().map(EncodedTensor::new).collect();
    let length = tensors.iter().map(|tensor| field_len(RESPONSE_TENSOR, tensor.encoded_len())).sum();
    let mut reply = with_metadata(length, metadata)?;
    for tensor in tensors {
        begin(reply.buffer(), RESPONSE_TENSOR, tensor.encoded_len());
        tensor.write(&mut reply);
    }
    Ok(finish(reply, metadata))
}

/// A reply with metadata at the end, behind tensors of `length` bytes.
fn with_metadata(length: usize, metadata: &RunMetadata) -> Result<FramesBuilder> {
    FramesBuilder::new(length + field_len(RESPONSE_METADATA, metadata.encoded_len()))
}

fn finish(mut reply: FramesBuilder, metadata: &RunMetadata) -> Frames {
    let buffer = reply.buffer();
    begin(buffer, RESPONSE_METADATA, metadata.encoded_len());
    metadata.encode_raw(buffer);
    reply.finish()
}

/// The answer of a step that failed, for clients that want the status in the message.
///
/// # Errors
/// `RESOURCE_EXHAUSTED` for a text that does not fit into a message.
pub(super) fn failure(status: &Status) -> Result<Frames> {
    Frames::message(&RunStepResponse {
        metadata: Some(RunMetadata::default()),
        status_code: status.code() as i32,
        status_error_message: status.message().to_owned(),
        ..Default::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use graphmill_tensor::{Code, DType, Shape};
    use graphmill_wire::tensorflow::{NamedTensorProto, RunCallableResponse, StepStats};

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
            let named = tensors.iter().map(|(name, tensor)| (*name, tensor.clone())).collect();
            let plain = RunStepResponse {
                tensor: tensors
                    .iter()
                    .map(|(name, t)| NamedTensorProto { name: (*name).to_owned(), tensor: Some(t.to_proto()) })
                    .collect(),
                metadata: Some(metadata.clone()),
                ..Default::default()
            };
            check(&named_tensors(named, &metadata).unwrap(), &plain);
            let plain = RunCallableResponse {
                fetch: tensors.iter().map(|(_, tensor)| tensor.to_proto()).collect(),
                metadata: Some(metadata.clone()),
            };
            let unnamed: Vec<Tensor> = tensors.iter().map(|(_, tensor)| tensor.clone()).collect();
            check(&super::tensors(&unnamed, &metadata).unwrap(), &plain);
        }
    }

    fn check(reply: &Frames, plain: &impl Message) {
        let bytes: Vec<u8> = reply.frames().flat_map(|f| f.iter().copied()).collect();
        assert_eq!(bytes[5..], plain.encode_to_vec());
        assert_eq!(bytes[..5], [&[0], &((bytes.len() - 5) as u32).to_be_bytes()[..]].concat());
    }

    #[test]
    fn large_tensors_are_shared() {
        let tensor = Tensor::zeros(DType::Float, Shape::vector(10_000)).unwrap();
        let data = tensor.as_bytes().unwrap().as_ptr();
        let reply = named_tensors(vec![("t:0", tensor)], &RunMetadata::default()).unwrap();
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
