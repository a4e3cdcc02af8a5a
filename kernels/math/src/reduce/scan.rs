//! `Cumsum` and `Cumprod`.

use crate::number::Number;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Complex32, Complex64};
use graphmill_tensor::{DType, Result, Tensor, bf16, f16, invalid_argument};
use std::marker::PhantomData;

/// Nanoseconds for an element.
const COST: f64 = 1.0;

/// Running sums or products along the axis in input 1. `exclusive` leaves an element out of its own result, `reverse` runs from
/// the end. 16-bit floats round at each step.
struct Scan<T, const PRODUCT: bool> {
    exclusive: bool,
    reverse: bool,
    element: PhantomData<T>,
}

impl<T: Number, const PRODUCT: bool> Scan<T, PRODUCT> {
    fn new(c: &Construction<'_>) -> Result<Self> {
        let (exclusive, reverse) = (c.attrs().bool("exclusive")?, c.attrs().bool("reverse")?);
        Ok(Scan { exclusive, reverse, element: PhantomData })
    }

    const START: T = if PRODUCT { T::ONE } else { T::ZERO };

    #[inline(always)]
    fn step(total: T, x: T) -> T {
        if PRODUCT { total.times(x) } else { total.plus(x) }
    }
}

pub(super) fn axis_of(axis: &Tensor, rank: usize) -> Result<usize> {
    if !axis.shape().is_scalar() {
        return Err(invalid_argument!("ScanOp: axis must be a scalar, not {}", axis.shape()));
    }
    let given = match axis.dtype() {
        DType::Int32 => i64::from(axis.scalar_value::<i32>()?),
        _ => axis.scalar_value::<i64>()?,
    };
    let rank = rank as i64;
    let axis = if given < 0 { given.saturating_add(rank) } else { given };
    if axis < 0 || axis >= rank {
        return Err(invalid_argument!("ScanOp: Expected scan axis in the range [{}, {rank}), but got {axis}", -rank));
    }
    Ok(axis as usize)
}

impl<T: Number, const PRODUCT: bool> Kernel for Scan<T, PRODUCT> {
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

impl<T: Number, const PRODUCT: bool> Scan<T, PRODUCT> {
    fn scan(&self, x: &[T], y: &mut [T], length: usize, inner: usize) {
        let row = |step: usize| (if self.reverse { length - 1 - step } else { step }) * inner;
        if inner == 1 {
            let mut total = Self::START;
            for i in (0..length).map(row) {
                let next = Self::step(total, x[i]);
                y[i] = if self.exclusive { total } else { next };
                total = next;
            }
            return;
        }
        let first = row(0);
        if self.exclusive {
            y[first..first + inner].fill(Self::START);
        } else {
            y[first..first + inner].copy_from_slice(&x[first..first + inner]);
        }
        for i in 1..length {
            let (before, now) = (row(i - 1), row(i));
            let taken = if self.exclusive { before } else { now };
            // The previous row of results and this one do not overlap; which comes first depends on the direction.
            let (done, fresh) = if before < now {
                let (head, tail) = y.split_at_mut(now);
                (&head[before..before + inner], &mut tail[..inner])
            } else {
                let (head, tail) = y.split_at_mut(before);
                (&tail[..inner], &mut head[now..now + inner])
            };
            for ((y, &total), &x) in fresh.iter_mut().zip(done).zip(&x[taken..taken + inner]) {
                *y = Self::step(total, x);
            }
        }
    }
}

fn ops<T: Number>(r: &mut Registry) {
    for index in [DType::Int32, DType::Int64] {
        r.op("Cumsum").types("T", &[T::DTYPE]).types("Tidx", &[index]).kernel(Scan::<T, false>::new);
        r.op("Cumprod").types("T", &[T::DTYPE]).types("Tidx", &[index]).kernel(Scan::<T, true>::new);
    }
}

pub(crate) fn register(r: &mut Registry) {
    ops::<f32>(r);
    ops::<f64>(r);
    ops::<f16>(r);
    ops::<bf16>(r);
    ops::<i8>(r);
    ops::<i16>(r);
    ops::<i32>(r);
    ops::<i64>(r);
    ops::<u8>(r);
    ops::<u16>(r);
    ops::<u32>(r);
    ops::<u64>(r);
    ops::<Complex32>(r);
    ops::<Complex64>(r);
}
