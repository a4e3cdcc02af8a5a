//! Taking tensors apart into slices by a number for each slice, and putting them together again.

use crate::gather::position_text;
use crate::types::{OBJECTS, QUANTIZED_8_32, STRING, union};
use crate::walk::Dims;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Mover, Result, Shape, Tensor, invalid_argument};
use smallvec::SmallVec;

pub(crate) fn register(registry: &mut Registry) {
    let stitched = union(&[DType::NUMBERS_AND_BOOL, QUANTIZED_8_32, STRING, &[DType::Variant]]);
    for op in ["DynamicStitch", "ParallelDynamicStitch"] {
        registry.op(op).types("T", &stitched).kernel(DynamicStitch::new);
    }
    registry
        .op("DynamicPartition")
        .types("T", &union(&[DType::NUMBERS_AND_BOOL, OBJECTS]))
        .kernel(|_| Ok(DynamicPartition));
}

/// `merged[indices[m][i..]] = data[m][i..]`, later ones over earlier ones. Slices that no index names are zeros.
struct DynamicStitch {
    count: usize,
}

impl DynamicStitch {
    fn new(construction: &Construction<'_>) -> Result<DynamicStitch> {
        Ok(DynamicStitch { count: construction.num_inputs() / 2 })
    }

    /// The shape of the result: one more row than the largest index.
    fn shape(&self, indices: &[&Tensor], data: &[&Tensor]) -> Result<Shape> {
        let (indices0, data0) = (indices[0].shape(), data[0].shape());
        let mut largest = -1i32;
        for (n, (i, d)) in indices.iter().zip(data).enumerate() {
            largest = largest.max(i.as_slice::<i32>()?.iter().copied().max().unwrap_or(-1));
            let (i, d) = (i.shape(), d.shape());
            if !d.dims().starts_with(i.dims()) {
                return Err(invalid_argument!("data[{n}].shape = {d} does not start with indices[{n}].shape = {i}"));
            }
            if d.dims()[i.rank()..] != data0.dims()[indices0.rank()..] {
                return Err(invalid_argument!(
                    "Need data[0].shape[{}:] = data[{n}].shape[{}:], got data[0].shape = {data0}, data[{n}].shape = {d}, indices[0].shape = {indices0}, indices[{n}].shape = {i}",
                    indices0.rank(),
                    i.rank()
                ));
            }
        }
        let rows = usize::try_from(i64::from(largest) + 1).unwrap_or(0);
        let mut dims: Dims<usize> = Dims::from_slice(&[rows]);
        dims.extend_from_slice(&data0.dims()[indices0.rank()..]);
        Shape::from_dims(&dims)
    }
}

impl Kernel for DynamicStitch {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let list = |from: usize| (from..from + self.count).map(|i| ctx.input(i));
        let indices: SmallVec<[&Tensor; 8]> = list(0).collect::<Result<_>>()?;
        let data: SmallVec<[&Tensor; 8]> = list(self.count).collect::<Result<_>>()?;
        if indices.is_empty() {
            return Err(invalid_argument!("DynamicStitchOp: Must have some inputs"));
        }
        let shape = self.shape(&indices, &data)?;
        let rows = shape.dim(0);
        let slice = shape.dims()[1..].iter().product::<usize>();
        let mut output = Tensor::zeros(data[0].dtype(), shape)?;
        let mut all: SmallVec<[&[i32]; 8]> = SmallVec::new();
        for tensor in &indices {
            let values = tensor.as_slice::<i32>()?;
            if let Some(bad) = values.iter().position(|&v| usize::try_from(v).is_ok_and(|v| v < rows).eq(&false)) {
                return Err(invalid_argument!("indices[{bad}] is out of range"));
            }
            all.push(values);
        }
        if slice > 0 {
            output.move_from(&data, Stitch { indices: &all, slice })?;
        }
        drop((indices, data, all));
        ctx.set_output(0, output)
    }
}

struct Stitch<'a> {
    indices: &'a [&'a [i32]],
    slice: usize,
}

impl Mover for Stitch<'_> {
    type Output = ();

    fn run<E: Clone + Send + Sync>(self, sources: &[&[E]], target: &mut [E]) {
        for (indices, source) in self.indices.iter().zip(sources) {
            for (&index, values) in indices.iter().zip(source.chunks_exact(self.slice)) {
                let start = index.unsigned_abs() as usize * self.slice;
                target[start..start + self.slice].clone_from_slice(values);
            }
        }
    }
}

/// For each partition the slices `data[i..]` with `partitions[i..]` equal to its number, in order.
struct DynamicPartition;

impl Kernel for DynamicPartition {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (data, partitions) = (ctx.input(0)?.clone(), ctx.input(1)?.clone());
        let count = ctx.num_outputs();
        if !data.shape().dims().starts_with(partitions.shape().dims()) {
            return Err(invalid_argument!(
                "data.shape must start with partitions.shape, got data.shape = {}, partitions.shape = {}",
                data.shape(),
                partitions.shape()
            ));
        }
        let mut rows: Vec<Vec<usize>> = vec![Vec::new(); count];
        for (i, &p) in partitions.as_slice::<i32>()?.iter().enumerate() {
            match usize::try_from(p).ok().and_then(|p| rows.get_mut(p)) {
                Some(rows) => rows.push(i),
                None => {
                    return Err(invalid_argument!(
                        "partitions{} = {p} is not in [0, {count})",
                        position_text(partitions.shape(), i)
                    ));
                }
            }
        }
        let inner = &data.shape().dims()[partitions.shape().rank()..];
        let slice: usize = inner.iter().product();
        for (p, rows) in rows.iter().enumerate() {
            let mut dims: Dims<usize> = Dims::from_slice(&[rows.len()]);
            dims.extend_from_slice(inner);
            let mut output = ctx.alloc_output(p, Shape::from_dims(&dims)?)?;
            if slice > 0 {
                output.move_from(&[&data], Rows { ctx, rows, slice })?;
            }
            ctx.set_output(p, output)?;
        }
        Ok(())
    }
}

struct Rows<'a, 'b> {
    ctx: &'a Context<'b>,
    rows: &'a [usize],
    slice: usize,
}

impl Mover for Rows<'_, '_> {
    type Output = ();

    fn run<E: Clone + Send + Sync>(self, sources: &[&[E]], target: &mut [E]) {
        let slice = self.slice;
        let cost = 4.0 + slice as f64 * size_of::<E>() as f64 * 0.1;
        self.ctx.parallel_chunks(target, slice, cost, |range, part| {
            for (&row, place) in self.rows[range].iter().zip(part.chunks_exact_mut(slice)) {
                place.clone_from_slice(&sources[0][row * slice..(row + 1) * slice]);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_error, assert_ints, counting, int_op, registry, run, tensor};

    #[test]
    fn later_slices_win() {
        for op in ["DynamicStitch", "ParallelDynamicStitch"] {
            let stitch = |i0: &Tensor, i1: &Tensor, d0: &Tensor, d1: &Tensor| {
                run(int_op(op).attr_int("N", 2), &[i0, i1, d0, d1])
            };
            let (i0, i1) = (tensor(&[], &[3]), tensor(&[2], &[0, 3]));
            let y = stitch(&i0, &i1, &counting(&[2]), &tensor(&[2, 2], &[5, 6, 7, 8])).unwrap();
            assert_ints(&y, &[4, 2], &[5, 6, 0, 0, 0, 0, 7, 8]);
            assert_error(
                stitch(&i0, &i1, &counting(&[2]), &counting(&[3, 2])),
                "data[1].shape = [3,2] does not start with indices[1].shape = [2]",
            );
            assert_error(
                stitch(&tensor(&[1], &[-1]), &i1, &counting(&[1]), &counting(&[2])),
                "indices[0] is out of range",
            );
            let none =
                stitch(&tensor::<i32>(&[0], &[]), &tensor::<i32>(&[0], &[]), &counting(&[0, 2]), &counting(&[0, 2]));
            assert_ints(&none.unwrap(), &[0, 2], &[]);
        }
    }

    #[test]
    fn partitions_keep_the_order() {
        let partition = |dims: &[i64], partitions: &[i32], data: &[i64]| {
            int_op("DynamicPartition")
                .attr_int("num_partitions", 2)
                .run(&registry(), vec![counting(data), tensor(dims, partitions)])
        };
        let outputs = partition(&[3], &[1, 0, 1], &[3, 2]).unwrap();
        assert_ints(&outputs[0], &[1, 2], &[2, 3]);
        assert_ints(&outputs[1], &[2, 2], &[0, 1, 4, 5]);
        assert_error(partition(&[3], &[1, 0, 2], &[3]), "partitions[2] = 2 is not in [0, 2)");
        assert!(partition(&[2], &[1, 0], &[3]).is_err());
    }
}
