//! `CumulativeLogsumexp`: running logarithms of sums of exponentials.

use super::scan::axis_of;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Result, bf16, f16};
use std::marker::PhantomData;

/// Nanoseconds for an element.
const COST: f64 = 20.0;

pub(crate) fn register(r: &mut Registry) {
    ops::<f32>(r);
    ops::<f64>(r);
    ops::<f16>(r);
    ops::<bf16>(r);
}

fn ops<T: Real>(r: &mut Registry) {
    for index in [DType::Int32, DType::Int64] {
        r.op("CumulativeLogsumexp").types("T", &[T::DTYPE]).types("Tidx", &[index]).kernel(LogScan::<T>::new);
    }
}

/// A real number, with the type that its logarithms are computed in.
trait Real: Element {
    fn wide(self) -> f64;
    fn narrow(value: f64) -> Self;
    /// `ln(exp(a) + exp(b))` as exact as the type is.
    fn add_logarithms(a: f64, b: f64) -> f64;
}

/// The larger one goes in front, so that nothing overflows; two numbers that stand for zero make one. Comparisons keep the
/// first of two numbers that do not compare, as TensorFlow's do: NaN next to zero is passed over.
macro_rules! add_logarithms {
    ($float:ty) => {
        fn add_logarithms(a: f64, b: f64) -> f64 {
            let (a, b) = (a as $float, b as $float);
            let (low, high) = (if b < a { b } else { a }, if a < b { b } else { a });
            let sum = if high < <$float>::MIN { high } else { (low - high).exp().ln_1p() + high };
            sum as f64
        }
    };
}

impl Real for f64 {
    fn wide(self) -> f64 {
        self
    }
    fn narrow(value: f64) -> f64 {
        value
    }
    add_logarithms!(f64);
}

impl Real for f32 {
    fn wide(self) -> f64 {
        f64::from(self)
    }
    fn narrow(value: f64) -> f32 {
        value as f32
    }
    add_logarithms!(f32);
}

macro_rules! halves {
    ($($T:ty),*) => {$(
        impl Real for $T {
            fn wide(self) -> f64 {
                f64::from(self)
            }
            fn narrow(value: f64) -> $T {
                <$T>::from_f64(value)
            }
            add_logarithms!(f32);
        }
    )*};
}

halves!(f16, bf16);

struct LogScan<T> {
    exclusive: bool,
    reverse: bool,
    element: PhantomData<T>,
}

impl<T: Real> LogScan<T> {
    fn new(c: &Construction<'_>) -> Result<Self> {
        let (exclusive, reverse) = (c.attrs().bool("exclusive")?, c.attrs().bool("reverse")?);
        Ok(LogScan { exclusive, reverse, element: PhantomData })
    }

    fn scan(&self, x: &[T], y: &mut [T], length: usize, inner: usize) {
        for column in 0..inner {
            let mut total = f64::NEG_INFINITY;
            for step in 0..length {
                let at = (if self.reverse { length - 1 - step } else { step }) * inner + column;
                let next = T::add_logarithms(total, x[at].wide());
                y[at] = T::narrow(if self.exclusive { total } else { next });
                total = next;
            }
        }
    }
}

impl<T: Real> Kernel for LogScan<T> {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        let shape = input.shape();
        let axis = axis_of(ctx.input(1)?, shape.rank())?;
        let (length, inner) = (shape.dim(axis), shape.stride(axis));
        let x = input.as_slice::<T>()?;
        let mut out = ctx.alloc_output(0, shape.clone())?;
        let slab = length * inner;
        ctx.parallel_chunks(out.as_mut_slice::<T>()?, slab, COST * slab as f64, |range, part| {
            let x = &x[range.start * slab..range.end * slab];
            for (x, y) in x.chunks_exact(slab).zip(part.chunks_exact_mut(slab)) {
                self.scan(x, y, length, inner);
            }
        });
        ctx.set_output(0, out)
    }
}
