//! `Range` and `LinSpace`.

use crate::number::{Half, Number};
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Result, Shape, Tensor, bf16, f16, invalid_argument};
use std::cmp::Ordering;
use std::fmt::Display;
use std::marker::PhantomData;

/// Numbers that a `Range` can run over.
trait Steps: Number + PartialOrd {
    /// How a message shows a number.
    type Shown: Display;

    /// The number of steps of `delta` from `start` to `limit`, `None` if it does not fit. The direction is known to be right.
    fn count(start: Self, limit: Self, delta: Self) -> Option<i64>;

    /// The number of a step.
    fn index(i: usize) -> Self;

    /// For a message.
    fn shown(self) -> Self::Shown;
}

macro_rules! integer_steps {
    ($($t:ty),*) => {$(
        impl Steps for $t {
            type Shown = $t;

            fn count(start: $t, limit: $t, delta: $t) -> Option<i64> {
                let distance = (i128::from(limit) - i128::from(start)).abs();
                let step = i128::from(delta).abs();
                i64::try_from((distance + step - 1).checked_div(step)?).ok()
            }

            fn index(i: usize) -> $t {
                i as $t
            }

            fn shown(self) -> $t {
                self
            }
        }
    )*};
}

integer_steps!(i32, i64);

macro_rules! float_steps {
    ($($t:ty, $wide:ty, $widen:expr, $narrow:expr;)*) => {$(
        impl Steps for $t {
            type Shown = General;

            fn count(start: $t, limit: $t, delta: $t) -> Option<i64> {
                let (start, limit, delta): ($wide, $wide, $wide) = ($widen(start), $widen(limit), $widen(delta));
                let distance = $widen($narrow(limit - start));
                let steps: $wide = $widen($narrow(distance / delta)).abs().ceil();
                // 2^63 is exact in every float type that can hold it.
                if steps < 9_223_372_036_854_775_808.0 { Some(steps as i64) } else { None }
            }

            fn index(i: usize) -> $t {
                $narrow(i as $wide)
            }

            fn shown(self) -> General {
                General(f64::from($widen(self)))
            }
        }
    )*};
}

float_steps! {
    f32, f32, |x: f32| x, |x: f32| x;
    f64, f64, |x: f64| x, |x: f64| x;
    f16, f32, <f16 as Half>::widen, <f16 as Half>::narrow;
    bf16, f32, <bf16 as Half>::widen, <bf16 as Half>::narrow;
}

/// A float as C++ streams print it: six digits, without trailing zeros.
struct General(f64);

impl Display for General {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0.is_nan() {
            return f.write_str("nan");
        }
        if self.0.is_infinite() || self.0 == 0.0 {
            return write!(f, "{}", self.0);
        }
        let text = format!("{:.5e}", self.0);
        let Some((digits, exponent)) = text.split_once('e') else { return f.write_str(&text) };
        let exponent: i32 = exponent.parse().map_err(|_| std::fmt::Error)?;
        if (-5..6).contains(&exponent) {
            let decimals = usize::try_from(5 - exponent).unwrap_or(0);
            let fixed = format!("{:.decimals$}", self.0);
            let short = if fixed.contains('.') { fixed.trim_end_matches('0').trim_end_matches('.') } else { &fixed };
            f.write_str(short)
        } else {
            let digits = digits.trim_end_matches('0').trim_end_matches('.');
            write!(f, "{digits}e{}{:02}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
        }
    }
}

/// `Range`: from input 0 up or down to input 1, which is left out, in steps of input 2.
struct RangeOp<T>(PhantomData<T>);

/// The number in a scalar, or in a vector of one element as old graphs have it.
fn number<T: Element>(input: &Tensor, name: &str) -> Result<T> {
    let shape = input.shape();
    if !(shape.is_scalar() || shape.is_vector() && shape.dim(0) == 1) {
        return Err(invalid_argument!("{name} must be a scalar, not shape {shape}"));
    }
    input.scalar_value()
}

impl<T: Steps> Kernel for RangeOp<T> {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let start: T = number(ctx.input(0)?, "start")?;
        let limit: T = number(ctx.input(1)?, "limit")?;
        let delta: T = number(ctx.input(2)?, "delta")?;
        if delta == T::ZERO {
            return Err(invalid_argument!("Requires delta != 0: {}", delta.shown()));
        }
        // Each comparison is false for NaN, which is an error in every place.
        let rising = delta > T::ZERO;
        if rising && start.partial_cmp(&limit).is_none_or(Ordering::is_gt) {
            return Err(invalid_argument!(
                "Requires start <= limit when delta > 0: {}/{}",
                start.shown(),
                limit.shown()
            ));
        }
        let falling = delta < T::ZERO && start >= limit;
        if !rising && !falling {
            return Err(invalid_argument!(
                "Requires start >= limit when delta < 0: {}/{}",
                start.shown(),
                limit.shown()
            ));
        }
        let Some(size) = T::count(start, limit, delta) else {
            return Err(invalid_argument!("Requires ((limit - start) / delta) <= {}", i64::MAX));
        };
        let mut out = ctx.alloc_output(0, Shape::new(&[size])?)?;
        for (i, y) in out.as_mut_slice::<T>()?.iter_mut().enumerate() {
            *y = start.plus(T::index(i).times(delta));
        }
        ctx.set_output(0, out)
    }
}

/// `LinSpace`: input 2 many numbers at equal distances from input 0 to input 1, both included.
struct LinSpace<T>(PhantomData<T>);

macro_rules! lin_space {
    ($($t:ty),*) => {$(
        impl Kernel for LinSpace<$t> {
            fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
                for (i, name) in ["start", "stop", "num"].into_iter().enumerate() {
                    let shape = ctx.input(i)?.shape();
                    if !shape.is_scalar() {
                        return Err(invalid_argument!("{name} must be a scalar, not shape {shape}"));
                    }
                }
                let (start, stop) = (ctx.input(0)?.scalar_value::<$t>()?, ctx.input(1)?.scalar_value::<$t>()?);
                let count = ctx.input(2)?;
                let count = match count.dtype() {
                    DType::Int32 => i64::from(count.scalar_value::<i32>()?),
                    _ => count.scalar_value::<i64>()?,
                };
                if count <= 0 {
                    return Err(invalid_argument!("Requires num > 0: {count}"));
                }
                let mut out = ctx.alloc_output(0, Shape::new(&[count])?)?;
                let y = out.as_mut_slice::<$t>()?;
                let step = if count > 1 { (stop - start) / (count - 1) as $t } else { 0.0 };
                for (i, y) in y.iter_mut().enumerate() {
                    *y = start + step * i as $t;
                }
                if let [_, .., last] = y {
                    *last = stop;
                }
                ctx.set_output(0, out)
            }
        }
    )*};
}

lin_space!(f32, f64);

fn range<T: Steps>(r: &mut Registry) {
    r.op("Range").types("Tidx", &[T::DTYPE]).kernel(|_| Ok(RangeOp::<T>(PhantomData)));
}

pub(crate) fn register(r: &mut Registry) {
    range::<f32>(r);
    range::<f64>(r);
    range::<f16>(r);
    range::<bf16>(r);
    range::<i32>(r);
    range::<i64>(r);
    for index in [DType::Int32, DType::Int64] {
        let entry = r.op("LinSpace").types("T", &[DType::Float]).types("Tidx", &[index]);
        entry.kernel(|_| Ok(LinSpace::<f32>(PhantomData)));
        let entry = r.op("LinSpace").types("T", &[DType::Double]).types("Tidx", &[index]);
        entry.kernel(|_| Ok(LinSpace::<f64>(PhantomData)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_in_cpp() {
        let shown = |x: f64| General(x).to_string();
        assert_eq!(shown(10.0), "10");
        assert_eq!(shown(0.123_456_78), "0.123457");
        assert_eq!(shown(1.5e10), "1.5e+10");
        assert_eq!(shown(-1e-7), "-1e-07");
        assert_eq!(shown(123_456.7), "123457");
        assert_eq!(shown(1_234_567.0), "1.23457e+06");
        assert_eq!(shown(f64::NAN), "nan");
        assert_eq!(shown(0.0), "0");
    }

    #[test]
    fn counts_do_not_overflow() {
        assert_eq!(i64::count(i64::MIN, i64::MAX, 1), None);
        assert_eq!(i64::count(i64::MIN, i64::MAX, 1 << 62), Some(4));
        assert_eq!(i64::count(0, i64::MIN, i64::MIN), Some(1));
        assert_eq!(f32::count(0.0, 1e30, 1e-30), None);
        assert_eq!(f32::count(0.0, 1.0, f32::INFINITY), Some(0));
        assert_eq!(f64::count(0.0, f64::INFINITY, 1.0), None);
    }
}
