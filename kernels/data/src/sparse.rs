//! `SparseTensorSliceDataset` and `DenseToSparseBatchDataset`.

use crate::batch::{batch_count, batch_size, collect};
use crate::context::IteratorContext;
use crate::counting::{restore_optional, save_optional};
use crate::dataset::{Dataset, DatasetIterator, Spec, Tuple, dataset_ops, input_dataset};
use crate::state::{Reader, Writer};
use graphmill_graph::PartialShape;
use graphmill_runtime::{Context, Registry};
use graphmill_tensor::{
    DType, Result, Shape, Tensor, Variant, data_loss, internal, invalid_argument, unimplemented_op,
};
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    dataset_ops(registry, &["SparseTensorSliceDataset"], |_| {
        Ok(|ctx: &Context<'_>| SparseSlices::new(ctx.input(0)?, ctx.input(1)?, ctx.input(2)?))
    });
    dataset_ops(registry, &["DenseToSparseBatchDataset", "ExperimentalDenseToSparseBatchDataset"], |c| {
        let spec = Spec::of(c)?;
        Ok(move |ctx: &Context<'_>| {
            let (input, size) = (input_dataset(ctx, 0)?, batch_size(ctx, 1)?);
            if input.spec().types.len() != 1 {
                return Err(invalid_argument!(
                    "DenseToSparseBatchDataset only supports inputs with a single component."
                ));
            }
            let row_shape = ctx.input(2)?;
            if !row_shape.shape().is_vector() {
                return Err(invalid_argument!("row_shape must be a vector"));
            }
            let row_shape = PartialShape::new(&row_shape.to_i64_vec()?)?;
            Ok(SparseBatch { spec: spec.clone(), input, size, row_shape: Arc::new(row_shape) })
        })
    });
}

/// A sparse tensor cut along its first dimension.
struct SparseSlices {
    spec: Arc<Spec>,
    parts: Arc<Parts>,
}

struct Parts {
    indices: Tensor,
    values: Tensor,
    /// The dense shape without the first dimension.
    inner_shape: Tensor,
    rank: usize,
    slices: i64,
}

impl SparseSlices {
    fn new(indices: &Tensor, values: &Tensor, dense_shape: &Tensor) -> Result<SparseSlices> {
        let (i, v, s) = (indices.shape(), values.shape(), dense_shape.shape());
        if !i.is_matrix() {
            return Err(invalid_argument!("Input indices must be a matrix. Got: {i}"));
        }
        if !v.is_vector() {
            return Err(invalid_argument!("Input values must be a vector. Got: {v}"));
        }
        if !s.is_vector() {
            return Err(invalid_argument!("Input shape must be a vector. Got: {s}"));
        }
        if v.dim(0) != i.dim(0) {
            return Err(invalid_argument!(
                "Number of values must match first dimension of indices. Got {} values, indices shape: {i}",
                v.dim(0)
            ));
        }
        if s.dim(0) != i.dim(1) {
            return Err(invalid_argument!(
                "Number of dimensions must match second dimension of indices. Got {} dimensions, indices shape: {i}",
                s.dim(0)
            ));
        }
        let sizes = dense_shape.as_slice::<i64>()?;
        let Some((&slices, inner)) = sizes.split_first() else {
            return Err(invalid_argument!("The shape argument requires at least one element."));
        };
        let rank = sizes.len();
        let mut before = None;
        for row in indices.as_slice::<i64>()?.chunks_exact(rank) {
            let first = row.first().copied();
            if first < before {
                return Err(unimplemented_op!(
                    "The SparseTensor must be ordered in the batch dimension; handling arbitrarily ordered input is not \
                     currently supported."
                ));
            }
            before = first;
        }
        let inner_rank = rank as i64 - 1;
        let spec = Spec {
            types: vec![DType::Int64, values.dtype(), DType::Int64],
            shapes: vec![
                PartialShape::new(&[-1, inner_rank])?,
                PartialShape::new(&[-1])?,
                PartialShape::new(&[inner_rank])?,
            ],
        };
        let inner_shape = Tensor::vector(inner)?;
        let parts = Parts { indices: indices.clone(), values: values.clone(), inner_shape, rank, slices };
        Ok(SparseSlices { spec: Arc::new(spec), parts: Arc::new(parts) })
    }
}

impl Dataset for SparseSlices {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        self.parts.slices
    }

    fn name(&self) -> &'static str {
        "SparseTensorSlice"
    }

    fn make(&self, _: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        Ok(Box::new(SparseSlicesIterator { parts: self.parts.clone(), slice: 0, entry: 0 }))
    }
}

struct SparseSlicesIterator {
    parts: Arc<Parts>,
    slice: i64,
    /// The first entry that is not given out yet.
    entry: usize,
}

impl DatasetIterator for SparseSlicesIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        let parts = &self.parts;
        if self.slice >= parts.slices {
            return Ok(None);
        }
        let all = parts.indices.as_slice::<i64>()?;
        let rows = || all.chunks_exact(parts.rank).skip(self.entry);
        let here = rows().take_while(|row| row.first() == Some(&self.slice));
        let inner: Vec<i64> = here.flat_map(|row| row.iter().skip(1).copied()).collect();
        let count = rows().take_while(|row| row.first() == Some(&self.slice)).count();
        let indices = Tensor::from_slice(Shape::from_dims(&[count, parts.rank - 1])?, &inner)?;
        let values = parts.values.rows(self.entry, count)?;
        self.slice += 1;
        self.entry += count;
        Ok(Some(vec![indices, values, parts.inner_shape.clone()]))
    }

    fn never_waits(&self) -> bool {
        true
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("SparseTensorSlice");
        writer.int(self.slice);
        writer.size(self.entry);
        Ok(())
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("SparseTensorSlice")?;
        self.slice = reader.int()?;
        self.entry = reader.size()?;
        Ok(())
    }
}

/// Elements of different sizes as rows of a sparse tensor.
struct SparseBatch {
    spec: Arc<Spec>,
    input: Arc<dyn Dataset>,
    size: usize,
    row_shape: Arc<PartialShape>,
}

impl Dataset for SparseBatch {
    fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    fn cardinality(&self) -> i64 {
        batch_count(self.input.cardinality(), self.size, false)
    }

    fn name(&self) -> &'static str {
        "DenseToSparseBatch"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        let input = Some(self.input.iterator(ctx)?);
        Ok(Box::new(SparseBatchIterator { input, size: self.size, row_shape: self.row_shape.clone() }))
    }
}

struct SparseBatchIterator {
    input: Option<Box<dyn DatasetIterator>>,
    size: usize,
    row_shape: Arc<PartialShape>,
}

impl SparseBatchIterator {
    fn dense_shape(&self, rows: &[Tensor]) -> Result<Vec<i64>> {
        let declared = self.row_shape.dims().unwrap_or_default();
        let mut shape = vec![rows.len() as i64];
        shape.extend(declared.iter().map(|&d| d.max(0)));
        for row in rows {
            if row.shape().rank() != declared.len() {
                return Err(invalid_argument!(
                    "Input element had shape ({}) that is incompatible with the row shape ({}).",
                    row.shape(),
                    self.row_shape
                ));
            }
            for ((size, &declared), dim) in shape.iter_mut().skip(1).zip(declared).zip(row.shape().dims_i64()) {
                if declared == -1 {
                    *size = (*size).max(dim);
                } else if dim > declared {
                    return Err(data_loss!(
                        "Input element had shape ({}) that is larger than the row shape ({}).",
                        row.shape(),
                        self.row_shape
                    ));
                }
            }
        }
        Ok(shape)
    }

    fn batch(&self, rows: &[Tensor]) -> Result<Tensor> {
        let dense_shape = self.dense_shape(rows)?;
        let Some(first) = rows.first() else { return Err(internal!("a batch needs an element")) };
        let total = rows.iter().map(Tensor::num_elements).sum();
        let mut values = Tensor::alloc(first.dtype(), Shape::vector(total))?;
        let mut indices = Vec::with_capacity(total.saturating_mul(dense_shape.len()));
        let mut at = 0;
        for (i, row) in rows.iter().enumerate() {
            let count = row.num_elements();
            values.copy_elements(at, row, 0..count)?;
            at += count;
            let strides = row.shape().strides();
            for mut element in 0..count {
                indices.push(i as i64);
                for &stride in &strides {
                    indices.push((element / stride) as i64);
                    element %= stride;
                }
            }
        }
        let indices = Tensor::from_slice(Shape::from_dims(&[total, dense_shape.len()])?, &indices)?;
        let parts = [indices, values, Tensor::vector(&dense_shape)?].map(|tensor| Variant {
            type_name: "tensorflow::Tensor".to_owned(),
            tensors: vec![tensor],
            ..Variant::default()
        });
        Tensor::from_variants(Shape::vector(3), parts.to_vec())
    }
}

impl DatasetIterator for SparseBatchIterator {
    fn next(&mut self) -> Result<Option<Tuple>> {
        let rows: Vec<Tensor> = collect(&mut self.input, self.size)?.into_iter().flatten().collect();
        if rows.is_empty() {
            return Ok(None);
        }
        Ok(Some(vec![self.batch(&rows)?]))
    }

    fn never_waits(&self) -> bool {
        self.input.as_ref().is_none_or(|input| input.never_waits())
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        writer.begin("DenseToSparseBatch");
        save_optional(writer, &mut self.input)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        reader.begin("DenseToSparseBatch")?;
        restore_optional(reader, &mut self.input)
    }
}
