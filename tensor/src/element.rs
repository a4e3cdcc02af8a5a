//! Rust types of tensor elements.
#![allow(unsafe_code)]

use crate::DType;
use crate::minifloat::{Format, Special};
use half::{bf16, f16};
use num_complex::{Complex32, Complex64};
use std::fmt;

/// A fixed-size element type.
///
/// # Safety
/// The type has no padding, no destructor, no alignment above 16, `size_of::<Self>() == Self::DTYPE.size()`, and every bit
/// pattern that [`crate::Buffer`] hands out for `DTYPE` is a valid value (all types take every pattern, but for `bool`, whose
/// buffers hold 0 and 1 only).
pub unsafe trait Element: Copy + Default + PartialEq + Send + Sync + fmt::Debug + 'static {
    /// The element type this Rust type stands for.
    const DTYPE: DType;
}

macro_rules! elements {
    ($($rust:ty => $dtype:ident),* $(,)?) => {$(
        // SAFETY: a plain number of the size in the table, asserted below.
        unsafe impl Element for $rust {
            const DTYPE: DType = DType::$dtype;
        }
    )*
        #[cfg(test)]
        mod sizes {
            use super::*;
            #[test]
            fn elements_have_the_size_of_their_type() {
                $(assert_eq!(std::mem::size_of::<$rust>(), DType::$dtype.size(), stringify!($rust));)*
            }
        }
    };
}

elements! {
    f32 => Float, f64 => Double, f16 => Half, bf16 => BFloat16, Complex32 => Complex64, Complex64 => Complex128,
    i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64, u8 => UInt8, u16 => UInt16, u32 => UInt32, u64 => UInt64, bool => Bool,
    QInt8 => QInt8, QUInt8 => QUInt8, QInt16 => QInt16, QUInt16 => QUInt16, QInt32 => QInt32,
    Int4 => Int4, UInt4 => UInt4, Int2 => Int2, UInt2 => UInt2,
    Float8E5M2 => Float8E5M2, Float8E4M3FN => Float8E4M3FN, Float8E4M3FNUZ => Float8E4M3FNUZ,
    Float8E4M3B11FNUZ => Float8E4M3B11FNUZ, Float8E5M2FNUZ => Float8E5M2FNUZ, Float4E2M1FN => Float4E2M1FN,
}

macro_rules! quantized {
    ($($name:ident($int:ty)),*) => {$(
        #[doc = concat!("A quantised value stored as `", stringify!($int), "`.")]
        #[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(transparent)]
        pub struct $name(pub $int);
    )*};
}

quantized!(QInt8(i8), QUInt8(u8), QInt16(i16), QUInt16(u16), QInt32(i32));

macro_rules! small_ints {
    ($($name:ident, $wide:ty, $bits:literal;)*) => {$(
        #[doc = concat!("A ", stringify!($bits), "-bit integer in the low bits of a byte; the upper bits mean nothing.")]
        #[derive(Clone, Copy, Default)]
        #[repr(transparent)]
        pub struct $name(u8);

        impl $name {
            /// Keeps the low bits of a number, as a cast does.
            pub fn new(value: $wide) -> Self {
                $name((value as u8) & ((1 << $bits) - 1))
            }

            /// The number.
            pub fn get(self) -> $wide {
                ((self.0 << (8 - $bits)) as $wide) >> (8 - $bits)
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.get() == other.get()
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                self.get().partial_cmp(&other.get())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.get(), f)
            }
        }
    )*};
}

small_ints! {
    Int4, i8, 4;
    UInt4, u8, 4;
    Int2, i8, 2;
    UInt2, u8, 2;
}

macro_rules! minifloats {
    ($($name:ident, $format:expr, $doc:literal;)*) => {$(
        #[doc = $doc]
        #[derive(Clone, Copy, Default)]
        #[repr(transparent)]
        pub struct $name(u8);

        impl $name {
            const FORMAT: Format = $format;

            /// The value with this bit pattern.
            pub fn from_bits(bits: u8) -> Self {
                $name(bits)
            }

            /// The bit pattern.
            pub fn to_bits(self) -> u8 {
                self.0
            }

            /// The nearest value, ties to even.
            pub fn from_f64(value: f64) -> Self {
                $name(Self::FORMAT.encode(value))
            }

            /// The value, exactly.
            pub fn to_f64(self) -> f64 {
                Self::FORMAT.decode(self.0)
            }
        }

        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.to_f64() == other.to_f64()
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                self.to_f64().partial_cmp(&other.to_f64())
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&self.to_f64(), f)
            }
        }
    )*};
}

minifloats! {
    Float8E5M2, Format { bits: 8, mantissa: 2, bias: 15, special: Special::Ieee }, "OFP8 E5M2: IEEE-like, with infinities.";
    Float8E4M3FN, Format { bits: 8, mantissa: 3, bias: 7, special: Special::NanOnly }, "OFP8 E4M3: finite and NaN.";
    Float8E4M3FNUZ, Format { bits: 8, mantissa: 3, bias: 8, special: Special::NanIsNegativeZero },
        "E4M3 with bias 8, one NaN and one zero.";
    Float8E4M3B11FNUZ, Format { bits: 8, mantissa: 3, bias: 11, special: Special::NanIsNegativeZero },
        "E4M3 with bias 11, one NaN and one zero.";
    Float8E5M2FNUZ, Format { bits: 8, mantissa: 2, bias: 16, special: Special::NanIsNegativeZero },
        "E5M2 with bias 16, one NaN and one zero.";
    Float4E2M1FN, Format { bits: 4, mantissa: 1, bias: 1, special: Special::Finite }, "MX E2M1: finite values only.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_bit_integers_ignore_the_upper_bits() {
        assert_eq!(Int4(0x0e).get(), -2);
        assert_eq!(Int4(0xfe), Int4(0x0e));
        assert_eq!(UInt4(0xf3).get(), 3);
        assert_eq!(Int4::new(9).get(), -7);
        assert_eq!(Int2::new(3).get(), -1);
        assert_eq!(UInt2::new(7).get(), 3);
    }
}
