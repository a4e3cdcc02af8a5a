//! Two sparse tensors, entry by entry: `SparseAdd`, `SparseAddGrad`, `SparseSparseMaximum`, `SparseSparseMinimum`.

use crate::coo::{Coo, index_matrix, joined, row};
use crate::number::Number;
use crate::types::REALS;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Complex32, Complex64, DType, Result, Shape, Tensor, dispatch, internal, invalid_argument};
use std::cmp::Ordering;

pub(crate) fn register(registry: &mut Registry) {
    use DType::{Complex64 as C64, Complex128, Double, Float, Int8, Int16, Int32, Int64};
    let types = [Complex128, C64, Double, Float, Int16, Int32, Int64, Int8];
    registry.op("SparseAdd").types("T", &types).kernel(|_| Ok(SparseAdd));
    registry.op("SparseAddGrad").types("T", &types).kernel(|_| Ok(SparseAddGrad));
    registry.op("SparseSparseMaximum").types("T", &REALS).kernel(|c| Extreme::new(c, true));
    registry.op("SparseSparseMinimum").types("T", &REALS).kernel(|c| Extreme::new(c, false));
}

/// An entry of a union: where it is in the first and in the second tensor.
type Entry = (Option<usize>, Option<usize>);

/// The union of two sorted lists of indices.
fn union(a: &[i64], b: &[i64], rank: usize) -> Vec<Entry> {
    let (a_rows, b_rows) = (a.len() / rank.max(1), b.len() / rank.max(1));
    let mut entries = Vec::with_capacity(a_rows + b_rows);
    let (mut i, mut j) = (0, 0);
    while i < a_rows || j < b_rows {
        let order = match (i < a_rows, j < b_rows) {
            (true, true) => row(a, rank, i).cmp(row(b, rank, j)),
            (true, false) => Ordering::Less,
            _ => Ordering::Greater,
        };
        entries.push((order.is_le().then_some(i), order.is_ge().then_some(j)));
        i += usize::from(order.is_le());
        j += usize::from(order.is_ge());
    }
    entries
}

/// Checks the six inputs of two sparse tensors.
fn check(ctx: &Context<'_>, validates: bool) -> Result<usize> {
    if validates {
        Coo::validated(ctx.input(0)?, ctx.input(1)?, ctx.input(2)?)?;
        Coo::validated(ctx.input(3)?, ctx.input(4)?, ctx.input(5)?)?;
    }
    let shapes: Vec<&Shape> = (0..6).map(|i| Ok(ctx.input(i)?.shape())).collect::<Result<_>>()?;
    if !shapes[0].is_matrix() || !shapes[3].is_matrix() {
        return Err(invalid_argument!(
            "Input indices should be matrices but received shapes: {} and {}",
            shapes[0],
            shapes[3]
        ));
    }
    let (a, b) = (shapes[0].dim(0), shapes[3].dim(0));
    if !shapes[1].is_vector() || !shapes[4].is_vector() {
        return Err(invalid_argument!(
            "Input values should be vectors but received shapes: {} and {}",
            shapes[1],
            shapes[4]
        ));
    }
    if shapes[1].dim(0) != a || shapes[4].dim(0) != b {
        return Err(invalid_argument!(
            "Expected {a} and {b} non-empty input values, got {} and {}",
            shapes[1].dim(0),
            shapes[4].dim(0)
        ));
    }
    let rank = shapes[0].dim(1);
    // Of validated tensors the shapes tell.
    if !validates && shapes[3].dim(1) != rank {
        return Err(invalid_argument!(
            "Input indices must have the same dimension, got {rank} and {}",
            shapes[3].dim(1)
        ));
    }
    if !shapes[2].is_vector() || !shapes[5].is_vector() {
        return Err(invalid_argument!(
            "Input shapes should be a vector but received shapes {} and {}",
            shapes[2],
            shapes[5]
        ));
    }
    let (a_shape, b_shape) = (ctx.input(2)?.as_slice::<i64>()?, ctx.input(5)?.as_slice::<i64>()?);
    if a_shape.len() != rank {
        return Err(invalid_argument!(
            "Second dimension of a_indices and length of a_shape must match, got {rank} and {}",
            a_shape.len()
        ));
    }
    if rank == 0 {
        return Err(invalid_argument!("Tensors must not be empty"));
    }
    if a_shape.len() != b_shape.len() {
        return Err(invalid_argument!(
            "Operands do not have the same ranks; got shapes: {} and {}",
            joined(a_shape, " "),
            joined(b_shape, " ")
        ));
    }
    for (i, (a, b)) in a_shape.iter().zip(b_shape).enumerate() {
        if a != b {
            return Err(invalid_argument!("Operands' shapes do not match: got {a} and {b} for dimension {i}"));
        }
    }
    Ok(rank)
}

fn union_indices(entries: &[Entry], a: &[i64], b: &[i64], rank: usize) -> Result<Tensor> {
    let mut indices = Vec::with_capacity(entries.len() * rank);
    for entry in entries {
        indices.extend_from_slice(match entry {
            (Some(i), _) => row(a, rank, *i),
            (None, Some(j)) => row(b, rank, *j),
            (None, None) => &[],
        });
    }
    index_matrix(&indices, entries.len(), rank)
}

/// The magnitude of a number, as a threshold compares it.
trait Magnitude: Number {
    fn is_below(self, threshold: f64) -> bool;
}

macro_rules! magnitudes {
    ($($rust:ty: $abs:expr;)*) => {$(
        impl Magnitude for $rust {
            fn is_below(self, threshold: f64) -> bool {
                let magnitude: fn($rust) -> f64 = $abs;
                let magnitude = magnitude(self);
                // As in TensorFlow, a magnitude that is not a number is below any threshold.
                magnitude.is_nan() || threshold.is_nan() || magnitude < threshold
            }
        }
    )*};
}

magnitudes! {
    i8: |v| f64::from(v).abs();
    i16: |v| f64::from(v).abs();
    i32: |v| f64::from(v).abs();
    i64: |v| (v as f64).abs();
    f32: |v| f64::from(v).abs();
    f64: |v| v.abs();
    Complex32: |v| f64::from(v.norm());
    Complex64: |v| v.norm();
}

/// The sum; sums of two entries that are below a threshold are left out.
struct SparseAdd;

fn threshold(tensor: &Tensor) -> Result<f64> {
    if !tensor.shape().is_scalar() {
        return Err(invalid_argument!("The magnitude threshold must be a scalar: got shape {}", tensor.shape()));
    }
    Ok(match tensor.dtype() {
        DType::Float => f64::from(tensor.scalar_value::<f32>()?),
        DType::Double => tensor.scalar_value::<f64>()?,
        DType::Int8 => f64::from(tensor.scalar_value::<i8>()?),
        DType::Int16 => f64::from(tensor.scalar_value::<i16>()?),
        DType::Int32 => f64::from(tensor.scalar_value::<i32>()?),
        DType::Int64 => tensor.scalar_value::<i64>()? as f64,
        other => return Err(invalid_argument!("a threshold of type {other} is not supported")),
    })
}

impl Kernel for SparseAdd {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let rank = check(ctx, false)?;
        let threshold = threshold(ctx.input(6)?)?;
        let (a, b) = (ctx.input(0)?.as_slice::<i64>()?, ctx.input(3)?.as_slice::<i64>()?);
        let mut entries = union(a, b, rank);
        let (x, y) = (ctx.input(1)?, ctx.input(4)?);
        let values = dispatch!(x.dtype(), T in [f32, f64, i32, i64, i16, i8, Complex32, Complex64] => {
            let (x, y) = (x.as_slice::<T>()?, y.as_slice::<T>()?);
            let value = |entry: &Entry| match *entry {
                (Some(i), Some(j)) => x[i].plus(y[j]),
                (Some(i), None) => x[i],
                (None, j) => j.and_then(|j| y.get(j)).copied().unwrap_or_default(),
            };
            entries.retain(|entry| !(entry.0.is_some() && entry.1.is_some() && value(entry).is_below(threshold)));
            Tensor::vector(&entries.iter().map(value).collect::<Vec<T>>())
        });
        let values = values.unwrap_or_else(|| Err(internal!("no such type")))?;
        let indices = union_indices(&entries, a, b, rank)?;
        let shape = ctx.take_input(2)?;
        ctx.set_output(0, indices)?;
        ctx.set_output(1, values)?;
        ctx.set_output(2, shape)
    }
}

/// The gradient of a sum's values for those of both summands.
struct SparseAddGrad;

impl Kernel for SparseAddGrad {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let gradient = ctx.input(0)?;
        let shapes: Vec<&Shape> = (1..4).map(|i| Ok(ctx.input(i)?.shape())).collect::<Result<_>>()?;
        if shapes.iter().any(|shape| !shape.is_matrix()) {
            return Err(invalid_argument!(
                "Input indices should be matrices but received shapes: {} and {} and {}",
                shapes[0],
                shapes[1],
                shapes[2]
            ));
        }
        if !gradient.shape().is_vector() {
            return Err(invalid_argument!(
                "Input backprop_val_grad should be a vector but received shape: {}",
                gradient.shape()
            ));
        }
        let rank = shapes[0].dim(1);
        if shapes[1].dim(1) != rank || shapes[2].dim(1) != rank {
            return Err(invalid_argument!(
                "The densified operands should have the same ndims; for A, B, sum got: {rank}{}{}",
                shapes[1].dim(1),
                shapes[2].dim(1)
            ));
        }
        if gradient.num_elements() != shapes[2].dim(0) {
            return Err(invalid_argument!(
                "# elements of backprop_val_grad and # rows of sum_indices should match (#nnz of sum): got {} and {}",
                gradient.num_elements(),
                shapes[2].dim(0)
            ));
        }
        let sum = ctx.input(3)?.as_slice::<i64>()?;
        let mut outputs = Vec::with_capacity(2);
        for input in [1, 2] {
            let indices = ctx.input(input)?.as_slice::<i64>()?;
            let rows = shapes[input - 1].dim(0);
            let mut out = Tensor::zeros(gradient.dtype(), Shape::vector(rows))?;
            let (mut i, mut k) = (0, 0);
            while i < rows && k < gradient.num_elements() {
                match row(indices, rank, i).cmp(row(sum, rank, k)) {
                    Ordering::Equal => {
                        out.copy_elements(i, gradient, k..k + 1)?;
                        i += 1;
                        k += 1;
                    }
                    Ordering::Less => i += 1,
                    Ordering::Greater => k += 1,
                }
            }
            outputs.push(out);
        }
        for (i, out) in outputs.into_iter().enumerate() {
            ctx.set_output(i, out)?;
        }
        Ok(())
    }
}

/// The larger or smaller of two entries, one of which may be zero.
struct Extreme {
    largest: bool,
}

impl Extreme {
    fn new(_: &Construction<'_>, largest: bool) -> Result<Extreme> {
        Ok(Extreme { largest })
    }
}

impl Kernel for Extreme {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let rank = check(ctx, true)?;
        let (a, b) = (ctx.input(0)?.as_slice::<i64>()?, ctx.input(3)?.as_slice::<i64>()?);
        let entries = union(a, b, rank);
        let (x, y) = (ctx.input(1)?, ctx.input(4)?);
        let values = dispatch!(x.dtype(), T in reals => {
            let (x, y) = (x.as_slice::<T>()?, y.as_slice::<T>()?);
            let get = |from: &[T], at: Option<usize>| at.and_then(|at| from.get(at)).copied().unwrap_or_default();
            let value = |entry: &Entry| {
                let (a, b) = (get(x, entry.0), get(y, entry.1));
                if (a < b) == self.largest { b } else { a }
            };
            Tensor::vector(&entries.iter().map(value).collect::<Vec<T>>())
        });
        let values = values.unwrap_or_else(|| Err(internal!("no such type")))?;
        let indices = union_indices(&entries, a, b, rank)?;
        ctx.set_output(0, indices)?;
        ctx.set_output(1, values)
    }
}
