//! Padding with a constant or with a mirror image.

use crate::args::{computed_shape, integers};
use crate::constant::Repeat;
use crate::stretch::{self, Stretch};
use crate::types::{QUANTIZED_8_32, STRING, union};
use crate::walk::{Dims, Walk, row_major, strides_of};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Result, Shape, Tensor, dispatch, internal, invalid_argument, unimplemented_op};
use std::ops::AddAssign;

/// TensorFlow's mirror padding goes up to this rank.
const MAX_MIRROR_RANK: usize = 5;

pub(crate) fn register(registry: &mut Registry) {
    let types = union(&[DType::NUMBERS_AND_BOOL, QUANTIZED_8_32, STRING]);
    for op in ["Pad", "PadV2"] {
        registry.op(op).types("T", &types).types("Tpaddings", DType::INDICES).kernel(|_| Ok(Pad));
    }
    registry.op("MirrorPad").types("T", &types).types("Tpaddings", DType::INDICES).kernel(MirrorPad::new);
    registry
        .op("MirrorPadGrad")
        .types("T", DType::NUMBERS)
        .types("Tpaddings", DType::INDICES)
        .kernel(MirrorPadGrad::new);
}

/// The padding before and behind each dimension. `texts` are how the op's kernel puts its errors: between the shapes, and before
/// a negative padding.
fn paddings(tensor: &Tensor, paddings: &Tensor, texts: (&str, &str)) -> Result<Dims<[i64; 2]>> {
    let dims = paddings.shape().dims();
    if dims.len() != 2 || dims[1] != 2 {
        return Err(invalid_argument!("paddings must be a matrix with 2 columns: {}", paddings.shape()));
    }
    if dims[0] != tensor.shape().rank() {
        return Err(invalid_argument!(
            "The first dimension of paddings must be the rank of inputs{}{}{}",
            paddings.shape(),
            texts.0,
            tensor.shape()
        ));
    }
    let mut pairs: Dims<[i64; 2]> = Dims::with_capacity(dims[0]);
    let values = integers(paddings)?;
    for pair in values.chunks_exact(2) {
        if pair[0] < 0 || pair[1] < 0 {
            return Err(invalid_argument!("{} must be non-negative: {} {}", texts.1, pair[0], pair[1]));
        }
        pairs.push([pair[0], pair[1]]);
    }
    Ok(pairs)
}

fn padded_shape(shape: &Shape, pads: &[[i64; 2]]) -> Result<Shape> {
    // A sum that leaves the range counts as negative, whatever it would wrap around to.
    let size = |(dim, pad): (i64, &[i64; 2])| {
        let sum = dim.checked_add(pad[0]).and_then(|n| n.checked_add(pad[1]));
        sum.unwrap_or_else(|| dim.wrapping_add(pad[0]).wrapping_add(pad[1]).min(-1))
    };
    computed_shape(&shape.dims_i64().zip(pads).map(size).collect::<Dims<i64>>())
}

/// A border of zeros, or of the scalar in input 2.
struct Pad;

impl Kernel for Pad {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let tensor = ctx.input(0)?;
        let pads = paddings(tensor, ctx.input(1)?, (" ", "Paddings"))?;
        let value = if ctx.num_inputs() > 2 { Some(ctx.input(2)?) } else { None };
        if let Some(value) = value
            && !value.shape().is_scalar()
        {
            return Err(invalid_argument!("constant_values must be a scalar. Found: {}", value.shape()));
        }
        let shape = padded_shape(tensor.shape(), &pads)?;
        if shape == *tensor.shape() {
            let tensor = ctx.take_input(0)?;
            return ctx.set_output(0, tensor);
        }
        let mut output = match value {
            Some(value) => {
                let mut output = ctx.alloc_output(0, shape)?;
                output.move_from(&[value], Repeat(ctx))?;
                output
            }
            None => Tensor::zeros(tensor.dtype(), shape)?,
        };
        let strides = strides_of(output.shape());
        let start = if tensor.num_elements() == 0 {
            0
        } else {
            pads.iter().zip(&strides).map(|(p, s)| p[0] as usize * s.unsigned_abs()).sum()
        };
        Walk::scatter(tensor.shape().dims(), &strides, start).copy(ctx, tensor, &mut output)?;
        ctx.set_output(0, output)
    }
}

/// The number of border elements that a mirror image leaves out: 1 if the edge itself is the mirror.
fn mirror_offset(construction: &Construction<'_>) -> Result<i64> {
    match construction.attrs().str("mode")? {
        "REFLECT" => Ok(1),
        "SYMMETRIC" => Ok(0),
        _ => Err(invalid_argument!("mode must be either REFLECT or SYMMETRIC.")),
    }
}

fn check_rank(tensor: &Tensor) -> Result<()> {
    let rank = tensor.shape().rank();
    if rank > MAX_MIRROR_RANK {
        return Err(unimplemented_op!("inputs rank not in [0,{MAX_MIRROR_RANK}]: {rank}"));
    }
    Ok(())
}

/// Whether the paddings fit the sizes that they mirror; `which` is how the op calls the sizes.
fn check_mirror(pads: &[[i64; 2]], dims: impl Iterator<Item = i64>, offset: i64, which: &str) -> Result<()> {
    for ([before, behind], dim) in pads.iter().zip(dims) {
        if *before.max(behind) > dim - offset {
            return Err(if offset == 0 {
                invalid_argument!(
                    "paddings must be no greater than the {which}dimension size: {before}, {behind} greater than {dim}"
                )
            } else {
                invalid_argument!(
                    "paddings must be less than the {which}dimension size: {before}, {behind} not less than {dim}"
                )
            });
        }
    }
    Ok(())
}

/// Border, inside and border of a padded dimension.
fn stretches(pad: [i64; 2], dim: usize, offset: i64) -> Dims<Stretch> {
    let (before, behind, offset) = (pad[0] as usize, pad[1] as usize, offset as usize);
    Dims::from_slice(&[
        Stretch { to: 0, from: (before + offset).saturating_sub(1), length: before, backwards: true },
        Stretch { to: before, from: 0, length: dim, backwards: false },
        Stretch { to: before + dim, from: dim.saturating_sub(1 + offset), length: behind, backwards: true },
    ])
}

/// A border that mirrors the tensor at its edges.
struct MirrorPad {
    offset: i64,
}

impl MirrorPad {
    fn new(construction: &Construction<'_>) -> Result<MirrorPad> {
        Ok(MirrorPad { offset: mirror_offset(construction)? })
    }
}

impl Kernel for MirrorPad {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let tensor = ctx.input(0)?;
        check_rank(tensor)?;
        let pads = paddings(tensor, ctx.input(1)?, (", ", "paddings"))?;
        check_mirror(&pads, tensor.shape().dims_i64(), self.offset, "")?;
        let shape = padded_shape(tensor.shape(), &pads)?;
        if shape == *tensor.shape() {
            let tensor = ctx.take_input(0)?;
            return ctx.set_output(0, tensor);
        }
        let mut output = ctx.alloc_output(0, shape)?;
        let all: Dims<Dims<Stretch>> =
            pads.iter().zip(tensor.shape().dims()).map(|(&p, &d)| stretches(p, d, self.offset)).collect();
        stretch::copy(ctx, &all, tensor, &mut output)?;
        ctx.set_output(0, output)
    }
}

/// The gradient of mirror padding: what was mirrored is added to what it was a mirror image of.
struct MirrorPadGrad {
    offset: i64,
}

impl MirrorPadGrad {
    fn new(construction: &Construction<'_>) -> Result<MirrorPadGrad> {
        Ok(MirrorPadGrad { offset: mirror_offset(construction)? })
    }

    fn inner_shape(&self, shape: &Shape, pads: &[[i64; 2]]) -> Result<Shape> {
        let mut dims: Dims<i64> = Dims::with_capacity(pads.len());
        for (size, pad) in shape.dims_i64().zip(pads) {
            let total = pad[0].saturating_add(pad[1]);
            if total >= size {
                return Err(invalid_argument!(
                    "Total paddings must be less than the input dimension size: {total} was not less than {size}"
                ));
            }
            dims.push(size - total);
        }
        check_mirror(pads, dims.iter().copied(), self.offset, "output ")?;
        Shape::new(&dims)
    }
}

impl Kernel for MirrorPadGrad {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let tensor = ctx.input(0)?;
        check_rank(tensor)?;
        let pads = paddings(tensor, ctx.input(1)?, (", ", "paddings"))?;
        let shape = self.inner_shape(tensor.shape(), &pads)?;
        if shape == *tensor.shape() {
            let tensor = ctx.take_input(0)?;
            return ctx.set_output(0, tensor);
        }
        let mut output = Tensor::zeros(tensor.dtype(), shape.clone())?;
        let all: Dims<Dims<Stretch>> =
            pads.iter().zip(shape.dims()).map(|(&p, &d)| stretches(p, d, self.offset)).collect();
        dispatch!(tensor.dtype(), T in numbers => {
            let (source, sums) = (tensor.as_slice::<T>()?, output.as_mut_slice::<T>()?);
            let (from, to) = (strides_of(tensor.shape()), row_major(shape.dims()));
            stretch::combinations(&all, &mut |chosen| {
                add_block(chosen, &from, &to, source, 0, sums, 0);
                Ok(())
            })?;
        })
        .ok_or_else(|| internal!("no sums of type {}", tensor.dtype()))?;
        ctx.set_output(0, output)
    }
}

fn add_block<T: Element + AddAssign>(
    chosen: &[Stretch],
    from: &[isize],
    to: &[isize],
    source: &[T],
    read: usize,
    sums: &mut [T],
    write: usize,
) {
    match (chosen, from, to) {
        ([stretch, chosen @ ..], [f, from @ ..], [t, to @ ..]) => {
            for k in 0..stretch.length {
                let inner = if stretch.backwards { stretch.from - k } else { stretch.from + k };
                let read = read + (stretch.to + k) * f.unsigned_abs();
                add_block(chosen, from, to, source, read, sums, write + inner * t.unsigned_abs());
            }
        }
        _ => sums[write] += source[read],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_error, assert_ints, counting, int_op, run, tensor};
    use graphmill_runtime::testing::OpRun;
    use graphmill_tensor::{Code, DType};

    fn pads(pairs: &[[i32; 2]]) -> Tensor {
        tensor(&[pairs.len() as i64, 2], pairs.as_flattened())
    }

    #[test]
    fn constant_borders() {
        let x = counting(&[1, 2]);
        let y = run(int_op("Pad"), &[&x, &pads(&[[1, 0], [0, 1]])]).unwrap();
        assert_ints(&y, &[2, 3], &[0, 0, 0, 0, 1, 0]);
        let y = run(int_op("PadV2"), &[&x, &pads(&[[0, 1], [1, 0]]), &tensor(&[], &[7])]).unwrap();
        assert_ints(&y, &[2, 3], &[7, 0, 1, 7, 7, 7]);
        let y = run(int_op("PadV2"), &[&counting(&[0]), &pads(&[[1, 1]]), &tensor(&[], &[7])]).unwrap();
        assert_ints(&y, &[2], &[7, 7]);
        assert_error(run(int_op("Pad"), &[&x, &pads(&[[1, 0], [0, -1]])]), "Paddings must be non-negative: 0 -1");
        assert_error(
            run(int_op("Pad"), &[&x, &pads(&[[1, 0]])]),
            "The first dimension of paddings must be the rank of inputs[1,2] [1,2]",
        );
        let huge = tensor(&[1, 2], &[i64::MAX, 1]);
        let error = run(int_op("Pad").attr_type("Tpaddings", DType::Int64), &[&counting(&[2]), &huge]);
        assert_eq!(error.unwrap_err().code(), Code::InvalidArgument);
    }

    fn mirror(op: &str, mode: &str) -> OpRun {
        int_op(op).attr_str("mode", mode)
    }

    #[test]
    fn mirrored_borders_and_their_gradient() {
        let x = counting(&[3]);
        let p = pads(&[[2, 1]]);
        let y = run(mirror("MirrorPad", "REFLECT"), &[&x, &p]).unwrap();
        assert_ints(&y, &[6], &[2, 1, 0, 1, 2, 1]);
        assert_ints(&run(mirror("MirrorPadGrad", "REFLECT"), &[&y, &p]).unwrap(), &[3], &[0, 3, 4]);
        let y = run(mirror("MirrorPad", "SYMMETRIC"), &[&x, &p]).unwrap();
        assert_ints(&y, &[6], &[1, 0, 0, 1, 2, 2]);
        assert_ints(&run(mirror("MirrorPadGrad", "SYMMETRIC"), &[&y, &p]).unwrap(), &[3], &[0, 2, 4]);
        let y = run(mirror("MirrorPad", "SYMMETRIC"), &[&counting(&[2, 2]), &pads(&[[1, 0], [0, 1]])]).unwrap();
        assert_ints(&y, &[3, 3], &[0, 1, 1, 0, 1, 1, 2, 3, 3]);
        assert!(run(mirror("MirrorPad", "REFLECT"), &[&x, &pads(&[[3, 0]])]).is_err());
        assert!(run(mirror("MirrorPad", "SYMMETRIC"), &[&x, &pads(&[[3, 3]])]).is_ok());
        assert!(run(mirror("MirrorPadGrad", "SYMMETRIC"), &[&x, &pads(&[[3, 3]])]).is_err());
    }
}
