//! `RaggedRange`, `RaggedGather`, `RaggedTensorToSparse`.

use crate::coo::{index_matrix, pick};
use crate::types::INDICES;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, invalid_argument};

/// The types of the values of ragged tensors.
pub(crate) const VALUES: [DType; 21] = [
    DType::BFloat16,
    DType::Bool,
    DType::Complex128,
    DType::Complex64,
    DType::Double,
    DType::Float,
    DType::Half,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::Int8,
    DType::QInt16,
    DType::QInt32,
    DType::QInt8,
    DType::QUInt16,
    DType::QUInt8,
    DType::String,
    DType::UInt16,
    DType::UInt32,
    DType::UInt64,
    DType::UInt8,
];

pub(crate) fn register(registry: &mut Registry) {
    use DType::{Double, Float, Int32, Int64};
    registry.op("RaggedRange").types("T", &[Double, Float, Int32, Int64]).types("Tsplits", &INDICES).kernel(Range::new);
    registry
        .op("RaggedGather")
        .types("Tindices", &INDICES)
        .types("Tsplits", &INDICES)
        .types("Tvalues", &VALUES)
        .kernel(|c| Ok(Gather { ragged_rank: c.input_range("params_nested_splits")?.len() }));
    registry
        .op("RaggedTensorToSparse")
        .types("Tsplits", &INDICES)
        .kernel(|c| Ok(ToSparse { ragged_rank: c.input_range("rt_nested_splits")?.len() }));
}

/// Splits as a tensor.
///
/// # Errors
/// If there is no memory.
pub(crate) fn splits_tensor(dtype: DType, splits: &[i64]) -> Result<Tensor> {
    if dtype == DType::Int64 {
        return Tensor::vector(splits);
    }
    Tensor::vector(&splits.iter().map(|&split| split as i32).collect::<Vec<i32>>())
}

/// Rows that count up or down.
struct Range {
    splits: DType,
}

/// A number that ranges are made of.
trait Step: graphmill_tensor::Element {
    /// The number of steps from `start` to before `limit`; none if `step` is zero.
    fn steps(start: Self, limit: Self, step: Self) -> Option<u64>;
    fn next(self, step: Self) -> Self;
}

macro_rules! integer_steps {
    ($($rust:ty),*) => {$(
        impl Step for $rust {
            fn steps(start: Self, limit: Self, step: Self) -> Option<u64> {
                if (step > 0 && limit < start) || (step < 0 && limit > start) {
                    return Some(0);
                }
                let distance = u64::from(limit.abs_diff(start));
                let step = u64::from(step.unsigned_abs());
                (step != 0).then(|| distance.div_ceil(step))
            }

            fn next(self, step: Self) -> Self {
                self.wrapping_add(step)
            }
        }
    )*};
}

integer_steps!(i32, i64);

macro_rules! float_steps {
    ($($rust:ty),*) => {$(
        impl Step for $rust {
            fn steps(start: Self, limit: Self, step: Self) -> Option<u64> {
                if (step > 0.0 && limit < start) || (step < 0.0 && limit > start) {
                    return Some(0);
                }
                (step != 0.0).then(|| ((limit - start) / step).abs().ceil() as u64)
            }

            fn next(self, step: Self) -> Self {
                self + step
            }
        }
    )*};
}

float_steps!(f32, f64);

impl Range {
    fn new(c: &Construction<'_>) -> Result<Range> {
        Ok(Range { splits: c.dtype("Tsplits")? })
    }

    fn run<T: Step>(&self, ctx: &Context<'_>) -> Result<(Tensor, Tensor)> {
        let inputs = [ctx.input(0)?, ctx.input(1)?, ctx.input(2)?];
        for (input, name) in inputs.iter().zip(["starts", "limits", "deltas"]) {
            if input.shape().rank() > 1 {
                return Err(invalid_argument!("{name} must be a scalar or vector"));
            }
        }
        let mut sizes = inputs.iter().filter(|input| !input.shape().is_scalar()).map(|input| input.num_elements());
        let rows = sizes.next();
        if sizes.any(|size| Some(size) != rows) {
            return Err(invalid_argument!("starts, limits, and deltas must have the same shape"));
        }
        let slices = [inputs[0].as_slice::<T>()?, inputs[1].as_slice::<T>()?, inputs[2].as_slice::<T>()?];
        let at = |which: usize, row: usize| {
            let row = if inputs[which].shape().is_scalar() { 0 } else { row };
            slices[which].get(row).copied().unwrap_or_default()
        };
        let longest = if self.splits == DType::Int32 { i64::from(i32::MAX) } else { i64::MAX };
        let mut splits = vec![0i64];
        for row in 0..rows.unwrap_or(1) {
            let steps = T::steps(at(0, row), at(1, row), at(2, row));
            let steps = steps.ok_or_else(|| invalid_argument!("Requires delta != 0"))?;
            let end = splits[row].checked_add(i64::try_from(steps).unwrap_or(i64::MAX)).filter(|&end| end <= longest);
            splits.push(end.ok_or_else(|| invalid_argument!("Requires ((limit - start) / delta) <= {longest}"))?);
        }
        let total = splits.last().copied().unwrap_or(0);
        let mut values = Tensor::alloc(T::DTYPE, Shape::new(&[total])?)?;
        let target = values.as_mut_slice::<T>()?;
        for (row, pair) in splits.windows(2).enumerate() {
            let (mut value, step) = (at(0, row), at(2, row));
            for to in &mut target[pair[0] as usize..pair[1] as usize] {
                *to = value;
                value = value.next(step);
            }
        }
        Ok((splits_tensor(self.splits, &splits)?, values))
    }
}

impl Kernel for Range {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (splits, values) = match ctx.input(0)?.dtype() {
            DType::Float => self.run::<f32>(ctx)?,
            DType::Double => self.run::<f64>(ctx)?,
            DType::Int32 => self.run::<i32>(ctx)?,
            _ => self.run::<i64>(ctx)?,
        };
        ctx.set_output(0, splits)?;
        ctx.set_output(1, values)
    }
}

/// The rows of a ragged tensor that indices pick.
struct Gather {
    ragged_rank: usize,
}

impl Kernel for Gather {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (values, indices) = (ctx.input(self.ragged_rank)?, ctx.input(self.ragged_rank + 1)?);
        if values.shape().is_scalar() {
            return Err(invalid_argument!("params.rank must be nonzero"));
        }
        let mut nested = Vec::with_capacity(self.ragged_rank);
        for i in 0..self.ragged_rank {
            let splits = ctx.input(i)?;
            if splits.shape().is_scalar() {
                return Err(invalid_argument!("Split tensors must not be scalars"));
            }
            nested.push(splits.to_i64_vec()?);
        }
        let picked = indices.to_i64_vec()?;
        let rows = nested.first().map_or(0, Vec::len) as i64 - 1;
        for (i, &index) in picked.iter().enumerate() {
            if !(0..rows).contains(&index) {
                return Err(invalid_argument!(
                    "indices{} = {index} is not in [0, {rows})",
                    position(indices.shape(), i)
                ));
            }
        }
        for (dim, splits) in nested.iter().enumerate() {
            let end = nested.get(dim + 1).map_or(values.shape().dim(0), Vec::len) as i64;
            let (Some(&first), Some(&last)) = (splits.first(), splits.last()) else {
                return Err(invalid_argument!("Ragged splits may not be empty"));
            };
            if first < 0 {
                return Err(invalid_argument!("Ragged splits must be non-negative"));
            }
            if last > end || (dim + 1 < nested.len() && last >= end) {
                return Err(invalid_argument!("Ragged splits must not point past values"));
            }
            if !splits.is_sorted() {
                return Err(invalid_argument!("Ragged splits must be sorted"));
            }
        }
        let outer = indices.shape().rank() as i64 - 1;
        let mut out: Vec<Vec<i64>> = vec![vec![0]; usize::try_from(outer + self.ragged_rank as i64).unwrap_or(0)];
        let mut count = 1;
        for (dim, rows) in out.iter_mut().enumerate().take(usize::try_from(outer).unwrap_or(0)) {
            count *= indices.shape().dim(dim);
            let width = indices.shape().dim(dim + 1) as i64;
            rows.extend((1..=count as i64).map(|row| row * width));
        }
        let mut members = Vec::new();
        for &index in &picked {
            let (mut start, mut limit) = (index as usize, index as usize + 1);
            for (dim, splits) in nested.iter().enumerate() {
                if let Some(out) = usize::try_from(dim as i64 + outer).ok().and_then(|at| out.get_mut(at)) {
                    let delta = out.last().copied().unwrap_or(0) - splits[start];
                    out.extend(splits[start + 1..=limit].iter().map(|split| split + delta));
                }
                (start, limit) = (splits[start] as usize, splits[limit] as usize);
            }
            members.extend(start..limit);
        }
        let gathered = pick(values, &members)?;
        let levels = out.len();
        for (i, splits) in out.iter().enumerate() {
            let dtype = ctx.output_type(i)?;
            ctx.set_output(i, splits_tensor(dtype, splits)?)?;
        }
        ctx.set_output(levels, gathered)
    }
}

/// The position of an element as TensorFlow shows it: `[1,2]`, nothing for a scalar.
fn position(shape: &Shape, at: usize) -> String {
    if shape.is_scalar() {
        return String::new();
    }
    let index = shape
        .strides()
        .iter()
        .zip(shape.dims())
        .map(|(&s, &d)| (at / s.max(1) % d.max(1)).to_string())
        .collect::<Vec<_>>();
    format!("[{}]", index.join(","))
}

/// The entries of a ragged tensor with their indices.
struct ToSparse {
    ragged_rank: usize,
}

impl ToSparse {
    fn check(nested: &[Vec<i64>], values: &Tensor) -> Result<()> {
        for (i, splits) in nested.iter().enumerate() {
            let Some(&first) = splits.first() else {
                return Err(invalid_argument!("ragged splits may not be empty."));
            };
            if first != 0 {
                return Err(invalid_argument!("First value of ragged splits must be 0."));
            }
            if let Some(pair) = splits.windows(2).find(|pair| pair[1] < pair[0]) {
                return Err(invalid_argument!(
                    "Ragged splits should be non decreasing, but we got {} followed by {}",
                    pair[0],
                    pair[1]
                ));
            }
            let next = nested.get(i + 1).map_or(values.shape().dim(0) as i64, |next| next.len() as i64 - 1);
            if splits.last() != Some(&next) {
                return Err(invalid_argument!(
                    "Final value of ragged splits must match the length the corresponding ragged values."
                ));
            }
        }
        Ok(())
    }
}

impl Kernel for ToSparse {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let values = ctx.input(self.ragged_rank)?;
        if values.shape().is_scalar() {
            return Err(invalid_argument!("rt_dense_values must have at least one dimension"));
        }
        let nested = (0..self.ragged_rank).map(|i| ctx.input(i)?.to_i64_vec()).collect::<Result<Vec<_>>>()?;
        ToSparse::check(&nested, values)?;
        // The index of each row of the values, from the outermost dimension on.
        let rows = nested.first().map_or(0, |splits| splits.len() - 1);
        let mut prefixes: Vec<Vec<i64>> = (0..rows as i64).map(|row| vec![row]).collect();
        for splits in &nested {
            let mut inner = Vec::with_capacity(splits.last().map_or(0, |&last| last as usize));
            for (prefix, pair) in prefixes.iter().zip(splits.windows(2)) {
                inner.extend((0..pair[1] - pair[0]).map(|i| prefix.iter().copied().chain([i]).collect::<Vec<i64>>()));
            }
            prefixes = inner;
        }
        let inner = &values.shape().dims()[1..];
        let width: usize = inner.iter().product();
        let rank = self.ragged_rank + values.shape().rank();
        // Checks that there is memory for as many indices.
        Tensor::alloc(DType::Int64, Shape::from_dims(&[values.num_elements(), rank])?)?;
        let mut indices = Vec::with_capacity(values.num_elements() * rank);
        for prefix in &prefixes {
            for at in 0..width {
                indices.extend_from_slice(prefix);
                let mut stride = width;
                for &size in inner {
                    stride /= size;
                    indices.push((at / stride % size) as i64);
                }
            }
        }
        let mut shape = vec![rows as i64];
        shape.extend(nested.iter().map(|splits| splits.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0)));
        shape.extend(inner.iter().map(|&size| size as i64));
        let flat = values.reshaped(Shape::vector(values.num_elements()))?;
        let indices = index_matrix(&indices, flat.num_elements(), rank)?;
        ctx.set_output(0, indices)?;
        ctx.set_output(1, flat)?;
        ctx.set_output(2, Tensor::vector(&shape)?)
    }
}
