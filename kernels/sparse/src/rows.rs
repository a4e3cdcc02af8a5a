//! Rows of sparse tensors: `SparseFillEmptyRows` and its gradient, the same for ragged rows, `SparseSoftmax`.

use crate::coo::{Coo, index_matrix, pick};
use crate::number::Number;
use crate::types::{EVERY, NUMBERS};
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, dispatch, f16, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("SparseFillEmptyRows").types("T", &EVERY).kernel(|_| Ok(FillEmptyRows));
    registry.op("SparseFillEmptyRowsGrad").types("T", &NUMBERS).kernel(|_| Ok(FillEmptyRowsGrad));
    registry.op("RaggedFillEmptyRows").types("T", &EVERY).kernel(|_| Ok(RaggedFillEmptyRows));
    registry.op("RaggedFillEmptyRowsGrad").types("T", &NUMBERS).kernel(|_| Ok(FillEmptyRowsGrad));
    registry.op("SparseSoftmax").types("T", &[DType::Double, DType::Float, DType::Half]).kernel(|_| Ok(Softmax));
}

/// Where the entries of filled rows come from: an entry, or the default for a row.
struct Filled {
    /// For each new entry, the old entry or the empty row.
    sources: Vec<Result<usize, usize>>,
    empty: Vec<bool>,
    /// For each old entry, the new one.
    moved: Vec<i64>,
}

/// Fills the empty rows among `rows`.
fn fill(row_of: &[i64], rows: usize, what: &str) -> Result<Filled> {
    let mut counts = vec![0usize; rows];
    for (i, &row) in row_of.iter().enumerate() {
        let slot = usize::try_from(row).ok().and_then(|row| counts.get_mut(row));
        *slot.ok_or_else(|| {
            invalid_argument!("{} is invalid: {row} >= {rows}", what.replace("{}", &i.to_string()))
        })? += 1;
    }
    let empty: Vec<bool> = counts.iter().map(|&count| count == 0).collect();
    let mut next = Vec::with_capacity(rows);
    let mut total = 0;
    for &count in &counts {
        next.push(total);
        total += count.max(1);
    }
    let mut sources = vec![Err(0); total];
    for (row, _) in empty.iter().enumerate().filter(|(_, empty)| **empty) {
        sources[next[row]] = Err(row);
    }
    let mut moved = Vec::with_capacity(row_of.len());
    for (i, &row) in row_of.iter().enumerate() {
        let at = next[row as usize];
        sources[at] = Ok(i);
        moved.push(at as i64);
        next[row as usize] += 1;
    }
    Ok(Filled { sources, empty, moved })
}

impl Filled {
    fn values(&self, values: &Tensor, default: &Tensor) -> Result<Tensor> {
        let mut out = Tensor::alloc(values.dtype(), Shape::vector(self.sources.len()))?;
        for (at, source) in self.sources.iter().enumerate() {
            match source {
                Ok(i) => out.copy_elements(at, values, *i..*i + 1)?,
                Err(_) => out.copy_elements(at, default, 0..1)?,
            }
        }
        Ok(out)
    }
}

struct FillEmptyRows;

impl Kernel for FillEmptyRows {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (indices, values, shape, default) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?, ctx.input(3)?);
        if !shape.shape().is_vector() {
            return Err(invalid_argument!("dense_shape must be a vector, saw: {}", shape.shape()));
        }
        if !indices.shape().is_matrix() {
            return Err(invalid_argument!("indices must be a matrix, saw: {}", indices.shape()));
        }
        if !values.shape().is_vector() {
            return Err(invalid_argument!("values must be a vector, saw: {}", values.shape()));
        }
        let count = indices.shape().dim(0);
        if values.num_elements() != count {
            return Err(invalid_argument!(
                "The length of `values` ({}) must match the first dimension of `indices` ({count}).",
                values.num_elements()
            ));
        }
        if !default.shape().is_scalar() {
            return Err(invalid_argument!("default_value must be a scalar, saw: {}", default.shape()));
        }
        let Some(&rows) = shape.as_slice::<i64>()?.first() else {
            return Err(invalid_argument!("Dense shape cannot be empty."));
        };
        let rank = indices.shape().dim(1);
        if rank == 0 {
            return Err(invalid_argument!("indices must have columns, saw: {}", indices.shape()));
        }
        // Also a check of the size.
        let rows = Tensor::alloc(DType::Bool, Shape::new(&[rows])?)?.num_elements();
        if rows == 0 && count != 0 {
            return Err(invalid_argument!(
                "Received SparseTensor with dense_shape[0] = 0 but indices.shape[0] = {count}"
            ));
        }
        let old = indices.as_slice::<i64>()?;
        let row_of: Vec<i64> = old.iter().step_by(rank).copied().collect();
        let filled = fill(&row_of, rows, "indices({}, 0)")?;
        let mut new = Vec::with_capacity(filled.sources.len() * rank);
        for source in &filled.sources {
            match source {
                Ok(i) => new.extend_from_slice(&old[i * rank..(i + 1) * rank]),
                Err(row) => {
                    new.push(*row as i64);
                    new.resize(new.len() + rank - 1, 0);
                }
            }
        }
        let outputs = (
            index_matrix(&new, filled.sources.len(), rank)?,
            filled.values(values, default)?,
            Tensor::vector(&filled.empty)?,
            Tensor::vector(&filled.moved)?,
        );
        ctx.set_output(0, outputs.0)?;
        ctx.set_output(1, outputs.1)?;
        ctx.set_output(2, outputs.2)?;
        ctx.set_output(3, outputs.3)
    }
}

struct RaggedFillEmptyRows;

impl Kernel for RaggedFillEmptyRows {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (rowids, values, nrows, default) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?, ctx.input(3)?);
        if !nrows.shape().is_scalar() {
            return Err(invalid_argument!("nrows must be a scalar, saw: {}", nrows.shape()));
        }
        if !rowids.shape().is_vector() {
            return Err(invalid_argument!("value_rowids must be a vector, saw: {}", rowids.shape()));
        }
        if !values.shape().is_vector() {
            return Err(invalid_argument!("values must be a vector, saw: {}", values.shape()));
        }
        if values.num_elements() != rowids.num_elements() {
            return Err(invalid_argument!(
                "The length of `values` ({}) must match the first dimension of `value_rowids` ({}).",
                values.num_elements(),
                rowids.num_elements()
            ));
        }
        if !default.shape().is_scalar() {
            return Err(invalid_argument!("default_value must be a scalar, saw: {}", default.shape()));
        }
        let rows = nrows.scalar_value::<i64>()?;
        let rows = Tensor::alloc(DType::Bool, Shape::new(&[rows])?)?.num_elements();
        let row_of = rowids.as_slice::<i64>()?;
        if rows == 0 && !row_of.is_empty() {
            return Err(invalid_argument!(
                "Received RaggedTensor with nrows = 0 but value_rowids.shape[0] = {}",
                row_of.len()
            ));
        }
        let filled = fill(row_of, rows, "value_rowids({})")?;
        let new: Vec<i64> = filled
            .sources
            .iter()
            .map(|source| match source {
                Ok(i) => row_of[*i],
                Err(row) => *row as i64,
            })
            .collect();
        let outputs = (
            Tensor::vector(&new)?,
            filled.values(values, default)?,
            Tensor::vector(&filled.empty)?,
            Tensor::vector(&filled.moved)?,
        );
        ctx.set_output(0, outputs.0)?;
        ctx.set_output(1, outputs.1)?;
        ctx.set_output(2, outputs.2)?;
        ctx.set_output(3, outputs.3)
    }
}

/// The gradient of the filled values for those that were there, and for the default.
struct FillEmptyRowsGrad;

impl Kernel for FillEmptyRowsGrad {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (moved, gradient) = (ctx.input(0)?, ctx.input(1)?);
        if !moved.shape().is_vector() {
            return Err(invalid_argument!("reverse_index_map must be a vector, saw: {}", moved.shape()));
        }
        if !gradient.shape().is_vector() {
            return Err(invalid_argument!("grad_values must be a vector, saw: {}", gradient.shape()));
        }
        let full = gradient.num_elements();
        let mut visited = vec![false; full];
        let mut rows = Vec::with_capacity(moved.num_elements());
        for &at in moved.as_slice::<i64>()? {
            let at = usize::try_from(at)
                .ok()
                .filter(|&at| at < full)
                .ok_or_else(|| invalid_argument!("Elements in reverse index must be in [0, {full}) but got {at}"))?;
            visited[at] = true;
            rows.push(at);
        }
        let values = pick(gradient, &rows)?;
        let default = dispatch!(gradient.dtype(), T in numbers => {
            let gradient = gradient.as_slice::<T>()?;
            let left = gradient.iter().zip(&visited).filter(|(_, visited)| !**visited);
            Tensor::scalar(<T as Number>::from_sum(left.fold(<T as Number>::no_sum(), |sum, (value, _)| value.add_to(sum))))
        });
        let default = default.unwrap_or_else(|| Err(internal!("no such type")))?;
        ctx.set_output(0, values)?;
        ctx.set_output(1, default)
    }
}

/// Softmax over the last dimension, of the entries that are there.
struct Softmax;

impl Kernel for Softmax {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (indices, values, shape) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        if !indices.shape().is_matrix() {
            return Err(invalid_argument!(
                "Input sp_indices should be a matrix but received shape: {}",
                indices.shape()
            ));
        }
        if !values.shape().is_vector() || !shape.shape().is_vector() {
            return Err(invalid_argument!(
                "Inputs sp_values and sp_shape should be vectors but received shapes: {} and {}",
                values.shape(),
                shape.shape()
            ));
        }
        let dims = shape.as_slice::<i64>()?;
        if dims.len() < 2 {
            return Err(invalid_argument!(
                "Input should have rank >= 2, but received shape: {}",
                crate::coo::joined(dims, " ")
            ));
        }
        let coo = Coo::with_shape(indices, values, dims.to_vec())?;
        coo.check_bounds()?;
        let columns: Vec<usize> = (0..coo.rank()).collect();
        let order = coo.order(&columns);
        let last = coo.rank() - 1;
        let groups: Vec<&[usize]> = order.chunk_by(|&a, &b| coo.row(a)[..last] == coo.row(b)[..last]).collect();
        let output = match values.dtype() {
            DType::Double => softmax(&groups, values.as_slice::<f64>()?, |v| v, |v| v)?,
            DType::Float => softmax(&groups, values.as_slice::<f32>()?, f64::from, |v| v as f32)?,
            _ => softmax(&groups, values.as_slice::<f16>()?, f16::to_f64, f16::from_f64)?,
        };
        ctx.set_output(0, output)
    }
}

fn softmax<T: Number>(groups: &[&[usize]], values: &[T], wide: fn(T) -> f64, narrow: fn(f64) -> T) -> Result<Tensor> {
    let mut out = Vec::with_capacity(values.len());
    for group in groups {
        let largest = group.iter().map(|&i| wide(values[i])).fold(f64::NEG_INFINITY, f64::max);
        let exponentials: Vec<f64> = group.iter().map(|&i| (wide(values[i]) - largest).exp()).collect();
        let sum: f64 = exponentials.iter().sum();
        out.extend(exponentials.iter().map(|e| narrow(e / sum)));
    }
    Tensor::vector(&out)
}
