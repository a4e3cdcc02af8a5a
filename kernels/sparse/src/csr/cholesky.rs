//! `SparseMatrixSparseCholesky`: the lower triangular factor of a symmetric positive definite matrix in a given order.
//!
//! The up-looking method: the pattern of a row of the factor follows from the elimination tree, and its values from a triangular
//! solve with the rows before it (Davis, "Direct Methods for Sparse Linear Systems", 2006, chapter 4).

use super::{Csr, Part, Rows, VALUES};
use crate::number::Number;
use graphmill_runtime::{Construction, Context, Kernel, Registry, Stored};
use graphmill_tensor::{Complex32, Complex64, DType, Result, Tensor, dispatch, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("SparseMatrixSparseCholesky").types("type", &VALUES).kernel(Cholesky::new);
}

/// A number of the factor.
trait Scalar: Number {
    /// The real part.
    fn real(self) -> f64;
    /// A real number of the type.
    fn of_real(value: f64) -> Self;
}

macro_rules! scalars {
    ($($rust:ty, $real:expr, $of:expr;)*) => {$(
        impl Scalar for $rust {
            fn real(self) -> f64 { let real: fn($rust) -> f64 = $real; real(self) }
            fn of_real(value: f64) -> $rust { let of: fn(f64) -> $rust = $of; of(value) }
        }
    )*};
}

scalars! {
    f32, |v| f64::from(v), |v| v as f32;
    f64, |v| v, |v| v;
    Complex32, |v| f64::from(v.re), |v| Complex32::new(v as f32, 0.0);
    Complex64, |v| v.re, |v| Complex64::new(v, 0.0);
}

struct Cholesky(DType);

impl Cholesky {
    fn new(c: &Construction<'_>) -> Result<Cholesky> {
        c.dtype("type").map(Cholesky)
    }

    fn check(&self, matrix: &Csr, permutation: &Tensor) -> Result<()> {
        if matrix.dtype() != self.0 {
            return Err(invalid_argument!(
                "Asked for a CSRSparseMatrix of type {} but saw dtype: {}",
                self.0,
                matrix.dtype()
            ));
        }
        let (batch, rows, columns) = matrix.sizes();
        if rows != columns {
            return Err(invalid_argument!("sparse matrix must be square; got: {rows} != {columns}"));
        }
        let shape = permutation.shape();
        if shape.rank() + 1 != matrix.rank() {
            return Err(invalid_argument!(
                "sparse matrix must have the same rank as permutation; got: {} != {} + 1.",
                matrix.rank(),
                shape.rank()
            ));
        }
        if shape.dim(matrix.rank() - 2) != rows {
            return Err(invalid_argument!(
                "permutation must have the same number of elements in each batch as the number of rows in sparse matrix; got: {} != \
                 {rows}",
                shape.dim(matrix.rank() - 2)
            ));
        }
        if matrix.rank() == 3 && shape.dim(0) != batch {
            return Err(invalid_argument!(
                "permutation must have the same batch size as sparse matrix; got: {} != {batch}",
                shape.dim(0)
            ));
        }
        Ok(())
    }
}

impl Kernel for Cholesky {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (matrix, permutation) = (Csr::of_input(ctx, 0)?, ctx.input(1)?);
        self.check(&matrix, permutation)?;
        let factor = dispatch!(self.0, T in [f32, f64, Complex32, Complex64] => {
            factors::<T>(&matrix, permutation.as_slice::<i32>()?)
        });
        let factor = factor.unwrap_or_else(|| Err(internal!("a matrix cannot be of type {}", self.0)))?;
        ctx.set_output(0, factor.into_tensor()?)
    }
}

fn factors<T: Scalar>(matrix: &Csr, permutations: &[i32]) -> Result<Csr> {
    let (batch, size, _) = matrix.sizes();
    let mut factors: Vec<Rows<T>> = Vec::with_capacity(batch);
    for index in 0..batch {
        let permutation = permutations.get(index * size..(index + 1) * size).unwrap_or_default();
        let lower = permuted(matrix.part::<T>(index)?, &places(permutation)?);
        factors.push(factor(&lower).ok_or_else(|| {
            invalid_argument!(
                "Sparse Cholesky factorization failed for batch index {index}. The input might not be valid."
            )
        })?);
    }
    Csr::from_rows(matrix.shape.clone(), &factors)
}

/// For each row of the matrix, where the permutation puts it.
fn places(permutation: &[i32]) -> Result<Vec<usize>> {
    let mut places = vec![None; permutation.len()];
    for (to, &from) in permutation.iter().enumerate() {
        let place = usize::try_from(from).ok().and_then(|from| places.get_mut(from)).filter(|place| place.is_none());
        *place.ok_or_else(|| invalid_argument!("permutation must contain each row once, but row {from} is not"))? =
            Some(to);
    }
    Ok(places.into_iter().flatten().collect())
}

/// The lower half of the matrix, of which only the lower half is read, with rows and columns moved.
fn permuted<T: Scalar>(matrix: Part<'_, T>, places: &[usize]) -> Rows<T> {
    let mut lower: Rows<T> = vec![Vec::new(); places.len()];
    for (row, &to) in places.iter().enumerate() {
        for (column, value) in matrix.row(row).filter(|&(column, _)| column <= row) {
            let other = places[column];
            if to >= other { lower[to].push((other, value)) } else { lower[other].push((to, value.conjugate())) }
        }
    }
    lower.iter_mut().for_each(|row| row.sort_by_key(|&(column, _)| column));
    lower
}

/// The factor's rows, the diagonal last; `None` if the matrix is not positive definite.
fn factor<T: Scalar>(lower: &Rows<T>) -> Option<Rows<T>> {
    let size = lower.len();
    let mut parents: Vec<Option<usize>> = vec![None; size];
    let mut ancestors: Vec<Option<usize>> = vec![None; size];
    // For each column, the rows below the diagonal that have an entry there, with its value.
    let mut by_column: Rows<T> = vec![Vec::new(); size];
    let mut diagonal = vec![0.0f64; size];
    let mut sums = vec![T::default(); size];
    let mut reached = vec![usize::MAX; size];
    let mut factor = Vec::with_capacity(size);
    for (row, entries) in lower.iter().enumerate() {
        for &(column, _) in entries.iter().filter(|&&(column, _)| column < row) {
            // The tree grows: the root above the column gets the row as its parent.
            let mut node = Some(column);
            while let Some(at) = node.filter(|&at| at < row) {
                node = ancestors[at].replace(row);
                if node.is_none() {
                    parents[at] = Some(row);
                }
            }
        }
        let mut pattern = Vec::new();
        let mut pivot = T::default();
        reached[row] = row;
        for &(column, value) in entries {
            if column == row {
                pivot = pivot.plus(value);
                continue;
            }
            sums[column] = sums[column].plus(value);
            let mut node = Some(column);
            while let Some(at) = node.filter(|&at| reached[at] != row) {
                reached[at] = row;
                pattern.push(at);
                node = parents[at];
            }
        }
        // Every row that a row depends on comes before it in the tree, and has the smaller number.
        pattern.sort_unstable();
        let mut pivot = pivot.real();
        let mut out = Vec::with_capacity(pattern.len() + 1);
        for &column in &pattern {
            let value = std::mem::take(&mut sums[column]).over(T::of_real(diagonal[column]));
            for &(below, other) in &by_column[column] {
                let term = value.times(other.conjugate()).times(T::of_real(-1.0));
                sums[below] = sums[below].plus(term);
            }
            pivot = T::of_real(pivot - value.times(value.conjugate()).real()).real();
            by_column[column].push((row, value));
            out.push((column, value));
        }
        if pivot.is_nan() || pivot <= 0.0 {
            return None;
        }
        diagonal[row] = T::of_real(pivot.sqrt()).real();
        out.push((row, T::of_real(diagonal[row])));
        factor.push(out);
    }
    Some(factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_fills_in() {
        let lower = vec![vec![(0, 4.0)], vec![(0, 2.0), (1, 5.0)], vec![(0, 2.0), (2, 3.0)]];
        let factor = factor::<f64>(&lower).unwrap();
        assert_eq!(factor[1], [(0, 1.0), (1, 2.0)]);
        assert_eq!(factor[2], [(0, 1.0), (1, -0.5), (2, 1.75f64.sqrt())]);
        assert!(super::factor::<f64>(&vec![vec![(0, 0.0)]]).is_none());
    }
}
