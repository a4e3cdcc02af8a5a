//! Elements of `DT_RESOURCE` and `DT_VARIANT` tensors.

use crate::{DType, Result, Shape, Tensor, internal, unimplemented_op};
use bytes::Bytes;
use std::any::Any;
use std::fmt::Debug;
use std::sync::Arc;

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

/// A value of a type of its own, with the tensors it refers to. It is either in its serialized form (`metadata` and `tensors`), as
/// the wire has it, or an `object` of this process.
#[derive(Clone, Debug, Default)]
pub struct Variant {
    /// The registered name of the type; empty for an uninitialised variant.
    pub type_name: String,
    /// Serialized state, whose meaning belongs to the type; empty where there is an object.
    pub metadata: Bytes,
    /// The tensors within the value; empty where there is an object.
    pub tensors: Vec<Tensor>,
    /// The value itself.
    pub object: Option<Arc<dyn VariantObject>>,
}

/// A value that a [`Variant`] carries within a process: a list of tensors, a dataset, an optional.
pub trait VariantObject: Any + Debug + Send + Sync {
    /// The registered name of the type, such as `tensorflow::TensorList`.
    fn type_name(&self) -> &str;

    /// The serialized form: a variant without an object.
    ///
    /// # Errors
    /// `UNIMPLEMENTED` for a type that does not leave its process.
    fn serialize(&self) -> Result<Variant> {
        Err(unimplemented_op!("A variant of type {} cannot be serialized", self.type_name()))
    }

    /// What `ZerosLike` makes of the value.
    ///
    /// # Errors
    /// `INTERNAL` for a type that has no zero.
    fn zeros_like(&self) -> Result<Variant> {
        Err(internal!(
            "No unary variant unary_op function found for op ZEROS_LIKE Variant type_name: {} for device type: CPU",
            self.type_name()
        ))
    }

    /// What `AddN` and `AddV2` make of the value and another.
    ///
    /// # Errors
    /// `INTERNAL` for a type whose values cannot be added, or if `other` is not of this type.
    fn add(&self, _other: &Variant) -> Result<Variant> {
        Err(internal!(
            "No unary variant binary_op function found for op ADD Variant type_name: '{}' for device type: CPU",
            self.type_name()
        ))
    }
}

impl Variant {
    /// A variant that carries an object.
    pub fn of(object: impl VariantObject) -> Variant {
        Variant::from(Arc::new(object) as Arc<dyn VariantObject>)
    }

    /// The object, if it is a `T`.
    pub fn get<T: VariantObject>(&self) -> Option<&T> {
        let object: &dyn Any = self.object.as_deref()?;
        object.downcast_ref()
    }

    /// The object for writing, if it is a `T` and nobody else holds it.
    pub fn get_mut<T: VariantObject>(&mut self) -> Option<&mut T> {
        let object: &mut dyn Any = Arc::get_mut(self.object.as_mut()?)?;
        object.downcast_mut()
    }
}

impl From<Arc<dyn VariantObject>> for Variant {
    fn from(object: Arc<dyn VariantObject>) -> Variant {
        Variant { type_name: object.type_name().to_owned(), object: Some(object), ..Variant::default() }
    }
}
