//! Elementwise ops of two operands that broadcast, with a result of their type.

use crate::complex::{self, Part};
use crate::elementwise::Binary;
use crate::isa::{Map2, call2, map2};
use crate::number::{Half, Number, Ordered};
use crate::special;
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{Complex32, Complex64, DType, Element, Result, bf16, f16, invalid_argument};
use num_complex::Complex;

/// Nanoseconds for an element of a loop that the memory's speed limits.
const PLAIN: f64 = 0.25;
/// Nanoseconds for a complex quotient.
const QUOTIENT: f64 = 4.0;
/// Nanoseconds for a call of the mathematical library.
const CALL: f64 = 20.0;

pub(crate) fn register(r: &mut Registry) {
    binary!(
        r,
        Binary,
        "Add",
        PLAIN,
        map2,
        [f32, f64, f16, bf16, Complex32, Complex64, i8, i16, i32, i64, u8],
        |a, b| a.plus(b)
    );
    binary!(
        r,
        Binary,
        "AddV2",
        PLAIN,
        map2,
        [f32, f64, f16, bf16, Complex32, Complex64, i8, i16, i32, i64, u8, u16, u32, u64],
        |a, b| a.plus(b)
    );
    binary!(
        r,
        Binary,
        "Sub",
        PLAIN,
        map2,
        [f32, f64, f16, bf16, Complex32, Complex64, i8, i16, i32, i64, u8, u16, u32, u64],
        |a, b| a.minus(b)
    );
    binary!(
        r,
        Binary,
        "Mul",
        PLAIN,
        map2,
        [f32, f64, f16, bf16, Complex32, Complex64, i8, i16, i32, i64, u8, u16, u32, u64],
        |a, b| a.times(b)
    );
    binary!(r, Binary, "MulNoNan", PLAIN, map2, [f32, f64, f16, bf16, Complex32, Complex64], |a, b| {
        if b == Number::ZERO { Number::ZERO } else { a.times(b) }
    });
    binary!(r, Binary, "Div", PLAIN, map2, floats, |a, b| a / b);
    binary!(r, Binary, "Div", QUOTIENT, call2, [Complex32, Complex64], |a, b| Part::divide(a, b));
    binary!(r, Binary, "RealDiv", PLAIN, map2, floats, |a, b| a / b);
    binary!(r, Binary, "RealDiv", QUOTIENT, call2, [Complex32, Complex64], |a, b| Part::divide(a, b));
    binary!(r, Binary, "DivNoNan", PLAIN, map2, floats, |a, b| if b == 0.0 { 0.0 } else { a / b });
    binary!(r, Binary, "DivNoNan", QUOTIENT, call2, [Complex32, Complex64], |a, b| {
        if b == Number::ZERO { b } else { Part::divide(a, b) }
    });
    binary!(r, Binary, "FloorDiv", PLAIN, map2, [f32, f64], |a, b| (a / b).floor());
    binary!(r, Binary, "FloorDiv", PLAIN, map2, [f16, bf16], |a, b| rounded_quotient(a, b, f32::floor));
    binary!(r, Binary, "TruncateDiv", PLAIN, map2, [f32, f64], |a, b| (a / b).trunc());
    binary!(r, Binary, "TruncateDiv", PLAIN, map2, [f16, bf16], |a, b| rounded_quotient(a, b, f32::trunc));
    binary!(r, Binary, "FloorMod", CALL, call2, floats, |a, b| {
        let rest = a % b;
        if rest != 0.0 && (b < 0.0) != (rest < 0.0) { rest + b } else { rest }
    });
    binary!(r, Binary, "Mod", CALL, call2, [f32, f64], |a, b| a % b);
    binary!(r, Binary, "TruncateMod", CALL, call2, [f32, f64], |a, b| a % b);
    binary!(r, Binary, "Pow", CALL, call2, floats, |a, b| a.powf(b));
    binary!(r, Binary, "Pow", CALL, call2, [Complex32, Complex64], |a, b| complex_power(a, b));
    binary!(r, Binary, "Maximum", PLAIN, map2, [f32, f64, i8, i16, i32, i64, u8, u16, u32, u64], |a, b| a.greater(b));
    // Of zeros of both signs TensorFlow takes the second for the wide floats, the first for these.
    binary!(r, Binary, "Maximum", PLAIN, map2, [f16, bf16], |a, b| b.greater(a));
    binary!(r, Binary, "Minimum", PLAIN, map2, [f32, f64, i8, i16, i32, i64, u8, u16, u32, u64], |a, b| a.lesser(b));
    // Of zeros of both signs TensorFlow takes the second for the wide floats, the first for these.
    binary!(r, Binary, "Minimum", PLAIN, map2, [f16, bf16], |a, b| b.lesser(a));
    binary!(
        r,
        Binary,
        "SquaredDifference",
        PLAIN,
        map2,
        [f32, f64, f16, bf16, Complex32, Complex64, i32, i64],
        |a, b| {
            let difference = a.minus(b);
            difference.times(difference.conjugate())
        }
    );
    binary!(r, Binary, "Atan2", CALL, call2, floats, |a, b| a.atan2(b));
    binary!(r, Binary, "Xdivy", PLAIN, map2, floats, |a, b| if a == 0.0 { a } else { a / b });
    binary!(r, Binary, "Xdivy", QUOTIENT, call2, [Complex32, Complex64], |a, b| {
        if a == Number::ZERO { a } else { Part::divide(a, b) }
    });
    binary!(r, Binary, "Xlogy", CALL, call2, [f32, f64], |a, b| if a == 0.0 { a } else { a * b.ln() });
    binary!(r, Binary, "Xlogy", CALL, call2, [f16, bf16], |a, b| times_rounded(a, b, f32::ln));
    binary!(r, Binary, "Xlogy", CALL, call2, [Complex32, Complex64], |a, b| {
        if a == Number::ZERO { a } else { a * complex::log(b) }
    });
    binary!(r, Binary, "Xlog1py", CALL, call2, [f32, f64], |a, b| if a == 0.0 { a } else { a * b.ln_1p() });
    binary!(r, Binary, "Xlog1py", CALL, call2, [f16, bf16], |a, b| times_rounded(a, b, f32::ln_1p));
    binary!(r, Binary, "Xlog1py", CALL, call2, [Complex32, Complex64], |a, b| {
        if a == Number::ZERO { a } else { a * complex::log1p(b) }
    });
    binary!(r, Binary, "NextAfter", PLAIN, call2, [f32], |a, b| {
        if a == b || a.is_nan() || b.is_nan() {
            if a == b { b } else { f32::NAN }
        } else if a < b {
            a.next_up()
        } else {
            a.next_down()
        }
    });
    binary!(r, Binary, "NextAfter", PLAIN, call2, [f64], |a, b| {
        if a == b || a.is_nan() || b.is_nan() {
            if a == b { b } else { f64::NAN }
        } else if a < b {
            a.next_up()
        } else {
            a.next_down()
        }
    });
    binary!(r, Binary, "BitwiseAnd", PLAIN, map2, [i8, i16, i32, i64, u8, u16, u32, u64], |a, b| a & b);
    binary!(r, Binary, "BitwiseOr", PLAIN, map2, [i8, i16, i32, i64, u8, u16, u32, u64], |a, b| a | b);
    binary!(r, Binary, "BitwiseXor", PLAIN, map2, [i8, i16, i32, i64, u8, u16, u32, u64], |a, b| a ^ b);
    binary!(r, Binary, "LeftShift", PLAIN, map2, [i8, i16, i32, i64, u8, u16, u32, u64], |a, b| a << clamped(b));
    binary!(r, Binary, "RightShift", PLAIN, map2, [i8, i16, i32, i64, u8, u16, u32, u64], |a, b| a >> clamped(b));
    special(r, "Igamma", special::igamma);
    special(r, "Igammac", special::igammac);
    special(r, "IgammaGradA", special::igamma_derivative);
    special(r, "RandomGammaGrad", special::sample_derivative);
    special(r, "Zeta", special::zeta);
    special(r, "Polygamma", special::polygamma);
    r.op("LogicalAnd").kernel(|_| Ok(Binary::new(PLAIN, map2(|a: bool, b: bool| a & b))));
    r.op("LogicalOr").kernel(|_| Ok(Binary::new(PLAIN, map2(|a: bool, b: bool| a | b))));
    r.op("ApproximateEqual").types("T", &[DType::Float]).kernel(|c| {
        let tolerance = c.attrs().float("tolerance")?;
        Ok(ApproximateEqual { body: map2(move |a: f32, b: f32| (a - b).abs() < tolerance) })
    });
    r.op("ApproximateEqual").types("T", &[DType::Double]).kernel(|c| {
        let tolerance = f64::from(c.attrs().float("tolerance")?);
        Ok(ApproximateEqual { body: map2(move |a: f64, b: f64| (a - b).abs() < tolerance) })
    });
}

/// `a` times a function of `b` that is rounded to 16 bits before, as the same graph of single ops would round it.
#[inline(always)]
fn times_rounded<H: Half>(a: H, b: H, f: impl Fn(f32) -> f32) -> H {
    if a.widen() == 0.0 { a } else { H::narrow(a.widen() * H::narrow(f(b.widen())).widen()) }
}

/// The quotient of 16-bit floats is rounded to 16 bits before it is rounded to an integer.
#[inline(always)]
fn rounded_quotient<T: Half>(a: T, b: T, round: impl Fn(f32) -> f32) -> T {
    T::narrow(round(T::narrow(a.widen() / b.widen()).widen()))
}

fn special(r: &mut Registry, op: &'static str, f: fn(f64, f64) -> f64) {
    let narrow = move |a: f32, b: f32| f(f64::from(a), f64::from(b)) as f32;
    r.op(op).types("T", &[DType::Float]).kernel(move |_| Ok(Binary::new(10.0 * CALL, call2(narrow))));
    r.op(op).types("T", &[DType::Double]).kernel(move |_| Ok(Binary::new(10.0 * CALL, call2(f))));
}

/// The number of bits to shift by: negative ones and those beyond the width are moved to the nearest valid one.
trait Shift {
    fn clamped_shift(self) -> u32;
}

macro_rules! shift {
    ($($t:ty),*) => {$(
        impl Shift for $t {
            #[inline(always)]
            #[allow(unused_comparisons)]
            fn clamped_shift(self) -> u32 {
                let last = <$t>::BITS - 1;
                if self < 0 { 0 } else if self as u64 > u64::from(last) { last } else { self as u32 }
            }
        }
    )*};
}

shift!(i8, i16, i32, i64, u8, u16, u32, u64);

#[inline(always)]
fn clamped<T: Shift>(by: T) -> u32 {
    by.clamped_shift()
}

fn complex_power<P: Part>(a: Complex<P>, b: Complex<P>) -> Complex<P> {
    let zero = Complex::new(P::zero(), P::zero());
    if a == zero && b != zero { zero } else { (b * complex::log(a)).exp() }
}

/// Whether elements differ by less than the attribute `tolerance`. Does not broadcast.
struct ApproximateEqual<T> {
    body: Map2<T, bool>,
}

impl<T: Element> Kernel for ApproximateEqual<T> {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (a, b) = (ctx.input(0)?, ctx.input(1)?);
        if a.shape() != b.shape() {
            return Err(invalid_argument!(
                "x and y must be of the same shape. x shape: {}. y shape: {}",
                a.shape(),
                b.shape()
            ));
        }
        let mut out = ctx.alloc_output(0, a.shape().clone())?;
        let (a, b) = (a.as_slice::<T>()?, b.as_slice::<T>()?);
        ctx.parallel_chunks(out.as_mut_slice()?, 1, PLAIN, |range, part| {
            self.body.each(&a[range.clone()], &b[range], part);
        });
        ctx.set_output(0, out)
    }
}
