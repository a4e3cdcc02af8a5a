//! `UnravelIndex`: flat indices as indices of each dimension.

use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Result, Shape, Tensor, dispatch, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("UnravelIndex").types("Tidx", &[DType::Int32, DType::Int64]).kernel(|_| Ok(UnravelIndex));
}

struct UnravelIndex;

impl Kernel for UnravelIndex {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (indices, dims) = (ctx.input(0)?, ctx.input(1)?);
        if indices.shape().rank() > 1 {
            return Err(invalid_argument!("The indices can only be scalar or vector, got \"{}\"", indices.shape()));
        }
        if indices.num_elements() == 0 {
            return Err(invalid_argument!("received empty tensor indices: of shape {}", indices.shape()));
        }
        if !dims.shape().is_vector() {
            return Err(invalid_argument!("The indices can only be 1-D, got \"{}\"", dims.shape()));
        }
        let limit = if dims.dtype() == DType::Int32 { i64::from(i32::MAX) } else { i64::MAX };
        let sizes = dims.to_i64_vec()?;
        let total = product(&sizes, limit)?;
        let flat = indices.to_i64_vec()?;
        if flat.iter().any(|&index| index >= total) {
            return Err(invalid_argument!("index is out of bound as with dims"));
        }
        let shape = match indices.shape().is_scalar() {
            true => Shape::vector(sizes.len()),
            false => Shape::from_dims(&[sizes.len(), flat.len()])?,
        };
        let mut output = Tensor::alloc(dims.dtype(), shape)?;
        let filled =
            dispatch!(dims.dtype(), T in [i32, i64] => fill::<T>(output.as_mut_slice()?, &flat, &sizes, total));
        filled.ok_or_else(|| internal!("indices cannot be of type {}", dims.dtype()))?;
        ctx.set_output(0, output)
    }
}

/// The number of elements of a tensor with these dimensions.
fn product(sizes: &[i64], limit: i64) -> Result<i64> {
    let mut total = 1i64;
    for (i, &size) in sizes.iter().enumerate() {
        if size == 0 {
            return Err(invalid_argument!(
                "Input dims cannot contain a dim of zero, but dims contains zero at index {i}"
            ));
        }
        if size < 0 {
            return Err(invalid_argument!("Input dims cannot be negative. Got dim = {size} at index {i}"));
        }
        total = total.checked_mul(size).filter(|&total| total <= limit).ok_or_else(|| {
            let sizes: Vec<String> = sizes.iter().map(i64::to_string).collect();
            invalid_argument!("Input dims product is causing integer overflow: ({})", sizes.join(" "))
        })?;
    }
    Ok(total)
}

/// An integer to hold an index.
trait Index: Element {
    fn of(value: i64) -> Self;
}

impl Index for i32 {
    fn of(value: i64) -> i32 {
        value as i32
    }
}

impl Index for i64 {
    fn of(value: i64) -> i64 {
        value
    }
}

/// Divisions round towards zero, so that negative indices come out as TensorFlow's.
fn fill<T: Index>(output: &mut [T], flat: &[i64], sizes: &[i64], total: i64) {
    let mut span = total;
    for (row, &size) in output.chunks_exact_mut(flat.len()).zip(sizes) {
        let stride = span / size;
        row.iter_mut().zip(flat).for_each(|(out, &index)| *out = T::of(index % span / stride));
        span = stride;
    }
}
