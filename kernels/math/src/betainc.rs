//! `Betainc`.

use crate::cast::CastFrom;
use crate::special::betainc;
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{Element, Result, invalid_argument};
use std::marker::PhantomData;

/// Nanoseconds for an element.
const COST: f64 = 300.0;

/// The regularised incomplete beta function of three tensors of one shape, of which some may be scalars.
struct Betainc<T>(PhantomData<T>);

impl<T: Element + CastFrom<f64>> Kernel for Betainc<T>
where
    f64: CastFrom<T>,
{
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let inputs = [ctx.input(0)?, ctx.input(1)?, ctx.input(2)?];
        let names = ["a", "b", "x"];
        for (i, j) in [(0, 1), (0, 2), (1, 2)] {
            let (first, second) = (inputs[i].shape(), inputs[j].shape());
            if !first.is_scalar() && !second.is_scalar() && first != second {
                return Err(invalid_argument!(
                    "Shapes of {} and {} are inconsistent: {first} vs. {second}",
                    names[i],
                    names[j]
                ));
            }
        }
        let shape = inputs.iter().map(|t| t.shape()).find(|s| !s.is_scalar()).unwrap_or(inputs[0].shape());
        let mut out = ctx.alloc_output(0, shape.clone())?;
        let [a, b, x] = inputs.map(|t| t.as_slice::<T>().map(|values| (values, usize::from(!t.shape().is_scalar()))));
        let (a, b, x) = (a?, b?, x?);
        let at = |(values, step): (&[T], usize), i: usize| f64::cast_from(values[i * step]);
        ctx.parallel_chunks(out.as_mut_slice::<T>()?, 1, COST, |range, part| {
            for (i, y) in range.zip(part) {
                *y = T::cast_from(betainc(at(a, i), at(b, i), at(x, i)));
            }
        });
        ctx.set_output(0, out)
    }
}

pub(crate) fn register(r: &mut Registry) {
    r.op("Betainc").types("T", &[f32::DTYPE]).kernel(|_| Ok(Betainc::<f32>(PhantomData)));
    r.op("Betainc").types("T", &[f64::DTYPE]).kernel(|_| Ok(Betainc::<f64>(PhantomData)));
}
