//! The sets of element types that kernels of this family are registered for.

use graphmill_tensor::DType;

/// Numbers, without quantised and small ones.
pub(crate) const NUMBERS: [DType; 14] = [
    DType::BFloat16,
    DType::Complex64,
    DType::Complex128,
    DType::Half,
    DType::Float,
    DType::Double,
    DType::Int8,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::UInt8,
    DType::UInt16,
    DType::UInt32,
    DType::UInt64,
];

/// Numbers that can be compared.
pub(crate) const REALS: [DType; 12] = [
    DType::BFloat16,
    DType::Half,
    DType::Float,
    DType::Double,
    DType::Int8,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::UInt8,
    DType::UInt16,
    DType::UInt32,
    DType::UInt64,
];

/// Types of indices.
pub(crate) const INDICES: [DType; 2] = [DType::Int32, DType::Int64];

/// What is not a number but can be kept.
pub(crate) const OBJECTS: [DType; 4] = [DType::Bool, DType::String, DType::Resource, DType::Variant];

/// The sets of a list in one.
pub(crate) fn union(sets: &[&[DType]]) -> Vec<DType> {
    sets.concat()
}
