//! Arithmetic on every type of number: integers wrap, 16-bit floats round after each operation, as in TensorFlow.

use graphmill_tensor::{Complex32, Complex64, Element, bf16, f16};

/// A number that updates are added to and multiplied with.
pub(crate) trait Number: Element {
    fn plus(self, other: Self) -> Self;
    fn minus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// The quotient. Who divides integers has checked that `other` is not 0; otherwise the result is 0.
    fn over(self, other: Self) -> Self;
    /// Whether division by this number is an error for integers.
    fn is_zero(self) -> bool {
        self == Self::default()
    }
}

/// A number with an order. A NaN never replaces a value, and is never replaced.
pub(crate) trait Ordered: Number + PartialOrd {
    #[inline(always)]
    fn smaller(self, other: Self) -> Self {
        if other < self { other } else { self }
    }

    #[inline(always)]
    fn larger(self, other: Self) -> Self {
        if other > self { other } else { self }
    }
}

macro_rules! integers {
    ($($int:ty)*) => {$(
        impl Number for $int {
            #[inline(always)]
            fn plus(self, other: Self) -> Self { self.wrapping_add(other) }
            #[inline(always)]
            fn minus(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline(always)]
            fn times(self, other: Self) -> Self { self.wrapping_mul(other) }
            #[inline(always)]
            fn over(self, other: Self) -> Self { if other == 0 { 0 } else { self.wrapping_div(other) } }
        }
        impl Ordered for $int {}
    )*};
}

macro_rules! inexact {
    ($($float:ty)*) => {$(
        impl Number for $float {
            #[inline(always)]
            fn plus(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn minus(self, other: Self) -> Self { self - other }
            #[inline(always)]
            fn times(self, other: Self) -> Self { self * other }
            #[inline(always)]
            fn over(self, other: Self) -> Self { self / other }
        }
    )*};
}

integers!(i8 i16 i32 i64 u8 u16 u32 u64);
inexact!(f32 f64 f16 bf16 Complex32 Complex64);

impl Ordered for f32 {}
impl Ordered for f64 {}
impl Ordered for f16 {}
impl Ordered for bf16 {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_wrap() {
        assert_eq!(i8::MAX.plus(1), i8::MIN);
        assert_eq!(0u16.minus(1), u16::MAX);
        assert_eq!(i32::MIN.over(-1), i32::MIN);
        assert_eq!(7i32.over(0), 0);
    }

    #[test]
    fn a_nan_stays_out_and_in() {
        assert_eq!(1f32.smaller(f32::NAN), 1.0);
        assert!(f32::NAN.larger(4.0).is_nan());
        assert_eq!(3u8.larger(4), 4);
    }
}
