//! FTRL-Proximal (McMahan et al., "Ad Click Prediction: a View from the Trenches", KDD 2013).

use super::rule::{Real, Rule, Scalar, Sign, Step, any, signed};
use super::{dense_ops, sparse_ops};
use graphmill_runtime::{Construction, Registry};
use graphmill_tensor::{Result, bf16, f16};

pub(crate) fn register(registry: &mut Registry) {
    dense_ops!(registry, "Ftrl", Ftrl, [f32 f64 f16 bf16]);
    sparse_ops!(registry, "Ftrl", Ftrl, [f32 f64 f16 bf16]);
    dense_ops!(registry, "FtrlV2", FtrlV2, [f32 f64 f16 bf16]);
    sparse_ops!(registry, "FtrlV2", FtrlV2, [f32 f64 f16 bf16]);
}

/// See [`advance`]; without shrinkage
struct Ftrl {
    multiply_linear_by_lr: bool,
}

/// See [`advance`]; `2 * l2_shrinkage * var` is added to the gradient that goes into `linear`
struct FtrlV2 {
    multiply_linear_by_lr: bool,
}

const L1: &str = "l1 regularization strength";
const L2: &str = "l2 regularization strength";
const SHRINKAGE: &str = "l2 shrinkage regularization strength";

/// TensorFlow looks at the signs in the sparse ops only.
fn signs(sparse: bool, multiply_linear_by_lr: bool) -> [Sign; 3] {
    if sparse {
        let lr = Sign::PositiveOrZeroIf("multiply_linear_by_lr", multiply_linear_by_lr);
        [lr, Sign::NonNegative, Sign::NonPositive]
    } else {
        [Sign::Any; 3]
    }
}

impl Rule<3, 4> for Ftrl {
    const VARIABLES: [&'static str; 3] = ["var", "accum", "linear"];
    const GRADIENT_INPUT: usize = 3;

    fn new(c: &Construction<'_>) -> Result<Self> {
        Ok(Ftrl { multiply_linear_by_lr: c.attrs().bool("multiply_linear_by_lr")? })
    }

    fn scalars(&self, sparse: bool) -> [Scalar; 4] {
        let [lr, strength, power] = signs(sparse, self.multiply_linear_by_lr);
        [signed("lr", lr), signed(L1, strength), signed(L2, strength), signed("lr_power", power)]
    }
}

impl<T: Real> Step<T, 3, 4> for Ftrl {
    #[inline(always)]
    fn step(&self, state: [T; 3], gradient: T, &[lr, l1, l2, lr_power]: &[T; 4]) -> [T; 3] {
        advance(state, gradient, gradient, [lr, l1, l2, lr_power], self.multiply_linear_by_lr)
    }
}

impl Rule<3, 5> for FtrlV2 {
    const VARIABLES: [&'static str; 3] = ["var", "accum", "linear"];
    const GRADIENT_INPUT: usize = 3;

    fn new(c: &Construction<'_>) -> Result<Self> {
        Ok(FtrlV2 { multiply_linear_by_lr: c.attrs().bool("multiply_linear_by_lr")? })
    }

    fn scalars(&self, sparse: bool) -> [Scalar; 5] {
        let [lr, strength, power] = signs(sparse, self.multiply_linear_by_lr);
        let shrinkage = if sparse { signed(SHRINKAGE, Sign::NonNegative) } else { any(SHRINKAGE) };
        [signed("lr", lr), signed(L1, strength), signed(L2, strength), shrinkage, signed("lr_power", power)]
    }
}

impl<T: Real> Step<T, 3, 5> for FtrlV2 {
    #[inline(always)]
    fn step(&self, state: [T; 3], gradient: T, &[lr, l1, l2, shrinkage, lr_power]: &[T; 5]) -> [T; 3] {
        let shrunk = gradient + T::constant(2.0) * shrinkage * state[0];
        advance(state, gradient, shrunk, [lr, l1, l2, lr_power], self.multiply_linear_by_lr)
    }
}

/// `n = accum + grad^2; linear += grad - (n^-p - accum^-p) / lr * var;
/// var = |linear| > l1 ? (sign(linear) * l1 - linear) / (n^-p / lr + 2 * l2) : 0; accum = n`, where `p` is `lr_power`. With
/// `multiply_linear_by_lr`, `linear` is `lr` times as large.
#[inline(always)]
fn advance<T: Real>(
    [var, accum, linear]: [T; 3],
    gradient: T,
    shrunk: T,
    [lr, l1, l2, lr_power]: [T; 4],
    multiply_linear_by_lr: bool,
) -> [T; 3] {
    let power = |x: T| if lr_power == T::constant(-0.5) { x.sqrt() } else { x.pow(-lr_power) };
    let n = accum + gradient.square();
    let new_power = power(n);
    let growth = new_power - power(accum);
    let two = T::constant(2.0);
    let (linear, bound, scale) = if multiply_linear_by_lr {
        (linear + (shrunk * lr - growth * var), l1 * lr, new_power + two * l2 * lr)
    } else {
        (linear + (shrunk - growth / lr * var), l1, new_power / lr + two * l2)
    };
    let var = if linear.abs() > bound { (bound * linear.sign() - linear) / scale } else { T::default() };
    [var, n, linear]
}
