//! Adagrad, plain, proximal and by dual averaging (Duchi et al., "Adaptive Subgradient Methods for Online Learning and Stochastic
//! Optimization", JMLR 2011).

use super::gradient_descent::proximal;
use super::rule::{Field, Real, Rule, Scalar, Sign, Step, any, signed};
use super::{dense_ops, sparse_ops};
use graphmill_runtime::{Construction, Registry};
use graphmill_tensor::{Complex32, Complex64, Result, bf16, f16};

pub(crate) fn register(registry: &mut Registry) {
    dense_ops!(registry, "Adagrad", Adagrad, [f32 f64 f16 bf16 Complex32 Complex64]);
    sparse_ops!(registry, "Adagrad", Adagrad, [f32 f64 f16 bf16 Complex32 Complex64]);
    dense_ops!(registry, "AdagradV2", AdagradV2, [f32 f64 f16 bf16 Complex32 Complex64]);
    sparse_ops!(registry, "AdagradV2", AdagradV2, [f32 f64 f16 bf16 Complex32 Complex64]);
    dense_ops!(registry, "ProximalAdagrad", ProximalAdagrad, [f32 f64]);
    sparse_ops!(registry, "ProximalAdagrad", ProximalAdagrad, [f32 f64]);
    dense_ops!(registry, "AdagradDA", AdagradDa, [f32 f64]);
    sparse_ops!(registry, "AdagradDA", AdagradDa, [f32 f64]);
}

/// `accum += grad^2; var -= lr * grad / sqrt(accum)`
struct Adagrad {
    update_slots: bool,
}

impl Rule<2, 1> for Adagrad {
    const VARIABLES: [&'static str; 2] = ["var", "accum"];
    const GRADIENT_INPUT: usize = 3;

    fn new(c: &Construction<'_>) -> Result<Self> {
        Ok(Adagrad { update_slots: c.attrs().bool("update_slots")? })
    }

    fn scalars(&self, _: bool) -> [Scalar; 1] {
        [any("lr")]
    }
}

impl<T: Field> Step<T, 2, 1> for Adagrad {
    #[inline(always)]
    fn step(&self, [var, accum]: [T; 2], gradient: T, &[lr]: &[T; 1]) -> [T; 2] {
        let accum = if self.update_slots { accum + gradient.square() } else { accum };
        [var - gradient * lr * accum.rsqrt(), accum]
    }
}

/// `accum += grad^2; var -= lr * grad / (sqrt(accum) + epsilon)`
struct AdagradV2 {
    update_slots: bool,
}

impl Rule<2, 2> for AdagradV2 {
    const VARIABLES: [&'static str; 2] = ["var", "accum"];
    const GRADIENT_INPUT: usize = 4;

    fn new(c: &Construction<'_>) -> Result<Self> {
        Ok(AdagradV2 { update_slots: c.attrs().bool("update_slots")? })
    }

    fn scalars(&self, _: bool) -> [Scalar; 2] {
        [any("lr"), any("epsilon")]
    }
}

impl<T: Field> Step<T, 2, 2> for AdagradV2 {
    #[inline(always)]
    fn step(&self, [var, accum]: [T; 2], gradient: T, &[lr, epsilon]: &[T; 2]) -> [T; 2] {
        let accum = if self.update_slots { accum + gradient.square() } else { accum };
        [var - gradient * lr / (accum.sqrt() + epsilon), accum]
    }
}

/// Adagrad's learning rate in the proximal step
struct ProximalAdagrad;

impl Rule<2, 3> for ProximalAdagrad {
    const VARIABLES: [&'static str; 2] = ["var", "accum"];
    const GRADIENT_INPUT: usize = 5;

    fn new(_: &Construction<'_>) -> Result<Self> {
        Ok(ProximalAdagrad)
    }

    fn scalars(&self, _: bool) -> [Scalar; 3] {
        [
            signed("lr", Sign::Positive),
            signed("l1 regularization strength", Sign::NonNegative),
            signed("l2 regularization strength", Sign::NonNegative),
        ]
    }
}

impl<T: Real> Step<T, 2, 3> for ProximalAdagrad {
    #[inline(always)]
    fn step(&self, [var, accum]: [T; 2], gradient: T, &[lr, l1, l2]: &[T; 3]) -> [T; 2] {
        let accum = accum + gradient.square();
        let rate = lr * accum.rsqrt();
        [proximal(var - gradient * rate, rate, l1, l2), accum]
    }
}

/// `g += grad; gg += grad^2; var = -lr * sign(g) * max(|g| - l1 * step, 0) / (l2 * step * lr + sqrt(gg))`
struct AdagradDa;

impl Rule<3, 4> for AdagradDa {
    const VARIABLES: [&'static str; 3] = ["var", "accum", "accum"];
    const GRADIENT_INPUT: usize = 3;

    fn new(_: &Construction<'_>) -> Result<Self> {
        Ok(AdagradDa)
    }

    fn scalars(&self, _: bool) -> [Scalar; 4] {
        [any("lr"), any("l1 regularization strength"), any("l2 regularization strength"), any("global_step")]
    }
}

impl<T: Real> Step<T, 3, 4> for AdagradDa {
    #[inline(always)]
    fn step(&self, [_, sum, squares]: [T; 3], gradient: T, &[lr, l1, l2, step]: &[T; 4]) -> [T; 3] {
        let (sum, squares) = (sum + gradient, squares + gradient.square());
        let scale = l2 * (step * lr) + squares.sqrt();
        let var = if l1 > T::default() {
            -lr * sum.sign() * (sum.abs() - step * l1).at_least(T::default()) / scale
        } else {
            -(lr * sum) / scale
        };
        [var, sum, squares]
    }
}
