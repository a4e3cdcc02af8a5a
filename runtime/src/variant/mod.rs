//! Values of types of their own that kernels of several families know: lists and maps of tensors, and optionals.

mod add;
mod list;
mod map;
mod optional;

pub use list::TensorList;
pub use map::TensorMap;
pub use optional::Optional;

use graphmill_tensor::{DType, Result, Shape, Tensor, Variant, VariantObject, internal, invalid_argument};
use std::borrow::Cow;

/// A type of variants whose serialized form can be read.
pub trait Stored: VariantObject + Clone {
    /// The registered name.
    const TYPE_NAME: &'static str;

    /// The value from its serialized form.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is malformed.
    fn decode(serialized: &Variant) -> Result<Self>;

    /// The value as a tensor.
    ///
    /// # Errors
    /// As [`Tensor::from_variants`].
    fn into_tensor(self) -> Result<Tensor> {
        Tensor::from_variants(Shape::scalar(), vec![Variant::of(self)])
    }

    /// The value in a variant, which may come from the wire; `None` if the variant is of another type.
    ///
    /// # Errors
    /// As [`Stored::decode`].
    fn of(variant: &Variant) -> Result<Option<Cow<'_, Self>>> {
        if let Some(object) = variant.get::<Self>() {
            return Ok(Some(Cow::Borrowed(object)));
        }
        if variant.object.is_none() && variant.type_name == Self::TYPE_NAME {
            return Self::decode(variant).map(|object| Some(Cow::Owned(object)));
        }
        Ok(None)
    }
}

/// What `ZerosLike` makes of a variant.
///
/// # Errors
/// `INTERNAL` for a type that has no zero.
pub fn zeros_of_variant(variant: &Variant) -> Result<Variant> {
    match live(variant)?.object.as_ref() {
        Some(object) => object.zeros_like(),
        // A plain number in its serialized form, as a constant of a graph has it.
        None if matches!(variant.type_name.as_str(), "int" | "float" | "bool") => {
            Ok(Variant { metadata: vec![0; variant.metadata.len()].into(), ..variant.clone() })
        }
        None => Err(internal!(
            "No unary variant unary_op function found for op ZEROS_LIKE Variant type_name: {} for device type: CPU",
            variant.type_name
        )),
    }
}

/// What `AddN` makes of two variants.
///
/// # Errors
/// `INTERNAL` for types that cannot be added, and what the type's addition returns.
pub fn sum_of_variants(a: &Variant, b: &Variant) -> Result<Variant> {
    if a.type_name != b.type_name {
        return Err(internal!(
            "BinaryOpVariants: Variants a and b have different type ids.  Type names: '{}' vs. '{}'",
            a.type_name,
            b.type_name
        ));
    }
    match live(a)?.object.as_ref() {
        Some(object) => object.add(&*live(b)?),
        None => Err(internal!(
            "No unary variant binary_op function found for op ADD Variant type_name: '{}' for device type: CPU",
            a.type_name
        )),
    }
}

/// A variant with its object, if the type is one of those here.
fn live(variant: &Variant) -> Result<Cow<'_, Variant>> {
    if variant.object.is_some() {
        return Ok(Cow::Borrowed(variant));
    }
    Ok(match variant.type_name.as_str() {
        TensorList::TYPE_NAME => Cow::Owned(Variant::of(TensorList::decode(variant)?)),
        TensorMap::TYPE_NAME => Cow::Owned(Variant::of(TensorMap::decode(variant)?)),
        Optional::TYPE_NAME => Cow::Owned(Variant::of(Optional::decode(variant)?)),
        _ => Cow::Borrowed(variant),
    })
}

/// Zeros in the type and shape of a tensor; of a variant, what [`zeros_of_variant`] makes.
///
/// # Errors
/// `INVALID_ARGUMENT` for strings and resources.
pub fn zeros_of(tensor: &Tensor) -> Result<Tensor> {
    match tensor.dtype() {
        DType::Variant => {
            let zeros = tensor.variants()?.iter().map(zeros_of_variant).collect::<Result<_>>()?;
            Tensor::from_variants(tensor.shape().clone(), zeros)
        }
        DType::String | DType::Resource => {
            Err(invalid_argument!("Trying to compute zeros_like for unsupported dtype {}", tensor.dtype()))
        }
        dtype => Tensor::zeros(dtype, tensor.shape().clone()),
    }
}

pub use add::sum_of;
