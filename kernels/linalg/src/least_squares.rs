//! `MatrixSolveLs`: least squares.

use crate::batch::{Batch, Parts, part};
use crate::cholesky;
use crate::dense::{Dense, product};
use crate::jacobi::Factors;
use crate::scalar::{REALS, Scalar, TYPES};
use crate::spectral::singular_factors;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Complex32, Complex64, Result, dispatch, internal, invalid_argument};
use num_traits::{Float, ToPrimitive};

struct MatrixSolveLs {
    fast: bool,
}

/// The solution by the normal equations; `None` if they are not positive definite.
fn normal_equations<T: Scalar>(a: &Dense<T>, b: &Dense<T>, regularizer: f64) -> Option<Dense<T>> {
    let (m, n) = (a.rows, a.columns);
    let adjoint = a.view().adjoint();
    let least = m.min(n);
    let mut gramian = if m >= n { product(adjoint, a.view(), n, m, n) } else { product(a.view(), adjoint, m, n, m) };
    for i in 0..least {
        gramian.set(i, i, gramian.at(i, i) + T::from_f64(regularizer));
    }
    cholesky::factor(&mut gramian)?;
    let mut x = if m >= n { product(adjoint, b.view(), n, m, b.columns) } else { b.clone() };
    cholesky::solve(&gramian, &mut x);
    Some(if m >= n { x } else { product(adjoint, x.view(), n, m, b.columns) })
}

/// The solution of least norm by singular values, of which the negligible ones count as zero.
fn by_singular_values<T: Scalar>(a: &[T], b: &[T], [m, n, columns]: [usize; 3]) -> Option<Vec<T>> {
    let Factors { values, u, v } = singular_factors(a, m, n, false)?;
    let wide: Vec<T::Wide> = b.iter().map(|x| x.widen()).collect();
    let b = Dense::from_rows(&wide, m, columns);
    let epsilon = T::Real::epsilon().to_f64().unwrap_or(f64::EPSILON);
    let threshold = values.first().copied().unwrap_or(0.0) * epsilon * m.max(n) as f64;
    let least = values.len();
    let mut coordinates = product(u.view().adjoint(), b.view(), least, m, columns);
    for (i, &value) in values.iter().enumerate() {
        let factor = T::Wide::from_f64(if value > threshold { value.recip() } else { 0.0 });
        for j in 0..columns {
            coordinates.set(i, j, coordinates.at(i, j) * factor);
        }
    }
    let x = product(v.view(), coordinates.view(), n, least, columns);
    Some((0..n * columns).map(|at| T::narrow(x.at(at / columns, at % columns))).collect())
}

impl Kernel for MatrixSolveLs {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let batch = Batch::<2>::new(ctx)?;
        let [(m, n), (rows, columns)] = batch.sizes;
        if m != rows {
            return Err(invalid_argument!("Input matrix and rhs are incompatible."));
        }
        let regularizer = ctx.input(2)?;
        if !regularizer.shape().is_scalar() {
            let shape = regularizer.shape();
            return Err(invalid_argument!("l2_regularizer must be scalar, got shape {shape}"));
        }
        let regularizer = regularizer.scalar_value::<f64>()?;
        if regularizer < 0.0 || regularizer.is_nan() {
            return Err(invalid_argument!("l2_regularizer must be >= 0."));
        }
        let mut out = ctx.alloc_output(0, batch.shape(&[n, columns])?)?;
        let (matrix, rhs) = (ctx.input(0)?, ctx.input(1)?);
        dispatch!(matrix.dtype(), T in [f32, f64, Complex32, Complex64] => {
            let (matrix, rhs) = (matrix.as_slice::<T>()?, rhs.as_slice::<T>()?);
            let parts = Parts::new(out.as_mut_slice::<T>()?, batch.count, n * columns);
            let cost = m as f64 * n as f64 * (m.min(n) + columns) as f64 * if self.fast { 1.0 } else { 15.0 };
            batch.each(ctx, cost, |i| {
                if m == 0 || n == 0 || columns == 0 {
                    parts.with(i, |out| out.fill(T::from_f64(0.0)));
                    return Ok(());
                }
                let (a, b) = (part(matrix, i, (m, n)), part(rhs, i, (m, columns)));
                if self.fast {
                    let (a, b) = (Dense::from_rows(a, m, n), Dense::from_rows(b, m, columns));
                    let advice = if m >= n { "provide a larger" } else { "provide an" };
                    let x = normal_equations(&a, &b, regularizer).ok_or_else(|| {
                        invalid_argument!(
                            "Input matrix was rank deficient or ill-conditioned. Try setting fast=False or {advice} \
                             l2_regularizer > 0."
                        )
                    })?;
                    parts.with(i, |out| x.to_rows(out));
                    return Ok(());
                }
                let x = by_singular_values(a, b, [m, n, columns]);
                parts.with(i, |out| match x {
                    Some(x) => out.copy_from_slice(&x),
                    None => out.fill(T::from_f64(f64::NAN)),
                });
                Ok(())
            })
        })
        .ok_or_else(|| internal!("MatrixSolveLs does not take this type"))??;
        ctx.set_output(0, out)
    }
}

pub(crate) fn register(r: &mut Registry) {
    let new = |c: &Construction<'_>| Ok(MatrixSolveLs { fast: c.attrs().bool("fast")? });
    r.op("MatrixSolveLs").types("T", TYPES).kernel(new);
    r.op("BatchMatrixSolveLs").types("T", REALS).kernel(new);
}
