//! Filling a tensor from a stream on several threads: who fills which part does not change a bit.

use graphmill_runtime::Context;
use graphmill_runtime::philox::Philox;
use graphmill_tensor::{DType, Element, Result, Shape, invalid_argument};
use smallvec::SmallVec;

/// How a slice is filled from a stream.
pub(crate) struct Plan {
    /// Values in a group, the unit of splitting.
    pub group: usize,
    /// Draws from one group to the next.
    pub draws: u64,
    /// Time of a value in nanoseconds, roughly.
    pub cost: f64,
}

/// Fills `out` from `stream` by `fill`, which gets parts that start with a group and the position that belongs to them.
pub(crate) fn fill<T: Element>(
    ctx: &Context<'_>,
    stream: Philox,
    out: &mut [T],
    plan: &Plan,
    fill: impl Fn(Philox, &mut [T]) + Sync,
) {
    let whole = out.len() / plan.group;
    let (groups, rest) = out.split_at_mut(whole * plan.group);
    let at = |group: usize| stream.at((group as u64).wrapping_mul(plan.draws));
    ctx.parallel_chunks(groups, plan.group, plan.cost * plan.group as f64, |range, part| fill(at(range.start), part));
    if !rest.is_empty() {
        fill(at(whole), rest);
    }
}

/// The shape that input `i` spells out.
///
/// # Errors
/// `INVALID_ARGUMENT` if it is not a vector of sizes, or the shape has too many elements.
pub(crate) fn shape_input(ctx: &Context<'_>, i: usize) -> Result<Shape> {
    let tensor = ctx.input(i)?;
    if !tensor.shape().is_vector() {
        return Err(invalid_argument!("shape must be a vector of {{int32,int64}}, got shape {}", tensor.shape()));
    }
    match tensor.dtype() {
        DType::Int32 => shape_of(tensor.as_slice::<i32>()?),
        DType::Int64 => shape_of(tensor.as_slice::<i64>()?),
        _ => Err(invalid_argument!("shape must be a vector of {{int32,int64}}.")),
    }
}

fn shape_of<I: Copy + Into<i64>>(sizes: &[I]) -> Result<Shape> {
    let mut dims = SmallVec::<[i64; 8]>::with_capacity(sizes.len());
    let mut elements = Some(1i64);
    for &size in sizes {
        let size: i64 = size.into();
        if size < 0 {
            return Err(invalid_argument!("Dimension {size} must be >= 0"));
        }
        elements = elements.and_then(|n| n.checked_mul(size));
        dims.push(size);
    }
    if elements.is_none() {
        let dims: Vec<String> = dims.iter().map(i64::to_string).collect();
        return Err(invalid_argument!("Shape [{}] would have more than 2**63 - 1 elements", dims.join(",")));
    }
    Shape::new(&dims)
}
