//! Elements of `DT_RESOURCE` and `DT_VARIANT` tensors.

use crate::{DType, Shape, Tensor};
use bytes::Bytes;

/// The name of a resource that lives on a device.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ResourceHandle {
    /// Full name of the device that owns the resource.
    pub device: String,
    /// Container that holds it.
    pub container: String,
    /// Name within the container.
    pub name: String,
    /// Identifies the type of the resource within this implementation; not portable between implementations.
    pub hash_code: u64,
    /// A readable name of the type.
    pub type_name: String,
    /// What the resource's tensors look like; an absent shape is not fully known.
    pub dtypes_and_shapes: Vec<(DType, Option<Shape>)>,
}

/// A value of a type of its own, with the tensors it refers to.
#[derive(Clone, Debug, Default)]
pub struct Variant {
    /// The registered name of the type; empty for an uninitialised variant.
    pub type_name: String,
    /// Serialized state, whose meaning belongs to the type.
    pub metadata: Bytes,
    /// The tensors within the value.
    pub tensors: Vec<Tensor>,
}
