//! Reading the inputs that say what to do: shapes, sizes, axes, indices.

use crate::walk::Dims;
use graphmill_tensor::{DType, MAX_RANK, Result, Shape, Tensor, invalid_argument};
use std::fmt::Display;

/// The elements of an integer tensor, widened.
///
/// # Errors
/// `INVALID_ARGUMENT` for other types.
pub(crate) fn integers(tensor: &Tensor) -> Result<Dims<i64>> {
    Ok(match tensor.dtype() {
        DType::Int32 => tensor.as_slice::<i32>()?.iter().map(|&v| i64::from(v)).collect(),
        DType::Int64 => Dims::from_slice(tensor.as_slice::<i64>()?),
        DType::Int16 => tensor.as_slice::<i16>()?.iter().map(|&v| i64::from(v)).collect(),
        DType::Int8 => tensor.as_slice::<i8>()?.iter().map(|&v| i64::from(v)).collect(),
        DType::UInt8 => tensor.as_slice::<u8>()?.iter().map(|&v| i64::from(v)).collect(),
        other => return Err(invalid_argument!("expected a tensor of integers, got {other}")),
    })
}

/// The value of an integer tensor with one element.
///
/// # Errors
/// `INVALID_ARGUMENT` for other types and other numbers of elements.
pub(crate) fn integer(tensor: &Tensor) -> Result<i64> {
    match tensor.dtype() {
        DType::Int32 => tensor.scalar_value::<i32>().map(i64::from),
        DType::Int64 => tensor.scalar_value::<i64>(),
        DType::Int16 => tensor.scalar_value::<i16>().map(i64::from),
        DType::Int8 => tensor.scalar_value::<i8>().map(i64::from),
        DType::UInt8 => tensor.scalar_value::<u8>().map(i64::from),
        other => Err(invalid_argument!("expected an integer, got {other}")),
    }
}

/// The dimension that a possibly negative axis means, if there is such a dimension.
pub(crate) fn axis_of(axis: i64, rank: usize) -> Option<usize> {
    let rank = rank as i64;
    usize::try_from(if axis < 0 { axis.checked_add(rank)? } else { axis }).ok().filter(|&a| (a as i64) < rank)
}

/// Values with commas between them.
pub(crate) fn joined<T: Display>(values: impl IntoIterator<Item = T>) -> String {
    let texts: Vec<String> = values.into_iter().map(|v| v.to_string()).collect();
    texts.join(",")
}

/// The shape with these sizes.
///
/// # Errors
/// `INVALID_ARGUMENT` in TensorFlow's words for negative sizes and for too many elements.
pub(crate) fn shape(dims: &[i64]) -> Result<Shape> {
    if let Some(dim) = dims.iter().find(|&&d| d < 0) {
        return Err(invalid_argument!("Dimension {dim} must be >= 0"));
    }
    Shape::new(dims).map_err(|error| {
        if dims.len() > MAX_RANK {
            return error;
        }
        invalid_argument!("Shape [{}] would have more than 2**63 - 1 elements", joined(dims))
    })
}

/// The shape with sizes that were computed: a negative one has wrapped around.
///
/// # Errors
/// `INVALID_ARGUMENT` in TensorFlow's words for negative sizes and for too many elements.
pub(crate) fn computed_shape(dims: &[i64]) -> Result<Shape> {
    let mut elements = 1i64;
    for &dim in dims {
        if dim < 0 {
            return Err(invalid_argument!("Expected a non-negative size, got {dim}"));
        }
        elements = elements.checked_mul(dim).ok_or_else(|| {
            invalid_argument!("Encountered overflow when multiplying {elements} with {dim}, result: -1")
        })?;
    }
    Shape::new(dims)
}

/// A tensor of sizes or indices of type int32 or int64.
///
/// # Errors
/// `INVALID_ARGUMENT` for other types and values that do not fit 32 bits.
pub(crate) fn index_vector(dtype: DType, values: &[i64]) -> Result<Tensor> {
    match dtype {
        DType::Int64 => Tensor::vector(values),
        DType::Int32 => {
            let narrow: Result<Dims<i32>, _> = values.iter().map(|&v| i32::try_from(v)).collect();
            Tensor::vector(&narrow.map_err(|_| invalid_argument!("[{}] does not fit int32", joined(values)))?)
        }
        other => Err(invalid_argument!("expected int32 or int64, got {other}")),
    }
}
