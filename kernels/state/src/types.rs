//! The sets of element types that kernels of this family are registered for.

use graphmill_tensor::DType;

/// What is not a number but can be kept.
pub(crate) const OBJECTS: [DType; 4] = [DType::Bool, DType::String, DType::Resource, DType::Variant];

/// The sets of a list in one.
pub(crate) fn union(sets: &[&[DType]]) -> Vec<DType> {
    sets.concat()
}
