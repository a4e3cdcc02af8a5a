//! Broadcasting as an op, and shapes that broadcasting gives.

use crate::args::{index_vector, integers, joined};
use crate::types::{FLOAT8, OBJECTS, union};
use crate::walk::{Dims, Walk, strides_of};
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry
        .op("BroadcastTo")
        .types("T", &union(&[DType::NUMBERS_AND_BOOL, FLOAT8, OBJECTS]))
        .kernel(|_| Ok(BroadcastTo));
    registry.op("BroadcastArgs").types("T", DType::INDICES).kernel(|_| Ok(BroadcastArgs));
    registry.op("BroadcastGradientArgs").types("T", DType::INDICES).kernel(|_| Ok(BroadcastGradientArgs));
}

/// The elements repeated to fill a shape that the input broadcasts to.
struct BroadcastTo;

impl Kernel for BroadcastTo {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let sizes = ctx.input(1)?;
        if !sizes.shape().is_vector() {
            return Err(invalid_argument!("shape must be a vector of {{int32,int64}}, got shape {}", sizes.shape()));
        }
        let shape = crate::args::shape(&integers(sizes)?)?;
        let tensor = ctx.input(0)?;
        if *tensor.shape() == shape {
            let tensor = ctx.take_input(0)?;
            return ctx.set_output(0, tensor);
        }
        let walk = broadcast(tensor.shape(), &shape)?;
        let mut output = ctx.alloc_output(0, shape)?;
        walk.copy(ctx, tensor, &mut output)?;
        ctx.set_output(0, output)
    }
}

fn broadcast(from: &Shape, to: &Shape) -> Result<Walk> {
    let Some(extra) = to.rank().checked_sub(from.rank()) else {
        return Err(invalid_argument!(
            "Rank of input ({}) must be no greater than rank of output shape ({}).",
            from.rank(),
            to.rank()
        ));
    };
    let mut strides: Dims<isize> = smallvec::smallvec![0; to.rank()];
    for (axis, stride) in strides_of(from).into_iter().enumerate() {
        match (from.dim(axis), to.dim(axis + extra)) {
            (1, _) => {}
            (a, b) if a == b => strides[axis + extra] = stride,
            (_, 1) => {
                return Err(invalid_argument!("Unable to broadcast tensor of shape {from} to tensor of shape {to}"));
            }
            _ => return Err(invalid_argument!("Incompatible shapes: {from} vs. {to}")),
        }
    }
    Ok(Walk::gather(to.dims(), &strides, 0))
}

fn shape_inputs(ctx: &Context<'_>) -> Result<[Dims<i64>; 2]> {
    let read = |i: usize| -> Result<Dims<i64>> {
        let tensor: &Tensor = ctx.input(i)?;
        if !tensor.shape().is_vector() {
            return Err(invalid_argument!("In[{i}] must be a vector.{}", tensor.shape()));
        }
        integers(tensor)
    };
    Ok([read(0)?, read(1)?])
}

fn incompatible([a, b]: &[Dims<i64>; 2]) -> graphmill_tensor::Status {
    invalid_argument!("Incompatible shapes: [{}] vs. [{}]", joined(a), joined(b))
}

/// A size of the shape padded with ones in front to `rank` sizes.
fn padded(dims: &[i64], rank: usize, axis: usize) -> i64 {
    (axis + dims.len()).checked_sub(rank).map_or(1, |at| dims[at])
}

/// The shape that two shapes broadcast to.
struct BroadcastArgs;

impl Kernel for BroadcastArgs {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let shapes = shape_inputs(ctx)?;
        let rank = shapes[0].len().max(shapes[1].len());
        let mut output: Dims<i64> = Dims::with_capacity(rank);
        for axis in 0..rank {
            output.push(match (padded(&shapes[0], rank, axis), padded(&shapes[1], rank, axis)) {
                (a, b) if a == b => a,
                (1, b) => b,
                (a, 1) => a,
                _ => return Err(incompatible(&shapes)),
            });
        }
        ctx.set_output(0, index_vector(ctx.output_type(0)?, &output)?)
    }
}

/// For each of two shapes, the axes along which the gradient of a broadcast operand must be summed.
struct BroadcastGradientArgs;

impl Kernel for BroadcastGradientArgs {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let shapes = shape_inputs(ctx)?;
        let mut axes: [Dims<i64>; 2] = Default::default();
        if shapes[0] != shapes[1] {
            let rank = shapes[0].len().max(shapes[1].len());
            for axis in 0..rank {
                let pair = [padded(&shapes[0], rank, axis), padded(&shapes[1], rank, axis)];
                if pair[0] != pair[1] && !pair.contains(&1) {
                    return Err(incompatible(&shapes));
                }
                // Where both sizes are 1 both gradients are summed too, which changes nothing but what the axes are.
                for (axes, size) in axes.iter_mut().zip(pair) {
                    if size == 1 {
                        axes.push(axis as i64);
                    }
                }
            }
        }
        for (i, axes) in axes.iter().enumerate() {
            ctx.set_output(i, index_vector(ctx.output_type(i)?, axes)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_error, assert_ints, counting, int_op, registry, run, tensor};

    fn vector(values: &[i32]) -> Tensor {
        tensor(&[values.len() as i64], values)
    }

    #[test]
    fn elements_are_repeated() {
        let to = |from: &Tensor, dims: &[i32]| run(int_op("BroadcastTo"), &[from, &vector(dims)]);
        assert_ints(&to(&counting(&[2, 1]), &[2, 2, 3]).unwrap(), &[2, 2, 3], &[0, 0, 0, 1, 1, 1, 0, 0, 0, 1, 1, 1]);
        assert_ints(&to(&counting(&[3]), &[2, 3]).unwrap(), &[2, 3], &[0, 1, 2, 0, 1, 2]);
        assert_ints(&to(&counting(&[1]), &[0]).unwrap(), &[0], &[]);
        assert_error(to(&counting(&[2]), &[0]), "Incompatible shapes: [2] vs. [0]");
        assert_error(to(&counting(&[2]), &[3]), "Incompatible shapes: [2] vs. [3]");
        assert_error(to(&counting(&[2]), &[1]), "Unable to broadcast tensor of shape [2] to tensor of shape [1]");
        assert_error(
            to(&counting(&[1, 2]), &[2]),
            "Rank of input (2) must be no greater than rank of output shape (1).",
        );
    }

    #[test]
    fn shapes_and_axes() {
        assert_ints(&run(int_op("BroadcastArgs"), &[&vector(&[2, 1]), &vector(&[5, 1, 3])]).unwrap(), &[3], &[5, 2, 3]);
        assert_error(run(int_op("BroadcastArgs"), &[&vector(&[2]), &vector(&[3])]), "Incompatible shapes: [2] vs. [3]");
        for (a, b, first, second) in [
            (&[2, 3][..], &[2, 3][..], &[][..], &[][..]),
            (&[1, 1], &[1, 1], &[], &[]),
            (&[2, 3], &[3], &[], &[0]),
            (&[2, 1, 3], &[1, 1], &[1], &[0, 1, 2]),
            (&[], &[4], &[0], &[]),
        ] {
            let outputs = int_op("BroadcastGradientArgs").run(&registry(), vec![vector(a), vector(b)]).unwrap();
            assert_ints(&outputs[0], &[first.len()], first);
            assert_ints(&outputs[1], &[second.len()], second);
        }
    }
}
