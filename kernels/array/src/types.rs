//! Sets of element types that kernels are registered for.

use graphmill_tensor::DType;
use graphmill_tensor::DType::*;

/// Real and complex numbers of the usual sizes.
pub(crate) const NUMBERS: &[DType] =
    &[BFloat16, Complex128, Complex64, Double, Float, Half, Int16, Int32, Int64, Int8, UInt16, UInt32, UInt64, UInt8];
/// Real numbers of the usual sizes.
pub(crate) const REALS: &[DType] =
    &[BFloat16, Double, Float, Half, Int16, Int32, Int64, Int8, UInt16, UInt32, UInt64, UInt8];
/// Numbers and truth values: what TensorFlow calls its pool types.
pub(crate) const BASIC: &[DType] = &[
    BFloat16, Bool, Complex128, Complex64, Double, Float, Half, Int16, Int32, Int64, Int8, UInt16, UInt32, UInt64,
    UInt8,
];
/// The 8-bit floats that kernels know.
pub(crate) const FLOAT8: &[DType] = &[Float8E4M3FN, Float8E5M2];
/// All quantised types.
pub(crate) const QUANTIZED: &[DType] = &[QInt16, QInt32, QInt8, QUInt16, QUInt8];
/// The quantised types of 8 and 32 bits.
pub(crate) const QUANTIZED_8_32: &[DType] = &[QInt32, QInt8, QUInt8];
/// Types without a fixed size.
pub(crate) const OBJECTS: &[DType] = &[Resource, String, Variant];
/// Strings.
pub(crate) const STRING: &[DType] = &[String];
/// Types of shape and index inputs.
pub(crate) const INDEX: &[DType] = &[Int32, Int64];
/// Types of the indices of gathering and slicing.
pub(crate) const INDEX_16: &[DType] = &[Int16, Int32, Int64];

/// The union of sets.
pub(crate) fn union(sets: &[&[DType]]) -> Vec<DType> {
    sets.concat()
}
