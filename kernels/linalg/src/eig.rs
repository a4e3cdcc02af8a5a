//! `Eig`: eigenvalues and eigenvectors of any square matrix.

use crate::batch::{Batch, Parts, part};
use crate::dense::Dense;
use crate::scalar::{Scalar, TYPES};
use crate::schur::Schur;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Complex32, Complex64, DType, Result, Shape, dispatch, internal, invalid_argument};

struct Eig {
    vectors: bool,
}

/// The eigenvectors as columns of length 1, in the order of the eigenvalues on the diagonal of the Schur form.
fn eigenvectors(schur: &Schur) -> Dense<Complex64> {
    let t = &schur.t;
    let n = t.rows;
    let norm = t.data.iter().map(|x| x.norm_sqr()).sum::<f64>().sqrt();
    let mut x = Dense::<Complex64>::zeros(n, n);
    for k in (0..n).rev() {
        x.set(k, k, Complex64::new(1.0, 0.0));
        for i in (0..k).rev() {
            let sum: Complex64 = (i + 1..k).map(|j| t.at(i, j) * x.at(j, k)).sum();
            let mut gap = t.at(i, i) - t.at(k, k);
            if gap == Complex64::default() {
                gap = Complex64::new(f64::EPSILON * norm, 0.0);
            }
            x.set(i, k, (-t.at(i, k) - sum) / gap);
        }
    }
    let mut vectors = schur.u.times(&x);
    for k in 0..n {
        let column = vectors.column_mut(k);
        let length = column.iter().map(|x| x.norm_sqr()).sum::<f64>().sqrt();
        if length > 0.0 {
            column.iter_mut().for_each(|x| *x /= length);
        }
    }
    vectors
}

impl Eig {
    fn run<T: Scalar, C: Scalar>(&self, ctx: &mut Context<'_>) -> Result<()> {
        let batch = Batch::<1>::new(ctx)?;
        let n = batch.square()?;
        let mut values = ctx.alloc_output(0, batch.shape(&[n])?)?;
        let mut vectors = ctx.alloc_output(1, if self.vectors { batch.shape(&[n, n])? } else { Shape::scalar() })?;
        let data = ctx.input(0)?.as_slice::<T>()?;
        if !self.vectors {
            vectors.as_mut_slice::<C>()?.fill(C::from_f64(0.0));
        }
        {
            let value_parts = Parts::new(values.as_mut_slice::<C>()?, batch.count, n);
            let vector_parts = Parts::new(vectors.as_mut_slice::<C>()?, batch.count, n * n);
            batch.each(ctx, 60.0 * (n * n * n) as f64, |i| {
                let wide: Vec<Complex64> = part(data, i, (n, n)).iter().map(|x| x.to_complex()).collect();
                let schur = Schur::new(Dense::from_rows(&wide, n, n)).ok_or_else(|| {
                    invalid_argument!("Eigen decomposition was not successful. The input might not be valid.")
                })?;
                value_parts.with(i, |out| {
                    out.iter_mut().enumerate().for_each(|(k, v)| *v = C::from_complex(schur.t.at(k, k)));
                });
                if self.vectors {
                    let vectors = eigenvectors(&schur);
                    vector_parts.with(i, |out| {
                        for (at, t) in out.iter_mut().enumerate() {
                            *t = C::from_complex(vectors.at(at / n, at % n));
                        }
                    });
                }
                Ok(())
            })?;
        }
        ctx.set_output(0, values)?;
        ctx.set_output(1, vectors)
    }
}

impl Kernel for Eig {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (from, to) = (ctx.input(0)?.dtype(), ctx.output_type(0)?);
        dispatch!(from, T in [f32, f64, Complex32, Complex64] => {
            if to == DType::Complex64 { self.run::<T, Complex32>(ctx) } else { self.run::<T, Complex64>(ctx) }
        })
        .unwrap_or_else(|| Err(internal!("Eig does not take this type")))
    }
}

pub(crate) fn register(r: &mut Registry) {
    r.op("Eig").types("T", TYPES).kernel(|c: &Construction<'_>| Ok(Eig { vectors: c.attrs().bool("compute_v")? }));
}
