//! Arithmetic on the types of elements: integers wrap, floats and complex numbers are as usual.

use graphmill_tensor::{Complex32, Complex64, Element, bf16, f16};

/// A number of any type.
pub(crate) trait Number: Element {
    /// What sums are kept in.
    type Sum: Copy + Send;
    fn plus(self, other: Self) -> Self;
    fn times(self, other: Self) -> Self;
    /// Division; of integers, the divisor is not zero.
    fn over(self, other: Self) -> Self;
    fn conjugate(self) -> Self;
    /// Zero, to start a sum with.
    fn no_sum() -> Self::Sum;
    fn add_to(self, sum: Self::Sum) -> Self::Sum;
    fn from_sum(sum: Self::Sum) -> Self;
}

macro_rules! integers {
    ($($rust:ty),*) => {$(
        impl Number for $rust {
            type Sum = $rust;
            fn plus(self, other: Self) -> Self { self.wrapping_add(other) }
            fn times(self, other: Self) -> Self { self.wrapping_mul(other) }
            fn over(self, other: Self) -> Self { self.checked_div(other).unwrap_or(self) }
            fn conjugate(self) -> Self { self }
            fn no_sum() -> Self { 0 }
            fn add_to(self, sum: Self) -> Self { sum.wrapping_add(self) }
            fn from_sum(sum: Self) -> Self { sum }
        }
    )*};
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! floats {
    ($($rust:ty, $conjugate:expr;)*) => {$(
        impl Number for $rust {
            type Sum = $rust;
            fn plus(self, other: Self) -> Self { self + other }
            fn times(self, other: Self) -> Self { self * other }
            fn over(self, other: Self) -> Self { self / other }
            fn conjugate(self) -> Self { let f: fn($rust) -> $rust = $conjugate; f(self) }
            fn no_sum() -> Self { <$rust>::default() }
            fn add_to(self, sum: Self) -> Self { sum + self }
            fn from_sum(sum: Self) -> Self { sum }
        }
    )*};
}

floats! {
    f32, |v| v;
    f64, |v| v;
    Complex32, |v| v.conj();
    Complex64, |v| v.conj();
}

macro_rules! halves {
    ($($rust:ty),*) => {$(
        impl Number for $rust {
            type Sum = f32;
            fn plus(self, other: Self) -> Self { self + other }
            fn times(self, other: Self) -> Self { self * other }
            fn over(self, other: Self) -> Self { self / other }
            fn conjugate(self) -> Self { self }
            fn no_sum() -> f32 { 0.0 }
            fn add_to(self, sum: f32) -> f32 { sum + self.to_f32() }
            fn from_sum(sum: f32) -> Self { <$rust>::from_f32(sum) }
        }
    )*};
}

halves!(f16, bf16);
