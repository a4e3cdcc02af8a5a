//! Positions in sorted rows, ranks, and histograms: `LowerBound`, `UpperBound`, `NthElement`, `HistogramFixedWidth`.

use crate::cast::CastFrom;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Result, Shape, Tensor, dispatch, internal, invalid_argument};
use std::cmp::Ordering;

/// `LowerBound(sorted_inputs, values)`, `UpperBound(..)`: for each value the first position in its row of the sorted input where
/// it could be put in, or the last one.
struct Bound {
    upper: bool,
}

impl Kernel for Bound {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (sorted, values) = (ctx.input(0)?, ctx.input(1)?);
        if sorted.shape().rank() < 2 {
            return Err(invalid_argument!("sorted input argument must be a matrix"));
        }
        if values.shape().rank() < 2 {
            return Err(invalid_argument!("values argument must be a matrix"));
        }
        if sorted.shape().dim(0) != values.shape().dim(0) {
            return Err(invalid_argument!("Leading dim_size of both tensors must match."));
        }
        if i32::try_from(values.num_elements()).is_err() {
            return Err(invalid_argument!("values tensor size must less than INT_MAX"));
        }
        let (length, width) = (sorted.shape().dim(1), values.shape().dim(1));
        let narrow = ctx.output_type(0)? == DType::Int32;
        if narrow && i32::try_from(length).is_err() {
            return Err(invalid_argument!(
                "trailing dim_size must less than INT_MAX for int32 output type, was {length}"
            ));
        }
        let mut out = ctx.alloc_output(0, values.shape().clone())?;
        let positions = dispatch!(sorted.dtype(), T in reals => {
            let (sorted, values) = (sorted.as_slice::<T>()?, values.as_slice::<T>()?);
            let rows = values.chunks(width.max(1)).enumerate();
            rows.flat_map(|(row, values)| {
                let sorted = sorted.get(row * length..(row + 1) * length).unwrap_or(&[]);
                values.iter().map(move |v| {
                    if self.upper { sorted.partition_point(|s| v >= s) } else { sorted.partition_point(|s| s < v) }
                })
            })
            .collect::<Vec<usize>>()
        })
        .ok_or_else(|| internal!("no order of {}", sorted.dtype()))?;
        if narrow {
            let target = out.as_mut_slice::<i32>()?;
            target.iter_mut().zip(positions).for_each(|(t, p)| *t = p as i32);
        } else {
            let target = out.as_mut_slice::<i64>()?;
            target.iter_mut().zip(positions).for_each(|(t, p)| *t = p as i64);
        }
        ctx.set_output(0, out)
    }
}

/// `NthElement(input, n)`: the element of rank `n` in each row.
struct NthElement {
    reverse: bool,
}

impl Kernel for NthElement {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (input, n) = (ctx.input(0)?, ctx.input(1)?);
        if !n.shape().is_scalar() {
            return Err(invalid_argument!("N must be scalar but has rank {}", n.shape().rank()));
        }
        let n = n.scalar_value::<i32>()?;
        let Ok(rank) = usize::try_from(n) else {
            return Err(invalid_argument!("n must be non-negative but is {n}"));
        };
        let Some((&length, outer)) = input.shape().dims().split_last() else {
            return Err(invalid_argument!("Input must be at least rank 1 but is rank 0"));
        };
        if length <= rank {
            return Err(invalid_argument!("Input must have last dimension > n = {n}"));
        }
        let rank = if self.reverse { length - rank - 1 } else { rank };
        let mut out = ctx.alloc_output(0, Shape::from_dims(outer)?)?;
        dispatch!(input.dtype(), T in reals => {
            let x = input.as_slice::<T>()?;
            ctx.parallel_chunks(out.as_mut_slice::<T>()?, 1, length as f64 * 5.0, |range, part| {
                for (row, out) in range.zip(part) {
                    let mut row = x[row * length..(row + 1) * length].to_vec();
                    let order = |a: &T, b: &T| a.partial_cmp(b).unwrap_or(Ordering::Equal);
                    *out = *row.select_nth_unstable_by(rank, order).1;
                }
            });
        })
        .ok_or_else(|| internal!("no order of {}", input.dtype()))?;
        ctx.set_output(0, out)
    }
}

/// `HistogramFixedWidth(values, value_range, nbins)`: how many values are in each of equal bins; the first and the last bin take
/// what is outside.
struct Histogram;

impl Histogram {
    fn counts<T: Element + PartialOrd>(ctx: &Context<'_>) -> Result<Vec<i64>>
    where
        f64: CastFrom<T>,
    {
        let (values, range, bins) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        if !range.shape().is_vector() {
            return Err(invalid_argument!("value_range should be a vector."));
        }
        let &[low, high] = range.as_slice::<T>()? else {
            return Err(invalid_argument!("value_range should be a vector of 2 elements."));
        };
        if !bins.shape().is_scalar() {
            return Err(invalid_argument!("nbins should be a scalar."));
        }
        let bins = bins.scalar_value::<i32>()?;
        let (from, to) = (f64::cast_from(low), f64::cast_from(high));
        if low.partial_cmp(&high) != Some(Ordering::Less) {
            return Err(invalid_argument!(
                "value_range should satisfy value_range[0] < value_range[1], but got '[{from}, {to}]'"
            ));
        }
        let Some(count) = usize::try_from(bins).ok().filter(|&count| count > 0) else {
            return Err(invalid_argument!("nbins should be a positive number, but got '{bins}'"));
        };
        let step = (to - from) / f64::from(bins);
        let mut counts = Tensor::zeros(DType::Int64, Shape::vector(count))?;
        let slots = counts.as_mut_slice::<i64>()?;
        for &value in values.as_slice::<T>()? {
            let value = if value < low { from } else { f64::cast_from(value) };
            let bin = ((value - from) / step).min(f64::from(bins - 1)) as usize;
            if let Some(slot) = slots.get_mut(bin) {
                *slot += 1;
            }
        }
        Ok(slots.to_vec())
    }
}

impl Kernel for Histogram {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let dtype = ctx.input(0)?.dtype();
        let counts = dispatch!(dtype, T in reals => Self::counts::<T>(ctx))
            .unwrap_or_else(|| Err(internal!("no histogram of {dtype}")))?;
        let mut out = ctx.alloc_output(0, Shape::vector(counts.len()))?;
        if out.dtype() == DType::Int32 {
            out.as_mut_slice::<i32>()?.iter_mut().zip(counts).for_each(|(t, c)| *t = c as i32);
        } else {
            out.as_mut_slice::<i64>()?.copy_from_slice(&counts);
        }
        ctx.set_output(0, out)
    }
}

pub(crate) fn register(r: &mut Registry) {
    for (op, upper) in [("LowerBound", false), ("UpperBound", true)] {
        r.op(op).types("T", DType::REALS).types("out_type", DType::INDICES).kernel(move |_| Ok(Bound { upper }));
    }
    r.op("NthElement")
        .types("T", DType::REALS)
        .kernel(|c: &Construction<'_>| Ok(NthElement { reverse: c.attrs().bool("reverse")? }));
    r.op("HistogramFixedWidth").types("T", DType::REALS).types("dtype", DType::INDICES).kernel(|_| Ok(Histogram));
}
