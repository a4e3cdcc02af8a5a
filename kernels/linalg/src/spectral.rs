//! `Svd`, `SelfAdjointEig` and `SelfAdjointEigV2`.

use crate::batch::{Batch, Parts, part};
use crate::dense::Dense;
use crate::jacobi::{self, Factors};
use crate::scalar::{REALS, Scalar, TYPES, Wide};
use crate::schur::Schur;
use faer::{Mat, Side};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Complex32, Complex64, Result, Shape, dispatch, internal, invalid_argument};

/// Elements row after row as a matrix of `faer`; `None` if one is not finite.
fn read<T: Scalar>(data: &[T], m: usize, n: usize) -> Option<Mat<T::Wide>> {
    let wide: Vec<T::Wide> = data.iter().map(|x| x.widen()).collect();
    wide.iter().all(|x| x.finite()).then(|| Mat::from_fn(m, n, |i, j| wide[i * n + j]))
}

/// Singular value decomposition.
struct Svd {
    compute_uv: bool,
    full_matrices: bool,
}

/// The factors of a matrix given by rows; `None` if it is not finite or the iteration fails.
pub(crate) fn singular_factors<T: Scalar>(data: &[T], m: usize, n: usize, full: bool) -> Option<Factors<T::Wide>> {
    if !data.iter().all(|x| x.widen().finite()) {
        return None;
    }
    if T::DTYPE.is_complex() {
        let wide: Vec<Complex64> = data.iter().map(|x| x.to_complex()).collect();
        let Factors { values, u, v } = jacobi::factors(Dense::from_rows(&wide, m, n), full);
        let back = |matrix: Dense<Complex64>| Dense {
            data: matrix.data.into_iter().map(T::Wide::from_complex).collect(),
            rows: matrix.rows,
            columns: matrix.columns,
        };
        return Some(Factors { values, u: back(u), v: back(v) });
    }
    let a = read(data, m, n)?;
    let svd = if full { a.svd() } else { a.thin_svd() }.ok()?;
    let dense = |matrix: faer::MatRef<'_, T::Wide>| {
        let (rows, columns) = (matrix.nrows(), matrix.ncols());
        let data = (0..rows * columns).map(|at| matrix[(at % rows, at / rows)]).collect();
        Dense { data, rows, columns }
    };
    let values = svd.S().column_vector().iter().map(|&s| s.real()).collect();
    Some(Factors { values, u: dense(svd.U()), v: dense(svd.V()) })
}

/// Singular values, left and right vectors as rows of elements; `None` without a decomposition.
type Rows<T> = Option<(Vec<T>, Vec<T>, Vec<T>)>;

impl Svd {
    fn factors<T: Scalar>(&self, data: &[T], m: usize, n: usize) -> Rows<T> {
        if !self.compute_uv && !T::DTYPE.is_complex() {
            let values = read(data, m, n)?.singular_values().ok()?;
            return Some((values.iter().map(|&s| T::from_f64(s)).collect(), Vec::new(), Vec::new()));
        }
        let Factors { values, u, v } = singular_factors(data, m, n, self.full_matrices)?;
        let rows = |matrix: &Dense<T::Wide>| {
            let n = matrix.columns;
            (0..matrix.rows * n).map(|at| T::narrow(matrix.at(at / n, at % n))).collect()
        };
        Some((values.into_iter().map(T::from_f64).collect(), rows(&u), rows(&v)))
    }
}

impl Kernel for Svd {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let batch = Batch::<1>::new(ctx)?;
        let (m, n) = batch.sizes[0];
        let least = m.min(n);
        let (u_columns, v_columns) = if self.full_matrices { (m, n) } else { (least, least) };
        let shape = |inner: &[usize]| if self.compute_uv { batch.shape(inner) } else { Ok(Shape::scalar()) };
        let mut s = ctx.alloc_output(0, batch.shape(&[least])?)?;
        let mut u = ctx.alloc_output(1, shape(&[m, u_columns])?)?;
        let mut v = ctx.alloc_output(2, shape(&[n, v_columns])?)?;
        let input = ctx.input(0)?;
        dispatch!(input.dtype(), T in [f32, f64, Complex32, Complex64] => {
            let data = input.as_slice::<T>()?;
            if !self.compute_uv {
                u.as_mut_slice::<T>()?.fill(T::from_f64(0.0));
                v.as_mut_slice::<T>()?.fill(T::from_f64(0.0));
            }
            let s_parts = Parts::new(s.as_mut_slice::<T>()?, batch.count, least);
            let u_parts = Parts::new(u.as_mut_slice::<T>()?, batch.count, m * u_columns);
            let v_parts = Parts::new(v.as_mut_slice::<T>()?, batch.count, n * v_columns);
            batch.each(ctx, 12.0 * m as f64 * n as f64 * (1 + least) as f64, |i| {
                if least == 0 {
                    u_parts.with(i, |out| identity(out, u_columns));
                    v_parts.with(i, |out| identity(out, v_columns));
                    return Ok(());
                }
                let copy = |from: Option<&Vec<T>>, out: &mut [T]| match from {
                    Some(from) => out.copy_from_slice(from),
                    None => out.fill(T::from_f64(f64::NAN)),
                };
                let factors = self.factors(part(data, i, (m, n)), m, n);
                s_parts.with(i, |out| copy(factors.as_ref().map(|f| &f.0), out));
                if self.compute_uv {
                    u_parts.with(i, |out| copy(factors.as_ref().map(|f| &f.1), out));
                    v_parts.with(i, |out| copy(factors.as_ref().map(|f| &f.2), out));
                }
                Ok(())
            })
        })
        .ok_or_else(|| internal!("Svd does not take this type"))??;
        ctx.set_output(0, s)?;
        ctx.set_output(1, u)?;
        ctx.set_output(2, v)
    }
}

fn identity<T: Scalar>(out: &mut [T], columns: usize) {
    for (at, t) in out.iter_mut().enumerate() {
        *t = T::from_f64(f64::from(u8::from(at % (columns + 1) == 0)));
    }
}

/// Eigenvalues, in rising order, and vectors of a self-adjoint matrix, of which the lower triangle is read.
struct SelfAdjointEig {
    vectors: bool,
    /// The values as first row above the vectors, in one output.
    joined: bool,
}

impl SelfAdjointEig {
    fn failed(&self) -> graphmill_tensor::Status {
        if self.joined {
            return invalid_argument!(
                "Self Adjoint Eigen decomposition wasnot successful. The input might not be valid."
            );
        }
        invalid_argument!("Self-adjoint eigen decomposition was not successful. The input might not be valid.")
    }

    fn run<T: Scalar>(&self, data: &[T], n: usize) -> Option<(Vec<T>, Vec<T>)> {
        if n == 0 {
            return Some((Vec::new(), Vec::new()));
        }
        if T::DTYPE.is_complex() {
            return complex_self_adjoint(data, n);
        }
        let a = read(data, n, n)?;
        if !self.vectors {
            let values = a.self_adjoint_eigenvalues(Side::Lower).ok()?;
            return Some((values.iter().map(|&s| T::from_f64(s)).collect(), Vec::new()));
        }
        let eig = a.self_adjoint_eigen(Side::Lower).ok()?;
        let values = eig.S().column_vector().iter().map(|&s| T::from_f64(s.real())).collect();
        let u = eig.U();
        Some((values, (0..n * n).map(|at| T::narrow(u[(at / n, at % n)])).collect()))
    }
}

/// Eigenvalues in rising order and vectors by the Schur form, which is diagonal here. The `faer` crate gives wrong ones for some
/// complex matrices (0.24.4).
fn complex_self_adjoint<T: Scalar>(data: &[T], n: usize) -> Option<(Vec<T>, Vec<T>)> {
    let mut a = Dense::<Complex64>::zeros(n, n);
    for i in 0..n {
        a.set(i, i, Complex64::new(data[i * n + i].to_complex().re, 0.0));
        for j in 0..i {
            let value = data[i * n + j].to_complex();
            a.set(i, j, value);
            a.set(j, i, value.conj());
        }
    }
    let Schur { t, u } = Schur::new(a)?;
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&i, &j| t.at(i, i).re.total_cmp(&t.at(j, j).re));
    let values = order.iter().map(|&k| T::from_f64(t.at(k, k).re)).collect();
    let vectors = (0..n * n).map(|at| T::from_complex(u.at(at / n, order[at % n]))).collect();
    Some((values, vectors))
}

impl Kernel for SelfAdjointEig {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let batch = Batch::<1>::new(ctx)?;
        let n = batch.square()?;
        let cost = 12.0 * (n * n * n) as f64;
        if self.joined {
            let mut out = ctx.alloc_output(0, batch.shape(&[n + 1, n])?)?;
            let input = ctx.input(0)?;
            dispatch!(input.dtype(), T in [f32, f64] => {
                let data = input.as_slice::<T>()?;
                let parts = Parts::new(out.as_mut_slice::<T>()?, batch.count, (n + 1) * n);
                batch.each(ctx, cost, |i| {
                    let (values, vectors) = self.run(part(data, i, (n, n)), n).ok_or_else(|| self.failed())?;
                    parts.with(i, |out| {
                        out[..n].copy_from_slice(&values);
                        out[n..].copy_from_slice(&vectors);
                    });
                    Ok(())
                })
            })
            .ok_or_else(|| internal!("SelfAdjointEig does not take this type"))??;
            return ctx.set_output(0, out);
        }
        let mut values = ctx.alloc_output(0, batch.shape(&[n])?)?;
        let mut vectors = ctx.alloc_output(1, if self.vectors { batch.shape(&[n, n])? } else { Shape::scalar() })?;
        let input = ctx.input(0)?;
        dispatch!(input.dtype(), T in [f32, f64, Complex32, Complex64] => {
            let data = input.as_slice::<T>()?;
            if !self.vectors {
                vectors.as_mut_slice::<T>()?.fill(T::from_f64(0.0));
            }
            let value_parts = Parts::new(values.as_mut_slice::<T>()?, batch.count, n);
            let vector_parts = Parts::new(vectors.as_mut_slice::<T>()?, batch.count, n * n);
            batch.each(ctx, cost, |i| {
                let (values, vectors) = self.run(part(data, i, (n, n)), n).ok_or_else(|| self.failed())?;
                value_parts.with(i, |out| out.copy_from_slice(&values));
                if self.vectors {
                    vector_parts.with(i, |out| out.copy_from_slice(&vectors));
                }
                Ok(())
            })
        })
        .ok_or_else(|| internal!("SelfAdjointEigV2 does not take this type"))??;
        ctx.set_output(0, values)?;
        ctx.set_output(1, vectors)
    }
}

pub(crate) fn register(r: &mut Registry) {
    for op in ["Svd", "BatchSvd"] {
        r.op(op).types("T", TYPES).kernel(|c: &Construction<'_>| {
            let (compute_uv, full_matrices) = (c.attrs().bool("compute_uv")?, c.attrs().bool("full_matrices")?);
            Ok(Svd { compute_uv, full_matrices })
        });
    }
    for op in ["SelfAdjointEig", "BatchSelfAdjointEig"] {
        r.op(op).types("T", REALS).kernel(|_| Ok(SelfAdjointEig { vectors: true, joined: true }));
    }
    for op in ["SelfAdjointEigV2", "BatchSelfAdjointEigV2"] {
        r.op(op)
            .types("T", TYPES)
            .kernel(|c: &Construction<'_>| Ok(SelfAdjointEig { vectors: c.attrs().bool("compute_v")?, joined: false }));
    }
}
