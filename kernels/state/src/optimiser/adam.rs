//! Adam and its relatives (Kingma and Ba, "Adam: A Method for Stochastic Optimization", ICLR 2015; Reddi et al., "On the Convergence of
//! Adam and Beyond", ICLR 2018).

use super::dense_ops;
use super::rule::{Field, Real, Rule, Scalar, Step, any, any_spaced};
use graphmill_runtime::{Construction, Registry};
use graphmill_tensor::{Complex32, Complex64, Result, bf16, f16};

pub(crate) fn register(registry: &mut Registry) {
    dense_ops!(registry, "Adam", Adam, [f32 f64 f16 bf16 Complex32 Complex64]);
    dense_ops!(registry, resource "AdamWithAmsgrad", AdamWithAmsgrad, [f32 f64 f16 bf16]);
    dense_ops!(registry, "AdaMax", AdaMax, [f32 f64 f16]);
}

const ADAM_SCALARS: [Scalar; 6] =
    [any("beta1_power"), any("beta2_power"), any_spaced("lr"), any("beta1"), any("beta2"), any("epsilon")];

/// Puts the step size, corrected for the bias of both averages, in the place of the learning rate.
fn with_step_size<T: Field>([beta1_power, beta2_power, lr, beta1, beta2, epsilon]: [T; 6]) -> [T; 6] {
    let alpha = lr * (T::one() - beta2_power).sqrt() / (T::one() - beta1_power);
    [beta1_power, beta2_power, alpha, beta1, beta2, epsilon]
}

/// `m += (grad - m) * (1 - beta1); v += (grad^2 - v) * (1 - beta2); var -= alpha * m / (sqrt(v) + epsilon)`; with Nesterov's look ahead
/// `m * beta1 + grad * (1 - beta1)` stands for `m` in the last one
struct Adam {
    use_nesterov: bool,
}

impl Rule<3, 6> for Adam {
    const VARIABLES: [&'static str; 3] = ["var", "m", "v"];
    const GRADIENT_INPUT: usize = 9;

    fn new(c: &Construction<'_>) -> Result<Self> {
        Ok(Adam { use_nesterov: c.attrs().bool("use_nesterov")? })
    }

    fn scalars(&self, _: bool) -> [Scalar; 6] {
        ADAM_SCALARS
    }
}

impl<T: Field> Step<T, 3, 6> for Adam {
    fn prepare(&self, scalars: [T; 6]) -> [T; 6] {
        with_step_size(scalars)
    }

    #[inline(always)]
    fn step(&self, [var, m, v]: [T; 3], gradient: T, &[_, _, alpha, beta1, beta2, epsilon]: &[T; 6]) -> [T; 3] {
        let m = m + (gradient - m) * (T::one() - beta1);
        let v = v + (gradient.square() - v) * (T::one() - beta2);
        let ahead = if self.use_nesterov { gradient * (T::one() - beta1) + beta1 * m } else { m };
        [var - ahead * alpha / (v.sqrt() + epsilon), m, v]
    }
}

/// Adam that divides by the largest `v` so far
struct AdamWithAmsgrad;

impl Rule<4, 6> for AdamWithAmsgrad {
    const VARIABLES: [&'static str; 4] = ["var", "m", "v", "vhat"];
    const GRADIENT_INPUT: usize = 10;

    fn new(_: &Construction<'_>) -> Result<Self> {
        Ok(AdamWithAmsgrad)
    }

    fn scalars(&self, _: bool) -> [Scalar; 6] {
        ADAM_SCALARS
    }
}

impl<T: Real> Step<T, 4, 6> for AdamWithAmsgrad {
    fn prepare(&self, scalars: [T; 6]) -> [T; 6] {
        with_step_size(scalars)
    }

    #[inline(always)]
    fn step(&self, [var, m, v, vhat]: [T; 4], gradient: T, &[_, _, alpha, beta1, beta2, epsilon]: &[T; 6]) -> [T; 4] {
        let m = m + (gradient - m) * (T::one() - beta1);
        let v = v + (gradient.square() - v) * (T::one() - beta2);
        let vhat = vhat.at_least(v);
        [var - m * alpha / (vhat.sqrt() + epsilon), m, v, vhat]
    }
}

/// Adam with the largest gradient in the place of the mean square:
/// `v = max(beta2 * v, |grad|); var -= lr / (1 - beta1_power) * m / (v + epsilon)`
struct AdaMax;

impl Rule<3, 5> for AdaMax {
    const VARIABLES: [&'static str; 3] = ["var", "m", "v"];
    const GRADIENT_INPUT: usize = 8;

    fn new(_: &Construction<'_>) -> Result<Self> {
        Ok(AdaMax)
    }

    fn scalars(&self, _: bool) -> [Scalar; 5] {
        [any("beta1_power"), any_spaced("lr"), any("beta1"), any("beta2"), any("epsilon")]
    }
}

impl<T: Real> Step<T, 3, 5> for AdaMax {
    fn prepare(&self, [beta1_power, lr, beta1, beta2, epsilon]: [T; 5]) -> [T; 5] {
        [beta1_power, lr / (T::one() - beta1_power), beta1, beta2, epsilon]
    }

    #[inline(always)]
    fn step(&self, [var, m, v]: [T; 3], gradient: T, &[_, rate, beta1, beta2, epsilon]: &[T; 5]) -> [T; 3] {
        let m = m + (gradient - m) * (T::one() - beta1);
        let v = (beta2 * v).at_least(gradient.abs());
        [var - rate * (m / (v + epsilon)), m, v]
    }
}
