//! RMSProp (Tieleman and Hinton, "Lecture 6.5", 2012), plain and centred by the mean gradient (Graves, "Generating Sequences With
//! Recurrent Neural Networks", 2013).

use super::rule::{Field, Rule, Scalar, Step, any, any_spaced};
use super::{dense_ops, sparse_ops};
use graphmill_runtime::{Construction, Registry};
use graphmill_tensor::{Complex32, Complex64, Result, bf16, f16};

pub(crate) fn register(registry: &mut Registry) {
    dense_ops!(registry, "RMSProp", RmsProp, [f32 f64 f16 bf16 Complex32 Complex64]);
    sparse_ops!(registry, "RMSProp", RmsProp, [f32 f64 f16 Complex32 Complex64]);
    dense_ops!(registry, "CenteredRMSProp", CenteredRmsProp, [f32 f64 f16 bf16 Complex32 Complex64]);
    sparse_ops!(registry, "CenteredRMSProp", CenteredRmsProp, [f32 f64 f16 Complex32 Complex64]);
}

fn names(sparse: bool) -> [Scalar; 4] {
    let lr = if sparse { any("lr") } else { any_spaced("lr") };
    [lr, any("rho"), any("momentum"), any("epsilon")]
}

/// `ms += (grad^2 - ms) * (1 - rho); mom = momentum * mom + lr * grad / sqrt(ms + epsilon); var -= mom`
struct RmsProp;

impl Rule<3, 4> for RmsProp {
    const VARIABLES: [&'static str; 3] = ["var", "ms", "mom"];
    const GRADIENT_INPUT: usize = 7;

    fn new(_: &Construction<'_>) -> Result<Self> {
        Ok(RmsProp)
    }

    fn scalars(&self, sparse: bool) -> [Scalar; 4] {
        names(sparse)
    }
}

impl<T: Field> Step<T, 3, 4> for RmsProp {
    #[inline(always)]
    fn step(&self, [var, ms, mom]: [T; 3], gradient: T, &[lr, rho, momentum, epsilon]: &[T; 4]) -> [T; 3] {
        let ms = ms + (gradient.square() - ms) * (T::one() - rho);
        let mom = mom * momentum + gradient * lr / (ms + epsilon).sqrt();
        [var - mom, ms, mom]
    }
}

/// RMSProp with `mg`, the mean gradient, and `ms - mg^2` in the place of `ms`
struct CenteredRmsProp;

impl Rule<4, 4> for CenteredRmsProp {
    const VARIABLES: [&'static str; 4] = ["var", "mg", "ms", "mom"];
    const GRADIENT_INPUT: usize = 8;

    fn new(_: &Construction<'_>) -> Result<Self> {
        Ok(CenteredRmsProp)
    }

    fn scalars(&self, sparse: bool) -> [Scalar; 4] {
        names(sparse)
    }
}

impl<T: Field> Step<T, 4, 4> for CenteredRmsProp {
    #[inline(always)]
    fn step(&self, [var, mg, ms, mom]: [T; 4], gradient: T, &[lr, rho, momentum, epsilon]: &[T; 4]) -> [T; 4] {
        let ms = ms + (gradient.square() - ms) * (T::one() - rho);
        let mg = mg + (gradient - mg) * (T::one() - rho);
        let variance = (ms - mg.square()) + epsilon;
        let mom = mom * momentum + gradient * lr / variance.sqrt();
        [var - mom, mg, ms, mom]
    }
}
