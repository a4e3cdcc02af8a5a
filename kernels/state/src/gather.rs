//! `ResourceGather` and `ResourceGatherNd`: rows and slices of a resource variable.

use crate::access::{check_type, resource_variable};
use crate::rows::{Parts, indices, position, slice_offsets, vector_text};
use crate::types::{OBJECTS, union};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    let quantized = [DType::QInt8, DType::QUInt8, DType::QInt32];
    registry
        .op("ResourceGather")
        .types("dtype", &union(&[DType::NUMBERS, &OBJECTS, &quantized]))
        .types("Tindices", DType::INDICES)
        .kernel(Gather::new);
    registry
        .op("ResourceGatherNd")
        .types("dtype", &union(&[DType::NUMBERS, &OBJECTS]))
        .types("Tindices", DType::INDICES)
        .kernel(|c| Ok(GatherNd { dtype: c.dtype("dtype")? }));
}

/// The rows of a variable that indices name, in each of its first `batch_dims` dimensions on its own.
struct Gather {
    dtype: DType,
    batch_dims: usize,
}

impl Gather {
    fn new(c: &Construction<'_>) -> Result<Gather> {
        let batch_dims = c.attrs().int("batch_dims")?;
        let batch_dims = usize::try_from(batch_dims)
            .map_err(|_| invalid_argument!("batch_dims must not be negative, got {batch_dims}"))?;
        Ok(Gather { dtype: c.dtype("dtype")?, batch_dims })
    }
}

impl Kernel for Gather {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let variable = resource_variable(ctx, 0)?;
        check_type(&variable, self.dtype)?;
        let params = variable.snapshot()?;
        let output = gather(&params, ctx.input(1)?, self.batch_dims)?;
        ctx.set_output(0, output)
    }
}

fn gather(params: &Tensor, index_tensor: &Tensor, batch_dims: usize) -> Result<Tensor> {
    let (from, at) = (params.shape(), index_tensor.shape());
    if from.is_scalar() {
        return Err(invalid_argument!("params must be at least 1 dimensional"));
    }
    if from.rank() <= batch_dims {
        return Err(invalid_argument!(
            "params must have at least {batch_dims} (batch_dims) dimensions but it has shape {from}"
        ));
    }
    let batch = from.dims().get(..batch_dims).unwrap_or_default();
    if at.dims().get(..batch_dims) != Some(batch) {
        return Err(invalid_argument!(
            "the first {batch_dims} (batch_dims) dimensions of params and indices must match, got shapes {from} and {at}"
        ));
    }
    let limit = from.dim(batch_dims);
    let width = from.stride(batch_dims);
    let batches: usize = batch.iter().product();
    let indices = indices(index_tensor)?;
    let per_batch = indices.len() / batches.max(1);
    let mut offsets = Vec::with_capacity(indices.len());
    for i in 0..indices.len() {
        match usize::try_from(indices.get(i)) {
            Ok(index) if index < limit => offsets.push(Some((i / per_batch * limit + index) * width)),
            _ => {
                return Err(invalid_argument!(
                    "indices{} = {} is not in [0, {limit})",
                    position(at.dims(), i),
                    indices.get(i)
                ));
            }
        }
    }
    let shape = Shape::from_dims(&[at.dims(), &from.dims()[batch_dims + 1..]].concat())?;
    let mut output = Tensor::alloc(params.dtype(), shape)?;
    output.move_from(&[params], Parts { offsets: &offsets, width, scatter: false })?;
    Ok(output)
}

/// The slices of a variable that index vectors name.
struct GatherNd {
    dtype: DType,
}

impl Kernel for GatherNd {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let variable = resource_variable(ctx, 0)?;
        check_type(&variable, self.dtype)?;
        let params = variable.snapshot()?;
        let output = gather_nd(&params, ctx.input(1)?, &ctx.node().name)?;
        ctx.set_output(0, output)
    }
}

fn gather_nd(params: &Tensor, index_tensor: &Tensor, node: &str) -> Result<Tensor> {
    let (from, at) = (params.shape(), index_tensor.shape());
    if from.is_scalar() {
        return Err(invalid_argument!("params must be at least a vector"));
    }
    let [outer @ .., depth] = at.dims() else {
        return Err(invalid_argument!("indices must be at least a vector"));
    };
    let Some(inner) = from.dims().get(*depth..) else {
        return Err(invalid_argument!(
            "index innermost dimension length must be <= params rank; saw: {depth} vs. {}",
            from.rank()
        ));
    };
    let shape = Shape::from_dims(&[outer, inner].concat())?;
    let count: usize = outer.iter().product();
    if count > 0 && params.num_elements() == 0 {
        return Err(invalid_argument!("Requested more than 0 entries, but params is empty.  Params shape: {from}"));
    }
    let indices = indices(index_tensor)?;
    let offsets = slice_offsets(indices, *depth, count, from);
    if let Some(bad) = offsets.iter().position(Option::is_none) {
        return Err(invalid_argument!(
            "indices{} = {} does not index into param shape {from}, node name: {node}",
            position(outer, bad),
            vector_text(indices, *depth, bad)
        ));
    }
    let mut output = Tensor::alloc(params.dtype(), shape)?;
    output.move_from(&[params], Parts { offsets: &offsets, width: inner.iter().product(), scatter: false })?;
    Ok(output)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params() -> Tensor {
        Tensor::from_slice(Shape::new(&[2, 2]).unwrap(), &[1f32, 2.0, 3.0, 4.0]).unwrap()
    }

    fn index(dims: &[i64], values: &[i64]) -> Tensor {
        Tensor::from_slice(Shape::new(dims).unwrap(), values).unwrap()
    }

    #[test]
    fn rows_and_batches() {
        let rows = gather(&params(), &index(&[3], &[1, 0, 1]), 0).unwrap();
        assert_eq!(rows.as_slice::<f32>().unwrap(), [3.0, 4.0, 1.0, 2.0, 3.0, 4.0]);
        let batched = gather(&params(), &index(&[2, 1], &[0, 1]), 1).unwrap();
        assert_eq!((batched.shape().dims(), batched.as_slice::<f32>().unwrap()), (&[2, 1][..], &[1.0, 4.0][..]));
        let error = gather(&params(), &index(&[2, 1], &[0, 5]), 1).unwrap_err();
        assert_eq!(error.message(), "indices[1,0] = 5 is not in [0, 2)");
        assert!(gather(&params(), &index(&[1], &[0]), 1).is_err());
        assert!(gather(&params(), &index(&[1], &[0]), 2).is_err());
        assert_eq!(gather(&params(), &index(&[0], &[]), 0).unwrap().shape().dims(), [0, 2]);
    }

    #[test]
    fn slices() {
        let element = gather_nd(&params(), &index(&[1, 2], &[1, 0]), "g").unwrap();
        assert_eq!(element.as_slice::<f32>().unwrap(), [3.0]);
        let row = gather_nd(&params(), &index(&[1], &[1]), "g").unwrap();
        assert_eq!(row.as_slice::<f32>().unwrap(), [3.0, 4.0]);
        let all = gather_nd(&params(), &index(&[2, 0], &[]), "g").unwrap();
        assert_eq!(all.shape().dims(), [2, 2, 2]);
        for (dims, values, text) in [
            (&[1, 2][..], &[0, 2][..], "indices[0] = [0, 2] does not index into param shape [2,2], node name: g"),
            (&[1, 3], &[0, 0, 0], "index innermost dimension length must be <= params rank; saw: 3 vs. 2"),
            (&[], &[1], "indices must be at least a vector"),
        ] {
            assert_eq!(gather_nd(&params(), &index(dims, values), "g").unwrap_err().message(), text);
        }
    }
}
