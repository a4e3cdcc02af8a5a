//! Slices as Python writes them: `x[1:, ::-1, tf.newaxis, ..., 3]`.

use crate::args::integers;
use crate::types::{FLOAT8, OBJECTS, QUANTIZED_8_32, union};
use crate::walk::{Dims, Walk, strides_of};
use graphmill_runtime::{Construction, Context, Kernel, Registry, ResourceVariable, Variable};
use graphmill_tensor::{DType, Result, Shape, Tensor, invalid_argument};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    let types = union(&[DType::NUMBERS_AND_BOOL, FLOAT8, QUANTIZED_8_32, OBJECTS]);
    registry.op("StridedSlice").types("T", &types).kernel(|c| Ok(StridedSlice(Masks::new(c)?)));
    registry.op("StridedSliceGrad").types("T", &types).kernel(|c| Ok(StridedSliceGrad(Masks::new(c)?)));
    registry.op("TensorStridedSliceUpdate").types("T", &types).kernel(|c| Ok(StridedSliceUpdate(Masks::new(c)?)));
    for (op, resource) in [("StridedSliceAssign", false), ("ResourceStridedSliceAssign", true)] {
        registry
            .op(op)
            .types("T", &types)
            .kernel(move |c| Ok(StridedSliceAssign { masks: Masks::new(c)?, resource, dtype: c.dtype("T")? }));
    }
}

/// The bit masks of a slicing op: bit i speaks of entry i of begin, end and strides.
#[derive(Clone, Copy)]
struct Masks {
    begin: i64,
    end: i64,
    ellipsis: i64,
    new_axis: i64,
    shrink_axis: i64,
}

fn bit(mask: i64, i: usize) -> bool {
    i < 64 && mask >> i & 1 == 1
}

/// How one dimension of the input is sliced.
#[derive(Clone, Copy)]
struct Range {
    begin: i64,
    stride: i64,
    size: usize,
}

/// One dimension of the result.
#[derive(Clone, Copy)]
enum Out {
    /// A sliced dimension of the input.
    Dim(usize),
    New,
}

/// What is taken of a tensor.
struct Plan {
    ranges: Dims<Range>,
    outs: Dims<Out>,
    /// The shape of the result.
    shape: Shape,
}

impl Plan {
    fn sizes(&self) -> Dims<usize> {
        self.ranges.iter().map(|r| r.size).collect()
    }

    /// Position of the first element, and the stride of each dimension, in a tensor of the sliced shape.
    fn positions(&self, shape: &Shape) -> (usize, Dims<isize>) {
        let strides = strides_of(shape);
        let start = self.ranges.iter().zip(&strides).map(|(r, &s)| r.begin * s as i64).sum::<i64>();
        let steps = self.ranges.iter().zip(&strides).map(|(r, &s)| (r.stride as isize).wrapping_mul(s)).collect();
        (usize::try_from(start).unwrap_or(0), steps)
    }

    /// Whether all elements are taken in order.
    fn is_everything(&self, shape: &Shape) -> bool {
        self.ranges.iter().enumerate().all(|(i, r)| r.begin == 0 && r.stride == 1 && r.size == shape.dim(i))
    }

    /// The rows taken, if the slice is some neighbouring rows of the first dimension.
    fn rows(&self, shape: &Shape) -> Option<(usize, usize)> {
        let (first, others) = self.ranges.split_first()?;
        let whole = others.iter().enumerate().all(|(i, r)| r.begin == 0 && r.stride == 1 && r.size == shape.dim(i + 1));
        (whole && first.stride == 1 && first.size > 0).then_some((usize::try_from(first.begin).ok()?, first.size))
    }
}

impl Masks {
    fn new(construction: &Construction<'_>) -> Result<Masks> {
        let mask = |name| construction.attrs().int32(name).map(i64::from);
        Ok(Masks {
            begin: mask("begin_mask")?,
            end: mask("end_mask")?,
            ellipsis: mask("ellipsis_mask")?,
            new_axis: mask("new_axis_mask")?,
            shrink_axis: mask("shrink_axis_mask")?,
        })
    }

    /// Resolves begin, end and strides for a tensor of this shape, as TensorFlow's `ValidateStridedSliceOp` does.
    fn plan(&self, shape: &Shape, begin: &Tensor, end: &Tensor, strides: &Tensor) -> Result<Plan> {
        let count = strides.num_elements();
        let fits = |t: &Tensor| t.shape().is_vector() && t.num_elements() == count;
        if !fits(begin) || !fits(end) || !fits(strides) || count >= 32 {
            return Err(invalid_argument!(
                "Expected begin, end, and strides to be 1D equal size tensors, but got shapes {}, {}, and {} instead.",
                begin.shape(),
                end.shape(),
                strides.shape()
            ));
        }
        if self.ellipsis != 0 && self.ellipsis & (self.ellipsis - 1) != 0 {
            return Err(invalid_argument!("Multiple ellipses in slice spec not allowed"));
        }
        let (begin, end, strides) = (integers(begin)?, integers(end)?, integers(strides)?);
        let rank = shape.rank();
        let ellipsis = (0..count).find(|&i| bit(self.ellipsis, i));
        // New axes behind an ellipsis take an entry but no dimension.
        let new_behind = ellipsis.map_or(0, |e| (e..count).filter(|&i| bit(self.new_axis, i)).count());
        let entries = if ellipsis.is_some() { count } else { count + 1 };
        let mut ranges: Dims<Range> = Dims::with_capacity(rank);
        let mut outs: Dims<Out> = Dims::new();
        for i in 0..entries {
            if Some(i) == ellipsis || i == count {
                let until = (rank + 1 + new_behind).saturating_sub(entries - i).min(rank);
                while ranges.len() < until {
                    outs.push(Out::Dim(ranges.len()));
                    ranges.push(Range { begin: 0, stride: 1, size: shape.dim(ranges.len()) });
                }
            } else if bit(self.new_axis, i) {
                outs.push(Out::New);
            } else {
                let axis = ranges.len();
                if axis == rank {
                    return Err(invalid_argument!(
                        "Index out of range using input dim {axis}; input has only {rank} dims"
                    ));
                }
                if !bit(self.shrink_axis, i) {
                    outs.push(Out::Dim(axis));
                }
                ranges.push(self.range(i, axis, shape.dim(axis) as i64, begin[i], end[i], strides[i])?);
            }
        }
        let sizes: Dims<usize> = outs
            .iter()
            .map(|out| match out {
                Out::Dim(axis) => ranges[*axis].size,
                Out::New => 1,
            })
            .collect();
        Ok(Plan { ranges, outs, shape: Shape::from_dims(&sizes)? })
    }

    fn range(&self, i: usize, axis: usize, dim: i64, begin: i64, end: i64, stride: i64) -> Result<Range> {
        if stride == 0 {
            return Err(invalid_argument!("strides[{axis}] must be non-zero"));
        }
        let from_end = |x: i64| if x < 0 { x.saturating_add(dim) } else { x };
        if bit(self.shrink_axis, i) {
            if stride < 0 {
                return Err(invalid_argument!("only stride 1 allowed on non-range indexing."));
            }
            // TensorFlow leaves a masked begin out of account here: it is the index.
            let index = from_end(begin);
            if index < 0 || index >= dim {
                return Err(invalid_argument!("slice index {index} of dimension {axis} out of bounds."));
            }
            return Ok(Range { begin: index, stride: 1, size: 1 });
        }
        let (low, high) = if stride > 0 { (0, dim) } else { (-1, dim - 1) };
        let first = if stride > 0 { low } else { high };
        let past = if stride > 0 { high } else { low };
        let begin = if bit(self.begin, i) { first } else { from_end(begin).clamp(low, high) };
        let end = if bit(self.end, i) { past } else { from_end(end).clamp(low, high) };
        let length = end - begin;
        let size = if length == 0 || (length < 0) != (stride < 0) {
            0
        } else {
            length.unsigned_abs().div_ceil(stride.unsigned_abs())
        };
        Ok(Range { begin: if size == 0 { 0 } else { begin }, stride, size: size as usize })
    }
}

/// The elements that a slice takes.
struct StridedSlice(Masks);

impl Kernel for StridedSlice {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let tensor = ctx.input(0)?;
        let plan = self.0.plan(tensor.shape(), ctx.input(1)?, ctx.input(2)?, ctx.input(3)?)?;
        if plan.is_everything(tensor.shape()) {
            let tensor = ctx.take_input(0)?.into_shape(plan.shape)?;
            return ctx.set_output(0, tensor);
        }
        if let Some((start, count)) = plan.rows(tensor.shape()) {
            let rows = tensor.rows(start, count)?.into_shape(plan.shape)?;
            return ctx.set_output(0, rows);
        }
        let mut output = ctx.alloc_output(0, plan.shape.clone())?;
        let (start, steps) = plan.positions(tensor.shape());
        Walk::gather(&plan.sizes(), &steps, start).copy(ctx, tensor, &mut output)?;
        ctx.set_output(0, output)
    }
}

/// The gradient of a slice: zeros in the shape of the sliced tensor, with `dy` where the slice was taken.
struct StridedSliceGrad(Masks);

impl Kernel for StridedSliceGrad {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let sizes = ctx.input(0)?;
        if !sizes.shape().is_vector() {
            return Err(invalid_argument!("shape must be 1-D, got shape.shape = {}", sizes.shape()));
        }
        let shape = crate::args::shape(&integers(sizes)?)?;
        let plan = self.0.plan(&shape, ctx.input(1)?, ctx.input(2)?, ctx.input(3)?)?;
        let dy = ctx.input(4)?;
        if *dy.shape() != plan.shape {
            return Err(invalid_argument!("shape of dy was {} instead of {}", dy.shape(), plan.shape));
        }
        if plan.is_everything(&shape) {
            let dy = ctx.take_input(4)?.into_shape(shape)?;
            return ctx.set_output(0, dy);
        }
        let mut output = Tensor::zeros(ctx.output_type(0)?, shape.clone())?;
        let (start, steps) = plan.positions(&shape);
        Walk::scatter(&plan.sizes(), &steps, start).copy(ctx, dy, &mut output)?;
        ctx.set_output(0, output)
    }
}

/// The input with a value, broadcast, in the place of a slice.
struct StridedSliceUpdate(Masks);

impl Kernel for StridedSliceUpdate {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let shape = ctx.input(0)?.shape().clone();
        let plan = self.0.plan(&shape, ctx.input(1)?, ctx.input(2)?, ctx.input(3)?)?;
        let mut output = ctx.take_input(0)?.into_unique()?;
        write_slice(ctx, &plan, &shape, ctx.input(4)?, &mut output)?;
        ctx.set_output(0, output)
    }
}

/// `StridedSliceAssign(ref, begin, end, strides, value) -> output_ref`, and with a handle in place of the reference
/// `ResourceStridedSliceAssign`: a value, broadcast, put in the place of a slice of a variable.
struct StridedSliceAssign {
    masks: Masks,
    resource: bool,
    dtype: DType,
}

impl StridedSliceAssign {
    fn variable(&self, ctx: &Context<'_>) -> Result<Arc<Variable>> {
        if !self.resource {
            return ctx.input_ref(0).cloned();
        }
        match ctx.input(0)?.handles()?.first() {
            Some(handle) => Ok(ctx.device().lookup_handle::<ResourceVariable>(handle)?.0.clone()),
            None => Err(invalid_argument!("Empty resource handle")),
        }
    }
}

impl Kernel for StridedSliceAssign {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let variable = self.variable(ctx)?;
        if variable.dtype() != self.dtype {
            return Err(invalid_argument!(
                "l-value dtype {} does not match r-value dtype {}",
                variable.dtype(),
                self.dtype
            ));
        }
        let (begin, end, strides, value) = (ctx.input(1)?, ctx.input(2)?, ctx.input(3)?, ctx.input(4)?);
        variable.update(|tensor| {
            let shape = tensor.shape().clone();
            let plan = self.masks.plan(&shape, begin, end, strides)?;
            write_slice(ctx, &plan, &shape, value, tensor)
        })?;
        if self.resource {
            return Ok(());
        }
        let reference = ctx.take_value(0)?;
        ctx.set_value(0, reference)
    }
}

fn write_slice(ctx: &Context<'_>, plan: &Plan, shape: &Shape, value: &Tensor, output: &mut Tensor) -> Result<()> {
    if plan.shape.num_elements() == 0 {
        return Ok(());
    }
    let cannot = || invalid_argument!("Cannot broadcast input shape {} into final shape {}", value.shape(), plan.shape);
    let extra = plan.shape.rank().checked_sub(value.shape().rank()).ok_or_else(cannot)?;
    let mut from: Dims<isize> = smallvec::smallvec![0; plan.ranges.len()];
    for (axis, stride) in strides_of(value.shape()).into_iter().enumerate() {
        let size = value.shape().dim(axis);
        if size == 1 {
            continue;
        }
        if size != plan.shape.dim(axis + extra) {
            return Err(cannot());
        }
        if let Out::Dim(dim) = plan.outs[axis + extra] {
            from[dim] = stride;
        }
    }
    let (start, steps) = plan.positions(shape);
    Walk::new(&plan.sizes(), &from, 0, &steps, start).copy(ctx, value, output)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_error, assert_ints, counting, int_op, run, tensor};
    use graphmill_runtime::testing::OpRun;
    use graphmill_tensor::DType;

    /// begin, end, strides; then the masks begin, end, ellipsis, new axis, shrink axis.
    type Spec = (&'static [i32], &'static [i32], &'static [i32], [i64; 5]);

    fn op(name: &str, masks: [i64; 5]) -> OpRun {
        let names = ["begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask"];
        let op = int_op(name).attr_type("Index", DType::Int32);
        names.iter().zip(masks).fold(op, |op, (name, mask)| op.attr_int(name, mask))
    }

    fn vector(values: &[i32]) -> Tensor {
        tensor(&[values.len() as i64], values)
    }

    fn slice(dims: &[i64], spec: Spec) -> Result<Tensor> {
        run(op("StridedSlice", spec.3), &[&counting(dims), &vector(spec.0), &vector(spec.1), &vector(spec.2)])
    }

    /// The sizes of the input, the slice, the sizes of the result, and its elements when the input counts from 0.
    type Case = (&'static [i64], Spec, &'static [usize], &'static [i32]);

    const CASES: &[Case] = &[
        (&[5], (&[1], &[4], &[2], [0; 5]), &[2], &[1, 3]),
        (&[5], (&[-1], &[0], &[-2], [0; 5]), &[2], &[4, 2]),
        (&[5], (&[0], &[0], &[-1], [1, 1, 0, 0, 0]), &[5], &[4, 3, 2, 1, 0]),
        (&[5], (&[3], &[1], &[1], [0; 5]), &[0], &[]),
        (&[2, 3], (&[1], &[2], &[1], [0; 5]), &[1, 3], &[3, 4, 5]),
        (&[2, 3], (&[1], &[2], &[1], [0, 0, 0, 0, 1]), &[3], &[3, 4, 5]),
        (&[2, 3], (&[0, -1], &[0, 0], &[1, 1], [1, 1, 0, 0, 2]), &[2], &[2, 5]),
        (&[2, 3], (&[0, 0], &[0, 0], &[1, 1], [0, 0, 1, 2, 0]), &[2, 3, 1], &[0, 1, 2, 3, 4, 5]),
        (&[2, 3], (&[0, 1], &[0, 2], &[1, 1], [0, 0, 0, 1, 0]), &[1, 1, 3], &[3, 4, 5]),
        (&[2, 2, 2], (&[0, 1], &[0, 2], &[1, 1], [0, 0, 1, 0, 2]), &[2, 2], &[1, 3, 5, 7]),
        (&[], (&[0], &[0], &[1], [0, 0, 0, 1, 0]), &[1], &[0]),
    ];

    #[test]
    fn slices_as_python_does() {
        for &(dims, spec, shape, values) in CASES {
            assert_ints(&slice(dims, spec).unwrap(), shape, values);
        }
    }

    #[test]
    fn gradients_and_updates_write_where_slices_read() {
        for &(dims, spec, shape, values) in CASES {
            let shape: Vec<i64> = shape.iter().map(|&d| d as i64).collect();
            let dy = tensor(&shape, &vec![-1; values.len()]);
            let spec_inputs = [vector(spec.0), vector(spec.1), vector(spec.2)];
            let [b, e, s] = &spec_inputs;
            let sizes: Vec<i32> = dims.iter().map(|&d| d as i32).collect();
            let grad = run(op("StridedSliceGrad", spec.3), &[&vector(&sizes), b, e, s, &dy]).unwrap();
            let update = run(op("TensorStridedSliceUpdate", spec.3), &[&counting(dims), b, e, s, &dy]).unwrap();
            let grad = grad.as_slice::<i32>().unwrap();
            let update = update.as_slice::<i32>().unwrap();
            for i in 0..grad.len() {
                let taken = values.contains(&(i as i32));
                assert_eq!((grad[i], update[i]), if taken { (-1, -1) } else { (0, i as i32) });
            }
        }
    }

    #[test]
    fn updates_are_broadcast() {
        let update = |value: &Tensor| {
            let box_of = [&[0, 0][..], &[2, 2], &[1, 1]].map(vector);
            let [b, e, s] = &box_of;
            run(op("TensorStridedSliceUpdate", [0; 5]), &[&counting(&[2, 3]), b, e, s, value])
        };
        assert_ints(&update(&tensor(&[], &[9])).unwrap(), &[2, 3], &[9, 9, 2, 9, 9, 5]);
        assert_ints(&update(&tensor(&[2], &[8, 9])).unwrap(), &[2, 3], &[8, 9, 2, 8, 9, 5]);
        assert_ints(&update(&tensor(&[2, 1], &[8, 9])).unwrap(), &[2, 3], &[8, 8, 2, 9, 9, 5]);
        assert_error(update(&counting(&[3])), "Cannot broadcast input shape [3] into final shape [2,2]");
    }

    #[test]
    fn bad_slices() {
        let none = [0; 5];
        assert_error(slice(&[2], (&[0], &[1], &[0], none)), "strides[0] must be non-zero");
        assert_error(slice(&[2], (&[2], &[3], &[1], [0, 0, 0, 0, 1])), "slice index 2 of dimension 0 out of bounds.");
        assert_error(
            slice(&[2], (&[0, 0], &[1, 1], &[1, 1], none)),
            "Index out of range using input dim 1; input has only 1 dims",
        );
        assert_error(
            slice(&[2], (&[0, 0], &[1, 1], &[1, 1], [0, 0, 3, 0, 0])),
            "Multiple ellipses in slice spec not allowed",
        );
        assert_error(
            slice(&[2], (&[0, 0], &[1], &[1], none)),
            "Expected begin, end, and strides to be 1D equal size tensors, but got shapes [2], [1], and [1] instead.",
        );
        let extreme = (&[i32::MIN][..], &[i32::MAX][..], &[i32::MAX][..], none);
        assert_ints(&slice(&[3], extreme).unwrap(), &[1], &[0]);
    }
}
