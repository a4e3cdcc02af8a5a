//! Gradient descent, plain and with the proximal operator of L1 and L2 regularisation (Duchi and Singer, "Efficient Learning using
//! Forward-Backward Splitting", NIPS 2009).

use super::rule::{Field, Real, Rule, Scalar, Step, any};
use super::{dense_ops, sparse_ops};
use graphmill_runtime::{Construction, Registry};
use graphmill_tensor::{Complex32, Complex64, Result, bf16, f16};

pub(crate) fn register(registry: &mut Registry) {
    dense_ops!(registry, "GradientDescent", GradientDescent, [f32 f64 f16 bf16 Complex32 Complex64]);
    dense_ops!(registry, "ProximalGradientDescent", ProximalGradientDescent, [f32 f64]);
    sparse_ops!(registry, "ProximalGradientDescent", ProximalGradientDescent, [f32 f64]);
}

/// `var -= alpha * delta`
struct GradientDescent;

impl Rule<1, 1> for GradientDescent {
    const VARIABLES: [&'static str; 1] = ["var"];
    const GRADIENT: &'static str = "delta";
    const GRADIENT_INPUT: usize = 2;

    fn new(_: &Construction<'_>) -> Result<Self> {
        Ok(GradientDescent)
    }

    fn scalars(&self, _: bool) -> [Scalar; 1] {
        [any("alpha")]
    }
}

impl<T: Field> Step<T, 1, 1> for GradientDescent {
    #[inline(always)]
    fn step(&self, [var]: [T; 1], gradient: T, &[alpha]: &[T; 1]) -> [T; 1] {
        [var - gradient * alpha]
    }
}

/// `v = var - alpha * delta; var = sign(v) * max(|v| - alpha * l1, 0) / (1 + alpha * l2)`
struct ProximalGradientDescent;

impl Rule<1, 3> for ProximalGradientDescent {
    const VARIABLES: [&'static str; 1] = ["var"];
    const GRADIENT: &'static str = "delta";
    const GRADIENT_INPUT: usize = 4;

    fn new(_: &Construction<'_>) -> Result<Self> {
        Ok(ProximalGradientDescent)
    }

    fn scalars(&self, sparse: bool) -> [Scalar; 3] {
        let alpha = if sparse { "lr" } else { "alpha" };
        [any(alpha), any("l1 regularization strength"), any("l2 regularization strength")]
    }
}

impl<T: Real> Step<T, 1, 3> for ProximalGradientDescent {
    #[inline(always)]
    fn step(&self, [var]: [T; 1], gradient: T, &[alpha, l1, l2]: &[T; 3]) -> [T; 1] {
        [proximal(var - gradient * alpha, alpha, l1, l2)]
    }
}

/// Pulls a value towards 0 as regularisation does in a step of the size `rate`.
#[inline(always)]
pub(super) fn proximal<T: Real>(value: T, rate: T, l1: T, l2: T) -> T {
    let scale = T::one() + l2 * rate;
    if l1 > T::default() {
        value.sign() * (value.abs() - rate * l1).at_least(T::default()) / scale
    } else {
        value / scale
    }
}
