//! Lists of tensors. A list that nobody else holds is changed in place, so that a loop that fills one takes time in proportion to
//! its length.

mod batch;
mod concat;
mod gather;
mod items;
mod make;
mod scatter;

use crate::variants::Described;
use graphmill_graph::PartialShape;
use graphmill_runtime::{Context, Registry, TensorList};
use graphmill_tensor::DType::{self, *};
use graphmill_tensor::{Result, Shape, Tensor, invalid_argument};

/// Types of the elements where they are looked at.
const ELEMENTS: &[DType] = &[
    BFloat16, Bool, Complex128, Complex64, Double, Float, Half, Int16, Int32, Int64, Int8, QInt16, QInt32, QInt8,
    QUInt16, QUInt8, String, UInt16, UInt32, UInt64, UInt8, Variant,
];

pub(crate) fn register(registry: &mut Registry) {
    batch::register(registry);
    concat::register(registry);
    gather::register(registry);
    items::register(registry);
    make::register(registry);
    scatter::register(registry);
}

impl Described for TensorList {
    const WORD: &'static str = "list";
}

/// The shape that input `i` spells out: -1 as a scalar for one of which nothing is known, else a vector with -1 for unknown sizes.
///
/// # Errors
/// `INVALID_ARGUMENT` for other scalars and malformed shapes.
fn shape_input(ctx: &Context<'_>, i: usize) -> Result<PartialShape> {
    let tensor = ctx.input(i)?;
    let dims = tensor.to_i64_vec()?;
    match tensor.shape().rank() {
        0 if dims == [-1] => Ok(PartialShape::unknown()),
        0 => Err(invalid_argument!("The only valid scalar shape tensor is the fully unknown shape specified as -1.")),
        1 => PartialShape::new(&dims),
        _ => Err(invalid_argument!("A shape must be a vector, got shape {}", tensor.shape())),
    }
}

/// What input `i` and a list together say of the elements' shape.
///
/// # Errors
/// As [`shape_input`]; `INVALID_ARGUMENT` if they contradict each other.
fn element_shape(ctx: &Context<'_>, list: &TensorList, i: usize) -> Result<PartialShape> {
    shape_input(ctx, i)?.merged(&list.element_shape)
}

/// The shape of elements, with what some of them tell of it.
///
/// # Errors
/// `INVALID_ARGUMENT` if they contradict each other.
fn with_elements<'a>(shape: PartialShape, elements: impl Iterator<Item = &'a Tensor>) -> Result<PartialShape> {
    let mut shape = shape;
    for element in elements {
        shape = shape.merged(&PartialShape::from(element.shape()))?;
    }
    Ok(shape)
}

/// # Errors
/// `INVALID_ARGUMENT` if the list has elements of another type.
fn check_type(list: &TensorList, dtype: DType) -> Result<()> {
    if list.element_dtype == dtype {
        return Ok(());
    }
    Err(invalid_argument!("Invalid data types; op elements {dtype} but list elements {}", list.element_dtype))
}

/// # Errors
/// `INVALID_ARGUMENT` for a scalar.
fn check_vector_or_higher(tensor: &Tensor) -> Result<()> {
    if tensor.shape().is_scalar() {
        return Err(invalid_argument!("Tensor must be at least a vector, but saw shape: {}", tensor.shape()));
    }
    Ok(())
}

/// Zeros in the place of an element that is not there.
///
/// # Errors
/// `INVALID_ARGUMENT` if the shape is not known.
fn missing_element(dtype: DType, shape: &PartialShape, more: &str) -> Result<Tensor> {
    let known: Option<Shape> = shape.to_shape();
    let known = known.ok_or_else(|| {
        invalid_argument!(
            "Trying to read an uninitialized tensor but element_shape is not fully defined: {shape}{more}"
        )
    })?;
    Tensor::zeros(dtype, known)
}
