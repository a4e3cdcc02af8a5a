//! Joining tensors along a dimension that is there (concat) or new (pack).

use crate::args::{axis_of, integer};
use crate::types::{FLOAT8, OBJECTS, STRING, union};
use crate::walk::Dims;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Mover, Result, Shape, Tensor, invalid_argument};
use smallvec::SmallVec;

pub(crate) fn register(registry: &mut Registry) {
    let joined = union(&[DType::NUMBERS_AND_BOOL, FLOAT8, DType::QUANTIZED, STRING]);
    registry.op("Concat").types("T", &joined).kernel(|_| Ok(Concat { axis_last: false }));
    registry.op("ConcatV2").types("T", &joined).kernel(|_| Ok(Concat { axis_last: true }));
    registry.op("ConcatOffset").types("shape_type", DType::INDICES).kernel(|_| Ok(ConcatOffset));
    let packed = union(&[DType::NUMBERS_AND_BOOL, FLOAT8, DType::QUANTIZED, OBJECTS]);
    registry.op("Pack").types("T", &packed).kernel(Pack::new);
}

/// Interleaves sources: for each of `outer` steps, the next run of each source.
struct Join<'a, 'b> {
    ctx: &'a Context<'b>,
    outer: usize,
}

impl Mover for Join<'_, '_> {
    type Output = ();

    fn run<E: Clone + Send + Sync>(self, sources: &[&[E]], target: &mut [E]) {
        let outer = self.outer.max(1);
        let cost = size_of::<E>() as f64 * 0.1;
        if outer == 1 {
            let mut rest = target;
            for source in sources {
                let (part, behind) = rest.split_at_mut(source.len());
                self.ctx.parallel_chunks(part, 1, cost, |range, part| part.clone_from_slice(&source[range]));
                rest = behind;
            }
            return;
        }
        let unit = target.len() / outer;
        self.ctx.parallel_chunks(target, unit, unit as f64 * cost + 2.0 * sources.len() as f64, |range, part| {
            for (step, row) in range.zip(part.chunks_exact_mut(unit)) {
                let mut rest = row;
                for source in sources {
                    let run = source.len() / outer;
                    let (place, behind) = rest.split_at_mut(run);
                    match (place, &source[step * run..(step + 1) * run]) {
                        ([place], [value]) => *place = value.clone(),
                        (place, values) => place.clone_from_slice(values),
                    }
                    rest = behind;
                }
            }
        });
    }
}

fn join(ctx: &Context<'_>, sources: &[&Tensor], outer: usize, output: &mut Tensor) -> Result<()> {
    if output.num_elements() == 0 {
        return Ok(());
    }
    output.move_from(sources, Join { ctx, outer })
}

/// The inputs one after the other along an axis.
struct Concat {
    /// Whether the axis is the last input, as in the second version, or the first.
    axis_last: bool,
}

impl Kernel for Concat {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let count = ctx.num_inputs();
        let (axis_at, name) = if self.axis_last { (count.saturating_sub(1), "axis") } else { (0, "concat_dim") };
        let axis_input = ctx.input(axis_at)?;
        let one = axis_input.shape().is_scalar() || axis_input.shape().dims() == [1];
        if !one {
            return Err(invalid_argument!(
                "{name} tensor should be a scalar integer, but got shape {}",
                axis_input.shape()
            ));
        }
        let given = integer(axis_input)?;
        let first = if self.axis_last { 0 } else { 1 };
        let sources = (first..first + count.saturating_sub(1)).map(|i| ctx.input(i));
        let sources: SmallVec<[&Tensor; 8]> = sources.collect::<Result<_>>()?;
        let shape = sources.first().map_or_else(Shape::scalar, |t| t.shape().clone());
        let rank = shape.rank();
        let axis = match axis_of(given, rank) {
            Some(axis) => axis,
            None if given == 0 => {
                return Err(invalid_argument!("ConcatOp : Can't concatenate scalars (use tf.stack instead)"));
            }
            None => {
                return Err(invalid_argument!(
                    "ConcatOp : Expected concatenating dimensions in the range [{}, {rank}), but got {given}",
                    -(rank as i64)
                ));
            }
        };
        let mut total = 0usize;
        for (i, source) in sources.iter().enumerate() {
            let this = source.shape();
            if this.rank() != rank {
                return Err(invalid_argument!(
                    "ConcatOp : Ranks of all input tensors should match: shape[0] = {shape} vs. shape[{i}] = {this}"
                ));
            }
            if (0..rank).any(|j| j != axis && this.dim(j) != shape.dim(j)) {
                return Err(invalid_argument!(
                    "ConcatOp : Dimension {} in both shapes must be equal: shape[0] = {shape} vs. shape[{i}] = {this}",
                    (0..rank).find(|&j| j != axis && this.dim(j) != shape.dim(j)).unwrap_or(axis)
                ));
            }
            total = total.checked_add(this.dim(axis)).ok_or_else(|| invalid_argument!("the joined size overflows"))?;
        }
        let mut dims = Dims::from_slice(shape.dims());
        dims[axis] = total;
        let mut output = ctx.alloc_output(0, Shape::from_dims(&dims)?)?;
        let outer = dims[..axis].iter().product();
        join(ctx, &sources, outer, &mut output)?;
        drop(sources);
        ctx.set_output(0, output)
    }
}

/// Inputs of one shape one after the other along a new axis.
struct Pack {
    axis: i64,
}

impl Pack {
    fn new(construction: &Construction<'_>) -> Result<Pack> {
        Ok(Pack { axis: construction.attrs().int("axis")? })
    }
}

impl Kernel for Pack {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let count = ctx.num_inputs();
        let shape = ctx.input(0)?.shape().clone();
        let new_rank = shape.rank() + 1;
        let Some(axis) = axis_of(self.axis, new_rank) else {
            return Err(invalid_argument!("axis = {} not in [-{new_rank}, {new_rank})", self.axis));
        };
        let mut dims = Dims::from_slice(shape.dims());
        dims.insert(axis, count);
        let output_shape = Shape::from_dims(&dims)?;
        if count == 1 {
            let tensor = ctx.take_input(0)?.into_shape(output_shape)?;
            return ctx.set_output(0, tensor);
        }
        let sources: SmallVec<[&Tensor; 8]> = (0..count).map(|i| ctx.input(i)).collect::<Result<_>>()?;
        if let Some((i, other)) = sources.iter().enumerate().find(|(_, t)| *t.shape() != shape) {
            return Err(invalid_argument!(
                "Shapes of all inputs must match: values[0].shape = {shape} != values[{i}].shape = {}",
                other.shape()
            ));
        }
        let mut output = ctx.alloc_output(0, output_shape)?;
        join(ctx, &sources, dims[..axis].iter().product(), &mut output)?;
        drop(sources);
        ctx.set_output(0, output)
    }
}

/// Where each of some shapes starts when tensors of these shapes are joined along an axis.
struct ConcatOffset;

impl Kernel for ConcatOffset {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let axis_input = ctx.input(0)?;
        if !axis_input.shape().is_scalar() {
            return Err(invalid_argument!(
                "Concat dim tensor should be a scalar integer, but got shape {}",
                axis_input.shape()
            ));
        }
        for i in 1..ctx.num_inputs() {
            let shape = ctx.input(i)?.shape();
            if !shape.is_vector() {
                return Err(invalid_argument!("input {i} should be a vector, but got shape {shape}"));
            }
        }
        let given = integer(axis_input)?;
        let first = crate::args::integers(ctx.input(1)?)?;
        let rank = first.len();
        let Some(axis) = axis_of(given, rank) else {
            return Err(invalid_argument!("Concat dim is out of range: {given} vs. {rank}"));
        };
        let mut offset = 0i64;
        for i in 0..ctx.num_outputs() {
            let dims = crate::args::integers(ctx.input(i + 1)?)?;
            if dims.len() != rank {
                return Err(invalid_argument!("input {i} should contain {rank} elements, but got {}", dims.len()));
            }
            if (0..rank).any(|j| j != axis && dims[j] != first[j]) {
                return Err(invalid_argument!(
                    "All dimensions except {axis} must match. Input {i} has shape [{}] and doesn't match input 0 with shape [{}].",
                    spaced(&dims),
                    spaced(&first)
                ));
            }
            let mut start: Dims<i64> = smallvec::smallvec![0; rank];
            start[axis] = offset;
            let output = match ctx.output_type(i)? {
                // Offsets of 32 bits wrap as TensorFlow's sum does.
                DType::Int32 => Tensor::vector(&start.iter().map(|&v| v as i32).collect::<Dims<i32>>())?,
                dtype => crate::args::index_vector(dtype, &start)?,
            };
            ctx.set_output(i, output)?;
            offset = offset.wrapping_add(dims[axis]);
        }
        Ok(())
    }
}

fn spaced(values: &[i64]) -> String {
    values.iter().map(i64::to_string).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_error, assert_ints, counting, int_op, registry, run, tensor};
    use graphmill_runtime::testing::OpRun;

    #[test]
    fn concat_joins_along_an_axis() {
        let concat = |tensors: &[&Tensor], axis: i32| {
            let axis = tensor(&[], &[axis]);
            let inputs: Vec<&Tensor> = tensors.iter().copied().chain([&axis]).collect();
            run(int_op("ConcatV2").attr_int("N", tensors.len() as i64), &inputs)
        };
        let (a, b) = (counting(&[2, 2]), counting(&[2, 1]));
        assert_ints(&concat(&[&a, &b], 1).unwrap(), &[2, 3], &[0, 1, 0, 2, 3, 1]);
        assert_ints(&concat(&[&a, &b], -1).unwrap(), &[2, 3], &[0, 1, 0, 2, 3, 1]);
        assert_ints(&concat(&[&a, &counting(&[1, 2])], 0).unwrap(), &[3, 2], &[0, 1, 2, 3, 0, 1]);
        assert_ints(&concat(&[&a, &counting(&[2, 0])], 1).unwrap(), &[2, 2], &[0, 1, 2, 3]);
        assert_error(
            concat(&[&a, &counting(&[2])], 0),
            "ConcatOp : Ranks of all input tensors should match: shape[0] = [2,2] vs. shape[1] = [2]",
        );
        assert_error(
            concat(&[&a, &b], 2),
            "ConcatOp : Expected concatenating dimensions in the range [-2, 2), but got 2",
        );
        let first = run(int_op("Concat").attr_int("N", 2), &[&tensor(&[], &[1]), &a, &b]).unwrap();
        assert_ints(&first, &[2, 3], &[0, 1, 0, 2, 3, 1]);
    }

    #[test]
    fn pack_joins_along_a_new_axis() {
        let (a, b) = (counting(&[2]), tensor(&[2], &[5, 6]));
        let pack = |axis| run(int_op("Pack").attr_int("N", 2).attr_int("axis", axis), &[&a, &b]);
        assert_ints(&pack(0).unwrap(), &[2, 2], &[0, 1, 5, 6]);
        assert_ints(&pack(-1).unwrap(), &[2, 2], &[0, 5, 1, 6]);
        assert_error(pack(2), "axis = 2 not in [-2, 2)");
        assert_error(
            run(int_op("Pack").attr_int("N", 2), &[&a, &counting(&[3])]),
            "Shapes of all inputs must match: values[0].shape = [2] != values[1].shape = [3]",
        );
        let strings = Tensor::from_strings(Shape::scalar(), vec!["a".into()]).unwrap();
        let op = OpRun::new("Pack").attr_type("T", DType::String).attr_int("N", 2);
        assert_eq!(run(op, &[&strings, &strings]).unwrap().strings().unwrap(), ["a", "a"]);
    }

    #[test]
    fn offsets_add_up() {
        let vector = |values: &[i32]| tensor(&[values.len() as i64], values);
        let offsets = |axis: i32, a: &[i32], b: &[i32]| {
            OpRun::new("ConcatOffset")
                .attr_int("N", 2)
                .run(&registry(), vec![tensor(&[], &[axis]), vector(a), vector(b)])
        };
        let outputs = offsets(1, &[2, 3], &[2, 5]).unwrap();
        assert_ints(&outputs[0], &[2], &[0, 0]);
        assert_ints(&outputs[1], &[2], &[0, 3]);
        assert_error(
            offsets(1, &[2, 3], &[4, 5]),
            "All dimensions except 1 must match. Input 1 has shape [4 5] and doesn't match input 0 with shape [2 3].",
        );
    }
}
