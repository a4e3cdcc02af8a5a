//! To and from compressed rows: sparse tensors, dense tensors, and the parts themselves.

use super::{Csr, VALUES};
use crate::number::Number;
use graphmill_runtime::{Construction, Context, Kernel, Registry, Stored};
use graphmill_tensor::{Complex32, Complex64, DType, Result, Shape, Tensor, dispatch, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("SparseTensorToCSRSparseMatrix").types("T", &VALUES).kernel(|_| Ok(FromSparse));
    registry.op("DenseToCSRSparseMatrix").types("T", &VALUES).kernel(|_| Ok(FromDense));
    registry.op("CSRSparseMatrixToSparseTensor").types("type", &VALUES).kernel(ToSparse::new);
    registry.op("CSRSparseMatrixToDense").types("type", &VALUES).kernel(ToDense::new);
    registry.op("CSRSparseMatrixComponents").types("type", &VALUES).kernel(Components::new);
    registry.op("SparseMatrixNNZ").kernel(|_| Ok(CountEntries));
}

/// The matrix with these entries, whose indices are in row-major order.
fn compress(dense_shape: &Tensor, indices: &Tensor, values: Tensor) -> Result<Csr> {
    let shape = Shape::new(dense_shape.as_slice::<i64>()?)?;
    let (batch, rows) = match *shape.dims() {
        [rows, _] => (1, rows),
        [batch, rows, _] => (batch, rows),
        _ => {
            return Err(invalid_argument!(
                "SparseTensor must have rank 2 or 3; but indices has rank: {}",
                shape.rank()
            ));
        }
    };
    let count = values.num_elements();
    let rank = shape.rank();
    if !indices.shape().is_matrix() || indices.shape().dims() != [count, rank] {
        return Err(invalid_argument!(
            "Expected indices of shape [{count},{rank}] for {count} values of rank {rank}. Got: {}",
            indices.shape()
        ));
    }
    let too_many = || invalid_argument!("a sparse matrix of shape {shape} has too many rows");
    let pointers = rows.checked_add(1).and_then(|rows| rows.checked_mul(batch)).ok_or_else(too_many)?;
    let mut row_pointers = Tensor::zeros(DType::Int32, Shape::from_dims(&[pointers])?)?;
    let mut batch_pointers = Tensor::zeros(DType::Int32, Shape::from_dims(&[batch.saturating_add(1)])?)?;
    let mut columns = Vec::with_capacity(count);
    {
        let starts = row_pointers.as_mut_slice::<i32>()?;
        let batch_starts = batch_pointers.as_mut_slice::<i32>()?;
        for (i, index) in indices.as_slice::<i64>()?.chunks_exact(rank).enumerate() {
            let within = |&(&value, &size): &(&i64, &usize)| usize::try_from(value).is_ok_and(|value| value < size);
            if !index.iter().zip(shape.dims()).all(|pair| within(&pair)) {
                return Err(invalid_argument!("Index {i} {index:?} is outside of the sparse matrix of shape {shape}"));
            }
            let (matrix, row, column) = match *index {
                [row, column] => (0, row, column),
                [matrix, row, column] => (matrix as usize, row, column),
                _ => continue,
            };
            starts[matrix * (rows + 1) + row as usize + 1] += 1;
            batch_starts[matrix + 1] += 1;
            columns.push(i32::try_from(column).map_err(|_| invalid_argument!("column {column} is too large"))?);
        }
        for starts in starts.chunks_exact_mut(rows + 1) {
            sum_up(starts)?;
        }
        sum_up(batch_starts)?;
    }
    Csr::new(dense_shape, [batch_pointers, row_pointers, Tensor::vector(&columns)?], values)
}

fn sum_up(counts: &mut [i32]) -> Result<()> {
    let mut sum = 0i32;
    for count in counts {
        sum = sum.checked_add(*count).ok_or_else(|| invalid_argument!("a sparse matrix has too many entries"))?;
        *count = sum;
    }
    Ok(())
}

struct FromSparse;

impl Kernel for FromSparse {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (indices, values, dense_shape) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        if !dense_shape.shape().is_vector() || !(2..=3).contains(&dense_shape.num_elements()) {
            return Err(invalid_argument!(
                "SparseTensor must have rank 2 or 3; but indices has rank: {}",
                dense_shape.num_elements()
            ));
        }
        if !values.shape().is_vector() {
            return Err(invalid_argument!("Values must be a vector, got shape {}", values.shape()));
        }
        let matrix = compress(dense_shape, indices, values.clone())?;
        ctx.set_output(0, matrix.into_tensor()?)
    }
}

/// Takes the given entries of a dense tensor.
struct FromDense;

impl Kernel for FromDense {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (dense, indices) = (ctx.input(0)?, ctx.input(1)?);
        let shape = dense.shape();
        let rank = shape.rank();
        if !(2..=3).contains(&rank) {
            return Err(invalid_argument!("params must have rank == 2 or 3; but saw shape: {shape}"));
        }
        if !indices.shape().is_matrix() {
            return Err(invalid_argument!("indices must be a matrix, but saw shape: {}", indices.shape()));
        }
        if indices.shape().dim(1) != rank {
            return Err(invalid_argument!(
                "indices.shape[1] must be equal to the rank of params, but saw: {} vs. {rank}",
                indices.shape().dim(1)
            ));
        }
        let mut values = Tensor::alloc(dense.dtype(), Shape::vector(indices.shape().dim(0)))?;
        for (i, index) in indices.as_slice::<i64>()?.chunks_exact(rank).enumerate() {
            let flat = index.iter().zip(shape.dims()).try_fold(0usize, |flat, (&at, &size)| {
                usize::try_from(at).ok().filter(|&at| at < size).map(|at| flat * size + at)
            });
            let Some(flat) = flat else {
                let index: Vec<String> = index.iter().map(i64::to_string).collect();
                return Err(invalid_argument!(
                    "indices[{i}] = [{}] does not index into param shape {shape}",
                    index.join(", ")
                ));
            };
            values.copy_elements(i, dense, flat..flat + 1)?;
        }
        let dense_shape = Tensor::vector(&shape.dims_i64().collect::<Vec<_>>())?;
        let matrix = compress(&dense_shape, indices, values)?;
        ctx.set_output(0, matrix.into_tensor()?)
    }
}

/// # Errors
/// `INVALID_ARGUMENT` if the matrix has values of another type than the op was asked for.
fn check_dtype(matrix: &Csr, dtype: DType) -> Result<()> {
    if matrix.dtype() == dtype {
        return Ok(());
    }
    Err(invalid_argument!("Asked for a CSRSparseMatrix of type {dtype} but saw dtype: {}", matrix.dtype()))
}

struct ToSparse(DType);

impl ToSparse {
    fn new(c: &Construction<'_>) -> Result<ToSparse> {
        c.dtype("type").map(ToSparse)
    }
}

impl Kernel for ToSparse {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let matrix = Csr::of_input(ctx, 0)?;
        check_dtype(&matrix, self.0)?;
        let (batch, rows, _) = matrix.sizes();
        let rank = matrix.rank();
        let mut indices = Vec::with_capacity(matrix.values.num_elements() * rank);
        let all = matrix.row_pointers.as_slice::<i32>()?;
        let mut columns = matrix.columns.as_slice::<i32>()?.iter();
        for (b, starts) in all.chunks_exact(rows + 1).enumerate().take(batch) {
            for (row, ends) in starts.windows(2).enumerate() {
                for &column in columns.by_ref().take((ends[1] - ends[0]) as usize) {
                    if rank == 3 {
                        indices.push(b as i64);
                    }
                    indices.extend([row as i64, i64::from(column)]);
                }
            }
        }
        let shape = Shape::from_dims(&[matrix.values.num_elements(), rank])?;
        let (values, dense_shape) = (matrix.values.clone(), matrix.dense_shape()?);
        ctx.set_output(0, Tensor::from_slice(shape, &indices)?)?;
        ctx.set_output(1, values)?;
        ctx.set_output(2, dense_shape)
    }
}

struct ToDense(DType);

impl ToDense {
    fn new(c: &Construction<'_>) -> Result<ToDense> {
        c.dtype("type").map(ToDense)
    }
}

impl Kernel for ToDense {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let matrix = Csr::of_input(ctx, 0)?;
        check_dtype(&matrix, self.0)?;
        let (batch, rows, columns) = matrix.sizes();
        let mut dense = Tensor::zeros(self.0, matrix.shape.clone())?;
        let filled = dispatch!(self.0, T in [f32, f64, Complex32, Complex64] => {
            fill::<T>(&matrix, (batch, rows, columns), dense.as_mut_slice()?)
        });
        filled.unwrap_or_else(|| Err(internal!("a matrix cannot be of type {}", self.0)))?;
        ctx.set_output(0, dense)
    }
}

fn fill<T: Number>(matrix: &Csr, (batch, rows, columns): (usize, usize, usize), dense: &mut [T]) -> Result<()> {
    if dense.is_empty() {
        return Ok(());
    }
    for (b, dense) in dense.chunks_exact_mut(rows * columns).enumerate().take(batch) {
        let part = matrix.part::<T>(b)?;
        for (row, dense) in dense.chunks_exact_mut(columns).enumerate() {
            part.row(row).for_each(|(column, value)| dense[column] = value);
        }
    }
    Ok(())
}

struct Components(DType);

impl Components {
    fn new(c: &Construction<'_>) -> Result<Components> {
        c.dtype("type").map(Components)
    }
}

impl Kernel for Components {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let matrix = Csr::of_input(ctx, 0)?;
        if matrix.dtype() != self.0 {
            return Err(invalid_argument!("dtype of input is not equal to 'type': {} vs. {}", matrix.dtype(), self.0));
        }
        let index = ctx.input(1)?;
        if !index.shape().is_scalar() {
            return Err(invalid_argument!("index should be a scalar, but saw: {}", index.shape()));
        }
        let index = index.scalar_value::<i32>()?;
        let (batch, rows, _) = matrix.sizes();
        let Some(at) = usize::try_from(index).ok().filter(|&at| at < batch) else {
            return Err(invalid_argument!("index ({index}) not in [0, {batch})"));
        };
        let pointers = matrix.batch_pointers.as_slice::<i32>()?;
        let (start, end) = (pointers[at] as usize, pointers[at + 1] as usize);
        let starts = matrix.row_pointers.rows(at * (rows + 1), rows + 1)?;
        let (columns, values) = (matrix.columns.rows(start, end - start)?, matrix.values.rows(start, end - start)?);
        ctx.set_output(0, starts)?;
        ctx.set_output(1, columns)?;
        ctx.set_output(2, values)
    }
}

/// How many entries each matrix has.
struct CountEntries;

impl Kernel for CountEntries {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let matrix = Csr::of_input(ctx, 0)?;
        let pointers = matrix.batch_pointers.as_slice::<i32>()?;
        let counts: Vec<i32> = pointers.windows(2).map(|ends| ends[1] - ends[0]).collect();
        let shape = if matrix.rank() == 3 { Shape::vector(counts.len()) } else { Shape::scalar() };
        ctx.set_output(0, Tensor::from_slice(shape, &counts)?)
    }
}
