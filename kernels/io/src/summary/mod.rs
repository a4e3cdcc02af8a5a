//! Summaries: values by tag, for viewers of training.

mod audio;
mod histogram;
mod image;
mod ops;
mod write;
mod writer;

use graphmill_formats::FileSystem;
use graphmill_runtime::Registry;
use graphmill_tensor::{DType, Result, Tensor, bf16, dispatch, encode_shape, f16, internal};
use graphmill_wire::tensorflow::TensorProto;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry, files: &Arc<dyn FileSystem>) {
    ops::register(registry);
    image::register(registry);
    audio::register(registry);
    write::register(registry, files);
}

/// Element types of scalars and histograms.
const REALS: [DType; 12] = [
    DType::BFloat16,
    DType::Double,
    DType::Float,
    DType::Half,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::Int8,
    DType::UInt16,
    DType::UInt32,
    DType::UInt64,
    DType::UInt8,
];

/// Numbers of any of [`REALS`], or truth values, as `f64`.
fn to_f64(tensor: &Tensor) -> Result<Vec<f64>> {
    trait Widen {
        fn widen(self) -> f64;
    }
    macro_rules! widen {
        ($($exact:ty),*; $($rounded:ty),*) => {
            $(impl Widen for $exact { fn widen(self) -> f64 { f64::from(self) } })*
            $(impl Widen for $rounded { fn widen(self) -> f64 { self as f64 } })*
        };
    }
    widen!(bf16, f16, f32, f64, i8, i16, i32, u8, u16, u32; i64, u64);
    if tensor.dtype() == DType::Bool {
        return Ok(tensor.as_slice::<bool>()?.iter().map(|&v| f64::from(u8::from(v))).collect());
    }
    let values = dispatch!(tensor.dtype(), T in reals => tensor.as_slice::<T>()?.iter().map(|&v| v.widen()).collect());
    values.ok_or_else(|| internal!("expected real numbers, got {}", tensor.dtype()))
}

/// A tensor as summaries hold it: strings in the field that readers in Python understand.
pub(crate) fn tensor_message(tensor: &Tensor) -> TensorProto {
    match tensor.strings() {
        Ok(strings) => TensorProto {
            dtype: tensor.dtype().number(),
            tensor_shape: Some(encode_shape(tensor.shape())),
            string_val: strings.to_vec(),
            ..TensorProto::default()
        },
        Err(_) => tensor.to_proto(),
    }
}
