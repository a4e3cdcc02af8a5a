//! Reductions over groups of slices.

use crate::args::{integer, integers};
use crate::gather::position_text;
use crate::scatter_nd::Wrapping;
use crate::types::INDEX_16;
use crate::walk::Dims;
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{
    Complex32, Complex64, DType, Element, Result, Shape, Tensor, bf16, dispatch, f16, internal, invalid_argument,
};
use num_traits::Bounded;

#[derive(Clone, Copy, PartialEq)]
enum Reduction {
    Sum,
    Mean,
    Max,
    Min,
    Prod,
}

pub(crate) fn register(registry: &mut Registry) {
    use Reduction::*;
    for (op, types, reduction) in [
        ("UnsortedSegmentSum", DType::NUMBERS, Sum),
        ("UnsortedSegmentMax", DType::REALS, Max),
        ("UnsortedSegmentMin", DType::REALS, Min),
        ("UnsortedSegmentProd", DType::NUMBERS, Prod),
    ] {
        registry.op(op).types("T", types).types("Tindices", INDEX_16).kernel(move |_| Ok(Unsorted(reduction)));
    }
    for (op, types, reduction) in [
        ("SegmentSum", DType::NUMBERS, Sum),
        ("SegmentMean", DType::NUMBERS, Mean),
        ("SegmentMax", DType::REALS, Max),
        ("SegmentMin", DType::REALS, Min),
        ("SegmentProd", DType::NUMBERS, Prod),
    ] {
        registry.op(op).types("T", types).types("Tindices", DType::INDICES).kernel(move |_| Ok(Sorted(reduction)));
    }
}

/// What every element type needs for sums, products and means.
trait Number: Wrapping {
    /// 1.
    fn one() -> Self;
    /// The sum divided by the number of its terms.
    fn mean(sum: Self, count: usize) -> Self;
}

macro_rules! number {
    ($($t:ty, $one:expr, $divide:expr;)*) => {$(
        impl Number for $t {
            fn one() -> Self {
                $one
            }
            fn mean(sum: Self, count: usize) -> Self {
                let divide: fn($t, usize) -> $t = $divide;
                divide(sum, count)
            }
        }
    )*};
}

/// Integer means divide by a count of the same type, as TensorFlow's do; one that wraps to 0 leaves the sum.
macro_rules! integer_mean {
    ($t:ty) => {
        |s, n| s.checked_div(n as $t).unwrap_or(s)
    };
}

number! {
    f32, 1.0, |s, n| s / n as f32;
    f64, 1.0, |s, n| s / n as f64;
    f16, f16::ONE, |s, n| s / f16::from_f64(n as f64);
    bf16, bf16::ONE, |s, n| s / bf16::from_f64(n as f64);
    Complex32, Complex32::new(1.0, 0.0), |s, n| s / n as f32;
    Complex64, Complex64::new(1.0, 0.0), |s, n| s / n as f64;
    i8, 1, integer_mean!(i8);
    i16, 1, integer_mean!(i16);
    i32, 1, integer_mean!(i32);
    i64, 1, integer_mean!(i64);
    u8, 1, integer_mean!(u8);
    u16, 1, integer_mean!(u16);
    u32, 1, integer_mean!(u32);
    u64, 1, integer_mean!(u64);
}

/// The larger one, as TensorFlow finds it: with NaN, `a`.
fn max<T: PartialOrd>(a: T, b: T) -> T {
    if a < b { b } else { a }
}

/// The smaller one; with NaN, `a`.
fn min<T: PartialOrd>(a: T, b: T) -> T {
    if b < a { b } else { a }
}

/// `output[j] = reduction of data[i] for segment_ids[i] = j`; negative ids are left out, groups without slices get the neutral
/// element.
struct Unsorted(Reduction);

impl Kernel for Unsorted {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (data, ids, count) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        if !count.shape().is_scalar() {
            return Err(invalid_argument!("num_segments should be a scalar, not shape {}", count.shape()));
        }
        if !data.shape().dims().starts_with(ids.shape().dims()) {
            return Err(invalid_argument!(
                "data.shape = {} does not start with segment_ids.shape = {}",
                data.shape(),
                ids.shape()
            ));
        }
        let count = integer(count)?;
        let Ok(groups) = usize::try_from(count) else {
            return Err(invalid_argument!("Input num_segments == {count} must not be negative."));
        };
        let inner = &data.shape().dims()[ids.shape().rank()..];
        let mut dims: Dims<usize> = Dims::from_slice(&[groups]);
        dims.extend_from_slice(inner);
        let mut output = ctx.alloc_output(0, Shape::from_dims(&dims)?)?;
        let mut rows: Vec<usize> = Vec::with_capacity(ids.num_elements());
        for (i, id) in integers(ids)?.into_iter().enumerate() {
            rows.push(match usize::try_from(id) {
                Ok(id) if id < groups => id,
                Ok(id) => {
                    return Err(invalid_argument!(
                        "segment_ids{} = {id} is out of range [0, {groups})",
                        position_text(ids.shape(), i)
                    ));
                }
                Err(_) => usize::MAX,
            });
        }
        let slice = inner.iter().product();
        match self.0 {
            Reduction::Max => dispatch!(data.dtype(), T in reals => {
                unsorted::<T>(data, &rows, slice, <T as Bounded>::min_value(), &mut output, |a, b| max(b, a))?
            }),
            Reduction::Min => dispatch!(data.dtype(), T in reals => {
                unsorted::<T>(data, &rows, slice, <T as Bounded>::max_value(), &mut output, |a, b| min(b, a))?
            }),
            Reduction::Prod => dispatch!(data.dtype(), T in numbers => {
                unsorted::<T>(data, &rows, slice, T::one(), &mut output, Wrapping::times)?
            }),
            _ => dispatch!(data.dtype(), T in numbers => {
                unsorted::<T>(data, &rows, slice, T::default(), &mut output, Wrapping::plus)?
            }),
        }
        .ok_or_else(|| internal!("no reductions of type {}", data.dtype()))?;
        ctx.set_output(0, output)
    }
}

fn unsorted<T: Element>(
    data: &Tensor,
    rows: &[usize],
    slice: usize,
    neutral: T,
    output: &mut Tensor,
    combine: impl Fn(T, T) -> T,
) -> Result<()> {
    let (values, sums) = (data.as_slice::<T>()?, output.as_mut_slice::<T>()?);
    sums.fill(neutral);
    if slice == 0 {
        return Ok(());
    }
    for (&row, values) in rows.iter().zip(values.chunks_exact(slice)).filter(|&(&row, _)| row != usize::MAX) {
        let sums = &mut sums[row * slice..(row + 1) * slice];
        sums.iter_mut().zip(values).for_each(|(sum, &value)| *sum = combine(*sum, value));
    }
    Ok(())
}

/// The same for ids that do not decrease; there are as many groups as the last id says. Groups without slices are 0, for products
/// 1.
struct Sorted(Reduction);

impl Sorted {
    /// Checks the ids, and finds where each run of equal ones starts.
    fn runs(ids: &[i64], groups: usize) -> Result<Vec<(usize, usize)>> {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        let mut start = 0;
        while let Some(&id) = ids.get(start) {
            let end = start + ids[start..].iter().take_while(|&&other| other == id).count();
            if ids.get(end).is_some_and(|&next| next < id) {
                return Err(invalid_argument!("segment ids are not increasing"));
            }
            match usize::try_from(id).ok().filter(|&id| id < groups) {
                Some(id) => runs.push((id, start)),
                None => {
                    return Err(invalid_argument!(
                        "Segment id {id} out of range [0, {groups}), possibly because 'segment_ids' input is not sorted."
                    ));
                }
            }
            start = end;
        }
        Ok(runs)
    }
}

impl Kernel for Sorted {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (data, ids) = (ctx.input(0)?, ctx.input(1)?);
        if !ids.shape().is_vector() {
            return Err(invalid_argument!("segment_ids should be a vector."));
        }
        if data.shape().is_scalar() {
            return Err(invalid_argument!("input must be at least rank 1"));
        }
        let ids = integers(ids)?;
        if ids.len() != data.shape().dim(0) {
            return Err(invalid_argument!("segment_ids should be the same size as dimension 0 of input."));
        }
        let last = ids.last().copied().unwrap_or(-1);
        let Some(groups) = last.checked_add(1).and_then(|n| usize::try_from(n).ok()) else {
            return Err(invalid_argument!("segment ids must be >= 0"));
        };
        if groups == 0 && !ids.is_empty() {
            return Err(invalid_argument!("segment ids must be >= 0"));
        }
        let shape = data.shape().with_dim(0, groups)?;
        let runs = Sorted::runs(&ids, groups)?;
        let slice = data.shape().stride(0);
        let mut output = ctx.alloc_output(0, shape)?;
        let reduction = self.0;
        match reduction {
            Reduction::Max => dispatch!(data.dtype(), T in reals => {
                sorted::<T>(ctx, data, &runs, slice, T::default(), &mut output, |a, b| max(b, a), |v, _| v)?
            }),
            Reduction::Min => dispatch!(data.dtype(), T in reals => {
                sorted::<T>(ctx, data, &runs, slice, T::default(), &mut output, |a, b| min(b, a), |v, _| v)?
            }),
            Reduction::Prod => dispatch!(data.dtype(), T in numbers => {
                sorted::<T>(ctx, data, &runs, slice, T::one(), &mut output, Wrapping::times, |v, _| v)?
            }),
            Reduction::Mean => dispatch!(data.dtype(), T in numbers => {
                sorted::<T>(ctx, data, &runs, slice, T::default(), &mut output, Wrapping::plus, T::mean)?
            }),
            Reduction::Sum => dispatch!(data.dtype(), T in numbers => {
                sorted::<T>(ctx, data, &runs, slice, T::default(), &mut output, Wrapping::plus, |v, _| v)?
            }),
        }
        .ok_or_else(|| internal!("no reductions of type {}", data.dtype()))?;
        ctx.set_output(0, output)
    }
}

#[allow(clippy::too_many_arguments)]
fn sorted<T: Element>(
    ctx: &Context<'_>,
    data: &Tensor,
    runs: &[(usize, usize)],
    slice: usize,
    empty: T,
    output: &mut Tensor,
    combine: impl Fn(T, T) -> T + Sync,
    finish: impl Fn(T, usize) -> T + Sync,
) -> Result<()> {
    let (values, results) = (data.as_slice::<T>()?, output.as_mut_slice::<T>()?);
    if slice == 0 || results.is_empty() {
        return Ok(());
    }
    let rows = values.len() / slice;
    let groups = results.len() / slice;
    let cost = values.len() as f64 / groups as f64 + slice as f64;
    ctx.parallel_chunks(results, slice, cost, |range, part| {
        part.fill(empty);
        let first = runs.partition_point(|&(id, _)| id < range.start);
        for (k, &(id, start)) in runs.iter().enumerate().skip(first).take_while(|&(_, &(id, _))| id < range.end) {
            let end = runs.get(k + 1).map_or(rows, |&(_, next)| next);
            let at = (id - range.start) * slice;
            let result = &mut part[at..at + slice];
            result.copy_from_slice(&values[start * slice..(start + 1) * slice]);
            for row in values[(start + 1) * slice..end * slice].chunks_exact(slice) {
                result.iter_mut().zip(row).for_each(|(sum, &value)| *sum = combine(*sum, value));
            }
            result.iter_mut().for_each(|sum| *sum = finish(*sum, end - start));
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_error, assert_ints, run, tensor};
    use graphmill_runtime::testing::OpRun;
    use graphmill_tensor::DType;

    fn op(name: &str, dtype: DType) -> OpRun {
        OpRun::new(name).attr_type("T", dtype).attr_type("Tindices", DType::Int32)
    }

    #[test]
    fn unsorted_groups() {
        let data = tensor(&[4], &[3, 5, 7, 9]);
        let ids = tensor(&[4], &[1, -1, 1, 0]);
        for (name, expected) in [
            ("UnsortedSegmentSum", [9, 10, 0]),
            ("UnsortedSegmentProd", [9, 21, 1]),
            ("UnsortedSegmentMax", [9, 7, i32::MIN]),
            ("UnsortedSegmentMin", [9, 3, i32::MAX]),
        ] {
            assert_ints(&run(op(name, DType::Int32), &[&data, &ids, &tensor(&[], &[3])]).unwrap(), &[3], &expected);
        }
        let sum = |ids: &Tensor, n: i32| run(op("UnsortedSegmentSum", DType::Int32), &[&data, ids, &tensor(&[], &[n])]);
        assert_error(sum(&ids, 1), "segment_ids[0] = 1 is out of range [0, 1)");
        assert_error(sum(&ids, -1), "Input num_segments == -1 must not be negative.");
        assert_error(sum(&tensor(&[2], &[0, 0]), 1), "data.shape = [4] does not start with segment_ids.shape = [2]");
    }

    #[test]
    fn sorted_groups() {
        let data = tensor(&[3, 2], &[1, 2, 4, -8, 5, 6]);
        let ids = tensor(&[3], &[0, 0, 2]);
        for (name, expected) in [
            ("SegmentSum", [5, -6, 0, 0, 5, 6]),
            ("SegmentMean", [2, -3, 0, 0, 5, 6]),
            ("SegmentProd", [4, -16, 1, 1, 5, 6]),
            ("SegmentMax", [4, 2, 0, 0, 5, 6]),
            ("SegmentMin", [1, -8, 0, 0, 5, 6]),
        ] {
            assert_ints(&run(op(name, DType::Int32), &[&data, &ids]).unwrap(), &[3, 2], &expected);
        }
        let sum = |ids: &[i32]| run(op("SegmentSum", DType::Int32), &[&data, &tensor(&[ids.len() as i64], ids)]);
        assert_error(sum(&[0, 2, 1]), "segment ids are not increasing");
        assert_error(sum(&[0, 0]), "segment_ids should be the same size as dimension 0 of input.");
        assert_error(
            sum(&[-1, 0, 1]),
            "Segment id -1 out of range [0, 2), possibly because 'segment_ids' input is not sorted.",
        );
        let none = run(op("SegmentSum", DType::Float), &[&tensor::<f32>(&[0, 2], &[]), &tensor::<i32>(&[0], &[])]);
        assert_eq!(none.unwrap().shape().dims(), [0, 2]);
    }
}
