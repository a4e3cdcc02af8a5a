//! Adadelta (Zeiler, "ADADELTA: An Adaptive Learning Rate Method", 2012).

use super::rule::{Field, Rule, Scalar, Step, any};
use super::{dense_ops, sparse_ops};
use graphmill_runtime::{Construction, Registry};
use graphmill_tensor::{Complex32, Complex64, Result, bf16, f16};

pub(crate) fn register(registry: &mut Registry) {
    dense_ops!(registry, "Adadelta", Adadelta, [f32 f64 f16 bf16 Complex32 Complex64]);
    sparse_ops!(registry, "Adadelta", Adadelta, [f32 f64 f16 bf16 Complex32 Complex64]);
}

/// `accum = rho * accum + (1 - rho) * grad^2; update = sqrt(accum_update + epsilon) / sqrt(accum + epsilon) * grad;
/// var -= lr * update; accum_update = rho * accum_update + (1 - rho) * update^2`
struct Adadelta;

impl Rule<3, 3> for Adadelta {
    const VARIABLES: [&'static str; 3] = ["var", "accum", "accum_update"];
    const GRADIENT_INPUT: usize = 6;

    fn new(_: &Construction<'_>) -> Result<Self> {
        Ok(Adadelta)
    }

    fn scalars(&self, _: bool) -> [Scalar; 3] {
        [any("lr"), any("rho"), any("epsilon")]
    }
}

impl<T: Field> Step<T, 3, 3> for Adadelta {
    #[inline(always)]
    fn step(&self, [var, accum, updates]: [T; 3], gradient: T, &[lr, rho, epsilon]: &[T; 3]) -> [T; 3] {
        let accum = accum * rho + gradient.square() * (T::one() - rho);
        let update = (updates + epsilon).sqrt() * (accum + epsilon).rsqrt() * gradient;
        [var - update * lr, accum, updates * rho + update.square() * (T::one() - rho)]
    }
}
