//! Tensors as they are written into messages: without a copy of their contents.

use crate::grpc::FramesBuilder;
use graphmill_tensor::Tensor;
use graphmill_wire::tensorflow::TensorProto;
use prost::Message;
use prost::bytes::{BufMut, Bytes};
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};

/// Field numbers of `TensorProto` and `NamedTensorProto`, which are written by hand.
const TENSOR_CONTENT: u32 = 4;
const NAMED_NAME: u32 = 1;
const NAMED_TENSOR: u32 = 2;

/// A `TensorProto` in parts.
pub struct EncodedTensor {
    /// All but the content.
    head: TensorProto,
    head_len: usize,
    content: Bytes,
}

impl EncodedTensor {
    /// Takes a tensor apart.
    pub fn new(tensor: &Tensor) -> EncodedTensor {
        let mut head = tensor.to_proto();
        let content = std::mem::take(&mut head.tensor_content);
        EncodedTensor { head_len: head.encoded_len(), head, content }
    }

    /// Length of the message.
    pub fn encoded_len(&self) -> usize {
        let content = if self.content.is_empty() { 0 } else { field_len(TENSOR_CONTENT, self.content.len()) };
        self.head_len + content
    }

    /// Writes the message, without its length.
    pub fn write(self, frames: &mut FramesBuilder) {
        let buffer = frames.buffer();
        self.head.encode_raw(buffer);
        if !self.content.is_empty() {
            begin(buffer, TENSOR_CONTENT, self.content.len());
            frames.append(self.content);
        }
    }
}

/// A repeated field of `NamedTensorProto`s.
pub struct EncodedNamed<'a> {
    tag: u32,
    tensors: Vec<(usize, &'a str, EncodedTensor)>,
}

impl<'a> EncodedNamed<'a> {
    /// For a field with this number.
    pub fn new(tag: u32, tensors: impl IntoIterator<Item = (&'a str, Tensor)>) -> EncodedNamed<'a> {
        let name_len = |name: &str| if name.is_empty() { 0 } else { field_len(NAMED_NAME, name.len()) };
        let encode = |(name, tensor): (&'a str, Tensor)| {
            let tensor = EncodedTensor::new(&tensor);
            (name_len(name) + field_len(NAMED_TENSOR, tensor.encoded_len()), name, tensor)
        };
        EncodedNamed { tag, tensors: tensors.into_iter().map(encode).collect() }
    }

    /// Length of the fields.
    pub fn encoded_len(&self) -> usize {
        self.tensors.iter().map(|(length, ..)| field_len(self.tag, *length)).sum()
    }

    /// Writes the fields.
    pub fn write(self, frames: &mut FramesBuilder) {
        for (length, name, tensor) in self.tensors {
            let buffer = frames.buffer();
            begin(buffer, self.tag, length);
            if !name.is_empty() {
                begin(buffer, NAMED_NAME, name.len());
                buffer.put_slice(name.as_bytes());
            }
            begin(buffer, NAMED_TENSOR, tensor.encoded_len());
            tensor.write(frames);
        }
    }
}

/// Length of a field with contents of this length.
pub fn field_len(tag: u32, length: usize) -> usize {
    key_len(tag) + encoded_len_varint(length as u64) + length
}

/// Writes what stands before the contents of a field.
pub fn begin(buffer: &mut impl BufMut, tag: u32, length: usize) {
    encode_key(tag, WireType::LengthDelimited, buffer);
    encode_varint(length as u64, buffer);
}
