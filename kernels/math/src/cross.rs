//! `Cross`.

use crate::number::Number;
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{Result, bf16, f16, failed_precondition, invalid_argument};
use std::marker::PhantomData;

/// Nanoseconds for a vector.
const COST: f64 = 3.0;

/// The cross product of the three-element vectors in the last dimension of two tensors of one shape.
struct Cross<T>(PhantomData<T>);

impl<T: Number> Kernel for Cross<T> {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (a, b) = (ctx.input(0)?, ctx.input(1)?);
        let shape = a.shape();
        if shape != b.shape() {
            return Err(invalid_argument!("Both inputs must be of same shape: {shape} vs. {}", b.shape()));
        }
        let Some(&last) = shape.dims().last() else {
            return Err(invalid_argument!("Input must be at least 1D{shape}"));
        };
        if last != 3 {
            return Err(failed_precondition!("Cross-products are only defined for 3-element vectors."));
        }
        let mut out = ctx.alloc_output(0, shape.clone())?;
        let (a, b) = (a.as_slice::<T>()?, b.as_slice::<T>()?);
        ctx.parallel_chunks(out.as_mut_slice::<T>()?, 3, COST, |range, part| {
            let range = range.start * 3..range.end * 3;
            let pairs = a[range.clone()].chunks_exact(3).zip(b[range].chunks_exact(3));
            for (y, (a, b)) in part.chunks_exact_mut(3).zip(pairs) {
                let term = |i: usize, j: usize| a[i].times(b[j]).minus(a[j].times(b[i]));
                y.copy_from_slice(&[term(1, 2), term(2, 0), term(0, 1)]);
            }
        });
        ctx.set_output(0, out)
    }
}

fn op<T: Number>(r: &mut Registry) {
    r.op("Cross").types("T", &[T::DTYPE]).kernel(|_| Ok(Cross::<T>(PhantomData)));
}

pub(crate) fn register(r: &mut Registry) {
    op::<f32>(r);
    op::<f64>(r);
    op::<f16>(r);
    op::<bf16>(r);
    op::<i8>(r);
    op::<i16>(r);
    op::<i32>(r);
    op::<i64>(r);
    op::<u8>(r);
    op::<u16>(r);
    op::<u32>(r);
    op::<u64>(r);
}
