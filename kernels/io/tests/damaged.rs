//! Lines, messages and compressed strings that were damaged are parsed or refused, and readers come to an end.
// Helpers of tests may panic as tests may.
#![allow(clippy::unwrap_used, clippy::panic)]

#[path = "../../../formats/tests/damage/mod.rs"]
mod damage;

use damage::{Damage, check};
use graphmill_formats::{Compression, FileSystem, LocalFileSystem, RecordWriter};
use graphmill_runtime::Registry;
use graphmill_runtime::testing::OpRun;
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor};
use prost::Message;
use std::sync::Arc;

const ROUNDS: usize = 4000;

fn registry() -> Registry {
    let files: Arc<dyn FileSystem> = Arc::new(LocalFileSystem::new());
    let mut registry = Registry::new();
    graphmill_kernels_io::register(&mut registry, &files);
    registry
}

fn text(bytes: &[u8]) -> Result<Tensor> {
    Tensor::from_strings(Shape::scalar(), vec![Bytes::from(bytes.to_vec())])
}

#[test]
fn lines_of_csv() {
    let registry = registry();
    let types = [DType::Float, DType::Int64, DType::String, DType::Int32, DType::Double];
    let defaults: Vec<Tensor> = types.iter().map(|&dtype| Tensor::alloc(dtype, Shape::vector(0)).unwrap()).collect();
    let valid = b"1.5,-7,\"some \"\"quoted\"\" text, with more\",2147483647,1e300";
    for quotes in [true, false] {
        let op = OpRun::new("DecodeCSV").attr_types("OUT_TYPE", &types).attr_bool("use_quote_delim", quotes);
        let mut damage = Damage::new(1);
        check(
            ROUNDS,
            || damage.of(valid),
            |line| (1 << 20) + 16 * line.len(),
            |line| {
                let inputs = [text(line)?].into_iter().chain(defaults.iter().cloned()).collect();
                op.run(&registry, inputs)
            },
        );
    }
}

#[test]
fn serialized_tensors() {
    let registry = registry();
    let strings = vec![Bytes::from("one"), Bytes::new(), Bytes::from("three")];
    let tensors = [
        Tensor::from_slice(Shape::from_dims(&[3, 4]).unwrap(), &[1.5f32; 12]).unwrap(),
        Tensor::vector(&[1i64, -2, 3]).unwrap(),
        Tensor::from_strings(Shape::vector(3), strings).unwrap(),
    ];
    for tensor in tensors {
        let valid = tensor.to_proto().encode_to_vec();
        let op = OpRun::new("ParseTensor").attr_type("out_type", tensor.dtype());
        let mut damage = Damage::new(2);
        check(
            ROUNDS,
            || damage.of(&valid),
            |message| (1 << 20) + 64 * message.len(),
            |message| op.run(&registry, vec![text(message)?]),
        );
    }
}

#[test]
fn compressed_strings() {
    let registry = registry();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("stream");
    for (name, compression) in [("ZLIB", Compression::Zlib), ("GZIP", Compression::Gzip)] {
        let mut writer = RecordWriter::new(LocalFileSystem::new().create(&path).unwrap(), compression);
        for n in 0..200u32 {
            writer.write(&(n * n).to_le_bytes()).unwrap();
        }
        writer.close().unwrap();
        let valid = std::fs::read(&path).unwrap();
        let op = OpRun::new("DecodeCompressed").attr_str("compression_type", name);
        let mut damage = Damage::new(3);
        // A byte stands for a thousand at most.
        check(
            ROUNDS,
            || damage.of(&valid),
            |string| (2 << 20) + 2100 * string.len(),
            |string| op.run(&registry, vec![text(string)?]),
        );
    }
}

#[test]
fn sounds() {
    let registry = registry();
    let samples = Tensor::from_slice(Shape::from_dims(&[50, 2]).unwrap(), &[0.25f32; 100]).unwrap();
    let encode = OpRun::new("EncodeWav").run(&registry, vec![samples, Tensor::scalar(8000i32).unwrap()]).unwrap();
    let valid = encode[0].strings().unwrap()[0].to_vec();
    for wanted in [-1, 1, 3] {
        let op = OpRun::new("DecodeWav").attr_int("desired_channels", wanted);
        let mut damage = Damage::new(4);
        check(
            ROUNDS,
            || damage.of(&valid),
            |sound| (1 << 20) + 64 * sound.len(),
            |sound| op.run(&registry, vec![text(sound)?]),
        );
    }
}
