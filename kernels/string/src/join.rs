//! `StringJoin`, `ReduceJoin`, `UnsortedSegmentJoin`.

use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, invalid_argument, out_of_range};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("StringJoin").kernel(|c| Ok(StringJoin { separator: separator(c)? }));
    registry.op("ReduceJoin").kernel(ReduceJoin::new);
    const INTS: [DType; 2] = [DType::Int32, DType::Int64];
    let entry = registry.op("UnsortedSegmentJoin").types("Tindices", &INTS).types("Tnumsegments", &INTS);
    entry.kernel(|c| Ok(UnsortedSegmentJoin { separator: separator(c)? }));
}

fn separator(c: &Construction<'_>) -> Result<Vec<u8>> {
    Ok(c.attrs().string("separator")?.to_vec())
}

fn join<'a>(parts: impl Iterator<Item = &'a Bytes>, separator: &[u8]) -> Bytes {
    let mut joined = Vec::new();
    for (i, part) in parts.enumerate() {
        if i > 0 {
            joined.extend_from_slice(separator);
        }
        joined.extend_from_slice(part);
    }
    joined.into()
}

/// Joins the inputs element by element; scalars go with every element.
struct StringJoin {
    separator: Vec<u8>,
}

impl Kernel for StringJoin {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let mut shape = Shape::scalar();
        let mut inputs = Vec::with_capacity(ctx.num_inputs());
        for i in 0..ctx.num_inputs() {
            let input = ctx.input(i)?;
            inputs.push((input.shape().is_scalar(), input.strings()?));
            if input.shape().is_scalar() {
                continue;
            }
            if shape.is_scalar() {
                shape = input.shape().clone();
            } else if shape != *input.shape() {
                return Err(invalid_argument!("Input shapes do not match: {shape} vs. {}", input.shape()));
            }
        }
        let joined = (0..shape.num_elements()).map(|i| {
            let parts = inputs.iter().filter_map(|(scalar, strings)| strings.get(if *scalar { 0 } else { i }));
            join(parts, &self.separator)
        });
        let joined = joined.collect();
        ctx.set_output(0, Tensor::from_strings(shape, joined)?)
    }
}

/// Joins along some dimensions, of which the one given first changes fastest.
struct ReduceJoin {
    separator: Vec<u8>,
    keep_dims: bool,
}

impl ReduceJoin {
    fn new(c: &Construction<'_>) -> Result<ReduceJoin> {
        Ok(ReduceJoin { separator: separator(c)?, keep_dims: c.attrs().bool("keep_dims")? })
    }
}

/// Offsets of all positions along some axes, the last of them changing fastest.
fn offsets(axes: &[usize], shape: &Shape) -> Vec<usize> {
    let strides = shape.strides();
    let mut offsets = vec![0];
    for &axis in axes {
        offsets = offsets
            .iter()
            .flat_map(|&o| (0..shape.dim(axis)).map(move |i| (o, i)))
            .map(|(o, i)| o + i * strides[axis])
            .collect();
    }
    offsets
}

impl Kernel for ReduceJoin {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (input, indices) = (ctx.input(0)?, ctx.input(1)?.as_slice::<i32>()?);
        let shape = input.shape();
        let rank = shape.rank();
        let mut reduced = Vec::with_capacity(indices.len());
        for &index in indices {
            let axis = i64::from(index) + if index < 0 { rank as i64 } else { 0 };
            let axis = usize::try_from(axis).ok().filter(|&axis| axis < rank).ok_or_else(|| {
                out_of_range!("Invalid reduction dimension {index} for input with {rank} dimension(s)")
            })?;
            if reduced.contains(&axis) {
                return Err(invalid_argument!("Duplicate reduction dimension {index}"));
            }
            reduced.push(axis);
        }
        let kept: Vec<usize> = (0..rank).filter(|axis| !reduced.contains(axis)).collect();
        let dims: Vec<usize> = (0..rank)
            .filter(|axis| self.keep_dims || kept.contains(axis))
            .map(|axis| if kept.contains(&axis) { shape.dim(axis) } else { 1 })
            .collect();
        let strings = input.strings()?;
        reduced.reverse();
        let inner = offsets(&reduced, shape);
        let joined = offsets(&kept, shape)
            .into_iter()
            .map(|start| join(inner.iter().filter_map(|offset| strings.get(start + offset)), &self.separator));
        let joined = joined.collect();
        ctx.set_output(0, Tensor::from_strings(Shape::from_dims(&dims)?, joined)?)
    }
}

/// Joins what has the same segment.
struct UnsortedSegmentJoin {
    separator: Vec<u8>,
}

impl Kernel for UnsortedSegmentJoin {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (input, ids, count) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        let &[segments] = count.to_i64_vec()?.as_slice() else {
            return Err(invalid_argument!("Number of segments cannot be empty."));
        };
        let (rank, ids_rank) = (input.shape().rank(), ids.shape().rank());
        if ids_rank == 0 {
            return Err(invalid_argument!("Segment_id cannot have rank 0"));
        }
        if ids_rank > rank {
            return Err(out_of_range!("Invalid segment_id rank {ids_rank} for input with {rank} dimension(s)"));
        }
        for i in 0..ids_rank {
            if ids.shape().dim(i) != input.shape().dim(i) {
                return Err(invalid_argument!(
                    "Segment dimension is {} while input dimension is {rank} in rank {i}",
                    ids.shape().dim(i)
                ));
            }
        }
        let mut dims = vec![segments];
        dims.extend(input.shape().dims_i64().skip(ids_rank));
        let shape = Shape::new(&dims)?;
        let ids = ids.to_i64_vec()?;
        if ids.iter().any(|&id| id < 0 || id >= segments) {
            return Err(invalid_argument!(
                "segment_ids are not allowed to exceed num_segments or to have negative values."
            ));
        }
        let width: usize = input.shape().dims().iter().skip(ids_rank).product();
        // Checks that there is memory for the strings.
        Tensor::alloc(DType::String, shape.clone())?;
        let mut joined: Vec<Vec<u8>> = vec![Vec::new(); shape.num_elements()];
        let strings = input.strings()?;
        for (row, &id) in ids.iter().enumerate() {
            for column in 0..width {
                let part = strings.get(row * width + column);
                if let (Some(target), Some(part)) = (joined.get_mut(id as usize * width + column), part) {
                    if !target.is_empty() {
                        target.extend_from_slice(&self.separator);
                    }
                    target.extend_from_slice(part);
                }
            }
        }
        ctx.set_output(0, Tensor::from_strings(shape, joined.into_iter().map(Bytes::from).collect())?)
    }
}
