//! Elementwise ops of one real operand.

use crate::bessel;
use crate::cast::CastFrom;
use crate::elementwise::{Convert, Unary};
use crate::isa::{Scalar1, call1, map1};
use crate::number::{Half, Number};
use crate::special;
use crate::vecmath::{Exp, Log, Sigmoid, Tanh};
use graphmill_runtime::Registry;
use graphmill_tensor::{Complex32, Complex64, DType, Element, bf16, f16};

/// Nanoseconds for an element of a loop that the memory's speed limits.
const PLAIN: f64 = 0.2;
/// Nanoseconds for an element of a polynomial.
const POLYNOMIAL: f64 = 0.5;
/// Nanoseconds for a call of the mathematical library.
const CALL: f64 = 12.0;

/// Wraps a polynomial for `f32` so that it takes 16-bit floats.
#[derive(Clone, Copy)]
struct Widened<F>(F);

impl<T: Half, F: Scalar1<f32, f32>> Scalar1<T, T> for Widened<F> {
    #[inline(always)]
    fn apply<const FMA: bool>(&self, x: T) -> T {
        T::narrow(self.0.apply::<FMA>(x.widen()))
    }
}

fn polynomial(registry: &mut Registry, op: &'static str, f: impl Scalar1<f32, f32>, exact: fn(f64) -> f64) {
    registry.op(op).types("T", &[DType::Float]).kernel(move |_| Ok(Unary::new(POLYNOMIAL, map1(f))));
    registry.op(op).types("T", &[DType::Half]).kernel(move |_| Ok(Unary::<f16>::new(POLYNOMIAL, map1(Widened(f)))));
    registry
        .op(op)
        .types("T", &[DType::BFloat16])
        .kernel(move |_| Ok(Unary::<bf16>::new(POLYNOMIAL, map1(Widened(f)))));
    registry.op(op).types("T", &[DType::Double]).kernel(move |_| Ok(Unary::new(CALL, call1(exact))));
}

fn predicate<T: Element>(
    registry: &mut Registry,
    op: &'static str,
    f: impl Fn(T) -> bool + Copy + Send + Sync + 'static,
) {
    registry.op(op).types("T", &[T::DTYPE]).kernel(move |_| Ok(Convert::new(PLAIN, map1(f))));
}

/// A function that is computed in double precision for `float` and `double`.
fn in_double(r: &mut Registry, op: &'static str, f: fn(f64) -> f64) {
    let narrow = move |x: f32| f(f64::from(x)) as f32;
    r.op(op).types("T", &[DType::Float]).kernel(move |_| Ok(Unary::new(CALL, call1(narrow))));
    r.op(op).types("T", &[DType::Double]).kernel(move |_| Ok(Unary::new(CALL, call1(f))));
}

pub(crate) fn register(r: &mut Registry) {
    unary!(r, "Abs", PLAIN, map1, [f32, f64, f16, bf16], |x| Magnitude::magnitude(x));
    unary!(r, "Abs", PLAIN, map1, [i8, i16, i32, i64], |x| x.wrapping_abs());
    unary!(r, "Neg", PLAIN, map1, [f32, f64, f16, bf16, Complex32, Complex64], |x| -x);
    unary!(r, "Neg", PLAIN, map1, [i8, i16, i32, i64], |x| x.wrapping_neg());
    unary!(r, "Sign", PLAIN, map1, floats, |x| {
        if x > 0.0 {
            1.0
        } else if x < 0.0 {
            -1.0
        } else if x == 0.0 {
            0.0
        } else {
            x
        }
    });
    unary!(r, "Sign", PLAIN, map1, [i8, i16, i32, i64], |x| x.signum());
    unary!(
        r,
        "Square",
        PLAIN,
        map1,
        [f32, f64, f16, bf16, Complex32, Complex64, i8, i16, i32, i64, u8, u16, u32, u64],
        |x| x.times(x)
    );
    unary!(r, "Sqrt", POLYNOMIAL, map1, floats, |x| x.sqrt());
    unary!(r, "Rsqrt", POLYNOMIAL, map1, floats, |x| 1.0 / x.sqrt());
    unary!(r, "Reciprocal", POLYNOMIAL, map1, floats, |x| 1.0 / x);
    unary!(r, "Inv", POLYNOMIAL, map1, floats, |x| 1.0 / x);
    polynomial(r, "Exp", Exp, f64::exp);
    polynomial(r, "Log", Log, f64::ln);
    polynomial(r, "Tanh", Tanh, f64::tanh);
    polynomial(r, "Sigmoid", Sigmoid, |x| {
        let e = (-x.abs()).exp();
        if x < 0.0 { e / (1.0 + e) } else { 1.0 / (1.0 + e) }
    });
    unary!(r, "Expm1", CALL, call1, floats, |x| x.exp_m1());
    unary!(r, "Log1p", CALL, call1, floats, |x| x.ln_1p());
    unary!(r, "Sin", CALL, call1, floats, |x| x.sin());
    unary!(r, "Cos", CALL, call1, floats, |x| x.cos());
    unary!(r, "Tan", CALL, call1, floats, |x| x.tan());
    unary!(r, "Asin", CALL, call1, floats, |x| x.asin());
    unary!(r, "Acos", CALL, call1, floats, |x| x.acos());
    unary!(r, "Acos", CALL, call1, [i8, i16, i32, i64], |x| CastFrom::cast_from(
        <f64 as CastFrom<_>>::cast_from(x).acos()
    ));
    unary!(r, "Atan", CALL, call1, floats, |x| x.atan());
    unary!(r, "Sinh", CALL, call1, floats, |x| x.sinh());
    unary!(r, "Cosh", CALL, call1, floats, |x| x.cosh());
    unary!(r, "Asinh", CALL, call1, [f32], |x| libm::asinhf(x));
    unary!(r, "Asinh", CALL, call1, [f64], |x| libm::asinh(x));
    unary!(r, "Asinh", CALL, call1, halves, |x| libm::asinhf(x));
    unary!(r, "Acosh", CALL, call1, [f32], |x| if x < 1.0 { f32::NAN } else { libm::acoshf(x) });
    unary!(r, "Acosh", CALL, call1, [f64], |x| if x < 1.0 { f64::NAN } else { libm::acosh(x) });
    unary!(r, "Acosh", CALL, call1, halves, |x| if x < 1.0 { f32::NAN } else { libm::acoshf(x) });
    unary!(r, "Atanh", CALL, call1, [f32], |x| libm::atanhf(x));
    unary!(r, "Atanh", CALL, call1, [f64], |x| libm::atanh(x));
    unary!(r, "Atanh", CALL, call1, halves, |x| libm::atanhf(x));
    unary!(r, "Erf", CALL, call1, [f32], |x| libm::erff(x));
    unary!(r, "Erf", CALL, call1, [f64], |x| libm::erf(x));
    unary!(r, "Erf", CALL, call1, halves, |x| libm::erff(x));
    unary!(r, "Erfc", CALL, call1, [f32], |x| libm::erfcf(x));
    unary!(r, "Erfc", CALL, call1, [f64], |x| libm::erfc(x));
    unary!(r, "Erfc", CALL, call1, halves, |x| libm::erfcf(x));
    unary!(r, "Erfinv", CALL, call1, [f32], |x| special::erfinv(f64::from(x)) as f32);
    unary!(r, "Erfinv", CALL, call1, [f64], |x| special::erfinv(x));
    unary!(r, "Ndtri", CALL, call1, [f32], |x| special::ndtri(f64::from(x)) as f32);
    unary!(r, "Ndtri", CALL, call1, [f64], |x| special::ndtri(x));
    unary!(r, "Lgamma", CALL, call1, [f32], |x| special::lgamma(f64::from(x)) as f32);
    unary!(r, "Lgamma", CALL, call1, [f64], |x| special::lgamma(x));
    unary!(r, "Lgamma", CALL, call1, widened[f16], |x| special::lgamma(f64::from(x)) as f32);
    unary!(r, "Digamma", CALL, call1, [f32], |x| special::digamma(f64::from(x)) as f32);
    unary!(r, "Digamma", CALL, call1, [f64], |x| special::digamma(x));
    unary!(r, "Digamma", CALL, call1, widened[f16], |x| special::digamma(f64::from(x)) as f32);
    unary!(r, "BesselI0", CALL, call1, [f32], |x| bessel::i0(f64::from(x)) as f32);
    unary!(r, "BesselI0", CALL, call1, [f64], |x| bessel::i0(x));
    unary!(r, "BesselI0", CALL, call1, widened[f16], |x| bessel::i0(f64::from(x)) as f32);
    unary!(r, "BesselI0e", CALL, call1, [f32], |x| bessel::i0e(f64::from(x)) as f32);
    unary!(r, "BesselI0e", CALL, call1, [f64], |x| bessel::i0e(x));
    unary!(r, "BesselI0e", CALL, call1, widened[f16], |x| bessel::i0e(f64::from(x)) as f32);
    unary!(r, "BesselI1", CALL, call1, [f32], |x| bessel::i1(f64::from(x)) as f32);
    unary!(r, "BesselI1", CALL, call1, [f64], |x| bessel::i1(x));
    unary!(r, "BesselI1", CALL, call1, widened[f16], |x| bessel::i1(f64::from(x)) as f32);
    unary!(r, "BesselI1e", CALL, call1, [f32], |x| bessel::i1e(f64::from(x)) as f32);
    unary!(r, "BesselI1e", CALL, call1, [f64], |x| bessel::i1e(x));
    unary!(r, "BesselI1e", CALL, call1, widened[f16], |x| bessel::i1e(f64::from(x)) as f32);
    for (op, f) in [
        ("BesselJ0", special::j0 as fn(f64) -> f64),
        ("BesselJ1", special::j1),
        ("BesselK0", special::k0),
        ("BesselK0e", special::k0e),
        ("BesselK1", special::k1),
        ("BesselK1e", special::k1e),
        ("BesselY0", special::y0),
        ("BesselY1", special::y1),
    ] {
        in_double(r, op, f);
        let narrow = move |x: f16| f16::from_f64(f(f64::from(x)));
        r.op(op).types("T", &[DType::Half]).kernel(move |_| Ok(Unary::new(CALL, call1(narrow))));
    }
    in_double(r, "Dawsn", special::dawsn);
    in_double(r, "Expint", special::expint);
    in_double(r, "FresnelCos", special::fresnel_cos);
    in_double(r, "FresnelSin", special::fresnel_sin);
    in_double(r, "Spence", special::spence);
    unary!(r, "Floor", PLAIN, map1, floats, |x| x.floor());
    unary!(r, "Ceil", PLAIN, map1, floats, |x| x.ceil());
    unary!(r, "Rint", PLAIN, map1, [f32, f64], |x| x.round_ties_even());
    unary!(r, "Round", PLAIN, map1, floats, |x| x.round_ties_even());
    unary!(r, "Round", PLAIN, map1, [i32, i64], |x| x);
    unary!(r, "Invert", PLAIN, map1, [i8, i16, i32, i64, u8, u16, u32, u64], |x| !x);
    r.op("LogicalNot").kernel(|_| Ok(Unary::new(PLAIN, map1(|x: bool| !x))));

    predicate(r, "IsNan", f32::is_nan);
    predicate(r, "IsNan", f64::is_nan);
    predicate(r, "IsNan", f16::is_nan);
    predicate(r, "IsNan", bf16::is_nan);
    predicate(r, "IsInf", f32::is_infinite);
    predicate(r, "IsInf", f64::is_infinite);
    predicate(r, "IsInf", f16::is_infinite);
    predicate(r, "IsInf", bf16::is_infinite);
    predicate(r, "IsFinite", f32::is_finite);
    predicate(r, "IsFinite", f64::is_finite);
    predicate(r, "IsFinite", f16::is_finite);
    predicate(r, "IsFinite", bf16::is_finite);
}

trait Magnitude {
    fn magnitude(self) -> Self;
}

impl Magnitude for f32 {
    #[inline(always)]
    fn magnitude(self) -> f32 {
        self.abs()
    }
}

impl Magnitude for f64 {
    #[inline(always)]
    fn magnitude(self) -> f64 {
        self.abs()
    }
}

impl Magnitude for f16 {
    #[inline(always)]
    fn magnitude(self) -> f16 {
        f16::from_bits(self.to_bits() & 0x7fff)
    }
}

impl Magnitude for bf16 {
    #[inline(always)]
    fn magnitude(self) -> bf16 {
        bf16::from_bits(self.to_bits() & 0x7fff)
    }
}
