//! `Cholesky` and its gradient.

use crate::batch::{Batch, Parts, part};
use crate::dense::{Dense, Triangle, View, product, solve_triangular, subtract_product};
use crate::scalar::{REALS, Scalar, TYPES};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Complex32, Complex64, Result, dispatch, internal, invalid_argument};

const SMALL: usize = 16;

/// Overwrites the lower triangle of a self-adjoint matrix with the factor `L` of `L·Lᴴ`; `None` if it is not positive definite.
/// The upper triangle is neither read nor left as it was.
pub(crate) fn factor<T: Scalar>(a: &mut Dense<T>) -> Option<()> {
    let n = a.rows;
    block(a, 0, n)
}

fn block<T: Scalar>(a: &mut Dense<T>, start: usize, n: usize) -> Option<()> {
    use num_traits::Zero;
    let stride = a.rows;
    if n <= SMALL {
        for j in start..start + n {
            for k in start..j {
                let factor = a.at(j, k).conj();
                let (from, to) = a.two_columns(k, j);
                for i in j..start + n {
                    to[i] -= from[i] * factor;
                }
            }
            let pivot = a.at(j, j).re();
            // Written so that NaN goes on into the result, as it does in TensorFlow.
            if pivot <= T::Real::zero() {
                return None;
            }
            let root = T::from_real(num_traits::Float::sqrt(pivot));
            a.set(j, j, root);
            for i in j + 1..start + n {
                a.set(i, j, a.at(i, j) / root);
            }
        }
        return Some(());
    }
    let half = n / 2;
    block(a, start, half)?;
    // The rows below, transposed: Lᴴ is on their right, so that L is on the left of their adjoint.
    let rest = n - half;
    let below = a.view().from(start + half, start).adjoint();
    let mut below = Dense::copy(below, half, rest);
    let corner = Dense::copy(a.view().from(start, start), half, half);
    solve_triangular(corner.view(), Triangle::Lower, false, half, &mut below.data, half, rest);
    for j in 0..half {
        for i in 0..rest {
            a.set(start + half + i, start + j, below.at(j, i).conj());
        }
    }
    let target = (start + half) * (stride + 1);
    let sizes = [rest, half, rest];
    subtract_product(&mut a.data[target..], stride, below.view().adjoint(), below.view(), sizes);
    block(a, start + half, rest)
}

struct Cholesky;

impl Kernel for Cholesky {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let batch = Batch::<1>::new(ctx)?;
        let n = batch.square()?;
        let mut out = ctx.alloc_output(0, ctx.input(0)?.shape().clone())?;
        let input = ctx.input(0)?;
        dispatch!(input.dtype(), T in [f32, f64, Complex32, Complex64] => {
            let data = input.as_slice::<T>()?;
            let parts = Parts::new(out.as_mut_slice::<T>()?, batch.count, n * n);
            batch.each(ctx, (n * n * n) as f64 / 3.0, |i| {
                let mut a = Dense::from_rows(part(data, i, (n, n)), n, n);
                factor(&mut a).ok_or_else(|| {
                    invalid_argument!("Cholesky decomposition was not successful. The input might not be valid.")
                })?;
                for j in 0..n {
                    a.column_mut(j)[..j].fill(T::from_f64(0.0));
                }
                parts.with(i, |out| a.to_rows(out));
                Ok(())
            })
        })
        .ok_or_else(|| internal!("Cholesky does not take this type"))??;
        ctx.set_output(0, out)
    }
}

/// The gradient of `Cholesky` by its factor and the gradient of that: `Lᴴ·(Φ(Lᴴ·G))·L⁻¹`, made symmetric (Murray 2016).
struct CholeskyGrad;

fn gradient<T: Scalar>(l: &[T], grad: &[T], n: usize, out: &mut [T]) {
    let half = T::from_f64(0.5);
    let lower = |data: &[T]| {
        let mut a = Dense::from_rows(data, n, n);
        for j in 0..n {
            a.column_mut(j)[..j].fill(T::zero());
        }
        a
    };
    let (l, grad) = (lower(l), lower(grad));
    let mut p = product(l.view().adjoint(), grad.view(), n, n, n);
    for j in 0..n {
        p.column_mut(j)[..j].fill(T::zero());
        p.set(j, j, p.at(j, j) * half);
    }
    // s = L⁻ᴴ·p·L⁻¹, the right factor by way of the adjoint.
    solve_triangular(l.view().adjoint(), Triangle::Upper, false, n, &mut p.data, n, n);
    let mut s = Dense::copy(p.view().adjoint(), n, n);
    solve_triangular(l.view().adjoint(), Triangle::Upper, false, n, &mut s.data, n, n);
    for i in 0..n {
        for j in 0..n {
            out[i * n + j] = (s.at(i, j) + s.at(j, i)) * half;
        }
    }
}

impl Kernel for CholeskyGrad {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let batch = Batch::<2>::new(ctx)?;
        let (rows, columns) = batch.sizes[0];
        if batch.sizes[0] != batch.sizes[1] {
            return Err(invalid_argument!("Inputs (L and grad) must have the same shape."));
        }
        if rows != columns {
            return Err(invalid_argument!("Inputs must be a square matrices."));
        }
        let mut out = ctx.alloc_output(0, ctx.input(0)?.shape().clone())?;
        let (l, grad) = (ctx.input(0)?, ctx.input(1)?);
        dispatch!(l.dtype(), T in [f32, f64] => {
            let (l, grad) = (l.as_slice::<T>()?, grad.as_slice::<T>()?);
            let parts = Parts::new(out.as_mut_slice::<T>()?, batch.count, rows * rows);
            batch.each(ctx, (rows * rows * rows) as f64, |i| {
                let size = (rows, rows);
                parts.with(i, |out| gradient(part(l, i, size), part(grad, i, size), rows, out));
                Ok(())
            })
        })
        .ok_or_else(|| internal!("CholeskyGrad does not take this type"))??;
        ctx.set_output(0, out)
    }
}

/// A view of a factor that lies in a dense matrix, for solving with `L` and then `Lᴴ`.
pub(crate) fn solve<T: Scalar>(l: &Dense<T>, b: &mut Dense<T>) {
    let (n, columns) = (l.rows, b.columns);
    let view: View<'_, T> = l.view();
    solve_triangular(view, Triangle::Lower, false, n, &mut b.data, n, columns);
    solve_triangular(view.adjoint(), Triangle::Upper, false, n, &mut b.data, n, columns);
}

pub(crate) fn register(r: &mut Registry) {
    r.op("Cholesky").types("T", TYPES).kernel(|_: &Construction<'_>| Ok(Cholesky));
    r.op("BatchCholesky").types("T", REALS).kernel(|_: &Construction<'_>| Ok(Cholesky));
    for op in ["CholeskyGrad", "BatchCholeskyGrad"] {
        r.op(op).types("T", REALS).kernel(|_: &Construction<'_>| Ok(CholeskyGrad));
    }
}
