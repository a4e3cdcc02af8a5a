//! Cutting a tensor along a dimension.

use crate::args::{axis_of, integer, integers};
use crate::types::{FLOAT8, OBJECTS, union};
use crate::walk::{Dims, Walk};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::DType::{Int4, Int8, Int32, Int64, QUInt8, UInt4};
use graphmill_tensor::{DType, Result, Shape, Tensor, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    let split = union(&[DType::NUMBERS_AND_BOOL, FLOAT8, OBJECTS, &[Int4, UInt4, QUInt8]]);
    registry.op("Split").types("T", &split).kernel(|_| Ok(Split));
    registry.op("SplitV").types("T", &split).types("Tlen", &[Int32, Int64, Int8]).kernel(|_| Ok(SplitV));
    registry.op("Unpack").types("T", &union(&[DType::NUMBERS_AND_BOOL, FLOAT8, OBJECTS])).kernel(Unpack::new);
}

/// Indices `start..start + count` of an axis; shares the elements where they lie together.
fn part(ctx: &Context<'_>, tensor: &Tensor, axis: usize, start: usize, count: usize) -> Result<Tensor> {
    let shape = tensor.shape();
    let outer: usize = shape.dims()[..axis].iter().product();
    let target = shape.with_dim(axis, count)?;
    if axis == 0 {
        return tensor.rows(start, count);
    }
    let inner = shape.stride(axis);
    if outer == 1 {
        let rows = Shape::from_dims(&[shape.dim(axis), inner])?;
        return tensor.reshaped(rows)?.rows(start, count)?.into_shape(target);
    }
    let mut output = Tensor::alloc(tensor.dtype(), target)?;
    let stride = (shape.dim(axis) * inner) as isize;
    Walk::gather(&[outer, count * inner], &[stride, 1], start * inner).copy(ctx, tensor, &mut output)?;
    Ok(output)
}

fn split_axis(given: i64, rank: usize) -> Result<usize> {
    axis_of(given, rank)
        .ok_or_else(|| invalid_argument!("-input rank(-{rank}) <= split_dim < input rank ({rank}), but got {given}"))
}

/// Equal parts along an axis.
struct Split;

impl Kernel for Split {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let axis_input = ctx.input(0)?;
        if !axis_input.shape().is_scalar() {
            return Err(invalid_argument!("split_dim must be a scalar but has rank {}", axis_input.shape().rank()));
        }
        let tensor = ctx.input(1)?.clone();
        let axis = split_axis(integer(axis_input)?, tensor.shape().rank())?;
        let (size, parts) = (tensor.shape().dim(axis), ctx.num_outputs());
        if parts == 0 {
            return Err(invalid_argument!("Number of ways to split should be > 0, but got 0"));
        }
        if size % parts != 0 {
            return Err(invalid_argument!(
                "Number of ways to split should evenly divide the split dimension, but got split_dim {axis} (size = {size}) and num_split {parts}"
            ));
        }
        let each = size / parts;
        for i in 0..parts {
            let output = part(ctx, &tensor, axis, i * each, each)?;
            ctx.set_output(i, output)?;
        }
        Ok(())
    }
}

/// Parts of given sizes along an axis; one size may be -1 and is what remains.
struct SplitV;

impl SplitV {
    fn sizes(sizes: &Tensor, whole: usize) -> Result<Dims<usize>> {
        let mut sizes = integers(sizes)?;
        let whole = whole as i64;
        if let [only] = sizes.as_slice()
            && *only != whole
        {
            return Err(invalid_argument!(
                "If there is only one output, it must have the same size as the input. Input size: {whole} output size: {only}"
            ));
        }
        let mut unknown = None;
        let mut known = 0i64;
        for (i, &size) in sizes.iter().enumerate() {
            if size == -1 {
                if unknown.replace(i).is_some() {
                    return Err(invalid_argument!("There can only be one -1 in the input."));
                }
            } else {
                known = known.checked_add(size).ok_or_else(|| invalid_argument!("the sizes to split into overflow"))?;
            }
        }
        if if unknown.is_some() { known > whole } else { known != whole } {
            return Err(invalid_argument!(
                "Determined shape must either match input shape along split_dim exactly if fully specified, or be less than the size of the input along split_dim if not fully specified.  Got: {known}"
            ));
        }
        if let Some(i) = unknown {
            sizes[i] = whole.saturating_sub(known);
        }
        let checked = sizes.iter().enumerate().map(|(i, &size)| match usize::try_from(size) {
            Ok(size) => Ok(size),
            Err(_) => Err(invalid_argument!("Split size at index {i} must be >= 0. Got: {size}")),
        });
        checked.collect()
    }
}

impl Kernel for SplitV {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let tensor = ctx.input(0)?.clone();
        let (sizes, axis_input, parts) = (ctx.input(1)?, ctx.input(2)?, ctx.num_outputs());
        if axis_input.num_elements() != 1 {
            return Err(invalid_argument!("split_dim_tensor must have exactly one element."));
        }
        if !sizes.shape().is_vector() || sizes.num_elements() != parts {
            return Err(invalid_argument!(
                "size of the split_tensor must be 1-D and have the same elements as outputs got {} -D and {} elements",
                sizes.shape().rank(),
                sizes.num_elements()
            ));
        }
        let axis = split_axis(integer(axis_input)?, tensor.shape().rank())?;
        let sizes = SplitV::sizes(sizes, tensor.shape().dim(axis))?;
        let mut start = 0usize;
        for (i, &size) in sizes.iter().enumerate() {
            // A negative size elsewhere could make the known sizes add up; the axis bounds every part.
            let output = part(ctx, &tensor, axis, start, size)?;
            ctx.set_output(i, output)?;
            start += size;
        }
        Ok(())
    }
}

/// The slices along an axis, without that axis.
struct Unpack {
    axis: i64,
}

impl Unpack {
    fn new(construction: &Construction<'_>) -> Result<Unpack> {
        Ok(Unpack { axis: construction.attrs().int("axis")? })
    }
}

impl Kernel for Unpack {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let tensor = ctx.input(0)?.clone();
        let (shape, count) = (tensor.shape(), ctx.num_outputs());
        let rank = shape.rank();
        let Some(axis) = axis_of(self.axis, rank) else {
            return Err(invalid_argument!("axis = {} not in [{}, {rank})", self.axis, -(rank as i64)));
        };
        if shape.dim(axis) != count {
            return Err(invalid_argument!("Input shape axis {axis} must equal {count}, got shape {shape}"));
        }
        let mut dims = Dims::from_slice(shape.dims());
        dims.remove(axis);
        let output_shape = Shape::from_dims(&dims)?;
        for i in 0..count {
            let output = part(ctx, &tensor, axis, i, 1)?.into_shape(output_shape.clone())?;
            ctx.set_output(i, output)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_error, assert_ints, counting, int_op, registry, tensor};

    #[test]
    fn equal_parts() {
        let split = |parts: i64, axis: i32, dims: &[i64]| {
            int_op("Split").attr_int("num_split", parts).run(&registry(), vec![tensor(&[], &[axis]), counting(dims)])
        };
        let outputs = split(2, 1, &[2, 4]).unwrap();
        assert_ints(&outputs[0], &[2, 2], &[0, 1, 4, 5]);
        assert_ints(&outputs[1], &[2, 2], &[2, 3, 6, 7]);
        let outputs = split(2, 0, &[2, 2]).unwrap();
        assert_ints(&outputs[1], &[1, 2], &[2, 3]);
        let outputs = split(2, -1, &[1, 4]).unwrap();
        assert_ints(&outputs[1], &[1, 2], &[2, 3]);
        assert_error(
            split(2, 0, &[3]),
            "Number of ways to split should evenly divide the split dimension, but got split_dim 0 (size = 3) and num_split 2",
        );
        assert_error(split(2, 1, &[2]), "-input rank(-1) <= split_dim < input rank (1), but got 1");
    }

    #[test]
    fn given_parts() {
        let split = |sizes: &[i64], axis: i32, dims: &[i64]| {
            int_op("SplitV")
                .attr_type("Tlen", Int64)
                .attr_int("num_split", sizes.len() as i64)
                .run(&registry(), vec![counting(dims), tensor(&[sizes.len() as i64], sizes), tensor(&[], &[axis])])
        };
        let outputs = split(&[1, -1], 1, &[2, 3]).unwrap();
        assert_ints(&outputs[0], &[2, 1], &[0, 3]);
        assert_ints(&outputs[1], &[2, 2], &[1, 2, 4, 5]);
        assert_ints(&split(&[0, 3], 0, &[3]).unwrap()[0], &[0], &[]);
        assert_error(split(&[-1, -1], 0, &[3]), "There can only be one -1 in the input.");
        assert_error(split(&[5, -2], 0, &[3]), "Split size at index 1 must be >= 0. Got: -2");
        assert!(split(&[1, 1], 0, &[3]).is_err());
    }

    #[test]
    fn slices() {
        let unpack = |axis: i64, count: i64| {
            int_op("Unpack").attr_int("num", count).attr_int("axis", axis).run(&registry(), vec![counting(&[2, 3])])
        };
        assert_ints(&unpack(0, 2).unwrap()[1], &[3], &[3, 4, 5]);
        assert_ints(&unpack(-1, 3).unwrap()[1], &[2], &[1, 4]);
        assert_error(unpack(0, 3), "Input shape axis 0 must equal 3, got shape [2,3]");
        assert_error(unpack(2, 3), "axis = 2 not in [-2, 2)");
        assert_eq!(unpack(0, 2).unwrap()[0].dtype(), Int32);
    }
}
