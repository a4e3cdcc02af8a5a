//! Repeating a tensor along its dimensions, and the gradient of that.

use crate::args::{computed_shape, integers};
use crate::walk::{Dims, Walk, strides_of};
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Result, Shape, Tensor, dispatch, invalid_argument, unimplemented_op};
use std::ops::AddAssign;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("Tile").types("Tmultiples", DType::INDICES).kernel(|_| Ok(Tile));
    registry.op("TileGrad").types("Tmultiples", DType::INDICES).kernel(|_| Ok(TileGrad));
}

fn multiples(tensor: &Tensor, multiples: &Tensor, least: i64) -> Result<Dims<usize>> {
    if !multiples.shape().is_vector() {
        return Err(invalid_argument!("Expected multiples to be 1-D, but got shape {}", multiples.shape()));
    }
    if multiples.num_elements() != tensor.shape().rank() {
        return Err(invalid_argument!(
            "Expected multiples argument to be a vector of length {} but got length {}",
            tensor.shape().rank(),
            multiples.num_elements()
        ));
    }
    let checked = integers(multiples)?.into_iter().enumerate().map(|(i, m)| match usize::try_from(m) {
        Ok(times) if m >= least => Ok(times),
        _ if least == 0 => Err(invalid_argument!("Expected multiples[{i}] >= 0, but got {m}")),
        _ => Err(invalid_argument!("Expected multiples[{i}] > 0, but got {m}")),
    });
    checked.collect()
}

/// The tensor repeated `multiples[i]` times along dimension i.
struct Tile;

impl Kernel for Tile {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let tensor = ctx.input(0)?;
        let times = multiples(tensor, ctx.input(1)?, 0)?;
        let dims: Dims<i64> =
            tensor.shape().dims_i64().zip(&times).map(|(dim, &m)| dim.wrapping_mul(m as i64)).collect();
        let shape = computed_shape(&dims)?;
        if tensor.shape().dims().iter().zip(&times).any(|(dim, &m)| dim.checked_mul(m).is_none()) {
            return Err(invalid_argument!("Expected multiples that keep sizes in range"));
        }
        if shape == *tensor.shape() {
            let tensor = ctx.take_input(0)?;
            return ctx.set_output(0, tensor);
        }
        let mut split: Dims<usize> = Dims::new();
        let mut steps: Dims<isize> = Dims::new();
        for ((&dim, &m), stride) in tensor.shape().dims().iter().zip(&times).zip(strides_of(tensor.shape())) {
            split.extend([m, dim]);
            steps.extend([0, stride]);
        }
        let mut output = ctx.alloc_output(0, shape)?;
        Walk::gather(&split, &steps, 0).copy(ctx, tensor, &mut output)?;
        ctx.set_output(0, output)
    }
}

/// The sum of the tiles that make up the input.
struct TileGrad;

impl Kernel for TileGrad {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let tensor = ctx.input(0)?;
        let times = multiples(tensor, ctx.input(1)?, 1)?;
        let mut dims: Dims<usize> = Dims::with_capacity(times.len());
        for (i, (&dim, &m)) in tensor.shape().dims().iter().zip(&times).enumerate() {
            if dim % m != 0 {
                return Err(invalid_argument!(
                    "Expected input_dim[{i}] to be divisible by multiples[{i}], but {dim} % {m} != 0"
                ));
            }
            dims.push(dim / m);
        }
        let shape = Shape::from_dims(&dims)?;
        if shape == *tensor.shape() {
            let tensor = ctx.take_input(0)?;
            return ctx.set_output(0, tensor);
        }
        let mut output = Tensor::zeros(ctx.output_type(0)?, shape)?;
        dispatch!(tensor.dtype(), T in numbers => sum_tiles::<T>(tensor, &dims, &mut output)?).ok_or_else(|| {
            unimplemented_op!(
                "TileGradientOp : The input data type or dimension is not supported, DataType : {}, Dimension : {}",
                tensor.dtype(),
                dims.len()
            )
        })?;
        ctx.set_output(0, output)
    }
}

fn sum_tiles<T: Element + AddAssign>(tensor: &Tensor, dims: &[usize], output: &mut Tensor) -> Result<()> {
    let (source, sums) = (tensor.as_slice::<T>()?, output.as_mut_slice::<T>()?);
    let whole = tensor.shape().dims();
    let Some((&inner, outer)) = dims.split_last().filter(|_| !sums.is_empty()) else { return Ok(()) };
    let last = outer.len();
    let strides = crate::walk::row_major(dims);
    for (row, values) in source.chunks_exact(whole[last]).enumerate() {
        let mut rest = row;
        let mut at = 0;
        for axis in (0..last).rev() {
            at += rest % whole[axis] % dims[axis] * strides[axis].unsigned_abs();
            rest /= whole[axis];
        }
        for tile in values.chunks_exact(inner) {
            sums[at..at + inner].iter_mut().zip(tile).for_each(|(sum, &v)| *sum += v);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_error, assert_ints, counting, int_op, run, tensor};
    use graphmill_tensor::{Code, DType};

    fn tile(op: &str, x: &Tensor, times: &[i64]) -> Result<Tensor> {
        run(int_op(op).attr_type("Tmultiples", DType::Int64), &[x, &tensor(&[times.len() as i64], times)])
    }

    #[test]
    fn tiles_and_their_sums() {
        let x = counting(&[2, 2]);
        let y = tile("Tile", &x, &[2, 2]).unwrap();
        assert_ints(&y, &[4, 4], &[0, 1, 0, 1, 2, 3, 2, 3, 0, 1, 0, 1, 2, 3, 2, 3]);
        let mut sums = Tensor::zeros(DType::Int32, x.shape().clone()).unwrap();
        sum_tiles::<i32>(&y, &[2, 2], &mut sums).unwrap();
        assert_ints(&sums, &[2, 2], &[0, 4, 8, 12]);
        assert_ints(&tile("Tile", &x, &[0, 2]).unwrap(), &[0, 4], &[]);
        assert_ints(&tile("Tile", &counting(&[1, 2]), &[2, 1]).unwrap(), &[2, 2], &[0, 1, 0, 1]);
    }

    #[test]
    fn bad_multiples() {
        let x = counting(&[2, 2]);
        assert_error(tile("Tile", &x, &[1]), "Expected multiples argument to be a vector of length 2 but got length 1");
        assert_error(tile("Tile", &x, &[1, -1]), "Expected multiples[1] >= 0, but got -1");
        assert_error(multiples(&x, &tensor(&[2], &[1, 0]), 1), "Expected multiples[1] > 0, but got 0");
        assert_eq!(tile("Tile", &x, &[1, i64::MAX]).unwrap_err().code(), Code::InvalidArgument);
        assert_eq!(tile("Tile", &x, &[1 << 32, 1 << 32]).unwrap_err().code(), Code::InvalidArgument);
        assert_eq!(tile("Tile", &x, &[1 << 28, 1 << 28]).unwrap_err().code(), Code::ResourceExhausted);
    }
}
