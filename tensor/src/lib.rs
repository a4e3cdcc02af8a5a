//! Tensors: element types, shapes, shared buffers, typed views, broadcasting, and the `TensorProto` codec.
//!
//! A [`Tensor`] is cheap to clone: it shares its buffer. It is immutable while shared; a sole owner may write to it through
//! [`Tensor::as_mut_slice`], which is how kernels build their outputs and how they reuse an input's memory.

mod broadcast;
mod buffer;
mod dispatch;
mod dtype;
mod element;
mod handle;
mod minifloat;
mod moving;
mod pool;
mod proto;
mod shape;
mod status;
mod tensor;

pub use broadcast::Broadcast;
pub use buffer::Buffer;
pub use dtype::{DType, SlotType};
pub use element::{
    Element, Float4E2M1FN, Float8E4M3B11FNUZ, Float8E4M3FN, Float8E4M3FNUZ, Float8E5M2, Float8E5M2FNUZ, Int2, Int4,
    QInt8, QInt16, QInt32, QUInt8, QUInt16, UInt2, UInt4,
};
pub use handle::{ResourceHandle, Variant, VariantObject};
pub use moving::Mover;
pub use pool::memory_in_use;
pub use proto::{decode_shape, encode_shape};
pub use shape::{MAX_RANK, SCALAR, Shape};
pub use status::{Code, Result, Status, payload};
pub use tensor::Tensor;

pub use bytes::Bytes;
pub use half::{bf16, f16};
pub use num_complex::{Complex32, Complex64};
