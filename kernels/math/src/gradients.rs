//! Gradients of elementwise ops, of the op's result `y` and the gradient `dy` of that result.

use crate::complex::Part;
use crate::number::{Half, Number};
use graphmill_runtime::Registry;
use graphmill_tensor::{Complex32, Complex64, bf16, f16};

const PLAIN: f64 = 0.4;

/// Where `dy` is 0 the gradient is 0, even if the derivative is infinite.
#[inline(always)]
fn guarded<T: Number>(dy: T, gradient: T) -> T {
    if dy == T::ZERO { T::ZERO } else { gradient }
}

pub(crate) fn register(r: &mut Registry) {
    binary!(r, Paired, "SigmoidGrad", PLAIN, map2, [f32, f64, f16, bf16, Complex32, Complex64], |y, dy| {
        dy.times(y.times(rest(y)))
    });
    binary!(r, Paired, "TanhGrad", PLAIN, map2, [f32, f64, f16, bf16, Complex32, Complex64], |y, dy| {
        dy.times(rest(y.times(y)))
    });
    binary!(r, Paired, "SqrtGrad", PLAIN, map2, floats, |y, dy| guarded(dy, 0.5 / y * dy));
    binary!(r, Paired, "SqrtGrad", PLAIN, call2, [Complex32], |y, dy| guarded(dy, Part::divide(dy * 0.5, y.conj())));
    binary!(r, Paired, "SqrtGrad", PLAIN, call2, [Complex64], |y, dy| guarded(dy, Part::divide(dy * 0.5, y.conj())));
    binary!(r, Paired, "RsqrtGrad", PLAIN, map2, [f32, f64], |y, dy| rsqrt(y, dy, -0.5));
    binary!(r, Paired, "RsqrtGrad", PLAIN, map2, [f16, bf16], |y, dy| rsqrt(y, dy, Half::narrow(-0.5)));
    binary!(r, Paired, "RsqrtGrad", PLAIN, map2, [Complex32, Complex64], |y, dy| {
        let y = y.conj();
        guarded(dy, (dy * y) * (y * y) * -0.5)
    });
    binary!(r, Paired, "ReciprocalGrad", PLAIN, map2, [f32, f64, f16, bf16, Complex32, Complex64], |y, dy| {
        inverse(y, dy)
    });
    binary!(r, Paired, "InvGrad", PLAIN, map2, [f32, f64, f16, bf16, Complex32, Complex64], |y, dy| inverse(y, dy));
}

#[inline(always)]
fn inverse<T: Number + std::ops::Neg<Output = T>>(y: T, dy: T) -> T {
    let y = y.conjugate();
    guarded(dy, (-y.times(y)).times(dy))
}

/// `-y^3 dy / 2`.
#[inline(always)]
fn rsqrt<T: Number>(y: T, dy: T, minus_half: T) -> T {
    let scaled = guarded(dy, y.times(dy));
    guarded(scaled, minus_half.times(y.times(y)).times(scaled))
}

/// `1 - x`.
#[inline(always)]
fn rest<T: Number>(x: T) -> T {
    T::ONE.minus(x)
}
