//! `IsotonicRegression`: the nearest falling sequence.

use crate::cast::CastFrom;
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{Element, Result, bf16, f16};
use std::marker::PhantomData;

/// `IsotonicRegression(input) -> (output, segments)`: for each row the falling sequence of the least squared distance, by pooling
/// adjacent violators; and which pool each element is in.
struct Isotonic<T, U>(PhantomData<(T, U)>);

/// Elements that share their mean.
struct Pool {
    sum: f64,
    count: usize,
}

impl Pool {
    fn mean(&self) -> f64 {
        self.sum / self.count as f64
    }
}

impl<T: Element, U: Element + CastFrom<f64>> Kernel for Isotonic<T, U>
where
    f64: CastFrom<T>,
{
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        let shape = input.shape().clone();
        let width = shape.dims().last().copied().unwrap_or(1).max(1);
        let mut output = ctx.alloc_output(0, shape.clone())?;
        let mut segments = ctx.alloc_output(1, shape)?;
        let rows = input.as_slice::<T>()?.chunks_exact(width);
        let outputs = output.as_mut_slice::<U>()?.chunks_exact_mut(width);
        for ((x, y), ids) in rows.zip(outputs).zip(segments.as_mut_slice::<i32>()?.chunks_exact_mut(width)) {
            let mut pools: Vec<Pool> = Vec::with_capacity(width);
            for &x in x {
                let mut pool = Pool { sum: f64::cast_from(x), count: 1 };
                while let Some(last) = pools.pop_if(|last| pool.mean() > last.mean()) {
                    pool = Pool { sum: last.sum + pool.sum, count: last.count + pool.count };
                }
                pools.push(pool);
            }
            let mut start = 0;
            for (pool, id) in pools.iter().zip(0..) {
                y[start..start + pool.count].fill(U::cast_from(pool.mean()));
                ids[start..start + pool.count].fill(id);
                start += pool.count;
            }
        }
        ctx.set_output(0, output)?;
        ctx.set_output(1, segments)
    }
}

fn one<T: Element, U: Element + CastFrom<f64>>(r: &mut Registry)
where
    f64: CastFrom<T>,
{
    let entry = r.op("IsotonicRegression").types("T", &[T::DTYPE]).types("output_dtype", &[U::DTYPE]);
    entry.kernel(|_| Ok(Isotonic::<T, U>(PhantomData)));
}

pub(crate) fn register(r: &mut Registry) {
    one::<f16, f16>(r);
    one::<bf16, bf16>(r);
    one::<f32, f32>(r);
    one::<f64, f64>(r);
    one::<i8, f32>(r);
    one::<i16, f32>(r);
    one::<i32, f64>(r);
    one::<i64, f64>(r);
}
