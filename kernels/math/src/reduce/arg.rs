//! `ArgMax` and `ArgMin`: where along an axis the greatest or least element is. NaN never is; of equal ones the first.

use crate::number::Ordered;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Result, Shape, Tensor, bf16, dispatch, f16, internal, invalid_argument};
use smallvec::SmallVec;
use std::marker::PhantomData;

/// Nanoseconds for an element.
const COST: f64 = 1.0;
/// TensorFlow's limit on the number of dimensions.
const MAX_RANK: usize = 7;

/// Input 0 is the tensor, input 1 the axis; attribute `output_type`.
struct ArgExtreme<T, const MAX: bool>(PhantomData<T>);

impl<T: Ordered, const MAX: bool> ArgExtreme<T, MAX> {
    fn new(_: &Construction<'_>) -> Result<Self> {
        Ok(ArgExtreme(PhantomData))
    }

    #[inline(always)]
    fn beats(x: T, best: T) -> bool {
        if MAX { x.above(best) } else { best.above(x) }
    }

    /// What the first element has to beat.
    const START: T = if MAX { T::LEAST_FINITE } else { T::GREATEST_FINITE };
}

/// An index as the output holds it; too large ones wrap.
trait Index: Element {
    fn from_usize(index: usize) -> Self;
}

macro_rules! index {
    ($($t:ty),*) => {$(
        impl Index for $t {
            fn from_usize(index: usize) -> $t {
                index as $t
            }
        }
    )*};
}

index!(i16, u16, i32, i64);

/// The axis in the scalar input `i`, counted from the front.
///
/// # Errors
/// `INVALID_ARGUMENT` if it is not a scalar or does not exist.
fn axis_of(axis: &Tensor, shape: &Shape) -> Result<(i64, usize)> {
    let rank = shape.rank() as i64;
    if !axis.shape().is_scalar() {
        return Err(invalid_argument!("dim must be a scalar, but received tensor of shape: {}", axis.shape()));
    }
    let value = match axis.dtype() {
        DType::Int16 => i64::from(axis.scalar_value::<i16>()?),
        DType::Int32 => i64::from(axis.scalar_value::<i32>()?),
        _ => axis.scalar_value::<i64>()?,
    };
    if value < -rank || value >= rank {
        return Err(invalid_argument!("Expected dimension in the range [{}, {rank}), but got {value}", -rank));
    }
    Ok((value, (if value < 0 { value + rank } else { value }) as usize))
}

impl<T: Ordered, const MAX: bool> Kernel for ArgExtreme<T, MAX> {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        let shape = input.shape();
        let (given, axis) = axis_of(ctx.input(1)?, shape)?;
        if shape.dim(axis) == 0 {
            return Err(invalid_argument!("Reduction axis {given} is empty in shape {shape}"));
        }
        let mut dims: SmallVec<[usize; 8]> = SmallVec::from_slice(shape.dims());
        dims.remove(axis);
        let mut out = ctx.alloc_output(0, Shape::from_dims(&dims)?)?;
        if out.num_elements() > 0 && shape.rank() > MAX_RANK {
            return Err(invalid_argument!(
                "Argmax and Argmin only support up to {MAX_RANK} input dimensions, but got {}. Inputs shape: {shape}",
                shape.rank()
            ));
        }
        let x = input.as_slice::<T>()?;
        let (length, inner) = (shape.dim(axis), shape.stride(axis));
        let found = dispatch!(out.dtype(), I in [i16, u16, i32, i64] => {
            search::<T, I, MAX>(ctx, x, length, inner, out.as_mut_slice::<I>()?);
        });
        found.ok_or_else(|| internal!("indices of type {} are not known", out.dtype()))?;
        ctx.set_output(0, out)
    }
}

fn search<T: Ordered, I: Index, const MAX: bool>(
    ctx: &Context<'_>,
    x: &[T],
    length: usize,
    inner: usize,
    out: &mut [I],
) {
    let cost = COST * length as f64;
    if inner == 1 {
        ctx.parallel_chunks(out, 1, cost, |range, part| {
            for (row, y) in range.zip(part) {
                let mut best = (ArgExtreme::<T, MAX>::START, 0);
                for (i, &x) in x[row * length..(row + 1) * length].iter().enumerate() {
                    if ArgExtreme::<T, MAX>::beats(x, best.0) {
                        best = (x, i);
                    }
                }
                *y = I::from_usize(best.1);
            }
        });
        return;
    }
    // Columns are searched side by side, so that the elements are read in the order in which they lie.
    const WIDTH: usize = 64;
    ctx.parallel_chunks(out, 1, cost, |range, part| {
        let (mut at, mut part) = (range.start, part);
        while !part.is_empty() {
            let (outer, column) = (at / inner, at % inner);
            let width = part.len().min(inner - column).min(WIDTH);
            let mut best = [ArgExtreme::<T, MAX>::START; WIDTH];
            let (done, rest) = part.split_at_mut(width);
            done.fill(I::from_usize(0));
            for i in 0..length {
                let start = (outer * length + i) * inner + column;
                for ((y, best), &x) in done.iter_mut().zip(&mut best).zip(&x[start..start + width]) {
                    if ArgExtreme::<T, MAX>::beats(x, *best) {
                        *best = x;
                        *y = I::from_usize(i);
                    }
                }
            }
            part = rest;
            at += width;
        }
    });
}

fn ops<T: Ordered>(r: &mut Registry) {
    for index in [DType::Int16, DType::UInt16, DType::Int32, DType::Int64] {
        r.op("ArgMax").types("T", &[T::DTYPE]).types("output_type", &[index]).kernel(ArgExtreme::<T, true>::new);
    }
    for index in [DType::Int32, DType::Int64] {
        r.op("ArgMin").types("T", &[T::DTYPE]).types("output_type", &[index]).kernel(ArgExtreme::<T, false>::new);
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
    ops::<bool>(r);
}
