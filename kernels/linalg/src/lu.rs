//! Factorisation with row exchanges, and what is computed by it: `Lu`, `MatrixInverse`, `MatrixSolve`, determinants.

use crate::batch::{Batch, Parts, Size, part};
use crate::dense::{Dense, Triangle, View, solve_triangular, subtract_product};
use crate::scalar::{Scalar, TYPES};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Complex32, Complex64, DType, Result, Tensor, dispatch, f16, internal, invalid_argument};
use num_traits::{Float, Zero};

const SMALL: usize = 8;

/// `P·A = L·U`: both triangles in one matrix, and for each step the row that was exchanged with it.
pub(crate) struct Lu<T> {
    packed: Dense<T>,
    exchanges: Vec<usize>,
}

impl<T: Scalar> Lu<T> {
    /// Factorises a square matrix. The pivot is the first of the largest magnitude; a column of zeros is passed over.
    pub(crate) fn new(mut a: Dense<T>) -> Lu<T> {
        let n = a.rows;
        let mut exchanges: Vec<usize> = (0..n).collect();
        panel(&mut a, 0, n, &mut exchanges);
        Lu { packed: a, exchanges }
    }

    fn size(&self) -> usize {
        self.packed.rows
    }

    /// Whether a pivot is zero (or no number).
    pub(crate) fn is_singular(&self) -> bool {
        let pivot = |i: usize| self.packed.at(i, i).abs();
        // As TensorFlow: the least pivot must be above zero.
        !(0..self.size()).all(|i| pivot(i) > T::Real::zero())
    }

    /// The solution of `A·x = b`.
    pub(crate) fn solve(&self, mut b: Dense<T>) -> Dense<T> {
        let (n, columns) = (self.size(), b.columns);
        for j in 0..columns {
            let column = b.column_mut(j);
            self.exchanges.iter().enumerate().for_each(|(i, &other)| column.swap(i, other));
        }
        solve_triangular(self.packed.view(), Triangle::Lower, true, n, &mut b.data, n, columns);
        solve_triangular(self.packed.view(), Triangle::Upper, false, n, &mut b.data, n, columns);
        b
    }

    /// For each row of `L·U` the row of `A` that it is.
    fn permutation(&self) -> Vec<usize> {
        let mut rows: Vec<usize> = (0..self.size()).collect();
        self.exchanges.iter().enumerate().for_each(|(i, &other)| rows.swap(i, other));
        rows
    }

    /// The sign and the logarithm of the magnitude of the determinant.
    fn log_determinant(&self) -> (T, T::Real) {
        let mut log = T::Real::zero();
        let swaps = self.exchanges.iter().enumerate().filter(|(i, other)| i != *other).count();
        let mut sign = if swaps % 2 == 0 { T::one() } else { -T::one() };
        for i in 0..self.size() {
            let pivot = self.packed.at(i, i);
            let magnitude = pivot.abs();
            log += Float::ln(magnitude);
            sign *= pivot / T::from_real(magnitude);
        }
        if !Float::is_finite(log) {
            let positive = log > T::Real::zero();
            let infinite = T::Real::infinity();
            return (T::zero(), if positive { infinite } else { -infinite });
        }
        (sign, log)
    }
}

/// Factorises columns `first..first + columns` from row `first` down; exchanges rows within these columns only.
fn panel<T: Scalar>(a: &mut Dense<T>, first: usize, columns: usize, exchanges: &mut [usize]) {
    let n = a.rows;
    if columns <= SMALL {
        for k in first..first + columns {
            let mut best = k;
            for i in k + 1..n {
                if a.at(i, k).abs() > a.at(best, k).abs() {
                    best = i;
                }
            }
            exchanges[k] = best;
            let pivot = a.at(best, k);
            if pivot == T::zero() {
                exchanges[k] = k;
                continue;
            }
            exchange(a, first..first + columns, k..k + 1, exchanges);
            a.column_mut(k)[k + 1..].iter_mut().for_each(|x| *x /= pivot);
            for j in k + 1..first + columns {
                let factor = a.at(k, j);
                let (from, to) = a.two_columns(k, j);
                to[k + 1..].iter_mut().zip(&from[k + 1..]).for_each(|(t, &f)| *t -= f * factor);
            }
        }
        return;
    }
    let half = columns / 2;
    let middle = first + half;
    let rest = columns - half;
    panel(a, first, half, exchanges);
    exchange(a, middle..first + columns, first..middle, exchanges);
    let left = Dense::copy(a.view().from(first, first), n - first, half);
    solve_triangular(left.view(), Triangle::Lower, true, half, &mut a.data[middle * n + first..], n, rest);
    let above = Dense::copy(a.view().from(first, middle), half, rest);
    let sizes = [n - middle, half, rest];
    subtract_product(&mut a.data[middle * n + middle..], n, left.view().from(half, 0), above.view(), sizes);
    panel(a, middle, rest, exchanges);
    exchange(a, first..middle, middle..first + columns, exchanges);
}

fn exchange<T: Scalar>(
    a: &mut Dense<T>,
    columns: std::ops::Range<usize>,
    steps: std::ops::Range<usize>,
    exchanges: &[usize],
) {
    for j in columns {
        let column = a.column_mut(j);
        for step in steps.clone() {
            column.swap(step, exchanges[step]);
        }
    }
}

fn cube(n: usize) -> f64 {
    let n = n as f64;
    n * n * n
}

/// `Lu`: both factors in one matrix, and the permutation.
struct LuOp;

impl Kernel for LuOp {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let rank = ctx.input(0)?.shape().rank();
        if rank < 2 {
            return Err(invalid_argument!("Input tensor must have rank >= 2, got {rank}"));
        }
        let batch = Batch::<1>::new(ctx)?;
        let n = batch.square()?;
        let mut out = ctx.alloc_output(0, ctx.input(0)?.shape().clone())?;
        let mut rows = vec![0i64; batch.count * n];
        let input = ctx.input(0)?;
        dispatch!(input.dtype(), T in [f32, f64, Complex32, Complex64] => {
            let data = input.as_slice::<T>()?;
            let parts = Parts::new(out.as_mut_slice::<T>()?, batch.count, n * n);
            let permutations = Parts::new(&mut rows, batch.count, n);
            batch.each(ctx, cube(n) * 0.7, |i| {
                let lu = Lu::new(Dense::from_rows(part(data, i, (n, n)), n, n));
                if lu.is_singular() {
                    return Err(invalid_argument!("Input is not invertible."));
                }
                parts.with(i, |out| lu.packed.to_rows(out));
                permutations.with(i, |rows| {
                    rows.iter_mut().zip(lu.permutation()).for_each(|(to, from)| *to = from as i64);
                });
                Ok(())
            })
        })
        .ok_or_else(|| internal!("Lu does not take this type"))??;
        let shape = batch.shape(&[n])?;
        let permutation = if ctx.output_type(1)? == DType::Int32 {
            let rows: Vec<i32> = rows.iter().map(|&row| row as i32).collect();
            Tensor::from_slice(shape, &rows)?
        } else {
            Tensor::from_slice(shape, &rows)?
        };
        ctx.set_output(0, out)?;
        ctx.set_output(1, permutation)
    }
}

/// The matrix as rows, or its adjoint.
fn read<T: Scalar>(data: &[T], n: usize, adjoint: bool) -> Dense<T> {
    let view = View::by_rows(data, n);
    Dense::copy(if adjoint { view.adjoint() } else { view }, n, n)
}

struct MatrixInverse {
    adjoint: bool,
}

fn inverse<T: Scalar>(data: &[T], n: usize, adjoint: bool) -> Result<Dense<T>> {
    let lu = Lu::new(read(data, n, adjoint));
    if lu.is_singular() {
        return Err(invalid_argument!("Input is not invertible."));
    }
    Ok(lu.solve(Dense::identity(n)))
}

impl Kernel for MatrixInverse {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let batch = Batch::<1>::new(ctx)?;
        let n = batch.square()?;
        let mut out = ctx.alloc_output(0, ctx.input(0)?.shape().clone())?;
        let input = ctx.input(0)?;
        let adjoint = self.adjoint;
        if input.dtype() == DType::Half {
            let data = input.as_slice::<f16>()?;
            let parts = Parts::new(out.as_mut_slice::<f16>()?, batch.count, n * n);
            batch.each(ctx, cube(n) * 2.0, |i| {
                let wide: Vec<f32> = part(data, i, (n, n)).iter().map(|x| x.to_f32()).collect();
                let mut result = vec![0.0; n * n];
                inverse(&wide, n, adjoint)?.to_rows(&mut result);
                parts.with(i, |out| out.iter_mut().zip(result).for_each(|(t, x)| *t = f16::from_f32(x)));
                Ok(())
            })?;
            return ctx.set_output(0, out);
        }
        dispatch!(input.dtype(), T in [f32, f64, Complex32, Complex64] => {
            let data = input.as_slice::<T>()?;
            let parts = Parts::new(out.as_mut_slice::<T>()?, batch.count, n * n);
            batch.each(ctx, cube(n) * 2.0, |i| {
                let result = inverse(part(data, i, (n, n)), n, adjoint)?;
                parts.with(i, |out| result.to_rows(out));
                Ok(())
            })
        })
        .ok_or_else(|| internal!("MatrixInverse does not take this type"))??;
        ctx.set_output(0, out)
    }
}

struct MatrixSolve {
    adjoint: bool,
}

/// Checks the sizes of a square system and its right-hand sides.
fn check_solver([matrix, rhs]: [Size; 2]) -> Result<()> {
    if matrix.0 != matrix.1 {
        return Err(invalid_argument!("First input (lhs) must be a square matrix."));
    }
    if matrix.0 != rhs.0 {
        return Err(invalid_argument!("Input matrix and rhs are incompatible."));
    }
    Ok(())
}

impl Kernel for MatrixSolve {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let batch = Batch::<2>::new(ctx)?;
        check_solver(batch.sizes)?;
        let (n, columns) = batch.sizes[1];
        let mut out = ctx.alloc_output(0, batch.shape(&[n, columns])?)?;
        let (matrix, rhs) = (ctx.input(0)?, ctx.input(1)?);
        dispatch!(matrix.dtype(), T in [f32, f64, Complex32, Complex64] => {
            let (matrix, rhs) = (matrix.as_slice::<T>()?, rhs.as_slice::<T>()?);
            let parts = Parts::new(out.as_mut_slice::<T>()?, batch.count, n * columns);
            batch.each(ctx, cube(n) * 0.7 + (n * n * columns) as f64, |i| {
                if n == 0 || columns == 0 {
                    return Ok(());
                }
                let lu = Lu::new(read(part(matrix, i, (n, n)), n, self.adjoint));
                if lu.is_singular() {
                    return Err(invalid_argument!("Input matrix is not invertible."));
                }
                let x = lu.solve(Dense::from_rows(part(rhs, i, (n, columns)), n, columns));
                parts.with(i, |out| x.to_rows(out));
                Ok(())
            })
        })
        .ok_or_else(|| internal!("MatrixSolve does not take this type"))??;
        ctx.set_output(0, out)
    }
}

/// `MatrixDeterminant`, or with `log` sign and logarithm in two outputs.
struct Determinant {
    log: bool,
}

impl Kernel for Determinant {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let batch = Batch::<1>::new(ctx)?;
        let n = batch.square()?;
        let shape = batch.shape(&[])?;
        let mut first = ctx.alloc_output(0, shape.clone())?;
        let mut second = Tensor::alloc(first.dtype(), shape)?;
        let input = ctx.input(0)?;
        dispatch!(input.dtype(), T in [f32, f64, Complex32, Complex64] => {
            let data = input.as_slice::<T>()?;
            let signs = Parts::new(first.as_mut_slice::<T>()?, batch.count, 1);
            let logs = Parts::new(second.as_mut_slice::<T>()?, batch.count, 1);
            batch.each(ctx, cube(n) * 0.7, |i| {
                let (sign, log) = Lu::new(Dense::from_rows(part(data, i, (n, n)), n, n)).log_determinant();
                let value = if self.log { sign } else { sign * T::from_real(log.exp()) };
                signs.with(i, |out| out.fill(value));
                logs.with(i, |out| out.fill(T::from_real(log)));
                Ok(())
            })
        })
        .ok_or_else(|| internal!("determinants do not take this type"))??;
        ctx.set_output(0, first)?;
        if self.log { ctx.set_output(1, second) } else { Ok(()) }
    }
}

pub(crate) fn register(r: &mut Registry) {
    r.op("Lu").types("T", TYPES).types("output_idx_type", &[DType::Int32, DType::Int64]).kernel(|_| Ok(LuOp));
    let inverse = |c: &Construction<'_>| Ok(MatrixInverse { adjoint: c.attrs().bool("adjoint")? });
    let inverted = [TYPES, &[DType::Half]].concat();
    r.op("MatrixInverse").types("T", &inverted).kernel(inverse);
    r.op("BatchMatrixInverse").types("T", &[DType::Double, DType::Float, DType::Half]).kernel(inverse);
    for op in ["MatrixSolve", "BatchMatrixSolve"] {
        let new = |c: &Construction<'_>| Ok(MatrixSolve { adjoint: c.attrs().bool("adjoint")? });
        r.op(op).types("T", TYPES).kernel(new);
    }
    for op in ["MatrixDeterminant", "BatchMatrixDeterminant"] {
        r.op(op).types("T", TYPES).kernel(|_| Ok(Determinant { log: false }));
    }
    r.op("LogMatrixDeterminant").types("T", TYPES).kernel(|_| Ok(Determinant { log: true }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_multiply_to_the_matrix_with_its_rows_exchanged() {
        for n in [1, 2, 9, 40, 70] {
            let data: Vec<f64> = (0..n * n).map(|i| ((i * i + 3) as f64).sin()).collect();
            let a = Dense::from_rows(&data, n, n);
            let lu = Lu::new(a.clone());
            let rows = lu.permutation();
            for (i, &row) in rows.iter().enumerate() {
                for j in 0..n {
                    let l = |k: usize| if k == i { 1.0 } else { lu.packed.at(i, k) };
                    let sum: f64 = (0..=i.min(j)).map(|k| l(k) * lu.packed.at(k, j)).sum();
                    assert!((sum - a.at(row, j)).abs() < 1e-11, "{n} {i} {j}");
                }
            }
        }
    }
}
