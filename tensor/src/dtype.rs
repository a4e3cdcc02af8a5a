//! Element types by TensorFlow's numbers.

use crate::{Result, invalid_argument};
use std::fmt;

macro_rules! dtypes {
    ($($variant:ident = $number:literal, $name:literal, $size:literal, $doc:literal;)*) => {
        /// An element type of a tensor, numbered as `tensorflow.DataType`. Reference forms are [`SlotType`]s.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DType {
            $(#[doc = $doc] $variant = $number,)*
        }

        impl DType {
            /// Every element type, in the order of the numbers.
            pub const ALL: &'static [DType] = &[$(DType::$variant),*];

            /// The name as TensorFlow prints it, such as `float`.
            pub fn name(self) -> &'static str {
                match self { $(DType::$variant => $name),* }
            }

            /// Bytes of an element in memory and on the wire; 0 for strings, resources and variants.
            pub fn size(self) -> usize {
                match self { $(DType::$variant => $size),* }
            }

            /// The element type with this number, if it is one; reference forms are not.
            pub fn from_number(number: i32) -> Option<DType> {
                match number { $($number => Some(DType::$variant),)* _ => None }
            }
        }
    };
}

dtypes! {
    Float = 1, "float", 4, "IEEE 754 binary32.";
    Double = 2, "double", 8, "IEEE 754 binary64.";
    Int32 = 3, "int32", 4, "Signed 32-bit integer.";
    UInt8 = 4, "uint8", 1, "Unsigned 8-bit integer.";
    Int16 = 5, "int16", 2, "Signed 16-bit integer.";
    Int8 = 6, "int8", 1, "Signed 8-bit integer.";
    String = 7, "string", 0, "A string of bytes.";
    Complex64 = 8, "complex64", 8, "Two binary32: real and imaginary part.";
    Int64 = 9, "int64", 8, "Signed 64-bit integer.";
    Bool = 10, "bool", 1, "A truth value in one byte.";
    QInt8 = 11, "qint8", 1, "Quantised signed 8-bit integer.";
    QUInt8 = 12, "quint8", 1, "Quantised unsigned 8-bit integer.";
    QInt32 = 13, "qint32", 4, "Quantised signed 32-bit integer.";
    BFloat16 = 14, "bfloat16", 2, "The upper half of a binary32.";
    QInt16 = 15, "qint16", 2, "Quantised signed 16-bit integer.";
    QUInt16 = 16, "quint16", 2, "Quantised unsigned 16-bit integer.";
    UInt16 = 17, "uint16", 2, "Unsigned 16-bit integer.";
    Complex128 = 18, "complex128", 16, "Two binary64: real and imaginary part.";
    Half = 19, "half", 2, "IEEE 754 binary16.";
    Resource = 20, "resource", 0, "A handle of a resource.";
    Variant = 21, "variant", 0, "A value of a type of its own.";
    UInt32 = 22, "uint32", 4, "Unsigned 32-bit integer.";
    UInt64 = 23, "uint64", 8, "Unsigned 64-bit integer.";
    Float8E5M2 = 24, "float8_e5m2", 1, "8-bit float with 5 exponent bits and infinities.";
    Float8E4M3FN = 25, "float8_e4m3fn", 1, "8-bit float with 4 exponent bits, without infinities.";
    Float8E4M3FNUZ = 26, "float8_e4m3fnuz", 1, "8-bit float, 4 exponent bits, bias 8, one NaN, no negative zero.";
    Float8E4M3B11FNUZ = 27, "float8_e4m3b11fnuz", 1, "8-bit float, 4 exponent bits, bias 11, one NaN, no negative zero.";
    Float8E5M2FNUZ = 28, "float8_e5m2fnuz", 1, "8-bit float, 5 exponent bits, bias 16, one NaN, no negative zero.";
    Int4 = 29, "int4", 1, "Signed 4-bit integer, one to a byte.";
    UInt4 = 30, "uint4", 1, "Unsigned 4-bit integer, one to a byte.";
    Int2 = 31, "int2", 1, "Signed 2-bit integer, one to a byte.";
    UInt2 = 32, "uint2", 1, "Unsigned 2-bit integer, one to a byte.";
    Float4E2M1FN = 33, "float4_e2m1fn", 1, "4-bit float with 2 exponent bits, one to a byte.";
}

/// Sets of types that many kernels are registered for.
impl DType {
    /// The floats of 16, 32 and 64 bits.
    pub const FLOATS: &'static [DType] = &[DType::BFloat16, DType::Double, DType::Float, DType::Half];

    /// The types of indices.
    pub const INDICES: &'static [DType] = &[DType::Int32, DType::Int64];

    /// The quantised types.
    pub const QUANTIZED: &'static [DType] =
        &[DType::QInt16, DType::QInt32, DType::QInt8, DType::QUInt16, DType::QUInt8];

    /// Floats and integers of 8 bits and more: TensorFlow's `REAL_NUMBER_TYPES`.
    pub const REALS: &'static [DType] = &[
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

    /// Reals and complex numbers: TensorFlow's `NUMBER_TYPES`.
    pub const NUMBERS: &'static [DType] = &[
        DType::BFloat16,
        DType::Complex128,
        DType::Complex64,
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

    /// Numbers and truth values: TensorFlow's `POD_TYPES`.
    pub const NUMBERS_AND_BOOL: &'static [DType] = &[
        DType::BFloat16,
        DType::Bool,
        DType::Complex128,
        DType::Complex64,
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

    /// Numbers, truth values, strings, resources and variants: TensorFlow's `ALL_TYPES`.
    pub const COMMON: &'static [DType] = &[
        DType::BFloat16,
        DType::Bool,
        DType::Complex128,
        DType::Complex64,
        DType::Double,
        DType::Float,
        DType::Half,
        DType::Int16,
        DType::Int32,
        DType::Int64,
        DType::Int8,
        DType::Resource,
        DType::String,
        DType::UInt16,
        DType::UInt32,
        DType::UInt64,
        DType::UInt8,
        DType::Variant,
    ];
}

impl DType {
    /// `tensorflow.DataType`'s number.
    pub fn number(self) -> i32 {
        self as i32
    }

    /// Whether elements have one size and no destructor (not strings, resources, variants).
    pub fn is_fixed_size(self) -> bool {
        self.size() != 0
    }

    /// Whether this is a real floating-point type.
    pub fn is_floating(self) -> bool {
        use DType::*;
        matches!(
            self,
            Float
                | Double
                | Half
                | BFloat16
                | Float8E5M2
                | Float8E4M3FN
                | Float8E4M3FNUZ
                | Float8E4M3B11FNUZ
                | Float8E5M2FNUZ
                | Float4E2M1FN
        )
    }

    /// Whether this is `complex64` or `complex128`.
    pub fn is_complex(self) -> bool {
        matches!(self, DType::Complex64 | DType::Complex128)
    }

    /// Whether this is an integer type (quantised types are not).
    pub fn is_integer(self) -> bool {
        use DType::*;
        matches!(self, Int8 | Int16 | Int32 | Int64 | UInt8 | UInt16 | UInt32 | UInt64 | Int4 | UInt4 | Int2 | UInt2)
    }

    /// Whether this is a quantised integer type.
    pub fn is_quantized(self) -> bool {
        use DType::*;
        matches!(self, QInt8 | QUInt8 | QInt16 | QUInt16 | QInt32)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The type of a node's input or output: an element type, by value or by reference (`DT_FLOAT_REF`, ...).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SlotType {
    /// The element type.
    pub dtype: DType,
    /// Whether the slot carries a reference to a variable.
    pub is_ref: bool,
}

impl SlotType {
    /// A slot that carries values.
    pub fn value(dtype: DType) -> SlotType {
        SlotType { dtype, is_ref: false }
    }

    /// A slot that carries a reference.
    pub fn reference(dtype: DType) -> SlotType {
        SlotType { dtype, is_ref: true }
    }

    /// The slot type with this number of `tensorflow.DataType`.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for `DT_INVALID` and unknown numbers.
    pub fn from_number(number: i32) -> Result<SlotType> {
        let (base, is_ref) = if number > 100 { (number - 100, true) } else { (number, false) };
        match DType::from_number(base) {
            Some(dtype) => Ok(SlotType { dtype, is_ref }),
            None => Err(invalid_argument!("{number} is not a data type")),
        }
    }

    /// `tensorflow.DataType`'s number: that of the element type, plus 100 for references.
    pub fn number(self) -> i32 {
        self.dtype.number() + if self.is_ref { 100 } else { 0 }
    }
}

impl fmt::Display for SlotType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.dtype.name())?;
        f.write_str(if self.is_ref { "_ref" } else { "" })
    }
}

impl From<DType> for SlotType {
    fn from(dtype: DType) -> SlotType {
        SlotType::value(dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_types_are_one_to_one() {
        for &dtype in DType::ALL {
            assert_eq!(DType::from_number(dtype.number()), Some(dtype));
            let reference = SlotType::from_number(dtype.number() + 100).unwrap();
            assert_eq!(reference, SlotType::reference(dtype));
            assert_eq!(reference.to_string(), format!("{dtype}_ref"));
        }
        for bad in [-1, 0, 34, 100, 134, i32::MIN, i32::MAX] {
            assert!(SlotType::from_number(bad).is_err(), "{bad}");
        }
    }
}
