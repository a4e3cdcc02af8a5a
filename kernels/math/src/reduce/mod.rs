//! Reductions.

mod arg;
mod engine;
mod log_scan;
mod plan;
mod scan;

use crate::cast::CastFrom;
use crate::number::{Number, Ordered};
use engine::{Reducer, reduce};
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{Complex32, Complex64, DType, Element, Result, Tensor, bf16, f16};
use num_complex::Complex;
use plan::Plan;
use std::marker::PhantomData;

/// A reduction of input 0 over the axes in input 1; attribute `keep_dims`.
///
/// Over no elements it yields the value that changes nothing: 0 for `Sum`, 1 for `Prod`, the lowest value for `Max`, NaN for
/// `Mean` of real floats.
struct Reduction<T, R> {
    keep_dims: bool,
    /// Whether the reduction of one element is that element.
    keeps_one: bool,
    reducer: PhantomData<(T, R)>,
}

impl<T: Element, R: Reducer<T>> Kernel for Reduction<T, R> {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let plan = Plan::new(ctx.input(0)?.shape(), ctx.input(1)?, self.keep_dims)?;
        let out = if plan.reduced.is_empty() && self.keeps_one {
            ctx.take_input(0)?.into_shape(plan.shape)?
        } else {
            reduce::<T, R>(ctx, &plan, ctx.input(0)?)?
        };
        ctx.set_output(0, out)
    }
}

fn op<T: Element, R: Reducer<T>>(r: &mut Registry, op: &'static str) {
    for index in [DType::Int32, DType::Int64] {
        let entry = r.op(op).types("Tidx", &[index]);
        let entry = if T::DTYPE == DType::Bool { entry } else { entry.types("T", &[T::DTYPE]) };
        entry.kernel(move |c| {
            Ok(Reduction::<T, R> {
                keep_dims: c.attrs().bool("keep_dims")?,
                keeps_one: op != "EuclideanNorm",
                reducer: PhantomData,
            })
        });
    }
}

struct Sum;

impl<T: Number> Reducer<T> for Sum {
    type Partial = T::Sum;
    const EMPTY: T::Sum = T::Sum::ZERO;

    #[inline(always)]
    fn feed(partial: T::Sum, x: T) -> T::Sum {
        partial.plus(x.to_sum())
    }

    #[inline(always)]
    fn merge(a: T::Sum, b: T::Sum) -> T::Sum {
        a.plus(b)
    }

    fn finish(partial: T::Sum, _: usize) -> T {
        T::from_sum(partial)
    }
}

struct Prod;

impl<T: Number> Reducer<T> for Prod {
    type Partial = T::Sum;
    const EMPTY: T::Sum = T::Sum::ONE;

    #[inline(always)]
    fn feed(partial: T::Sum, x: T) -> T::Sum {
        partial.times(x.to_sum())
    }

    #[inline(always)]
    fn merge(a: T::Sum, b: T::Sum) -> T::Sum {
        a.times(b)
    }

    fn finish(partial: T::Sum, _: usize) -> T {
        T::from_sum(partial)
    }
}

/// The greatest element; NaN if there is one.
struct Max;

impl<T: Ordered> Reducer<T> for Max {
    type Partial = T;
    const EMPTY: T = T::LOWEST;

    #[inline(always)]
    fn feed(partial: T, x: T) -> T {
        partial.greater(x)
    }

    #[inline(always)]
    fn merge(a: T, b: T) -> T {
        a.greater(b)
    }

    fn finish(partial: T, _: usize) -> T {
        partial
    }
}

/// The least element; NaN if there is one.
struct Min;

impl<T: Ordered> Reducer<T> for Min {
    type Partial = T;
    const EMPTY: T = T::HIGHEST;

    #[inline(always)]
    fn feed(partial: T, x: T) -> T {
        partial.lesser(x)
    }

    #[inline(always)]
    fn merge(a: T, b: T) -> T {
        a.lesser(b)
    }

    fn finish(partial: T, _: usize) -> T {
        partial
    }
}

/// The sum divided by the number of elements; small integers are added up in 64 bits.
struct Mean;

macro_rules! mean {
    ($($t:ty, $sum:ty, $divide:expr;)*) => {$(
        impl Reducer<$t> for Mean {
            type Partial = $sum;
            const EMPTY: $sum = <$sum as Number>::ZERO;

            #[inline(always)]
            fn feed(partial: $sum, x: $t) -> $sum {
                partial.plus(<$sum as CastFrom<$t>>::cast_from(x))
            }

            #[inline(always)]
            fn merge(a: $sum, b: $sum) -> $sum {
                a.plus(b)
            }

            fn finish(partial: $sum, count: usize) -> $t {
                $divide(partial, count)
            }
        }
    )*};
}

mean! {
    f32, f32, |s: f32, n: usize| s / n as f32;
    f64, f64, |s: f64, n: usize| s / n as f64;
    f16, f32, |s: f32, n: usize| <f16 as CastFrom<f32>>::cast_from(s / n as f32);
    bf16, f32, |s: f32, n: usize| <bf16 as CastFrom<f32>>::cast_from(s / n as f32);
    Complex32, Complex32, |s: Complex32, n: usize| if n == 0 { s } else { s / n as f32 };
    Complex64, Complex64, |s: Complex64, n: usize| if n == 0 { s } else { s / n as f64 };
    i8, i64, |s: i64, n: usize| s.checked_div(n as i64).unwrap_or(0) as i8;
    i16, i64, |s: i64, n: usize| s.checked_div(n as i64).unwrap_or(0) as i16;
    i32, i64, |s: i64, n: usize| s.checked_div(n as i64).unwrap_or(0) as i32;
    i64, i64, |s: i64, n: usize| s.checked_div(n as i64).unwrap_or(0);
    u8, u64, |s: u64, n: usize| s.checked_div(n as u64).unwrap_or(0) as u8;
    u16, u64, |s: u64, n: usize| s.checked_div(n as u64).unwrap_or(0) as u16;
    u32, u64, |s: u64, n: usize| s.checked_div(n as u64).unwrap_or(0) as u32;
    u64, u64, |s: u64, n: usize| s.checked_div(n as u64).unwrap_or(0);
}

/// The square root of the sum of squared moduli. Integers square and add up in their own type.
struct EuclideanNorm;

/// The square root of a sum of squares.
trait Root: Number {
    fn root(self) -> Self;
}

macro_rules! root {
    ($($t:ty),*) => {$(
        impl Root for $t {
            fn root(self) -> $t {
                <$t as CastFrom<f64>>::cast_from(<f64 as CastFrom<$t>>::cast_from(self).sqrt())
            }
        }
    )*};
}

root!(f32, f64, i8, i16, i32, i64, u8, u16, u32, u64);

macro_rules! root_complex {
    ($($t:ty),*) => {$(
        impl Root for Complex<$t> {
            fn root(self) -> Complex<$t> {
                self.sqrt()
            }
        }
    )*};
}

root_complex!(f32, f64);

impl<T: Number<Sum: Root>> Reducer<T> for EuclideanNorm {
    type Partial = T::Sum;
    const EMPTY: T::Sum = T::Sum::ZERO;

    #[inline(always)]
    fn feed(partial: T::Sum, x: T) -> T::Sum {
        let x = x.to_sum();
        partial.plus(x.times(x.conjugate()))
    }

    #[inline(always)]
    fn merge(a: T::Sum, b: T::Sum) -> T::Sum {
        a.plus(b)
    }

    fn finish(partial: T::Sum, _: usize) -> T {
        T::from_sum(partial.root())
    }
}

/// Half of the sum of squares, as a scalar.
struct HalfSquares;

macro_rules! half_squares {
    ($($t:ty),*) => {$(
        impl Reducer<$t> for HalfSquares {
            type Partial = <$t as Number>::Sum;
            const EMPTY: Self::Partial = 0.0;

            #[inline(always)]
            fn feed(partial: Self::Partial, x: $t) -> Self::Partial {
                let x = x.to_sum();
                partial + x * x
            }

            #[inline(always)]
            fn merge(a: Self::Partial, b: Self::Partial) -> Self::Partial {
                a + b
            }

            fn finish(partial: Self::Partial, _: usize) -> $t {
                <$t as Number>::from_sum(partial * 0.5)
            }
        }
    )*};
}

half_squares!(f32, f64, f16, bf16);

struct L2Loss<T>(PhantomData<T>);

impl<T: Element> Kernel for L2Loss<T>
where
    HalfSquares: Reducer<T>,
{
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        let flat = input.reshaped(graphmill_tensor::Shape::vector(input.num_elements()))?;
        let plan = Plan::new(flat.shape(), &Tensor::vector(&[0i32])?, false)?;
        let out = reduce::<T, HalfSquares>(ctx, &plan, &flat)?;
        ctx.set_output(0, out)
    }
}

/// Whether one, or every, element is true.
struct Truth<const ALL: bool>;

impl<const ALL: bool> Reducer<bool> for Truth<ALL> {
    type Partial = bool;
    const EMPTY: bool = ALL;

    #[inline(always)]
    fn feed(partial: bool, x: bool) -> bool {
        Self::merge(partial, x)
    }

    #[inline(always)]
    fn merge(a: bool, b: bool) -> bool {
        if ALL { a & b } else { a | b }
    }

    fn finish(partial: bool, _: usize) -> bool {
        partial
    }
}

fn number<T: Number<Sum: Root>>(r: &mut Registry)
where
    Mean: Reducer<T>,
{
    op::<T, Sum>(r, "Sum");
    op::<T, Prod>(r, "Prod");
    op::<T, Mean>(r, "Mean");
    op::<T, EuclideanNorm>(r, "EuclideanNorm");
}

fn real<T: Number<Sum: Root> + Ordered>(r: &mut Registry)
where
    Mean: Reducer<T>,
{
    number::<T>(r);
    op::<T, Max>(r, "Max");
    op::<T, Min>(r, "Min");
}

pub(crate) fn register(r: &mut Registry) {
    real::<f32>(r);
    real::<f64>(r);
    real::<f16>(r);
    real::<bf16>(r);
    real::<i8>(r);
    real::<i16>(r);
    real::<i32>(r);
    real::<i64>(r);
    real::<u8>(r);
    real::<u16>(r);
    real::<u32>(r);
    real::<u64>(r);
    number::<Complex32>(r);
    number::<Complex64>(r);
    op::<bool, Truth<false>>(r, "Any");
    op::<bool, Truth<true>>(r, "All");
    r.op("L2Loss").types("T", &[DType::Float]).kernel(|_| Ok(L2Loss::<f32>(PhantomData)));
    r.op("L2Loss").types("T", &[DType::Double]).kernel(|_| Ok(L2Loss::<f64>(PhantomData)));
    r.op("L2Loss").types("T", &[DType::Half]).kernel(|_| Ok(L2Loss::<f16>(PhantomData)));
    r.op("L2Loss").types("T", &[DType::BFloat16]).kernel(|_| Ok(L2Loss::<bf16>(PhantomData)));
    arg::register(r);
    scan::register(r);
    log_scan::register(r);
}
