//! AddSign and PowerSign (Bello et al., "Neural Optimizer Search with Reinforcement Learning", ICML 2017).

use super::dense_ops;
use super::rule::{Real, Rule, Scalar, Step, any};
use graphmill_runtime::{Construction, Registry};
use graphmill_tensor::{Result, bf16, f16};

pub(crate) fn register(registry: &mut Registry) {
    dense_ops!(registry, "AddSign", AddSign, [f32 f64 f16 bf16]);
    dense_ops!(registry, "PowerSign", PowerSign, [f32 f64 f16 bf16]);
}

/// `m = beta * m + (1 - beta) * grad; var -= lr * (alpha + sign_decay * sign(grad) * sign(m)) * grad`
struct AddSign;

/// `m = beta * m + (1 - beta) * grad; var -= lr * exp(logbase * sign_decay * sign(grad) * sign(m)) * grad`
struct PowerSign;

macro_rules! inputs {
    ($($rule:ident, $second:literal;)*) => {$(
        impl Rule<2, 4> for $rule {
            const VARIABLES: [&'static str; 2] = ["var", "m"];
            const GRADIENT_INPUT: usize = 6;

            fn new(_: &Construction<'_>) -> Result<Self> {
                Ok($rule)
            }

            fn scalars(&self, _: bool) -> [Scalar; 4] {
                [any("lr"), any($second), any("sign_decay"), any("beta")]
            }
        }
    )*};
}

inputs! {
    AddSign, "alpha";
    PowerSign, "logbase";
}

impl<T: Real> Step<T, 2, 4> for AddSign {
    #[inline(always)]
    fn step(&self, [var, m]: [T; 2], gradient: T, &[lr, alpha, sign_decay, beta]: &[T; 4]) -> [T; 2] {
        let m = m * beta + gradient * (T::one() - beta);
        let agreement = gradient.sign() * m.sign();
        [var - lr * (alpha + sign_decay * agreement) * gradient, m]
    }
}

impl<T: Real> Step<T, 2, 4> for PowerSign {
    #[inline(always)]
    fn step(&self, [var, m]: [T; 2], gradient: T, &[lr, logbase, sign_decay, beta]: &[T; 4]) -> [T; 2] {
        let m = m * beta + gradient * (T::one() - beta);
        let agreement = gradient.sign() * m.sign();
        [var - lr * (logbase * sign_decay * agreement).exp() * gradient, m]
    }
}
