//! Numbers that images are made of.

use graphmill_tensor::{DType, Element, bf16, f16};

/// Element types of images.
pub(crate) const REALS: [DType; 12] = [
    DType::BFloat16,
    DType::Double,
    DType::Float,
    DType::Half,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::Int8,
    DType::UInt16,
    DType::UInt32,
    DType::UInt64,
    DType::UInt8,
];

/// A real number that converts to and from `f32` as a cast does.
pub(crate) trait Real: Element {
    /// The nearest `f32`.
    fn to_f32(self) -> f32;
    /// A cast from `f32`.
    fn from_f32(value: f32) -> Self;
    /// The nearest `f64`.
    fn to_f64(self) -> f64;
    /// A cast from `f64`.
    fn from_f64(value: f64) -> Self;
}

macro_rules! plain {
    ($($T:ty),*) => {$(
        impl Real for $T {
            #[inline(always)]
            fn to_f32(self) -> f32 {
                self as f32
            }

            #[inline(always)]
            fn from_f32(value: f32) -> Self {
                value as $T
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $T
            }
        }
    )*};
}

plain!(f32, f64, i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! half {
    ($($T:ty),*) => {$(
        impl Real for $T {
            #[inline(always)]
            fn to_f32(self) -> f32 {
                <$T>::to_f32(self)
            }

            #[inline(always)]
            fn from_f32(value: f32) -> Self {
                <$T>::from_f32(value)
            }

            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(<$T>::to_f32(self))
            }

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                <$T>::from_f32(value as f32)
            }
        }
    )*};
}

half!(f16, bf16);
