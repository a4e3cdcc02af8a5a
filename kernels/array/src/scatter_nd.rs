//! Writing slices by rows of indices.

use crate::args::integers;
use crate::gather_nd::{MAX_DEPTH, ignores_bad_indices, row_text, slice_starts};
use crate::types::{STRING, union};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Mover, Result, Shape, Status, Tensor, dispatch, internal, invalid_argument};
use std::ops::{Add, Sub};

/// What becomes of an element and its update.
#[derive(Clone, Copy, PartialEq)]
enum Update {
    Assign,
    Add,
    Sub,
    Max,
    Min,
}

pub(crate) fn register(registry: &mut Registry) {
    let with_string = union(&[DType::NUMBERS_AND_BOOL, STRING]);
    registry.op("ScatterNd").types("T", &with_string).types("Tindices", DType::INDICES).kernel(ScatterNd::new);
    registry
        .op("ScatterNdNonAliasingAdd")
        .types("T", DType::NUMBERS_AND_BOOL)
        .types("Tindices", DType::INDICES)
        .kernel(Scatter::non_aliasing);
    registry
        .op("TensorScatterUpdate")
        .types("T", &with_string)
        .types("Tindices", DType::INDICES)
        .kernel(|c| Scatter::new(c, Update::Assign));
    registry
        .op("TensorScatterAdd")
        .types("T", DType::NUMBERS)
        .types("Tindices", DType::INDICES)
        .kernel(|c| Scatter::new(c, Update::Add));
    registry
        .op("TensorScatterSub")
        .types("T", DType::NUMBERS)
        .types("Tindices", DType::INDICES)
        .kernel(|c| Scatter::new(c, Update::Sub));
    registry
        .op("TensorScatterMax")
        .types("T", DType::REALS)
        .types("Tindices", DType::INDICES)
        .kernel(|c| Scatter::new(c, Update::Max));
    registry
        .op("TensorScatterMin")
        .types("T", DType::REALS)
        .types("Tindices", DType::INDICES)
        .kernel(|c| Scatter::new(c, Update::Min));
}

/// Zeros of a shape with `updates[i..]` added at `indices[i..]`; strings are appended, truth values ored.
struct ScatterNd {
    ignore: bool,
}

impl ScatterNd {
    fn new(construction: &Construction<'_>) -> Result<ScatterNd> {
        Ok(ScatterNd { ignore: ignores_bad_indices(construction)? })
    }
}

impl Kernel for ScatterNd {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (indices, updates, sizes) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        check_ranks(indices, updates)?;
        if !sizes.shape().is_vector() {
            return Err(invalid_argument!("Shape must be a vector"));
        }
        let shape = crate::args::shape(&integers(sizes)?)?;
        // TensorFlow first looks at the number of sizes only.
        if !goes_with_empty(shape.rank(), indices, updates) {
            return Err(invalid_argument!("Indices and updates specified for empty output shape"));
        }
        check_shapes(&shape, indices, updates, scatter_mismatch)?;
        if !goes_with_empty(shape.num_elements(), indices, updates) {
            return Err(specified_for_empty(indices));
        }
        let starts = checked_starts(indices, &shape, self.ignore)?;
        let mut output = Tensor::zeros(ctx.output_type(0)?, shape)?;
        apply(ctx, Update::Add, &starts, updates, &mut output)?;
        ctx.set_output(0, output)
    }
}

/// The input with updates put to slices of it.
struct Scatter {
    update: Update,
    ignore: bool,
    /// Whether it is one of the ops whose checks are those of the ops on variables.
    as_variable: bool,
}

impl Scatter {
    fn new(construction: &Construction<'_>, update: Update) -> Result<Scatter> {
        Ok(Scatter { update, ignore: ignores_bad_indices(construction)?, as_variable: false })
    }

    fn non_aliasing(construction: &Construction<'_>) -> Result<Scatter> {
        Ok(Scatter { as_variable: true, ..Scatter::new(construction, Update::Add)? })
    }

    fn check(&self, shape: &Shape, indices: &Tensor, updates: &Tensor) -> Result<()> {
        check_ranks(indices, updates)?;
        let mismatch = if self.as_variable { variable_mismatch } else { update_mismatch };
        if !goes_with_empty(shape.num_elements(), indices, updates) {
            return Err(if self.as_variable {
                specified_for_empty(indices)
            } else {
                invalid_argument!("Indices and updates specified for empty output shape")
            });
        }
        check_shapes(shape, indices, updates, mismatch)
    }
}

impl Kernel for Scatter {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let shape = ctx.input(0)?.shape().clone();
        let (indices, updates) = (ctx.input(1)?, ctx.input(2)?);
        self.check(&shape, indices, updates)?;
        let starts = checked_starts(indices, &shape, self.ignore)?;
        let mut output = ctx.take_input(0)?.into_unique()?;
        apply(ctx, self.update, &starts, ctx.input(2)?, &mut output)?;
        ctx.set_output(0, output)
    }
}

fn specified_for_empty(indices: &Tensor) -> Status {
    invalid_argument!("Indices and updates specified for empty output.  indices shape: {}", indices.shape())
}

fn check_ranks(indices: &Tensor, updates: &Tensor) -> Result<()> {
    for (name, tensor) in [("Indices", indices), ("Updates", updates)] {
        if tensor.shape().is_scalar() {
            return Err(invalid_argument!("{name} shape must have rank at least one. Found:{}", tensor.shape()));
        }
    }
    Ok(())
}

/// Whether nothing at all is to be written, or none of target, indices and updates is empty.
fn goes_with_empty(target: usize, indices: &Tensor, updates: &Tensor) -> bool {
    match (indices.num_elements(), updates.num_elements()) {
        (0, 0) => true,
        (i, u) => target != 0 && i != 0 && u != 0,
    }
}

fn check_shapes(
    shape: &Shape,
    indices: &Tensor,
    updates: &Tensor,
    mismatch: fn(&Shape, &Shape, &Shape) -> Status,
) -> Result<()> {
    let (i, u) = (indices.shape(), updates.shape());
    let outer = i.rank() - 1;
    let depth = i.dim(outer);
    let same_start = u.rank() >= outer && (0..outer).all(|k| i.dim(k) == u.dim(k));
    if !same_start || depth > shape.rank() || u.dims()[outer..] != shape.dims()[depth..] {
        return Err(mismatch(shape, i, u));
    }
    if depth > MAX_DEPTH {
        return Err(invalid_argument!(
            "Only indices.shape[-1] values between 1 and 5 are currently supported.  Requested rank: {depth}"
        ));
    }
    Ok(())
}

/// What `ScatterNd` says of shapes that do not fit together.
fn scatter_mismatch(shape: &Shape, indices: &Shape, updates: &Shape) -> Status {
    let outer = indices.rank() - 1;
    let depth = indices.dim(outer);
    if (0..outer).any(|i| indices.dim(i) != updates.dim(i)) {
        return invalid_argument!(
            "Dimensions [0,{outer}) of indices[shape={indices}] must match dimensions [0,{outer}) of updates[shape={updates}]"
        );
    }
    invalid_argument!(
        "Dimensions [{depth},{}) of input[shape={shape}] must match dimensions [{outer},{}) of updates[shape={updates}]",
        shape.rank(),
        updates.rank()
    )
}

/// What the op with the checks of variables says of shapes that do not fit together.
fn variable_mismatch(shape: &Shape, indices: &Shape, updates: &Shape) -> Status {
    let outer = indices.rank() - 1;
    let depth = indices.dim(outer);
    if indices.dim(0) != updates.dim(0) {
        return invalid_argument!(
            "Dimensions [0,1) of indices[shape={indices}] = {} must match dimensions [0,1) of updates[shape={updates}] = {}",
            indices.dim(0),
            updates.dim(0)
        );
    }
    if (0..outer).any(|i| indices.dim(i) != updates.dim(i)) {
        return invalid_argument!(
            "Dimensions [0,{outer}) of indices[shape={indices}] must match dimensions [0,{outer}) of updates[shape={updates}]"
        );
    }
    invalid_argument!(
        "Dimensions [{depth},{}) of input[shape={shape}] must match dimensions [{depth},{}) of updates[shape={updates}]",
        shape.rank(),
        updates.rank()
    )
}

/// What the updating ops say of shapes that do not fit together.
fn update_mismatch(shape: &Shape, indices: &Shape, updates: &Shape) -> Status {
    let outer = indices.rank() - 1;
    let depth = indices.dim(outer);
    if (0..outer).any(|i| indices.dim(i) != updates.dim(i)) {
        return invalid_argument!(
            "Outer dimensions of indices and update must match. Indices shape: {indices}, updates shape:{updates}"
        );
    }
    if updates.rank() + depth != shape.rank() + outer {
        return invalid_argument!(
            "Inner dimensions of output shape must match inner dimensions of updates shape. Output: {shape} updates: {updates}"
        );
    }
    let (shape_inner, updates_inner) = (shape.rank() - depth, updates.rank() - outer);
    invalid_argument!(
        "The inner {shape_inner} dimensions of output.shape={shape} must match the inner {updates_inner} dimensions of updates.shape={updates}"
    )
}

fn checked_starts(indices: &Tensor, shape: &Shape, ignore: bool) -> Result<Vec<usize>> {
    let starts = slice_starts(indices, shape)?;
    if !ignore && let Some(bad) = starts.iter().position(|&s| s == usize::MAX) {
        return Err(invalid_argument!("{} does not index into shape {shape}", row_text(indices, bad)?));
    }
    Ok(starts)
}

fn apply(ctx: &Context<'_>, update: Update, starts: &[usize], updates: &Tensor, output: &mut Tensor) -> Result<()> {
    let Some(slice) = updates.num_elements().checked_div(starts.len()).filter(|&n| n > 0) else { return Ok(()) };
    if update == Update::Assign {
        return output.move_from(&[updates], Place { starts, slice });
    }
    match output.dtype() {
        DType::String => {
            let target = output.strings_mut()?;
            for (&start, parts) in starts.iter().zip(updates.strings()?.chunks_exact(slice)) {
                for (place, part) in target.iter_mut().skip(start).zip(parts) {
                    *place = [place.as_ref(), part.as_ref()].concat().into();
                }
            }
            Ok(())
        }
        DType::Bool => each::<bool>(ctx, starts, slice, updates, output, |a, b| a | b),
        dtype if matches!(update, Update::Max | Update::Min) => dispatch!(dtype, T in reals => match update {
            Update::Max => each::<T>(ctx, starts, slice, updates, output, |a, b| if a < b { b } else { a })?,
            _ => each::<T>(ctx, starts, slice, updates, output, |a, b| if b < a { b } else { a })?,
        })
        .ok_or_else(|| internal!("no order of type {dtype}")),
        dtype => dispatch!(dtype, T in numbers => match update {
            Update::Sub => each::<T>(ctx, starts, slice, updates, output, Wrapping::minus)?,
            _ => each::<T>(ctx, starts, slice, updates, output, Wrapping::plus)?,
        })
        .ok_or_else(|| internal!("no sums of type {dtype}")),
    }
}

/// Sums that wrap around as TensorFlow's do.
pub(crate) trait Wrapping: Element {
    /// `a + b`
    fn plus(a: Self, b: Self) -> Self;
    /// `a - b`
    fn minus(a: Self, b: Self) -> Self;
    /// `a * b`
    fn times(a: Self, b: Self) -> Self;
}

macro_rules! wrapping {
    ($($int:ty),*) => {$(
        impl Wrapping for $int {
            fn plus(a: Self, b: Self) -> Self {
                a.wrapping_add(b)
            }
            fn minus(a: Self, b: Self) -> Self {
                a.wrapping_sub(b)
            }
            fn times(a: Self, b: Self) -> Self {
                a.wrapping_mul(b)
            }
        }
    )*};
}

macro_rules! plain {
    ($($number:ty),*) => {$(
        impl Wrapping for $number {
            fn plus(a: Self, b: Self) -> Self {
                Add::add(a, b)
            }
            fn minus(a: Self, b: Self) -> Self {
                Sub::sub(a, b)
            }
            fn times(a: Self, b: Self) -> Self {
                a * b
            }
        }
    )*};
}

wrapping!(i8, i16, i32, i64, u8, u16, u32, u64);
plain!(
    f32,
    f64,
    graphmill_tensor::f16,
    graphmill_tensor::bf16,
    graphmill_tensor::Complex32,
    graphmill_tensor::Complex64
);

/// Slices are updated in the order of the indices, so that the result does not depend on the number of threads; long slices are
/// split.
fn each<T: Element>(
    ctx: &Context<'_>,
    starts: &[usize],
    slice: usize,
    updates: &Tensor,
    output: &mut Tensor,
    combine: impl Fn(T, T) -> T + Sync + Copy,
) -> Result<()> {
    let values = updates.as_slice::<T>()?;
    let target = output.as_mut_slice::<T>()?;
    for (&start, values) in starts.iter().zip(values.chunks_exact(slice)) {
        if start == usize::MAX {
            continue;
        }
        let places = target.get_mut(start..start + slice).ok_or_else(|| internal!("a slice lies outside"))?;
        ctx.parallel_chunks(places, 1, 0.3, |range, places| {
            places.iter_mut().zip(&values[range]).for_each(|(place, &value)| *place = combine(*place, value));
        });
    }
    Ok(())
}

/// Copies the slices of the source to their starts in the target, in order.
struct Place<'a> {
    starts: &'a [usize],
    slice: usize,
}

impl Mover for Place<'_> {
    type Output = ();

    fn run<E: Clone + Send + Sync>(self, sources: &[&[E]], target: &mut [E]) {
        for (&start, values) in self.starts.iter().zip(sources[0].chunks_exact(self.slice)) {
            if start != usize::MAX {
                target[start..start + self.slice].clone_from_slice(values);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_error, assert_ints, counting, run, tensor};
    use graphmill_runtime::testing::OpRun;

    fn int_op(op: &str) -> OpRun {
        crate::testing::int_op(op).attr_type("Tindices", DType::Int32)
    }

    #[test]
    fn updates_add_up() {
        let indices = tensor(&[3, 1], &[1, 3, 1]);
        let y = run(int_op("ScatterNd"), &[&indices, &tensor(&[3], &[5, 6, 7]), &tensor(&[1], &[4])]).unwrap();
        assert_ints(&y, &[4], &[0, 12, 0, 6]);
        let rows = tensor(&[1, 2], &[8, 9]);
        let y = run(int_op("ScatterNd"), &[&tensor(&[1, 1], &[1]), &rows, &tensor(&[2], &[2, 2])]).unwrap();
        assert_ints(&y, &[2, 2], &[0, 0, 8, 9]);
        assert_error(
            run(int_op("ScatterNd"), &[&tensor(&[1, 1], &[2]), &rows, &tensor(&[2], &[2, 2])]),
            "indices[0] = [2] does not index into shape [2,2]",
        );
        assert_error(
            run(int_op("ScatterNd"), &[&tensor(&[1, 1], &[0]), &rows, &tensor(&[2], &[2, 3])]),
            "Dimensions [1,2) of input[shape=[2,3]] must match dimensions [1,2) of updates[shape=[1,2]]",
        );
        assert_error(
            run(int_op("ScatterNd"), &[&tensor(&[1, 1], &[0]), &rows, &tensor(&[2], &[0, 2])]),
            "Indices and updates specified for empty output.  indices shape: [1,1]",
        );
        let texts = Tensor::from_strings(Shape::vector(2), vec!["a".into(), "b".into()]).unwrap();
        let op = int_op("ScatterNd").attr_type("T", DType::String);
        let y = run(op, &[&tensor(&[2, 1], &[0, 0]), &texts, &tensor(&[1], &[2])]).unwrap();
        assert_eq!(y.strings().unwrap(), ["ab", ""]);
    }

    #[test]
    fn tensors_are_updated_and_inputs_kept() {
        let x = counting(&[3]);
        let (indices, updates) = (tensor(&[2, 1], &[2, 0]), tensor(&[2], &[5, -1]));
        for (op, expected) in [
            ("TensorScatterUpdate", [-1, 1, 5]),
            ("TensorScatterAdd", [-1, 1, 7]),
            ("TensorScatterSub", [1, 1, -3]),
            ("TensorScatterMax", [0, 1, 5]),
            ("TensorScatterMin", [-1, 1, 2]),
            ("ScatterNdNonAliasingAdd", [-1, 1, 7]),
        ] {
            assert_ints(&run(int_op(op), &[&x, &indices, &updates]).unwrap(), &[3], &expected);
        }
        assert_ints(&x, &[3], &[0, 1, 2]);
        assert_error(
            run(int_op("TensorScatterAdd"), &[&x, &tensor(&[2, 1], &[0, -3]), &updates]),
            "indices[1] = [-3] does not index into shape [3]",
        );
    }
}
