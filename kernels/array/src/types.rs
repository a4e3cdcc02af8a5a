//! Sets of element types that kernels are registered for.

use graphmill_tensor::DType;
use graphmill_tensor::DType::*;

/// The 8-bit floats that kernels know.
pub(crate) const FLOAT8: &[DType] = &[Float8E4M3FN, Float8E5M2];
/// The quantised types of 8 and 32 bits.
pub(crate) const QUANTIZED_8_32: &[DType] = &[QInt32, QInt8, QUInt8];
/// Types without a fixed size.
pub(crate) const OBJECTS: &[DType] = &[Resource, String, Variant];
/// Strings.
pub(crate) const STRING: &[DType] = &[String];
/// Types of the indices of gathering and slicing.
pub(crate) const INDEX_16: &[DType] = &[Int16, Int32, Int64];

/// The union of sets.
pub(crate) fn union(sets: &[&[DType]]) -> Vec<DType> {
    sets.concat()
}
