//! One-hot vectors.

use crate::args::integers;
use crate::types::{OBJECTS, union};
use crate::walk::Dims;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::DType::{Int8, Int32, Int64, UInt8};
use graphmill_tensor::{DType, Mover, Result, Shape, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry
        .op("OneHot")
        .types("T", &union(&[DType::NUMBERS_AND_BOOL, OBJECTS]))
        .types("TI", &[Int32, Int64, Int8, UInt8])
        .kernel(OneHot::new);
}

/// `off` everywhere but where the position along the new axis is the index, which is `on`. Indices outside of the depth give
/// `off` only.
struct OneHot {
    axis: i64,
}

impl OneHot {
    fn new(construction: &Construction<'_>) -> Result<OneHot> {
        Ok(OneHot { axis: construction.attrs().int("axis")? })
    }
}

impl Kernel for OneHot {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (indices, depth, on, off) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?, ctx.input(3)?);
        let rank = indices.shape().rank();
        let axis = match usize::try_from(self.axis) {
            Ok(axis) if axis <= rank => axis,
            Err(_) if self.axis == -1 => rank,
            _ => {
                return Err(invalid_argument!(
                    "Expected axis to be -1 or between [0, {}).  But received: {}",
                    rank + 1,
                    self.axis
                ));
            }
        };
        for (name, tensor) in [("depth", depth), ("on_value", on), ("off_value", off)] {
            if !tensor.shape().is_scalar() {
                return Err(invalid_argument!("{name} must be a scalar, but got: {}", tensor.shape()));
            }
        }
        let depth = depth.scalar_value::<i32>()?;
        let Ok(depth) = usize::try_from(depth) else {
            return Err(invalid_argument!("depth must be non-negative, got: {depth}"));
        };
        if indices.num_elements().checked_mul(depth).is_none_or(|n| i64::try_from(n).is_err()) {
            return Err(invalid_argument!(
                "OneHot result would have shape {} + [{depth}], which exceeds 2**63 - 1 elements",
                indices.shape()
            ));
        }
        let mut dims = Dims::from_slice(indices.shape().dims());
        dims.insert(axis, depth);
        let mut output = ctx.alloc_output(0, Shape::from_dims(&dims)?)?;
        if output.num_elements() > 0 {
            let values = integers(indices)?;
            let suffix = dims[axis + 1..].iter().product();
            output.move_from(&[on, off], OneHotMover { ctx, values: &values, depth, suffix })?;
        }
        ctx.set_output(0, output)
    }
}

struct OneHotMover<'a, 'b> {
    ctx: &'a Context<'b>,
    values: &'a [i64],
    depth: usize,
    suffix: usize,
}

impl Mover for OneHotMover<'_, '_> {
    type Output = ();

    fn run<E: Clone + Send + Sync>(self, sources: &[&[E]], target: &mut [E]) {
        let (on, off) = (&sources[0][0], &sources[1][0]);
        let (depth, suffix) = (self.depth, self.suffix);
        let unit = depth * suffix;
        let cost = unit as f64 * size_of::<E>() as f64 * 0.05 + suffix as f64 * 2.0;
        self.ctx.parallel_chunks(target, unit, cost, |range, part| {
            part.fill(off.clone());
            for (prefix, block) in range.zip(part.chunks_exact_mut(unit)) {
                for (k, &value) in self.values[prefix * suffix..(prefix + 1) * suffix].iter().enumerate() {
                    if let Some(place) = usize::try_from(value).ok().filter(|&v| v < depth) {
                        block[place * suffix + k] = on.clone();
                    }
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_error, assert_ints, int_op, run, tensor};

    #[test]
    fn positions_are_marked() {
        let hot = |dims: &[i64], indices: &[i32], depth: i32, axis: i64| {
            let op = int_op("OneHot").attr_type("TI", Int32).attr_int("axis", axis);
            run(op, &[&tensor(dims, indices), &tensor(&[], &[depth]), &tensor(&[], &[5]), &tensor(&[], &[1])])
        };
        assert_ints(&hot(&[2], &[1, -1], 3, -1).unwrap(), &[2, 3], &[1, 5, 1, 1, 1, 1]);
        assert_ints(&hot(&[2], &[1, 0], 2, 0).unwrap(), &[2, 2], &[1, 5, 5, 1]);
        assert_ints(&hot(&[], &[7], 2, -1).unwrap(), &[2], &[1, 1]);
        assert_ints(&hot(&[2], &[0, 0], 0, -1).unwrap(), &[2, 0], &[]);
        assert_error(hot(&[2], &[0, 0], -1, -1), "depth must be non-negative, got: -1");
        assert_error(hot(&[2], &[0, 0], 1, 2), "Expected axis to be -1 or between [0, 2).  But received: 2");
    }
}
