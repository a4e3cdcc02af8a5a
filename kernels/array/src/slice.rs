//! A box cut out of a tensor.

use crate::args::integers;
use crate::types::{FLOAT8, QUANTIZED_8_32, STRING, union};
use crate::walk::{Dims, Walk, strides_of};
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry
        .op("Slice")
        .types("T", &union(&[DType::NUMBERS_AND_BOOL, FLOAT8, QUANTIZED_8_32, STRING]))
        .kernel(|_| Ok(Slice));
}

/// `size` elements from `begin` on in each dimension; a size of -1 means all that remain.
struct Slice;

/// Where the box begins, and its shape.
fn bounds(tensor: &Tensor, begin: &Tensor, size: &Tensor) -> Result<(Dims<usize>, Shape)> {
    let shape = tensor.shape();
    let rank = shape.rank();
    let fits = |t: &Tensor| t.shape().is_vector() && t.num_elements() == rank;
    if !fits(begin) || !fits(size) {
        return Err(invalid_argument!(
            "Expected begin and size arguments to be 1-D tensors of size {rank}, but got shapes {} and {} instead.",
            begin.shape(),
            size.shape()
        ));
    }
    let mut starts: Dims<usize> = Dims::with_capacity(rank);
    let mut sizes: Dims<usize> = Dims::with_capacity(rank);
    for (i, (b, s)) in integers(begin)?.into_iter().zip(integers(size)?).enumerate() {
        let dim = shape.dim(i);
        let s = if s == -1 { (dim as i64).saturating_sub(b) } else { s };
        if dim == 0 {
            if b != 0 || s != 0 {
                return Err(invalid_argument!(
                    "Expected begin[{i}] == 0 (got {b}) and size[{i}] == 0 (got {s}) when input.dim_size({i}) == 0"
                ));
            }
            starts.push(0);
            sizes.push(0);
            continue;
        }
        let Some(start) = usize::try_from(b).ok().filter(|&b| b <= dim) else {
            return Err(invalid_argument!("Expected begin[{i}] in [0, {dim}], but got {b}"));
        };
        let Some(count) = usize::try_from(s).ok().filter(|&s| s <= dim - start) else {
            return Err(invalid_argument!("Expected size[{i}] in [0, {}], but got {s}", dim - start));
        };
        starts.push(start);
        sizes.push(count);
    }
    Ok((starts, Shape::from_dims(&sizes)?))
}

impl Kernel for Slice {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let tensor = ctx.input(0)?;
        let (starts, shape) = bounds(tensor, ctx.input(1)?, ctx.input(2)?)?;
        if shape == *tensor.shape() {
            let tensor = ctx.take_input(0)?;
            return ctx.set_output(0, tensor);
        }
        if shape.rank() > 0 && shape.dims()[1..] == tensor.shape().dims()[1..] {
            let rows = tensor.rows(starts[0], shape.dim(0))?;
            return ctx.set_output(0, rows);
        }
        let strides = strides_of(tensor.shape());
        let start = starts.iter().zip(&strides).map(|(&b, &s)| b * s.unsigned_abs()).sum();
        let mut output = ctx.alloc_output(0, shape.clone())?;
        Walk::gather(shape.dims(), &strides, start).copy(ctx, tensor, &mut output)?;
        ctx.set_output(0, output)
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::{assert_error, assert_ints, counting, int_op, run, tensor};
    use graphmill_tensor::DType;

    #[test]
    fn boxes() {
        let slice = |dims: &[i64], begin: &[i64], size: &[i64]| {
            let vector = |values: &[i64]| tensor(&[values.len() as i64], values);
            run(int_op("Slice").attr_type("Index", DType::Int64), &[&counting(dims), &vector(begin), &vector(size)])
        };
        assert_ints(&slice(&[3, 4], &[1, 1], &[2, 2]).unwrap(), &[2, 2], &[5, 6, 9, 10]);
        assert_ints(&slice(&[3, 2], &[1, 0], &[-1, 2]).unwrap(), &[2, 2], &[2, 3, 4, 5]);
        assert_ints(&slice(&[3, 2], &[3, 0], &[-1, -1]).unwrap(), &[0, 2], &[]);
        assert_ints(&slice(&[], &[], &[]).unwrap(), &[], &[0]);
        assert_error(slice(&[3], &[4], &[-1]), "Expected begin[0] in [0, 3], but got 4");
        assert_error(slice(&[3], &[-1], &[1]), "Expected begin[0] in [0, 3], but got -1");
        assert_error(slice(&[3], &[1], &[3]), "Expected size[0] in [0, 2], but got 3");
        assert_error(slice(&[3], &[1], &[i64::MAX]), &format!("Expected size[0] in [0, 2], but got {}", i64::MAX));
        assert_error(
            slice(&[0], &[1], &[0]),
            "Expected begin[0] == 0 (got 1) and size[0] == 0 (got 0) when input.dim_size(0) == 0",
        );
        assert_error(
            slice(&[3], &[1, 1], &[3]),
            "Expected begin and size arguments to be 1-D tensors of size 1, but got shapes [2] and [1] instead.",
        );
    }
}
