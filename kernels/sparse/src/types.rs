//! The types that the kernels of this family take.

use graphmill_tensor::DType;
use graphmill_tensor::DType::*;

/// Real numbers.
pub(crate) const REALS: [DType; 12] =
    [BFloat16, Double, Float, Half, Int16, Int32, Int64, Int8, UInt16, UInt32, UInt64, UInt8];

/// Real and complex numbers.
pub(crate) const NUMBERS: [DType; 14] =
    [BFloat16, Complex128, Complex64, Double, Float, Half, Int16, Int32, Int64, Int8, UInt16, UInt32, UInt64, UInt8];

/// What moves without being computed with.
pub(crate) const EVERY: [DType; 18] = [
    BFloat16, Bool, Complex128, Complex64, Double, Float, Half, Int16, Int32, Int64, Int8, Resource, String, UInt16,
    UInt32, UInt64, UInt8, Variant,
];

/// Types of indices.
pub(crate) const INDICES: [DType; 2] = [Int32, Int64];
