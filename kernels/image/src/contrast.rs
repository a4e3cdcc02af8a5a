//! `AdjustContrastv2` and its predecessor.

use crate::real::Real;
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, dispatch, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("AdjustContrastv2").types("T", &[DType::Float]).kernel(|_| Ok(AdjustContrastV2));
    let types = [DType::Double, DType::Float, DType::Int16, DType::Int32, DType::Int8, DType::UInt8];
    registry.op("AdjustContrast").types("T", &types).kernel(|_| Ok(AdjustContrast));
}

/// Sizes of images: how many, pixels in each, channels.
fn sizes(shape: &Shape) -> Result<(usize, usize, usize)> {
    let rank = shape.rank();
    let Some([height, width, channels]) = rank.checked_sub(3).and_then(|at| shape.dims().get(at..)) else {
        return Err(invalid_argument!("input must be at least 3-D, got shape{shape}"));
    };
    let pixels = height * width;
    let images = shape.dims().iter().take(rank - 3).product();
    Ok((images, pixels, *channels))
}

fn factor(ctx: &Context<'_>, i: usize, name: &str) -> Result<f32> {
    let factor = ctx.input(i)?;
    if !factor.shape().is_scalar() {
        return Err(invalid_argument!("{name} must be scalar: {}", factor.shape()));
    }
    factor.scalar_value::<f32>()
}

/// Moves each channel of each image away from its mean, or towards it.
fn adjust<T: Real>(images: &[T], pixels: usize, channels: usize, factor: f32, mut store: impl FnMut(usize, f32)) {
    let size = pixels * channels;
    if size == 0 {
        return;
    }
    for (i, image) in images.chunks_exact(size).enumerate() {
        let mut means = vec![0.0f64; channels];
        for pixel in image.chunks_exact(channels) {
            means.iter_mut().zip(pixel).for_each(|(mean, value)| *mean += value.to_f64());
        }
        let means: Vec<f32> = means.iter().map(|sum| (sum / pixels as f64) as f32).collect();
        for (at, value) in image.iter().enumerate() {
            let mean = means[at % channels];
            store(i * size + at, mean + factor * (value.to_f32() - mean));
        }
    }
}

/// `(x - mean) * factor + mean` for each channel of each image.
struct AdjustContrastV2;

impl Kernel for AdjustContrastV2 {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let images = ctx.input(0)?;
        let (_, pixels, channels) = sizes(images.shape())?;
        let factor = factor(ctx, 1, "contrast_factor")?;
        let mut output = Tensor::alloc(DType::Float, images.shape().clone())?;
        let target = output.as_mut_slice::<f32>()?;
        adjust(images.as_slice::<f32>()?, pixels, channels, factor, |at, value| target[at] = value);
        ctx.set_output(0, output)
    }
}

/// The same, within bounds, for the older op.
struct AdjustContrast;

impl Kernel for AdjustContrast {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let images = ctx.input(0)?;
        let (_, pixels, channels) = sizes(images.shape())?;
        let factor_value = factor(ctx, 1, "contrast_factor")?;
        let (low, high) = (factor(ctx, 2, "min_value")?, factor(ctx, 3, "max_value")?);
        let mut output = Tensor::alloc(DType::Float, images.shape().clone())?;
        let target = output.as_mut_slice::<f32>()?;
        let done = dispatch!(images.dtype(), T in [u8, i8, i16, i32, f32, f64] => {
            adjust(images.as_slice::<T>()?, pixels, channels, factor_value, |at, value| {
                target[at] = value.min(high).max(low);
            });
            Ok(())
        });
        done.unwrap_or_else(|| Err(internal!("images cannot be of type {}", images.dtype())))?;
        ctx.set_output(0, output)
    }
}
