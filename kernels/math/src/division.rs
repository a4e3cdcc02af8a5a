//! Division, remainder and power of integers, which can fail.

use crate::elementwise::Binary;
use crate::isa::call2;
use crate::number::Number;
use graphmill_runtime::Registry;
use graphmill_tensor::{Element, Result, Status, internal, invalid_argument};

/// Nanoseconds for a division.
const COST: f64 = 2.0;

fn no_zero<T: Number>(divisors: &[T]) -> Result<()> {
    if divisors.contains(&T::ZERO) { Err(invalid_argument!("Integer division by zero")) } else { Ok(()) }
}

/// As [`no_zero`], with the status that TensorFlow has for the truncating ops.
fn no_zero_internal<T: Number>(divisors: &[T]) -> Result<()> {
    no_zero(divisors).map_err(|_: Status| {
        internal!("Unexpected error in binary operator (only integer div and mod should have errors)")
    })
}

fn no_negative<T: Number + PartialOrd>(exponents: &[T]) -> Result<()> {
    if exponents.iter().any(|e| *e < T::ZERO) {
        Err(invalid_argument!("Integers to negative integer powers are not allowed"))
    } else {
        Ok(())
    }
}

/// Integer division. A divisor of 0, which the checks keep out, gives 0.
trait Integer: Number {
    /// Towards 0.
    fn quotient(self, by: Self) -> Self;
    /// The rest of [`Integer::quotient`], with the sign of `self`.
    fn rest(self, by: Self) -> Self;
    /// Towards negative infinity.
    fn floor_quotient(self, by: Self) -> Self;
    /// The rest of [`Integer::floor_quotient`], with the sign of `by`.
    fn floor_rest(self, by: Self) -> Self;
}

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl Integer for $t {
            #[inline(always)]
            fn quotient(self, by: $t) -> $t {
                if by == 0 { 0 } else { self.wrapping_div(by) }
            }

            #[inline(always)]
            fn rest(self, by: $t) -> $t {
                if by == 0 { 0 } else { self.wrapping_rem(by) }
            }

            #[inline(always)]
            #[allow(unused_comparisons)]
            fn floor_quotient(self, by: $t) -> $t {
                let rest = self.rest(by);
                let quotient = self.quotient(by);
                if rest != 0 && (rest < 0) != (by < 0) { quotient - 1 } else { quotient }
            }

            #[inline(always)]
            #[allow(unused_comparisons)]
            fn floor_rest(self, by: $t) -> $t {
                let rest = self.rest(by);
                if rest != 0 && (rest < 0) != (by < 0) { rest + by } else { rest }
            }
        }
    )*};
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64);

/// `base` to the power `exponent`, which is not negative, by squaring; wraps.
fn power<T: Number + Into<i64>>(base: T, exponent: T) -> T {
    let (mut result, mut base, mut exponent) = (T::ONE, base, exponent.into());
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = result.times(base);
        }
        base = base.times(base);
        exponent >>= 1;
    }
    result
}

fn op<T: Number>(
    registry: &mut Registry,
    op: &'static str,
    f: impl Fn(T, T) -> T + Copy + Send + Sync + 'static,
    check: fn(&[T]) -> Result<()>,
) {
    registry.op(op).types("T", &[<T as Element>::DTYPE]).kernel(move |_| Ok(Binary::checked(COST, call2(f), check)));
}

fn division<T: Integer>(r: &mut Registry) {
    op::<T>(r, "Div", T::quotient, no_zero);
    op::<T>(r, "FloorDiv", T::floor_quotient, no_zero);
    op::<T>(r, "FloorMod", T::floor_rest, no_zero);
    op::<T>(r, "TruncateDiv", T::quotient, no_zero_internal);
}

fn remainder<T: Integer>(r: &mut Registry) {
    op::<T>(r, "Mod", T::rest, no_zero);
    op::<T>(r, "TruncateMod", T::rest, no_zero_internal);
}

pub(crate) fn register(r: &mut Registry) {
    division::<i8>(r);
    division::<i16>(r);
    division::<i32>(r);
    division::<i64>(r);
    division::<u8>(r);
    division::<u16>(r);
    division::<u32>(r);
    division::<u64>(r);
    remainder::<i32>(r);
    remainder::<i64>(r);
    op::<i8>(r, "Pow", power, no_negative);
    op::<i16>(r, "Pow", power, no_negative);
    op::<i32>(r, "Pow", power, no_negative);
    op::<i64>(r, "Pow", power, no_negative);
}
