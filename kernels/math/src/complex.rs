//! Elementwise ops on complex numbers.

use crate::elementwise::{Compare, Convert, Unary};
use crate::isa::{call1, map1, map2};
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{Complex32, Complex64, DType, Result, internal, invalid_argument};
use num_complex::{Complex, ComplexFloat};
use num_traits::Float;

const PLAIN: f64 = 0.4;
const CALL: f64 = 40.0;

/// Real numbers that complex ones are made of, and what is done more exactly than by the plain formulas.
pub(crate) trait Part: Float + Send + Sync + 'static {
    /// `a / b` without overflow in between.
    fn divide(a: Complex<Self>, b: Complex<Self>) -> Complex<Self>;
}

impl Part for f32 {
    #[inline(always)]
    fn divide(a: Complex32, b: Complex32) -> Complex32 {
        let wide = |z: Complex32| Complex64::new(f64::from(z.re), f64::from(z.im));
        let (a, b) = (wide(a), wide(b));
        let norm = b.re * b.re + b.im * b.im;
        let (re, im) = (a.re * b.re + a.im * b.im, a.im * b.re - a.re * b.im);
        Complex32::new((re / norm) as f32, (im / norm) as f32)
    }
}

impl Part for f64 {
    /// Robert L. Smith's method: scaled by the larger part of the divisor.
    fn divide(a: Complex64, b: Complex64) -> Complex64 {
        if b.re.abs() >= b.im.abs() {
            let ratio = b.im / b.re;
            let scale = b.re + b.im * ratio;
            Complex64::new((a.re + a.im * ratio) / scale, (a.im - a.re * ratio) / scale)
        } else {
            let ratio = b.re / b.im;
            let scale = b.re * ratio + b.im;
            Complex64::new((a.re * ratio + a.im) / scale, (a.im * ratio - a.re) / scale)
        }
    }
}

fn one<P: Part>() -> Complex<P> {
    Complex::new(P::one(), P::zero())
}

/// `1 / z` by Smith's method; keeps the signs of zeros.
fn reciprocal<P: Part>(z: Complex<P>) -> Complex<P> {
    if z.re.abs() >= z.im.abs() {
        let ratio = z.im / z.re;
        let scale = z.re + z.im * ratio;
        Complex::new(scale.recip(), -ratio / scale)
    } else {
        let ratio = z.re / z.im;
        let scale = z.re * ratio + z.im;
        Complex::new(ratio / scale, -scale.recip())
    }
}

fn rsqrt<P: Part>(z: Complex<P>) -> Complex<P> {
    if z.re == P::zero() && z.im == P::zero() {
        return Complex::new(P::infinity(), P::nan());
    }
    reciprocal(sqrt(z))
}

/// `z / |z|`, 0 at 0.
fn sign<P: Part>(z: Complex<P>) -> Complex<P> {
    let size = z.re.hypot(z.im);
    let part = |x: P| if x == P::zero() { x } else { x / size };
    Complex::new(part(z.re), part(z.im))
}

/// The square root with a real part that is not negative.
fn sqrt<P: Part>(z: Complex<P>) -> Complex<P> {
    if !(z.re.is_finite() && z.im.is_finite()) {
        return z.sqrt();
    }
    if z.re == P::zero() && z.im == P::zero() {
        return Complex::new(P::zero(), z.im);
    }
    let two = P::one() + P::one();
    let root = ((z.re.abs() + z.re.hypot(z.im)) / two).sqrt();
    if z.re >= P::zero() {
        Complex::new(root, z.im / (two * root))
    } else {
        Complex::new(z.im.abs() / (two * root), root.copysign(z.im))
    }
}

/// `i * z`.
fn times_i<P: Part>(z: Complex<P>) -> Complex<P> {
    Complex::new(-z.im, z.re)
}

/// `-i * z`.
fn over_i<P: Part>(z: Complex<P>) -> Complex<P> {
    Complex::new(z.im, -z.re)
}

/// The square roots of `1 - z` and `1 + z`, on the side of the cut that the sign of a zero names.
fn roots<P: Part>(z: Complex<P>) -> (Complex<P>, Complex<P>) {
    (sqrt(Complex::new(P::one() - z.re, -z.im)), sqrt(Complex::new(P::one() + z.re, z.im)))
}

/// The inverse functions follow W. Kahan, "Branch cuts for complex elementary functions, or much ado about nothing's sign bit".
fn asin<P: Part>(z: Complex<P>) -> Complex<P> {
    let (minus, plus) = roots(z);
    Complex::new(z.re.atan2((minus * plus).re), real_asinh((minus.conj() * plus).im))
}

fn acos<P: Part>(z: Complex<P>) -> Complex<P> {
    let (minus, plus) = roots(z);
    let two = P::one() + P::one();
    Complex::new(two * minus.re.atan2(plus.re), real_asinh((plus.conj() * minus).im))
}

fn asinh<P: Part>(z: Complex<P>) -> Complex<P> {
    over_i(asin(times_i(z)))
}

fn acosh<P: Part>(z: Complex<P>) -> Complex<P> {
    let minus = sqrt(Complex::new(z.re - P::one(), z.im));
    let plus = sqrt(Complex::new(z.re + P::one(), z.im));
    let two = P::one() + P::one();
    Complex::new(real_asinh((minus.conj() * plus).re), two * minus.im.atan2(plus.re))
}

fn atanh<P: Part>(z: Complex<P>) -> Complex<P> {
    let two = P::one() + P::one();
    let (x, y) = (z.re, z.im);
    let rest = P::one() - x.abs();
    let real = (two * two * x.abs() / (rest * rest + y * y)).ln_1p() / (two * two);
    let imaginary = (two * y).atan2(rest * (P::one() + x.abs()) - y * y) / two;
    Complex::new(real.copysign(x), imaginary)
}

fn atan<P: Part>(z: Complex<P>) -> Complex<P> {
    over_i(atanh(times_i(z)))
}

/// Of a real number, odd and without cancellation near 0.
fn real_asinh<P: Part>(x: P) -> P {
    let size = x.abs();
    let value = (size + size * size / (P::one() + (size * size + P::one()).sqrt())).ln_1p();
    value.copysign(x)
}

/// `e^z - 1` without cancellation near 0: the real part is `expm1(re) * cos(im) - 2 sin(im / 2)^2`.
fn expm1<P: Part>(z: Complex<P>) -> Complex<P> {
    let two = P::one() + P::one();
    let half_sine = (z.im / two).sin();
    let real = z.re.exp_m1() * z.im.cos() - two * half_sine * half_sine;
    Complex::new(real, z.re.exp() * z.im.sin())
}

/// `log(1 + z)` without cancellation near 0: the real part is half of `log1p(re * (re + 2) + im^2)`.
pub(crate) fn log1p<P: Part>(z: Complex<P>) -> Complex<P> {
    let two = P::one() + P::one();
    let near = z.re.abs() < P::one() / two && z.im.abs() < P::one() / two;
    let real =
        if near { (z.re * (z.re + two) + z.im * z.im).ln_1p() / two } else { (z.re + P::one()).hypot(z.im).ln() };
    Complex::new(real, z.im.atan2(z.re + P::one()))
}

/// The principal logarithm, without overflow of the modulus.
pub(crate) fn log<P: Part>(z: Complex<P>) -> Complex<P> {
    Complex::new(z.re.hypot(z.im).ln(), z.im.atan2(z.re))
}

/// `sinh(2a) / (cosh(2a) + cos(2b)) + i sin(2b) / (cosh(2a) + cos(2b))`, which saturates for large `a`.
fn tanh<P: Part>(z: Complex<P>) -> Complex<P> {
    let limit = P::epsilon().ln().abs();
    if z.re.abs() > limit && z.im.is_finite() {
        let zero = P::zero() * z.im.sin() * z.im.cos();
        return Complex::new(z.re.signum(), zero);
    }
    // By the tangent's addition theorem, after W. Kahan, "Branch cuts for complex elementary functions".
    let t = z.im.tan();
    let beta = P::one() + t * t;
    let s = z.re.sinh();
    let rho = (P::one() + s * s).sqrt();
    if t.is_infinite() {
        return Complex::new(rho / s, P::one() / t);
    }
    let scale = P::one() + beta * s * s;
    Complex::new(beta * rho * s / scale, t / scale)
}

fn tan<P: Part>(z: Complex<P>) -> Complex<P> {
    let t = tanh(Complex::new(-z.im, z.re));
    Complex::new(t.im, -t.re)
}

fn sigmoid<P: Part>(z: Complex<P>) -> Complex<P> {
    P::divide(one(), one::<P>() + (-z).exp())
}

macro_rules! complex_functions {
    ($registry:ident, $($op:literal => |$z:ident| $body:expr;)*) => {$(
        $registry.op($op).types("T", &[DType::Complex64]).kernel(|_| {
            Ok(Unary::new(CALL, call1(|$z: Complex32| -> Complex32 { $body })))
        });
        $registry.op($op).types("T", &[DType::Complex128]).kernel(|_| {
            Ok(Unary::new(CALL, call1(|$z: Complex64| -> Complex64 { $body })))
        });
    )*};
}

macro_rules! parts {
    ($registry:ident, $($op:literal, $map:ident => |$z:ident| $body:expr;)*) => {$(
        $registry.op($op).types("T", &[DType::Complex64]).types("Tout", &[DType::Float]).kernel(|_| {
            Ok(Convert::new(PLAIN, $map(|$z: Complex32| -> f32 { $body })))
        });
        $registry.op($op).types("T", &[DType::Complex128]).types("Tout", &[DType::Double]).kernel(|_| {
            Ok(Convert::new(PLAIN, $map(|$z: Complex64| -> f64 { $body })))
        });
    )*};
}

/// `Conj` of a variant: no type of variant here has a conjugate.
struct ConjVariant;

impl Kernel for ConjVariant {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        if !input.shape().is_scalar() {
            return Err(invalid_argument!("Non-scalar variants are not supported."));
        }
        Err(internal!("No unary variant unary_op function found for op CONJ Variant for device type: CPU"))
    }
}

pub(crate) fn register(r: &mut Registry) {
    complex_functions! { r,
        "Sign" => |z| sign(z);
        "Sqrt" => |z| sqrt(z);
        "Rsqrt" => |z| rsqrt(z);
        "Reciprocal" => |z| reciprocal(z);
        "Inv" => |z| reciprocal(z);
        "Exp" => |z| z.exp();
        "Expm1" => |z| expm1(z);
        "Log" => |z| log(z);
        "Log1p" => |z| log1p(z);
        "Sin" => |z| z.sin();
        "Cos" => |z| z.cos();
        "Tan" => |z| tan(z);
        "Asin" => |z| asin(z);
        "Acos" => |z| acos(z);
        "Atan" => |z| atan(z);
        "Sinh" => |z| z.sinh();
        "Cosh" => |z| z.cosh();
        "Tanh" => |z| tanh(z);
        "Asinh" => |z| asinh(z);
        "Acosh" => |z| acosh(z);
        "Atanh" => |z| atanh(z);
        "Sigmoid" => |z| sigmoid(z);
        "Conj" => |z| z.conj();
    }
    parts! { r,
        "Real", map1 => |z| z.re;
        "Imag", map1 => |z| z.im;
        "Angle", call1 => |z| z.im.atan2(z.re);
    }
    r.op("ComplexAbs")
        .types("T", &[DType::Complex64])
        .kernel(|_| Ok(Convert::new(PLAIN, call1(|z: Complex32| z.re.hypot(z.im)))));
    r.op("ComplexAbs")
        .types("T", &[DType::Complex128])
        .kernel(|_| Ok(Convert::new(PLAIN, call1(|z: Complex64| z.re.hypot(z.im)))));
    r.op("Conj").types("T", &[DType::Variant]).kernel(|_| Ok(ConjVariant));
    r.op("Complex")
        .types("T", &[DType::Float])
        .types("Tout", &[DType::Complex64])
        .kernel(|_| Ok(Compare::<f32, Complex32>::new(PLAIN, map2(Complex32::new), None)));
    r.op("Complex")
        .types("T", &[DType::Double])
        .types("Tout", &[DType::Complex128])
        .kernel(|_| Ok(Compare::<f64, Complex64>::new(PLAIN, map2(Complex64::new), None)));
}
