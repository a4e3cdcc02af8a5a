//! Tensors to and from the wire.

// A benchmark that cannot be set up has nothing to measure.
#![allow(clippy::expect_used)]

use divan::counter::BytesCount;
use graphmill_tensor::{Shape, Tensor};
use graphmill_wire::tensorflow::TensorProto;
use prost::Message;
use prost::bytes::Bytes;

const SIZES: [usize; 3] = [16, 64 << 10, 16 << 20];

fn tensor(bytes: usize) -> Tensor {
    Tensor::zeros(graphmill_tensor::DType::Float, Shape::vector(bytes / 4)).expect("a tensor")
}

#[divan::bench(args = SIZES)]
fn encode(bencher: divan::Bencher<'_, '_>, bytes: usize) {
    let tensor = tensor(bytes);
    bencher.counter(BytesCount::new(bytes)).bench(|| tensor.to_proto().encode_to_vec());
}

#[divan::bench(args = SIZES)]
fn decode(bencher: divan::Bencher<'_, '_>, bytes: usize) {
    let message = Bytes::from(tensor(bytes).to_proto().encode_to_vec());
    bencher.counter(BytesCount::new(bytes)).bench(|| {
        let proto = TensorProto::decode(message.clone()).expect("a message");
        Tensor::from_proto(&proto).expect("a tensor")
    });
}

#[divan::bench]
fn decode_repeated_value(bencher: divan::Bencher<'_, '_>) {
    let proto = TensorProto { float_val: vec![1.5], ..tensor(1 << 20).to_proto() };
    let proto = TensorProto { tensor_content: Bytes::new(), ..proto };
    bencher.counter(BytesCount::new(1usize << 20)).bench(|| Tensor::from_proto(&proto).expect("a tensor"));
}

fn main() {
    divan::main();
}
