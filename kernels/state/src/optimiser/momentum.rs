//! Gradient descent with momentum (Sutskever et al., "On the importance of initialization and momentum in deep learning", ICML 2013).

use super::rule::{Field, Rule, Scalar, Step, any, any_spaced};
use super::{dense_ops, sparse_ops};
use graphmill_runtime::{Construction, Registry};
use graphmill_tensor::{Complex32, Complex64, Result, bf16, f16};

pub(crate) fn register(registry: &mut Registry) {
    dense_ops!(registry, "Momentum", Momentum, [f32 f64 f16 bf16 Complex32 Complex64]);
    sparse_ops!(registry, "Momentum", Momentum, [f32 f64 f16 bf16 Complex32 Complex64]);
    dense_ops!(registry, resource "KerasMomentum", KerasMomentum, [f32 f64 f16 bf16 Complex32 Complex64]);
    sparse_ops!(registry, resource "KerasMomentum", KerasMomentum, [f32 f64 f16 bf16 Complex32 Complex64]);
}

/// `accum = accum * momentum + grad; var -= lr * accum`, or with Nesterov's look ahead `var -= lr * grad + lr * momentum * accum`
struct Momentum {
    use_nesterov: bool,
}

/// The learning rate within the momentum: `accum = accum * momentum - lr * grad; var += accum`, or `var += accum * momentum - lr * grad`
struct KerasMomentum {
    use_nesterov: bool,
}

macro_rules! inputs {
    ($($rule:ident)*) => {$(
        impl Rule<2, 2> for $rule {
            const VARIABLES: [&'static str; 2] = ["var", "accum"];
            const GRADIENT_INPUT: usize = 3;

            fn new(c: &Construction<'_>) -> Result<Self> {
                Ok($rule { use_nesterov: c.attrs().bool("use_nesterov")? })
            }

            fn scalars(&self, sparse: bool) -> [Scalar; 2] {
                [if sparse { any_spaced("lr") } else { any("lr") }, any("momentum")]
            }
        }
    )*};
}

inputs!(Momentum KerasMomentum);

impl<T: Field> Step<T, 2, 2> for Momentum {
    #[inline(always)]
    fn step(&self, [var, accum]: [T; 2], gradient: T, &[lr, momentum]: &[T; 2]) -> [T; 2] {
        let accum = accum * momentum + gradient;
        let change = if self.use_nesterov { gradient * lr + accum * momentum * lr } else { accum * lr };
        [var - change, accum]
    }
}

impl<T: Field> Step<T, 2, 2> for KerasMomentum {
    #[inline(always)]
    fn step(&self, [var, accum]: [T; 2], gradient: T, &[lr, momentum]: &[T; 2]) -> [T; 2] {
        let accum = accum * momentum - gradient * lr;
        let change = if self.use_nesterov { accum * momentum - gradient * lr } else { accum };
        [var + change, accum]
    }
}
