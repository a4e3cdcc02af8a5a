//! Loops compiled for the vector instructions of the machine at hand, and functions that such loops can hold.
use graphmill_tensor::{Element, bf16, f16};
use std::sync::atomic::{AtomicU8, Ordering};

/// The vector instructions that there are code paths for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Level {
    /// What every machine of the target has.
    Baseline,
    /// 256-bit vectors and fused multiplication and addition.
    Avx2,
    /// 512-bit vectors.
    Avx512,
}

/// What this machine has, detected once.
#[inline]
pub(crate) fn level() -> Level {
    static LEVEL: AtomicU8 = AtomicU8::new(0);
    match LEVEL.load(Ordering::Relaxed) {
        1 => Level::Baseline,
        2 => Level::Avx2,
        3 => Level::Avx512,
        _ => {
            let level = detect();
            LEVEL.store(level as u8 + 1, Ordering::Relaxed);
            level
        }
    }
}

fn detect() -> Level {
    #[cfg(target_arch = "x86_64")]
    {
        let avx2 =
            is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c");
        let avx512 = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        if avx2 && avx512 {
            return Level::Avx512;
        }
        if avx2 {
            return Level::Avx2;
        }
    }
    Level::Baseline
}

/// Defines a function that is compiled once for each [`Level`] and runs in the widest version there is. The generic parameters
/// stand in brackets: `vectorized! { fn scale[T: Real](row: &mut [T], factor: T::Wide) { ... } }`.
macro_rules! vectorized {
    (
        $(#[$meta:meta])*
        fn $name:ident [$($generics:tt)*] ($($arg:ident : $ty:ty),* $(,)?) $(-> $ret:ty)? $body:block
    ) => {
        $(#[$meta])*
        #[allow(clippy::too_many_arguments)]
        fn $name<$($generics)*>($($arg: $ty),*) $(-> $ret)? {
            #[inline(always)]
            fn body<$($generics)*>($($arg: $ty),*) $(-> $ret)? $body

            #[cfg(target_arch = "x86_64")]
            #[allow(unsafe_code)]
            {
                #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")]
                fn avx512<$($generics)*>($($arg: $ty),*) $(-> $ret)? {
                    body($($arg),*)
                }
                #[target_feature(enable = "avx2,fma,f16c")]
                fn avx2<$($generics)*>($($arg: $ty),*) $(-> $ret)? {
                    body($($arg),*)
                }
                match $crate::simd::level() {
                    // SAFETY: the machine has these features, as `level` has detected.
                    $crate::simd::Level::Avx512 => return unsafe { avx512($($arg),*) },
                    // SAFETY: as above.
                    $crate::simd::Level::Avx2 => return unsafe { avx2($($arg),*) },
                    $crate::simd::Level::Baseline => {}
                }
            }
            body($($arg),*)
        }
    };
}

pub(crate) use vectorized;

/// A real floating-point element and the type that it is computed with.
pub(crate) trait Real: Element {
    /// `f32` for half precision, else the type itself.
    type Wide: Wide;
    /// Exact.
    fn widen(self) -> Self::Wide;
    /// The nearest value.
    fn narrow(wide: Self::Wide) -> Self;
}

/// A type to compute with.
pub(crate) trait Wide: Element + num_traits::Float + num_traits::FloatConst + std::iter::Sum {
    /// The nearest value.
    fn of(value: f64) -> Self;
    /// The exponential function, in a form that loops of it become vector instructions where that matters.
    fn exponential(self) -> Self;
}

impl Wide for f64 {
    #[inline(always)]
    fn of(value: f64) -> f64 {
        value
    }
    #[inline(always)]
    fn exponential(self) -> f64 {
        self.exp()
    }
}

impl Wide for f32 {
    #[inline(always)]
    fn of(value: f64) -> f32 {
        value as f32
    }
    #[inline(always)]
    fn exponential(self) -> f32 {
        exp(self)
    }
}

macro_rules! real {
    ($($t:ty => $wide:ty, |$x:ident| $widen:expr, |$w:ident| $narrow:expr;)*) => {$(
        impl Real for $t {
            type Wide = $wide;
            #[inline(always)]
            fn widen(self) -> $wide {
                let $x = self;
                $widen
            }
            #[inline(always)]
            fn narrow($w: $wide) -> $t {
                $narrow
            }
        }
    )*};
}

real! {
    f32 => f32, |x| x, |w| w;
    f64 => f64, |x| x, |w| w;
    f16 => f32, |x| x.to_f32(), |w| f16::from_f32(w);
    bf16 => f32, |x| x.to_f32(), |w| bf16::from_f32(w);
}

/// `e^x` within 2 units in the last place; results below the smallest normal number become 0.
///
/// `x = n ln 2 + r`, and `e^r` by the polynomial of the Cephes library for `|r| <= ln 2 / 2`.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // ln 2 in two parts; the first has so few bits that its product with n is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    const LIMIT: f32 = 88.722_84;
    let clamped = if x > LIMIT { LIMIT } else { x };
    let clamped = if clamped < -87.336_54 { -87.336_54 } else { clamped };
    // Adding 1.5 * 2^23 rounds to an integer, which the low bits then hold.
    const ROUND: f32 = 12_582_912.0;
    let rounded = clamped * std::f32::consts::LOG2_E + ROUND;
    let n = rounded - ROUND;
    let exponent = (rounded.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let r = (clamped - n * LN2_HIGH) - n * LN2_LOW;
    let mut poly = 1.987_569_1e-4;
    poly = poly * r + 1.398_199_9e-3;
    poly = poly * r + 8.333_452e-3;
    poly = poly * r + 4.166_579_6e-2;
    poly = poly * r + 1.666_666_5e-1;
    poly = poly * r + 0.5;
    let fraction = poly * r * r + r + 1.0;
    // In two factors, since 2^n alone would overflow at n = 128.
    let half = exponent >> 1;
    let power = |e: i32| f32::from_bits((e.wrapping_add(127) as u32) << 23);
    let value = fraction * power(half) * power(exponent.wrapping_sub(half));
    let value = if x < -87.336_54 { 0.0 } else { value };
    let value = if x > LIMIT { f32::INFINITY } else { value };
    if x.is_nan() { x } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_near_and_ends_are_right() {
        for i in -87_000..88_000 {
            let x = i as f32 / 1000.0;
            let exact = f64::from(x).exp();
            assert!((f64::from(exp(x)) - exact).abs() <= exact * 1.5e-7, "{x}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(89.0), f32::INFINITY);
        assert!(exp(88.7).is_finite());
        assert!(exp(f32::NAN).is_nan());
    }
}
