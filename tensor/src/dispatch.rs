//! From an element type at run time to a Rust type at compile time.

/// Runs an expression with `T` as the Rust type of a [`crate::DType`].
///
/// `dispatch!(dtype, T in [f32, f64, i32] => expression)` is an `Option` of the expression's value: `None` for a type that is not in
/// the list. Instead of Rust types in brackets a set's name may stand: `floats` (f16, bf16, f32, f64), `integers` (all eight),
/// `reals` (both), `numbers` (reals and complex), `quantized`, `numbers_and_bool`, and `all` (every type of a fixed size).
///
/// ```
/// use graphmill_tensor::{DType, dispatch};
/// let size = dispatch!(DType::Int16, T in reals => std::mem::size_of::<T>());
/// assert_eq!(size, Some(2));
/// ```
#[macro_export]
macro_rules! dispatch {
    ($dtype:expr, $T:ident in [$($rust:ty),+ $(,)?] => $body:expr) => {{
        let dtype: $crate::DType = $dtype;
        $(if dtype == <$rust as $crate::Element>::DTYPE {
            type $T = $rust;
            Some($body)
        } else)+ {
            None
        }
    }};
    ($dtype:expr, $T:ident in floats => $body:expr) => {
        $crate::dispatch!($dtype, $T in [f32, f64, $crate::f16, $crate::bf16] => $body)
    };
    ($dtype:expr, $T:ident in integers => $body:expr) => {
        $crate::dispatch!($dtype, $T in [i32, i64, u8, i8, i16, u16, u32, u64] => $body)
    };
    ($dtype:expr, $T:ident in reals => $body:expr) => {
        $crate::dispatch!($dtype, $T in [f32, f64, i32, i64, u8, i8, i16, u16, u32, u64, $crate::f16, $crate::bf16] => $body)
    };
    ($dtype:expr, $T:ident in numbers => $body:expr) => {
        $crate::dispatch!($dtype, $T in [
            f32, f64, i32, i64, u8, i8, i16, u16, u32, u64, $crate::f16, $crate::bf16, $crate::Complex32, $crate::Complex64
        ] => $body)
    };
    ($dtype:expr, $T:ident in numbers_and_bool => $body:expr) => {
        $crate::dispatch!($dtype, $T in [
            f32, f64, i32, i64, u8, i8, i16, u16, u32, u64, $crate::f16, $crate::bf16, $crate::Complex32, $crate::Complex64, bool
        ] => $body)
    };
    ($dtype:expr, $T:ident in quantized => $body:expr) => {
        $crate::dispatch!($dtype, $T in [$crate::QInt8, $crate::QUInt8, $crate::QInt16, $crate::QUInt16, $crate::QInt32] => $body)
    };
    ($dtype:expr, $T:ident in all => $body:expr) => {
        $crate::dispatch!($dtype, $T in [
            f32, f64, i32, i64, u8, i8, i16, u16, u32, u64, $crate::f16, $crate::bf16, $crate::Complex32, $crate::Complex64, bool,
            $crate::QInt8, $crate::QUInt8, $crate::QInt16, $crate::QUInt16, $crate::QInt32,
            $crate::Int4, $crate::UInt4, $crate::Int2, $crate::UInt2,
            $crate::Float8E5M2, $crate::Float8E4M3FN, $crate::Float8E4M3FNUZ, $crate::Float8E4M3B11FNUZ, $crate::Float8E5M2FNUZ,
            $crate::Float4E2M1FN
        ] => $body)
    };
}

#[cfg(test)]
mod tests {
    use crate::{DType, Element};

    #[test]
    fn every_fixed_size_type_is_reached_once() {
        for &dtype in DType::ALL {
            assert_eq!(dispatch!(dtype, T in all => T::DTYPE), dtype.is_fixed_size().then_some(dtype));
        }
        assert_eq!(dispatch!(DType::Bool, T in numbers => size_of::<T>()), None);
    }
}
