//! Picking slices by rows of indices, and the rows of indices that scattering shares.

use crate::gather::position_text;
use crate::types::{FLOAT8, INDEX_16, OBJECTS, QUANTIZED_8_32, union};
use crate::walk::Dims;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Mover, Result, Shape, Tensor, dispatch, internal, invalid_argument};
use std::fmt::Display;

/// As many dimensions as TensorFlow's kernels can index into.
pub(crate) const MAX_DEPTH: usize = 7;

pub(crate) fn register(registry: &mut Registry) {
    let types = union(&[DType::NUMBERS_AND_BOOL, FLOAT8, QUANTIZED_8_32, OBJECTS]);
    registry.op("GatherNd").types("Tparams", &types).types("Tindices", INDEX_16).kernel(GatherNd::new);
}

/// Whether a row of indices that lies outside is left out instead of being an error.
pub(crate) fn ignores_bad_indices(construction: &Construction<'_>) -> Result<bool> {
    match construction.attrs().str("bad_indices_policy")? {
        "" | "DEFAULT" | "ERROR" => Ok(false),
        "IGNORE" => Ok(true),
        other => Err(invalid_argument!("Unknown bad indices handling attribute: {other}")),
    }
}

/// The element at which the slice begins that each row of `indices` means, within a tensor of this shape. `usize::MAX` stands for
/// a row that lies outside.
///
/// # Errors
/// `INTERNAL` for indices of another type than int16, int32, int64.
pub(crate) fn slice_starts(indices: &Tensor, shape: &Shape) -> Result<Vec<usize>> {
    let depth = indices.shape().dims().last().copied().unwrap_or(1);
    let rows = indices
        .num_elements()
        .checked_div(depth)
        .unwrap_or_else(|| indices.shape().dims().iter().rev().skip(1).product());
    if depth == 0 {
        return Ok(vec![0; rows]);
    }
    let (dims, strides) = (&shape.dims()[..depth.min(shape.rank())], shape.strides());
    dispatch!(indices.dtype(), I in [i16, i32, i64] => {
        let values = indices.as_slice::<I>()?;
        let start = |row: &[I]| {
            let mut at = 0;
            for ((&index, &dim), &stride) in row.iter().zip(dims).zip(&strides) {
                match usize::try_from(index) {
                    Ok(index) if index < dim => at += index * stride,
                    _ => return usize::MAX,
                }
            }
            at
        };
        values.chunks_exact(depth).map(start).collect()
    })
    .ok_or_else(|| internal!("indices of type {}", indices.dtype()))
}

/// The row of indices at `row` as text: `indices[1] = [3, 4]`.
pub(crate) fn row_text(indices: &Tensor, row: usize) -> Result<String> {
    fn text<I: Element + Display>(indices: &Tensor, row: usize, depth: usize) -> Result<String> {
        let values = indices.as_slice::<I>()?.iter().skip(row * depth).take(depth);
        Ok(values.map(|v| v.to_string()).collect::<Vec<_>>().join(", "))
    }
    let dims = indices.shape().dims();
    let (depth, outer) = dims.split_last().map_or((1, &[][..]), |(&d, outer)| (d, outer));
    let values = dispatch!(indices.dtype(), I in [i16, i32, i64] => text::<I>(indices, row, depth)?);
    let place = position_text(&Shape::from_dims(outer)?, row);
    Ok(format!("indices{place} = [{}]", values.unwrap_or_default()))
}

/// `params[indices[i.., :]]`
struct GatherNd {
    name: String,
    ignore: bool,
}

impl GatherNd {
    fn new(construction: &Construction<'_>) -> Result<GatherNd> {
        Ok(GatherNd { name: construction.name().to_owned(), ignore: ignores_bad_indices(construction)? })
    }

    fn shape(params: &Shape, indices: &Shape) -> Result<(usize, Shape)> {
        if params.is_scalar() {
            return Err(invalid_argument!("params must be at least a vector"));
        }
        let Some((&depth, outer)) = indices.dims().split_last() else {
            return Err(invalid_argument!("indices must be at least a vector"));
        };
        if depth > params.rank() {
            return Err(invalid_argument!(
                "index innermost dimension length must be <= params rank; saw: {depth} vs. {}",
                params.rank()
            ));
        }
        let mut dims = Dims::from_slice(outer);
        dims.extend_from_slice(&params.dims()[depth..]);
        Ok((depth, Shape::from_dims(&dims)?))
    }
}

impl Kernel for GatherNd {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (params, indices) = (ctx.input(0)?, ctx.input(1)?);
        let (depth, shape) = GatherNd::shape(params.shape(), indices.shape())?;
        if params.num_elements() == 0 && shape.num_elements() > 0 {
            return Err(invalid_argument!(
                "Requested more than 0 entries, but params is empty.  Params shape: {}",
                params.shape()
            ));
        }
        if depth > MAX_DEPTH {
            return Err(invalid_argument!(
                "Only indices.shape[-1] values between 1 and 7 are currently supported.  Requested rank: {depth}"
            ));
        }
        let mut output = if self.ignore { Tensor::zeros(params.dtype(), shape)? } else { ctx.alloc_output(0, shape)? };
        if output.num_elements() > 0 {
            let starts = slice_starts(indices, params.shape())?;
            if !self.ignore
                && let Some(bad) = starts.iter().position(|&s| s == usize::MAX)
            {
                return Err(invalid_argument!(
                    "{} does not index into param shape {}, node name: {}",
                    row_text(indices, bad)?,
                    params.shape(),
                    self.name
                ));
            }
            let slice = params.shape().dims()[depth..].iter().product();
            output.move_from(&[params], Pick { ctx, starts: &starts, slice })?;
        }
        ctx.set_output(0, output)
    }
}

/// Copies a slice of the source from each start on; leaves the target where a start is `usize::MAX`.
struct Pick<'a, 'b> {
    ctx: &'a Context<'b>,
    starts: &'a [usize],
    slice: usize,
}

impl Mover for Pick<'_, '_> {
    type Output = ();

    fn run<E: Clone + Send + Sync>(self, sources: &[&[E]], target: &mut [E]) {
        let cost = 8.0 + self.slice as f64 * size_of::<E>() as f64 * 0.1;
        self.ctx.parallel_chunks(target, self.slice, cost, |range, part| {
            for (&start, place) in self.starts[range].iter().zip(part.chunks_exact_mut(self.slice)) {
                if start != usize::MAX {
                    place.clone_from_slice(&sources[0][start..start + self.slice]);
                }
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

    fn gather(params: &[i64], dims: &[i64], indices: &[i32], policy: &str) -> Result<Tensor> {
        let op = OpRun::new("GatherNd")
            .attr_type("Tparams", DType::Int32)
            .attr_type("Tindices", DType::Int32)
            .attr_str("bad_indices_policy", policy);
        run(op, &[&counting(params), &tensor(dims, indices)])
    }

    #[test]
    fn slices_are_picked() {
        assert_ints(&gather(&[2, 3], &[2, 2], &[1, 2, 0, 1], "").unwrap(), &[2], &[5, 1]);
        assert_ints(&gather(&[2, 3], &[1, 2, 1], &[1, 0], "").unwrap(), &[1, 2, 3], &[3, 4, 5, 0, 1, 2]);
        assert_ints(&gather(&[2], &[2, 0], &[], "").unwrap(), &[2, 2], &[0, 1, 0, 1]);
        assert_ints(&gather(&[2], &[3, 1], &[1, 5, -1], "IGNORE").unwrap(), &[3], &[1, 0, 0]);
        assert_error(
            gather(&[2, 3], &[1, 2], &[1, 3], ""),
            "indices[0] = [1, 3] does not index into param shape [2,3], node name: op",
        );
        assert_error(
            gather(&[2], &[1, 2], &[0, 0], ""),
            "index innermost dimension length must be <= params rank; saw: 2 vs. 1",
        );
        assert_error(gather(&[], &[1, 0], &[], ""), "params must be at least a vector");
    }
}
