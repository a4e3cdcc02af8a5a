//! Sums, means and sums over square roots of the rows of a table that indices pick, by segments; and their gradients.

use crate::number::Number;
use crate::types::{INDICES, REALS};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Tensor, bf16, dispatch, f16, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    use DType::{BFloat16, Double, Float, Half};
    let floats = [BFloat16, Double, Float, Half];
    for (scale, plain, with_count, gradient, gradient_v2) in [
        (
            Scale::Sum,
            "SparseSegmentSum",
            "SparseSegmentSumWithNumSegments",
            "SparseSegmentSumGrad",
            "SparseSegmentSumGradV2",
        ),
        (
            Scale::Mean,
            "SparseSegmentMean",
            "SparseSegmentMeanWithNumSegments",
            "SparseSegmentMeanGrad",
            "SparseSegmentMeanGradV2",
        ),
        (
            Scale::SqrtN,
            "SparseSegmentSqrtN",
            "SparseSegmentSqrtNWithNumSegments",
            "SparseSegmentSqrtNGrad",
            "SparseSegmentSqrtNGradV2",
        ),
    ] {
        let types = if scale == Scale::Sum { &REALS[..] } else { &floats };
        for (op, counted) in [(plain, false), (with_count, true)] {
            let entry = registry.op(op).types("T", types).types("Tidx", &INDICES).types("Tsegmentids", &INDICES);
            entry.kernel(move |_| Ok(Segments { scale, counted }));
        }
        for (op, compact) in [(gradient, false), (gradient_v2, true)] {
            let entry = registry.op(op).types("T", &floats).types("Tidx", &INDICES).types("Tsegmentids", &INDICES);
            entry.kernel(move |c: &Construction<'_>| Ok(Gradient { scale, compact, index: c.dtype("Tidx")? }));
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Scale {
    Sum,
    Mean,
    SqrtN,
}

impl Scale {
    fn factor(self, count: usize) -> f64 {
        match self {
            Scale::Sum => 1.0,
            Scale::Mean => 1.0 / count.max(1) as f64,
            Scale::SqrtN => 1.0 / (count.max(1) as f64).sqrt(),
        }
    }
}

/// Numbers that a float scales.
trait Scaled: Number {
    fn scale(sum: Self::Sum, factor: f64) -> Self::Sum;
}

macro_rules! scaled {
    ($($rust:ty: $scale:expr;)*) => {$(
        impl Scaled for $rust {
            fn scale(sum: Self::Sum, factor: f64) -> Self::Sum {
                let scale: fn(Self::Sum, f64) -> Self::Sum = $scale;
                scale(sum, factor)
            }
        }
    )*};
}

scaled! {
    f32: |sum, factor| sum * factor as f32;
    f64: |sum, factor| sum * factor;
    f16: |sum, factor| sum * factor as f32;
    bf16: |sum, factor| sum * factor as f32;
    i8: |sum, _| sum;
    i16: |sum, _| sum;
    i32: |sum, _| sum;
    i64: |sum, _| sum;
    u8: |sum, _| sum;
    u16: |sum, _| sum;
    u32: |sum, _| sum;
    u64: |sum, _| sum;
}

struct Segments {
    scale: Scale,
    counted: bool,
}

fn check_vectors(indices: &Tensor, ids: &Tensor) -> Result<()> {
    if !indices.shape().is_vector() {
        return Err(invalid_argument!("indices should be a vector."));
    }
    if !ids.shape().is_vector() {
        return Err(invalid_argument!("segment_ids should be a vector."));
    }
    if indices.num_elements() != ids.num_elements() {
        return Err(invalid_argument!("segment_ids and indices should have same size."));
    }
    Ok(())
}

impl Kernel for Segments {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (data, indices, ids) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        let mut rows = None;
        if self.counted {
            let count = ctx.input(3)?;
            if !count.shape().is_scalar() {
                return Err(invalid_argument!("num_segments should be a scalar, not shape {}", count.shape()));
            }
            rows = count.to_i64_vec()?.first().copied();
            if rows.is_some_and(|rows| rows < 0) {
                return Err(invalid_argument!("segment ids must be >= 0"));
            }
        }
        check_vectors(indices, ids)?;
        if data.shape().is_scalar() {
            return Err(invalid_argument!("Shape must be at least rank 1"));
        }
        let (indices, ids) = (indices.to_i64_vec()?, ids.to_i64_vec()?);
        let needed = match ids.last() {
            Some(&last) => last
                .checked_add(1)
                .ok_or_else(|| invalid_argument!("Last segment id must be < kintmax, got {last} limit {last}"))?,
            None => 0,
        };
        let rows = match rows {
            Some(rows) if rows < needed => return Err(invalid_argument!("segment ids must be < num_segments")),
            Some(rows) => rows,
            None => needed,
        };
        let rows = usize::try_from(rows).map_err(|_| invalid_argument!("segment ids must be >= 0"))?;
        if !ids.is_empty() && rows == 0 {
            return Err(invalid_argument!("segment ids must be >= 0"));
        }
        for pair in ids.windows(2) {
            if pair[0] > pair[1] {
                return Err(invalid_argument!("segment ids are not increasing"));
            }
        }
        let table_rows = data.shape().dim(0) as i64;
        for (i, (&id, &index)) in ids.iter().zip(&indices).enumerate() {
            if !(0..rows as i64).contains(&id) {
                return Err(invalid_argument!(
                    "Segment id {id} out of range [0, {rows}), possibly because 'segment_ids' input is not sorted."
                ));
            }
            if !(0..table_rows).contains(&index) {
                return Err(invalid_argument!("Bad: indices[{i}] == {index} out of range [0, {table_rows})"));
            }
        }
        let mut out = Tensor::zeros(data.dtype(), data.shape().with_dim(0, rows)?)?;
        let width = data.shape().stride(0);
        let done = dispatch!(data.dtype(), T in reals => {
            let data = data.as_slice::<T>()?;
            let target = out.as_mut_slice::<T>()?;
            let mut sums = vec![T::no_sum(); width];
            let mut at = 0;
            for group in ids.chunk_by(|a, b| a == b) {
                let id = group[0] as usize;
                sums.fill(T::no_sum());
                for &index in &indices[at..at + group.len()] {
                    let row = &data[index as usize * width..(index as usize + 1) * width];
                    sums.iter_mut().zip(row).for_each(|(sum, &value)| *sum = value.add_to(*sum));
                }
                at += group.len();
                let factor = self.scale.factor(group.len());
                let row = &mut target[id * width..(id + 1) * width];
                row.iter_mut().zip(&sums).for_each(|(to, &sum)| *to = T::from_sum(T::scale(sum, factor)));
            }
            Ok(())
        });
        done.unwrap_or_else(|| Err(internal!("no such type")))?;
        ctx.set_output(0, out)
    }
}

/// The gradient for the table: all its rows, or (`compact`) those that indices pick, with a list of these.
struct Gradient {
    scale: Scale,
    compact: bool,
    index: DType,
}

impl Kernel for Gradient {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (gradient, indices, ids, count) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?, ctx.input(3)?);
        check_vectors(indices, ids)?;
        if !count.shape().is_scalar() {
            let name = if self.compact { "dense_output_dim0" } else { "output_dim0" };
            return Err(invalid_argument!("{name} should be a scalar."));
        }
        if gradient.shape().is_scalar() {
            return Err(invalid_argument!("Shape must be at least rank 1"));
        }
        let table_rows = i64::from(count.scalar_value::<i32>()?);
        let (indices, ids) = (indices.to_i64_vec()?, ids.to_i64_vec()?);
        let segments = gradient.shape().dim(0);
        let mut counts = vec![0usize; segments];
        let nothing = table_rows == 0 && !self.compact;
        if !nothing {
            if ids.last().is_some_and(|&last| last >= segments as i64) {
                return Err(invalid_argument!("Invalid number of segments"));
            }
            for (&id, &index) in ids.iter().zip(&indices) {
                if !(0..table_rows).contains(&index) {
                    return Err(invalid_argument!("Index {index} out of range [0, {table_rows})."));
                }
                let slot = usize::try_from(id).ok().and_then(|id| counts.get_mut(id));
                *slot.ok_or_else(|| invalid_argument!("Segment id {id} out of range [0, {segments})."))? += 1;
            }
        }
        let mut unique: Vec<i64> = indices.clone();
        unique.sort_unstable();
        unique.dedup();
        let rows = if self.compact { unique.len() } else { usize::try_from(table_rows).unwrap_or(0) };
        if table_rows < 0 {
            return Err(invalid_argument!("Expected shape dimensions to be non-negative, got {table_rows} at index 0"));
        }
        let mut out = Tensor::zeros(gradient.dtype(), gradient.shape().with_dim(0, rows)?)?;
        let width = gradient.shape().stride(0);
        if !nothing {
            let done = dispatch!(gradient.dtype(), T in [f32, f64, f16, bf16] => {
                let source = gradient.as_slice::<T>()?;
                let mut sums = vec![T::no_sum(); rows * width];
                for (&id, &index) in ids.iter().zip(&indices) {
                    let at = if self.compact { unique.binary_search(&index).unwrap_or(0) } else { index as usize };
                    let id = id as usize;
                    let factor = self.scale.factor(counts[id]);
                    let row = &source[id * width..(id + 1) * width];
                    for (sum, &value) in sums[at * width..(at + 1) * width].iter_mut().zip(row) {
                        let value = T::scale(value.add_to(T::no_sum()), factor);
                        *sum += value;
                    }
                }
                out.as_mut_slice::<T>()?.iter_mut().zip(sums).for_each(|(to, sum)| *to = T::from_sum(sum));
                Ok(())
            });
            done.unwrap_or_else(|| Err(internal!("no such type")))?;
        }
        ctx.set_output(0, out)?;
        if self.compact {
            let unique = match self.index {
                DType::Int64 => Tensor::vector(&unique)?,
                _ => Tensor::vector(&unique.iter().map(|&i| i as i32).collect::<Vec<i32>>())?,
            };
            ctx.set_output(1, unique)?;
        }
        Ok(())
    }
}
