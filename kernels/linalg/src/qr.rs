//! `Qr`: reflections after Householder, with the signs that LAPACK and Eigen give.

use crate::batch::{Batch, Parts, part};
use crate::dense::Dense;
use crate::scalar::{Scalar, TYPES};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Complex32, Complex64, DType, Element, Result, dispatch, f16, internal};
use num_traits::{Float, Zero};

/// A reflection `I - τ·v·vᴴ`, `v` beginning with 1, that takes a vector to a multiple of the first axis.
pub(crate) struct Reflection<T> {
    /// `v` without its leading 1.
    tail: Vec<T>,
    tau: T,
    /// What the first element becomes.
    pub beta: T,
}

impl<T: Scalar> Reflection<T> {
    /// The reflection for `x`, which has at least one element.
    pub(crate) fn new(x: &[T]) -> Reflection<T> {
        let (head, tail) = (x[0], &x[1..]);
        let square = |x: T| x.re() * x.re() + x.im() * x.im();
        let rest = tail.iter().fold(T::Real::zero(), |sum, &x| sum + square(x));
        let tiny = T::Real::min_positive_value();
        if rest <= tiny && head.im() * head.im() <= tiny {
            let tail = vec![T::zero(); tail.len()];
            return Reflection { tail, tau: T::zero(), beta: T::from_real(head.re()) };
        }
        let norm = Float::sqrt(square(head) + rest);
        let beta = T::from_real(if head.re() >= T::Real::zero() { -norm } else { norm });
        let scale = head - beta;
        let tail = tail.iter().map(|&x| x / scale).collect();
        Reflection { tail, tau: ((beta - head) / beta).conj(), beta }
    }

    /// Applies it, or its adjoint, to a vector in place.
    pub(crate) fn apply(&self, adjoint: bool, x: &mut [T]) {
        let tau = if adjoint { self.tau.conj() } else { self.tau };
        if tau == T::zero() {
            return;
        }
        let sum = self.tail.iter().zip(&x[1..]).fold(x[0], |sum, (&v, &x)| sum + v.conj() * x);
        let factor = tau * sum;
        x[0] -= factor;
        x[1..].iter_mut().zip(&self.tail).for_each(|(x, &v)| *x -= factor * v);
    }

    /// Multiplies columns `first..` of a matrix by the adjoint of the reflection, from the right.
    pub(crate) fn apply_right_adjoint(&self, a: &mut Dense<T>, first: usize) {
        let tau = self.tau.conj();
        if tau == T::zero() {
            return;
        }
        let mut sums = a.column(first).to_vec();
        for (j, &v) in self.tail.iter().enumerate() {
            sums.iter_mut().zip(a.column(first + 1 + j)).for_each(|(s, &x)| *s += x * v);
        }
        a.column_mut(first).iter_mut().zip(&sums).for_each(|(x, &s)| *x -= tau * s);
        for (j, &v) in self.tail.iter().enumerate() {
            let factor = tau * v.conj();
            a.column_mut(first + 1 + j).iter_mut().zip(&sums).for_each(|(x, &s)| *x -= factor * s);
        }
    }
}

/// `Q` with `columns` columns and `R` with as many rows, of a matrix.
pub(crate) fn factor<T: Scalar>(mut a: Dense<T>, columns: usize) -> (Dense<T>, Dense<T>) {
    let steps = a.rows.min(a.columns);
    let mut reflections = Vec::with_capacity(steps);
    for k in 0..steps {
        let reflection = Reflection::new(&a.column(k)[k..]);
        let column = &mut a.column_mut(k)[k..];
        column.fill(T::zero());
        column[0] = reflection.beta;
        for j in k + 1..a.columns {
            reflection.apply(false, &mut a.column_mut(j)[k..]);
        }
        reflections.push(reflection);
    }
    let mut q = Dense::zeros(a.rows, columns);
    (0..columns.min(a.rows)).for_each(|i| q.set(i, i, T::one()));
    for (k, reflection) in reflections.iter().enumerate().rev() {
        for j in k..columns {
            reflection.apply(true, &mut q.column_mut(j)[k..]);
        }
    }
    let r = Dense::copy(a.view(), columns, a.columns);
    (q, r)
}

struct Qr {
    full_matrices: bool,
}

/// Types that the factorisation is computed in another type for.
trait Computed: Element {
    type As: Scalar;
    fn into_computed(self) -> Self::As;
    fn from_computed(value: Self::As) -> Self;
}

macro_rules! as_themselves {
    ($($t:ty)*) => {$(
        impl Computed for $t {
            type As = $t;
            fn into_computed(self) -> $t {
                self
            }
            fn from_computed(value: $t) -> $t {
                value
            }
        }
    )*};
}

as_themselves! { f32 f64 Complex32 Complex64 }

impl Computed for f16 {
    type As = f32;
    fn into_computed(self) -> f32 {
        self.to_f32()
    }
    fn from_computed(value: f32) -> f16 {
        f16::from_f32(value)
    }
}

impl Kernel for Qr {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let batch = Batch::<1>::new(ctx)?;
        let (m, n) = batch.sizes[0];
        let inner = if self.full_matrices { m } else { m.min(n) };
        let mut q = ctx.alloc_output(0, batch.shape(&[m, inner])?)?;
        let mut r = ctx.alloc_output(1, batch.shape(&[inner, n])?)?;
        let input = ctx.input(0)?;
        dispatch!(input.dtype(), T in [f32, f64, Complex32, Complex64, f16] => {
            let data = input.as_slice::<T>()?;
            let q_parts = Parts::new(q.as_mut_slice::<T>()?, batch.count, m * inner);
            let r_parts = Parts::new(r.as_mut_slice::<T>()?, batch.count, inner * n);
            let cost = 4.0 * m as f64 * n as f64 * m.min(n) as f64;
            batch.each(ctx, cost, |i| {
                let wide: Vec<_> = part(data, i, (m, n)).iter().map(|&x| x.into_computed()).collect();
                let (q, r) = factor(Dense::from_rows(&wide, m, n), inner);
                q_parts.with(i, |out| write(&q, out));
                r_parts.with(i, |out| write(&r, out));
                Ok(())
            })
        })
        .ok_or_else(|| internal!("Qr does not take this type"))??;
        ctx.set_output(0, q)?;
        ctx.set_output(1, r)
    }
}

fn write<T: Computed>(from: &Dense<T::As>, to: &mut [T]) {
    for (at, t) in to.iter_mut().enumerate() {
        *t = T::from_computed(from.at(at / from.columns, at % from.columns));
    }
}

pub(crate) fn register(r: &mut Registry) {
    let types = [TYPES, &[DType::Half]].concat();
    let new = |c: &Construction<'_>| Ok(Qr { full_matrices: c.attrs().bool("full_matrices")? });
    r.op("Qr").types("T", &types).kernel(new);
}
