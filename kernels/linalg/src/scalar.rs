//! The element types of linear algebra.

use graphmill_tensor::{Complex32, Complex64, DType, Element};
use num_traits::{Float, NumAssign};
use std::iter::Sum;

/// The types that nearly all ops of this family take.
pub(crate) const TYPES: &[DType] = &[DType::Complex128, DType::Complex64, DType::Double, DType::Float];
/// The types of ops without complex kernels.
pub(crate) const REALS: &[DType] = &[DType::Double, DType::Float];

/// A real or complex number of either precision.
pub(crate) trait Scalar:
    Element + num_complex::ComplexFloat<Real: Float + NumAssign + Element> + NumAssign + Sum
{
    /// The same kind of number in double precision.
    type Wide: Wide;

    fn from_real(value: Self::Real) -> Self;
    fn from_f64(value: f64) -> Self;
    fn widen(self) -> Self::Wide;
    fn narrow(value: Self::Wide) -> Self;
    fn to_complex(self) -> Complex64;
    /// The value as this type; a real type drops the imaginary part.
    fn from_complex(value: Complex64) -> Self;
}

/// A number of double precision.
pub(crate) trait Wide: Scalar + faer::traits::ComplexField<Real = f64> {
    fn real(self) -> f64;
    fn finite(self) -> bool;
}

impl Wide for f64 {
    fn real(self) -> f64 {
        self
    }

    fn finite(self) -> bool {
        self.is_finite()
    }
}

impl Wide for Complex64 {
    fn real(self) -> f64 {
        self.re
    }

    fn finite(self) -> bool {
        self.re.is_finite() && self.im.is_finite()
    }
}

macro_rules! real {
    ($($t:ty)*) => {$(
        impl Scalar for $t {
            type Wide = f64;

            fn from_real(value: $t) -> $t {
                value
            }

            fn from_f64(value: f64) -> $t {
                value as $t
            }

            fn widen(self) -> f64 {
                f64::from(self)
            }

            fn narrow(value: f64) -> $t {
                value as $t
            }

            fn to_complex(self) -> Complex64 {
                Complex64::new(f64::from(self), 0.0)
            }

            fn from_complex(value: Complex64) -> $t {
                value.re as $t
            }
        }
    )*};
}

macro_rules! complex {
    ($($t:ty, $part:ty;)*) => {$(
        impl Scalar for $t {
            type Wide = Complex64;

            fn from_real(value: $part) -> $t {
                <$t>::new(value, 0.0)
            }

            fn from_f64(value: f64) -> $t {
                <$t>::new(value as $part, 0.0)
            }

            fn widen(self) -> Complex64 {
                Complex64::new(f64::from(self.re), f64::from(self.im))
            }

            fn narrow(value: Complex64) -> $t {
                <$t>::new(value.re as $part, value.im as $part)
            }

            fn to_complex(self) -> Complex64 {
                self.widen()
            }

            fn from_complex(value: Complex64) -> $t {
                Self::narrow(value)
            }
        }
    )*};
}

real! { f32 f64 }
complex! { Complex32, f32; Complex64, f64; }
