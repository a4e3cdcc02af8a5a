//! What the tables of ops ask of an element type.

use graphmill_tensor::{Complex32, Complex64, Element, bf16, f16};

/// A 16-bit float, computed with in `f32`. The conversions have no branches, so that loops over them become vector code.
pub(crate) trait Half: Element {
    /// The value, exactly.
    fn widen(self) -> f32;
    /// The nearest value, ties to even.
    fn narrow(value: f32) -> Self;
}

impl Half for bf16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn narrow(value: f32) -> bf16 {
        let bits = value.to_bits();
        let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
        let nan = (bits >> 16) | 0x40;
        bf16::from_bits(if value.is_nan() { nan } else { rounded } as u16)
    }
}

impl Half for f16 {
    #[inline(always)]
    fn widen(self) -> f32 {
        let bits = u32::from(self.to_bits());
        let magnitude = bits & 0x7fff;
        // Rebased to the wider exponent. A subnormal gets an exponent of 1 and loses the implicit bit that this adds by a
        // subtraction of normal numbers, which works where the processor takes subnormal operands as 0, too.
        let rebased = (magnitude << 13) + ((127 - 15) << 23);
        let subnormal = f32::from_bits(rebased + (1 << 23)) - f32::from_bits((127 - 14) << 23);
        let special = (magnitude << 13) | 0x7f80_0000;
        let value = if magnitude >= 0x7c00 {
            special
        } else if magnitude < 0x400 {
            subnormal.to_bits()
        } else {
            rebased
        };
        f32::from_bits(value | ((bits & 0x8000) << 16))
    }

    #[inline(always)]
    fn narrow(value: f32) -> f16 {
        // After Fabian Giesen, "float->half variants", float_to_half_fast3_rtne.
        const DENORMAL: u32 = ((127 - 15) + (23 - 10) + 1) << 23;
        let sign = value.to_bits() & 0x8000_0000;
        let bits = value.to_bits() ^ sign;
        let special = if bits > 0x7f80_0000 { 0x7e00 } else { 0x7c00 };
        let denormal = (f32::from_bits(bits) + f32::from_bits(DENORMAL)).to_bits().wrapping_sub(DENORMAL);
        let normal = bits.wrapping_sub((127 - 15) << 23).wrapping_add(0xfff + ((bits >> 13) & 1)) >> 13;
        let magnitude = if bits >= (127 + 16) << 23 {
            special
        } else if bits < 113 << 23 {
            denormal
        } else {
            normal
        };
        f16::from_bits((magnitude | (sign >> 16)) as u16)
    }
}

/// Arithmetic as TensorFlow's kernels do it: integers wrap, 16-bit floats round after each operation.
pub(crate) trait Number: Element {
    /// The type in which sums are kept: `f32` for 16-bit floats, else the type itself.
    type Sum: Number;
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// `self + other`.
    fn plus(self, other: Self) -> Self;
    /// `self - other`.
    fn minus(self, other: Self) -> Self;
    /// `self * other`.
    fn times(self, other: Self) -> Self;
    /// Into the type of sums.
    fn to_sum(self) -> Self::Sum;
    /// Back from it.
    fn from_sum(sum: Self::Sum) -> Self;
    /// The complex conjugate; real numbers are their own.
    fn conjugate(self) -> Self {
        self
    }
}

macro_rules! number {
    ($($t:ty: $zero:expr, $one:expr, $plus:expr, $minus:expr, $times:expr;)*) => {$(
        impl Number for $t {
            type Sum = $t;
            const ZERO: $t = $zero;
            const ONE: $t = $one;
            #[inline(always)]
            fn plus(self, other: $t) -> $t { $plus(self, other) }
            #[inline(always)]
            fn minus(self, other: $t) -> $t { $minus(self, other) }
            #[inline(always)]
            fn times(self, other: $t) -> $t { $times(self, other) }
            #[inline(always)]
            fn to_sum(self) -> $t { self }
            #[inline(always)]
            fn from_sum(sum: $t) -> $t { sum }
        }
    )*};
}

macro_rules! integer {
    ($($t:ident)*) => {
        number! { $($t: 0, 1, $t::wrapping_add, $t::wrapping_sub, $t::wrapping_mul;)* }
    };
}

use std::ops::{Add, Mul, Sub};

number! {
    f32: 0.0, 1.0, Add::add, Sub::sub, Mul::mul;
    f64: 0.0, 1.0, Add::add, Sub::sub, Mul::mul;
}
integer! { i8 i16 i32 i64 u8 u16 u32 u64 }

macro_rules! complex {
    ($($t:ty),*) => {$(
        impl Number for $t {
            type Sum = $t;
            const ZERO: $t = <$t>::new(0.0, 0.0);
            const ONE: $t = <$t>::new(1.0, 0.0);
            #[inline(always)]
            fn plus(self, other: $t) -> $t { self + other }
            #[inline(always)]
            fn minus(self, other: $t) -> $t { self - other }
            #[inline(always)]
            fn times(self, other: $t) -> $t { self * other }
            #[inline(always)]
            fn to_sum(self) -> $t { self }
            #[inline(always)]
            fn from_sum(sum: $t) -> $t { sum }
            #[inline(always)]
            fn conjugate(self) -> $t { self.conj() }
        }
    )*};
}

complex!(Complex32, Complex64);

macro_rules! half {
    ($($t:ty),*) => {$(
        impl Number for $t {
            type Sum = f32;
            const ZERO: $t = <$t>::ZERO;
            const ONE: $t = <$t>::ONE;
            #[inline(always)]
            fn plus(self, other: $t) -> $t { Half::narrow(self.widen() + other.widen()) }
            #[inline(always)]
            fn minus(self, other: $t) -> $t { Half::narrow(self.widen() - other.widen()) }
            #[inline(always)]
            fn times(self, other: $t) -> $t { Half::narrow(self.widen() * other.widen()) }
            #[inline(always)]
            fn to_sum(self) -> f32 { self.widen() }
            #[inline(always)]
            fn from_sum(sum: f32) -> $t { Half::narrow(sum) }
        }
    )*};
}

half!(f16, bf16);

/// A number with an order.
pub(crate) trait Ordered: Element {
    /// The least value; for floats negative infinity.
    const LOWEST: Self;
    /// The greatest value; for floats infinity.
    const HIGHEST: Self;
    /// The least finite value.
    const LEAST_FINITE: Self;
    /// The greatest finite value.
    const GREATEST_FINITE: Self;
    /// Whether `self > other`.
    fn above(self, other: Self) -> bool;
    /// Whether this is not a number.
    fn nan(self) -> bool;

    /// The greater one, or a NaN if there is one; of equal ones `other`, which zeros of both signs are.
    #[inline(always)]
    fn greater(self, other: Self) -> Self {
        if self.above(other) || self.nan() { self } else { other }
    }

    /// The lesser one, or a NaN if there is one; of equal ones `other`.
    #[inline(always)]
    fn lesser(self, other: Self) -> Self {
        if other.above(self) || self.nan() { self } else { other }
    }
}

macro_rules! ordered_float {
    ($($t:ty),*) => {$(
        impl Ordered for $t {
            const LOWEST: $t = <$t>::NEG_INFINITY;
            const HIGHEST: $t = <$t>::INFINITY;
            const LEAST_FINITE: $t = <$t>::MIN;
            const GREATEST_FINITE: $t = <$t>::MAX;
            #[inline(always)]
            fn above(self, other: $t) -> bool { self > other }
            #[inline(always)]
            fn nan(self) -> bool { self.is_nan() }
        }
    )*};
}

macro_rules! ordered_half {
    ($($t:ty),*) => {$(
        impl Ordered for $t {
            const LOWEST: $t = <$t>::NEG_INFINITY;
            const HIGHEST: $t = <$t>::INFINITY;
            const LEAST_FINITE: $t = <$t>::MIN;
            const GREATEST_FINITE: $t = <$t>::MAX;
            #[inline(always)]
            fn above(self, other: $t) -> bool { self.widen() > other.widen() }
            #[inline(always)]
            fn nan(self) -> bool { self.is_nan() }
        }
    )*};
}

macro_rules! ordered_integer {
    ($($t:ty),*) => {$(
        impl Ordered for $t {
            const LOWEST: $t = <$t>::MIN;
            const HIGHEST: $t = <$t>::MAX;
            const LEAST_FINITE: $t = <$t>::MIN;
            const GREATEST_FINITE: $t = <$t>::MAX;
            #[inline(always)]
            fn above(self, other: $t) -> bool { self > other }
            #[inline(always)]
            fn nan(self) -> bool { false }
        }
    )*};
}

ordered_float!(f32, f64);
ordered_half!(f16, bf16);
ordered_integer!(i8, i16, i32, i64, u8, u16, u32, u64);

impl Ordered for bool {
    const LOWEST: bool = false;
    const HIGHEST: bool = true;
    const LEAST_FINITE: bool = false;
    const GREATEST_FINITE: bool = true;
    #[inline(always)]
    fn above(self, other: bool) -> bool {
        self & !other
    }
    #[inline(always)]
    fn nan(self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_convert_as_the_half_crate_does() {
        for bits in 0..=u16::MAX {
            let (a, b) = (f16::from_bits(bits), bf16::from_bits(bits));
            assert!(a.widen() == a.to_f32() || a.is_nan() && a.widen().is_nan());
            assert!(b.widen() == b.to_f32() || b.is_nan() && b.widen().is_nan());
            let around = [0u32, 1, 0x0fff, 0x1000, 0x1001, 0x1fff, 0x7fff, 0x8000, 0x8001, 0xffff];
            for low in around {
                let value = f32::from_bits((u32::from(bits) << 16) | low);
                let (ours, theirs) = (<f16 as Half>::narrow(value), f16::from_f32(value));
                assert!(ours.to_bits() == theirs.to_bits() || value.is_nan() && ours.is_nan(), "{value}");
                let (ours, theirs) = (<bf16 as Half>::narrow(value), bf16::from_f32(value));
                assert!(ours.to_bits() == theirs.to_bits() || value.is_nan() && ours.is_nan(), "{value}");
            }
        }
    }

    #[test]
    fn nan_wins_in_any_order() {
        assert!(f32::NAN.greater(1.0).is_nan() && 1.0f32.greater(f32::NAN).is_nan());
        assert!(f64::NAN.lesser(1.0).is_nan() && 1.0f64.lesser(f64::NAN).is_nan());
        assert_eq!(3i32.greater(4), 4);
        assert_eq!(3u8.lesser(4), 3);
    }
}
