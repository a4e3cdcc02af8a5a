//! Tensors in another element type or memory layout, for kernels that are written for one of them.

use crate::simd::{Real, vectorized};
use graphmill_runtime::Context;
use graphmill_tensor::{DType, Element, Result, Shape, Status, Tensor, bf16, f16, internal};
use std::ops::Range;
use std::sync::OnceLock;

vectorized! {
    fn widen_all[T: Real<Wide = f32>](to: &mut [f32], from: &[T]) {
        to.iter_mut().zip(from).for_each(|(w, t)| *w = t.widen());
    }
}

vectorized! {
    fn narrow_all[T: Real<Wide = f32>](to: &mut [T], from: &[f32]) {
        to.iter_mut().zip(from).for_each(|(t, w)| *t = T::narrow(*w));
    }
}

/// The elements of a half-precision tensor as `f32`.
pub(crate) fn widened(ctx: &Context<'_>, tensor: &Tensor) -> Result<Tensor> {
    fn widen<T: Real<Wide = f32>>(ctx: &Context<'_>, tensor: &Tensor) -> Result<Tensor> {
        let source = tensor.as_slice::<T>()?;
        let mut wide = Tensor::alloc(DType::Float, tensor.shape().clone())?;
        ctx.parallel_chunks(wide.as_mut_slice::<f32>()?, 1, 0.5, |range, part| {
            widen_all(part, &source[range]);
        });
        Ok(wide)
    }
    match tensor.dtype() {
        DType::Half => widen::<f16>(ctx, tensor),
        DType::BFloat16 => widen::<bf16>(ctx, tensor),
        other => Err(internal!("{other} is not a half-precision type")),
    }
}

/// `f32` elements rounded to a half-precision type.
pub(crate) fn narrowed(ctx: &Context<'_>, wide: &Tensor, dtype: DType) -> Result<Tensor> {
    fn narrow<T: Real<Wide = f32>>(ctx: &Context<'_>, wide: &Tensor) -> Result<Tensor> {
        let source = wide.as_slice::<f32>()?;
        let mut tensor = Tensor::alloc(T::DTYPE, wide.shape().clone())?;
        ctx.parallel_chunks(tensor.as_mut_slice::<T>()?, 1, 0.5, |range, part| {
            narrow_all(part, &source[range]);
        });
        Ok(tensor)
    }
    match dtype {
        DType::Half => narrow::<f16>(ctx, wide),
        DType::BFloat16 => narrow::<bf16>(ctx, wide),
        other => Err(internal!("{other} is not a half-precision type")),
    }
}

/// A copy with the channels last, of a 4-D tensor with the channels second.
pub(crate) fn channels_last<T: Element>(ctx: &Context<'_>, tensor: &Tensor) -> Result<Tensor> {
    let shape = tensor.shape();
    let (batch, channels, rows, cols) = (shape.dim(0), shape.dim(1), shape.dim(2), shape.dim(3));
    let to = Shape::from_dims(&[batch, rows, cols, channels])?;
    transposed::<T>(ctx, tensor, to, channels, rows * cols)
}

/// A copy with the channels second, of a 4-D tensor with the channels last.
pub(crate) fn channels_second<T: Element>(ctx: &Context<'_>, tensor: &Tensor) -> Result<Tensor> {
    let shape = tensor.shape();
    let (batch, rows, cols, channels) = (shape.dim(0), shape.dim(1), shape.dim(2), shape.dim(3));
    let to = Shape::from_dims(&[batch, channels, rows, cols])?;
    transposed::<T>(ctx, tensor, to, rows * cols, channels)
}

/// Transposes each of the matrices `height` by `width` that the tensor consists of.
pub(crate) fn transposed<T: Element>(
    ctx: &Context<'_>,
    tensor: &Tensor,
    shape: Shape,
    height: usize,
    width: usize,
) -> Result<Tensor> {
    let mut target = Tensor::alloc(T::DTYPE, shape)?;
    let source = tensor.as_slice::<T>()?;
    ctx.parallel_chunks(target.as_mut_slice::<T>()?, height.max(1), height as f64, |range, part| {
        for (line, out) in range.zip(part.chunks_exact_mut(height.max(1))) {
            let (matrix, column) = (line / width, line % width);
            let from = &source[matrix * height * width..];
            out.iter_mut().enumerate().for_each(|(row, o)| *o = from[row * width + column]);
        }
    });
    Ok(target)
}

/// [`Context::parallel_for`] with a body that can fail; one of the errors is returned.
pub(crate) fn try_parallel_for(
    ctx: &Context<'_>,
    total: usize,
    cost: f64,
    body: impl Fn(Range<usize>) -> Result<()> + Sync,
) -> Result<()> {
    let failure = OnceLock::<Status>::new();
    ctx.parallel_for(total, cost, |range| {
        if let Err(status) = body(range) {
            failure.get_or_init(|| status);
        }
    });
    failure.into_inner().map_or(Ok(()), Err)
}

/// [`Context::parallel_chunks`] with a body that can fail; one of the errors is returned.
pub(crate) fn try_parallel_chunks<T: Send>(
    ctx: &Context<'_>,
    data: &mut [T],
    unit: usize,
    cost: f64,
    body: impl Fn(Range<usize>, &mut [T]) -> Result<()> + Sync,
) -> Result<()> {
    let failure = OnceLock::<Status>::new();
    ctx.parallel_chunks(data, unit, cost, |range, part| {
        if let Err(status) = body(range, part) {
            failure.get_or_init(|| status);
        }
    });
    failure.into_inner().map_or(Ok(()), Err)
}
