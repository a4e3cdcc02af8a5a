//! Exponential, logarithm, hyperbolic tangent and logistic function of `f32` as polynomials that vectorise.
//!
//! The coefficients are those of the Cephes library (Stephen L. Moshier).

use crate::isa::{Scalar1, fma};

/// e^x, within 1 ulp.
#[derive(Clone, Copy)]
pub(crate) struct Exp;
/// Natural logarithm, within 1 ulp.
#[derive(Clone, Copy)]
pub(crate) struct Log;
/// Hyperbolic tangent, within 2 ulp.
#[derive(Clone, Copy)]
pub(crate) struct Tanh;
/// 1 / (1 + e^-x), within 2 ulp.
#[derive(Clone, Copy)]
pub(crate) struct Sigmoid;

impl Scalar1<f32, f32> for Exp {
    #[inline(always)]
    fn apply<const FMA: bool>(&self, x: f32) -> f32 {
        exp::<FMA>(x)
    }
}

impl Scalar1<f32, f32> for Log {
    #[inline(always)]
    fn apply<const FMA: bool>(&self, x: f32) -> f32 {
        log::<FMA>(x)
    }
}

impl Scalar1<f32, f32> for Tanh {
    #[inline(always)]
    fn apply<const FMA: bool>(&self, x: f32) -> f32 {
        tanh::<FMA>(x)
    }
}

impl Scalar1<f32, f32> for Sigmoid {
    #[inline(always)]
    fn apply<const FMA: bool>(&self, x: f32) -> f32 {
        sigmoid::<FMA>(x)
    }
}

#[inline(always)]
fn exp<const FMA: bool>(x: f32) -> f32 {
    // Below and above, the result is 0 and infinity. Written so that NaN passes.
    let x = if x > 89.0 { 89.0 } else { x };
    let x = if x < -104.0 { -104.0 } else { x };
    // Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits.
    const ROUND: f32 = 12_582_912.0;
    let shifted = fma::<FMA>(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let exponent = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let r = fma::<FMA>(n, -0.693_359_4, x);
    let r = fma::<FMA>(n, 2.121_944_4e-4, r);
    let p = fma::<FMA>(1.987_569_1e-4, r, 1.398_199_9e-3);
    let p = fma::<FMA>(p, r, 8.333_452e-3);
    let p = fma::<FMA>(p, r, 4.166_579_6e-2);
    let p = fma::<FMA>(p, r, 1.666_666_5e-1);
    let p = fma::<FMA>(p, r, 0.5);
    let p = fma::<FMA>(p, r * r, r) + 1.0;
    // Two factors, so that neither leaves the range of exponents when the result is subnormal or infinite.
    let half = exponent >> 1;
    p * power_of_two(half) * power_of_two(exponent.wrapping_sub(half))
}

#[inline(always)]
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits((exponent.wrapping_add(127) << 23) as u32)
}

#[inline(always)]
fn log<const FMA: bool>(x: f32) -> f32 {
    let subnormal = x < f32::MIN_POSITIVE;
    let scaled = if subnormal { x * 8_388_608.0 } else { x };
    let bits = scaled.to_bits();
    // Moves the mantissa into [sqrt(1/2), sqrt(2)).
    let shifted = bits.wrapping_sub(0x3f35_04f3);
    let e = (shifted as i32) >> 23;
    let m = f32::from_bits((shifted & 0x007f_ffff).wrapping_add(0x3f35_04f3));
    let e = e as f32 - if subnormal { 23.0 } else { 0.0 };
    let m = m - 1.0;
    let z = m * m;
    let p = fma::<FMA>(7.037_683_6e-2, m, -1.151_461e-1);
    let p = fma::<FMA>(p, m, 1.167_699_84e-1);
    let p = fma::<FMA>(p, m, -1.242_014_1e-1);
    let p = fma::<FMA>(p, m, 1.424_932_3e-1);
    let p = fma::<FMA>(p, m, -1.666_805_8e-1);
    let p = fma::<FMA>(p, m, 2.000_071_4e-1);
    let p = fma::<FMA>(p, m, -2.499_999_4e-1);
    let p = fma::<FMA>(p, m, 3.333_333e-1);
    let y = m * z * p;
    let y = fma::<FMA>(e, -2.121_944_4e-4, y);
    let y = fma::<FMA>(z, -0.5, y);
    let y = fma::<FMA>(e, 0.693_359_4, m + y);
    let y = if x < f32::INFINITY { y } else { x };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    // By its sign bit, so that a negative subnormal counts where the processor takes it as 0, too.
    let negative = x.to_bits() > 0x8000_0000;
    if negative { f32::NAN } else { y }
}

#[inline(always)]
fn tanh<const FMA: bool>(x: f32) -> f32 {
    let size = x.abs();
    // Near 0 a polynomial, further out 1 - 2 / (e^2x + 1), which has no cancellation there.
    let z = x * x;
    let p = fma::<FMA>(-5.704_988_7e-3, z, 2.063_908_8e-2);
    let p = fma::<FMA>(p, z, -5.373_971_5e-2);
    let p = fma::<FMA>(p, z, 1.333_144_2e-1);
    let p = fma::<FMA>(p, z, -3.333_328e-1);
    let near = fma::<FMA>(p * z, x, x);
    let far = 1.0 - 2.0 / (exp::<FMA>(2.0 * size) + 1.0);
    (if size < 0.625 { near } else { far }).copysign(x)
}

#[inline(always)]
fn sigmoid<const FMA: bool>(x: f32) -> f32 {
    // e^-|x| does not overflow, and keeps its digits where the result is small.
    let e = exp::<FMA>(-x.abs());
    let numerator = if x < 0.0 { e } else { 1.0 };
    numerator / (1.0 + e)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::map1;

    fn worst(f: impl Scalar1<f32, f32>, exact: impl Fn(f64) -> f64, range: std::ops::Range<f32>) -> f64 {
        let n = 200_001;
        let x: Vec<f32> =
            (0..n).map(|i| range.start + (range.end - range.start) * (i as f32 / (n - 1) as f32)).collect();
        let mut y = vec![0.0; n];
        map1(f)(&x, &mut y);
        let error = |(&x, &y): (&f32, &f32)| {
            let expected = exact(f64::from(x));
            let ulp = f64::from((expected as f32).abs().next_up()) - f64::from((expected as f32).abs());
            (f64::from(y) - expected).abs() / ulp
        };
        x.iter().zip(&y).map(error).fold(0.0, f64::max)
    }

    fn one(f: impl Scalar1<f32, f32>, x: f32) -> f32 {
        let mut y = [0.0];
        map1(f)(&[x], &mut y);
        y[0]
    }

    #[test]
    fn errors_stay_small() {
        assert!(worst(Exp, f64::exp, -87.0..88.7) < 1.5);
        assert!(worst(Log, f64::ln, 1e-3..10.0) < 1.5);
        assert!(worst(Log, f64::ln, 1.0..1e30) < 1.5);
        assert!(worst(Tanh, f64::tanh, -9.0..9.0) < 2.0);
        assert!(worst(Tanh, f64::tanh, -0.7..0.7) < 2.0);
        assert!(worst(Sigmoid, |x| 1.0 / (1.0 + (-x).exp()), -80.0..80.0) < 2.5);
    }

    #[test]
    fn ends_of_the_range() {
        assert_eq!(one(Exp, f32::INFINITY), f32::INFINITY);
        assert_eq!(one(Exp, f32::NEG_INFINITY), 0.0);
        assert_eq!(one(Exp, 88.8), f32::INFINITY);
        assert_eq!(one(Exp, -103.0), 1e-45);
        assert_eq!(one(Exp, 0.0), 1.0);
        assert!(one(Exp, f32::NAN).is_nan());
        assert_eq!(one(Log, 0.0), f32::NEG_INFINITY);
        assert_eq!(one(Log, -0.0), f32::NEG_INFINITY);
        assert_eq!(one(Log, f32::INFINITY), f32::INFINITY);
        assert_eq!(one(Log, 1.0), 0.0);
        assert!((f64::from(one(Log, 1e-45)) - (-103.278_929_903_431_85)).abs() < 1e-5);
        assert!(one(Log, -1.0).is_nan() && one(Log, f32::NAN).is_nan() && one(Log, f32::NEG_INFINITY).is_nan());
        assert_eq!(one(Tanh, 30.0), 1.0);
        assert_eq!(one(Tanh, -30.0), -1.0);
        assert_eq!(one(Tanh, -0.0).to_bits(), (-0.0f32).to_bits());
        assert!(one(Tanh, f32::NAN).is_nan());
        assert_eq!(one(Sigmoid, f32::NEG_INFINITY), 0.0);
        assert_eq!(one(Sigmoid, f32::INFINITY), 1.0);
        assert!(one(Sigmoid, f32::NAN).is_nan());
    }
}
