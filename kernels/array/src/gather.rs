//! Picking slices by index.

use crate::args::{axis_of, integer};
use crate::types::{FLOAT8, INDEX_16, OBJECTS, union};
use crate::walk::Dims;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Mover, Result, Shape, Tensor, dispatch, internal, invalid_argument};
use num_traits::Bounded;

pub(crate) fn register(registry: &mut Registry) {
    let types = union(&[DType::NUMBERS_AND_BOOL, FLOAT8, DType::QUANTIZED, OBJECTS]);
    registry.op("Gather").types("Tparams", &types).types("Tindices", INDEX_16).kernel(|_| Ok(Gather { batch_dims: 0 }));
    registry.op("GatherV2").types("Tparams", &types).types("Tindices", INDEX_16).kernel(Gather::new);
}

/// `params[b.., o.., indices[b.., i..], s..]`: slices along an axis, the leading `batch_dims` dimensions of both in step.
struct Gather {
    batch_dims: i64,
}

/// How the dimensions fall into groups: the output is [batch, outer, count, inner].
struct Groups {
    outer: usize,
    /// Size of the dimension that is indexed.
    size: usize,
    inner: usize,
    /// Indices for each batch.
    count: usize,
}

impl Gather {
    fn new(construction: &Construction<'_>) -> Result<Gather> {
        Ok(Gather { batch_dims: construction.attrs().int("batch_dims")? })
    }

    fn groups(&self, params: &Shape, indices: &Shape, axis: i64) -> Result<(Groups, Shape)> {
        if params.is_scalar() {
            return Err(invalid_argument!("params must be at least 1 dimensional"));
        }
        let (rank, index_rank) = (params.rank(), indices.rank());
        let Some(axis) = axis_of(axis, rank) else {
            let least = if axis < 0 { axis.checked_neg().unwrap_or(i64::MAX) } else { axis.saturating_add(1) };
            return Err(invalid_argument!("Shape must be at least rank {least} but is rank {rank}"));
        };
        let given = self.batch_dims;
        let batch_dims = if given < 0 { given.saturating_add(index_rank as i64) } else { given };
        let Some(batch_dims) = usize::try_from(batch_dims).ok().filter(|&b| b <= index_rank) else {
            return Err(invalid_argument!(
                "Expected batch_dims in the range [{}, {index_rank}], but got {given}",
                -(index_rank as i64)
            ));
        };
        if batch_dims >= rank {
            return Err(invalid_argument!("batch_dims ({batch_dims}) must be less than rank(params) ({rank})."));
        }
        if axis < batch_dims {
            return Err(invalid_argument!("batch_dims ({batch_dims}) must be less than or equal to axis ({axis})."));
        }
        for i in 0..batch_dims {
            if params.dim(i) != indices.dim(i) {
                return Err(invalid_argument!(
                    "params.shape[{i}]: {} should be equal to indices.shape[{i}]: {}",
                    params.dim(i),
                    indices.dim(i)
                ));
            }
        }
        let (p, i) = (params.dims(), indices.dims());
        let mut dims = Dims::from_slice(&p[..axis]);
        dims.extend_from_slice(&i[batch_dims..]);
        dims.extend_from_slice(&p[axis + 1..]);
        let groups = Groups {
            outer: p[batch_dims..axis].iter().product(),
            size: p[axis],
            inner: p[axis + 1..].iter().product(),
            count: i[batch_dims..].iter().product(),
        };
        Ok((groups, Shape::from_dims(&dims)?))
    }
}

impl Kernel for Gather {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (params, indices) = (ctx.input(0)?, ctx.input(1)?);
        let mut axis = 0;
        if ctx.num_inputs() > 2 {
            let input = ctx.input(2)?;
            if !input.shape().is_scalar() {
                return Err(invalid_argument!("axis must be scalar"));
            }
            axis = integer(input)?;
        }
        let (groups, shape) = self.groups(params.shape(), indices.shape(), axis)?;
        let mut output = ctx.alloc_output(0, shape)?;
        dispatch!(indices.dtype(), I in [i16, i32, i64] => gather::<I>(ctx, params, indices, &groups, axis, &mut output)?)
            .ok_or_else(|| internal!("indices of type {}", indices.dtype()))?;
        ctx.set_output(0, output)
    }
}

fn gather<I>(
    ctx: &Context<'_>,
    params: &Tensor,
    indices: &Tensor,
    groups: &Groups,
    axis: i64,
    output: &mut Tensor,
) -> Result<()>
where
    I: Element + TryInto<usize> + TryFrom<usize> + Bounded + std::fmt::Display,
{
    if I::try_from(groups.size).is_err() {
        return Err(invalid_argument!(
            "params.shape[{axis}] too large for {} indexing: {} > {}",
            indices.dtype(),
            groups.size,
            I::max_value()
        ));
    }
    if output.num_elements() == 0 {
        return Ok(());
    }
    let values = indices.as_slice::<I>()?;
    if let Some(bad) = values.iter().position(|&v| index_of(v) >= groups.size) {
        return Err(invalid_argument!(
            "indices{} = {} is not in [0, {})",
            position_text(indices.shape(), bad),
            values[bad],
            groups.size
        ));
    }
    output.move_from(&[params], GatherMover { ctx, values, groups })
}

/// The index, or one that is out of range everywhere.
fn index_of<I: TryInto<usize>>(value: I) -> usize {
    value.try_into().unwrap_or(usize::MAX)
}

/// Where the element `flat` of a tensor of this shape is: `[1,2]`, or nothing for a scalar.
pub(crate) fn position_text(shape: &Shape, flat: usize) -> String {
    if shape.is_scalar() {
        return String::new();
    }
    let at = shape.dims().iter().zip(shape.strides()).map(|(&d, s)| flat / s.max(1) % d.max(1));
    format!("[{}]", crate::args::joined(at))
}

struct GatherMover<'a, 'b, I> {
    ctx: &'a Context<'b>,
    values: &'a [I],
    groups: &'a Groups,
}

impl<I: Element + TryInto<usize>> Mover for GatherMover<'_, '_, I> {
    type Output = ();

    fn run<E: Clone + Send + Sync>(self, sources: &[&[E]], target: &mut [E]) {
        let Groups { outer, size, inner, count } = *self.groups;
        let source = sources[0];
        // A slice is likely not in the cache.
        let cost = 8.0 + inner as f64 * size_of::<E>() as f64 * 0.1;
        self.ctx.parallel_chunks(target, inner, cost, |range, part| {
            // One row of indices after the other, so that nothing is divided for each slice.
            let (mut next, mut part) = (range.start, part);
            while next < range.end {
                let (row, i) = (next / count, next % count);
                let here = (count - i).min(range.end - next);
                let (places, behind) = part.split_at_mut(here * inner);
                let first = row / outer * count + i;
                let indices = &self.values[first..first + here];
                let params = &source[row * size * inner..(row + 1) * size * inner];
                if inner == 1 {
                    for (place, &index) in places.iter_mut().zip(indices) {
                        *place = params[index_of(index)].clone();
                    }
                } else {
                    for (place, &index) in places.chunks_exact_mut(inner).zip(indices) {
                        let from = index_of(index) * inner;
                        place.clone_from_slice(&params[from..from + inner]);
                    }
                }
                (next, part) = (next + here, behind);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_error, assert_ints, counting, run, tensor};
    use graphmill_runtime::testing::OpRun;
    use graphmill_tensor::DType;

    fn op(batch_dims: i64) -> OpRun {
        OpRun::new("GatherV2")
            .attr_type("Tparams", DType::Int32)
            .attr_type("Tindices", DType::Int32)
            .attr_int("batch_dims", batch_dims)
    }

    fn gather(params: &[i64], dims: &[i64], indices: &[i32], axis: i32, batch_dims: i64) -> Result<Tensor> {
        run(
            op(batch_dims).attr_type("Taxis", DType::Int32),
            &[&counting(params), &tensor(dims, indices), &tensor(&[], &[axis])],
        )
    }

    #[test]
    fn slices_are_picked() {
        assert_ints(&gather(&[3, 2], &[2], &[2, 0], 0, 0).unwrap(), &[2, 2], &[4, 5, 0, 1]);
        assert_ints(&gather(&[2, 3], &[2, 1], &[2, 0], -1, 0).unwrap(), &[2, 2, 1], &[2, 0, 5, 3]);
        assert_ints(&gather(&[2, 3], &[2, 1], &[2, 0], 1, 1).unwrap(), &[2, 1], &[2, 3]);
        assert_ints(&gather(&[2, 2, 2], &[2, 1], &[1, 0], 2, 1).unwrap(), &[2, 2, 1], &[1, 3, 4, 6]);
        assert_ints(&gather(&[3], &[], &[1], 0, 0).unwrap(), &[], &[1]);
        assert_ints(&gather(&[3, 0], &[1], &[9], 0, 0).unwrap(), &[1, 0], &[]);
        let first = OpRun::new("Gather").attr_type("Tparams", DType::Int32).attr_type("Tindices", DType::Int64);
        assert_ints(&run(first, &[&counting(&[3]), &tensor(&[1], &[2i64])]).unwrap(), &[1], &[2]);
    }

    #[test]
    fn bad_arguments_are_named() {
        assert_error(gather(&[3, 2], &[1], &[3], 0, 0), "indices[0] = 3 is not in [0, 3)");
        assert_error(gather(&[3, 2], &[1], &[-1], 0, 0), "indices[0] = -1 is not in [0, 3)");
        assert_error(gather(&[3, 2], &[1, 2], &[0, 3], 0, 0), "indices[0,1] = 3 is not in [0, 3)");
        assert_error(gather(&[3, 2], &[], &[5], 0, 0), "indices = 5 is not in [0, 3)");
        assert_error(gather(&[3, 2], &[1], &[0], 2, 0), "Shape must be at least rank 3 but is rank 2");
        assert_error(gather(&[3, 2], &[1], &[0], 0, 10), "Expected batch_dims in the range [-1, 1], but got 10");
        assert_error(gather(&[3, 2], &[1], &[0], 0, -5), "Expected batch_dims in the range [-1, 1], but got -5");
        assert_error(gather(&[3, 2], &[1], &[0], 0, 1), "batch_dims (1) must be less than or equal to axis (0).");
        assert_error(gather(&[3, 2], &[1], &[0], 1, 1), "params.shape[0]: 3 should be equal to indices.shape[0]: 1");
        assert_error(gather(&[], &[1], &[0], 0, 0), "params must be at least 1 dimensional");
    }
}
