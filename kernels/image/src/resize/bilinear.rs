//! `ResizeBilinear` and its gradient.

use super::geometry::{Corners, Geometry, positions};
use crate::real::{REALS, Real};
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Tensor, bf16, dispatch, f16, internal};

/// Nanoseconds a value takes, roughly.
const COST: f64 = 2.0;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("ResizeBilinear").types("T", &REALS).kernel(|c| Ok(ResizeBilinear(Corners::new(c)?)));
    let floats = [DType::BFloat16, DType::Double, DType::Float, DType::Half];
    registry.op("ResizeBilinearGrad").types("T", &floats).kernel(|c| Ok(ResizeBilinearGrad(Corners::new(c)?)));
}

/// Each pixel is a mean of the four around its place in the original. The result is `float`.
struct ResizeBilinear(Corners);

impl Kernel for ResizeBilinear {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let geometry = Geometry::forward(ctx, self.0)?;
        let images = ctx.input(0)?;
        let mut output = Tensor::alloc(DType::Float, geometry.resized_shape()?)?;
        if output.num_elements() > 0 {
            let done = dispatch!(images.dtype(), T in reals => {
                resize::<T>(ctx, self.0, &geometry, images.as_slice()?, output.as_mut_slice()?);
                Ok(())
            });
            done.unwrap_or_else(|| Err(internal!("images cannot be of type {}", images.dtype())))?;
        }
        ctx.set_output(0, output)
    }
}

fn resize<T: Real>(ctx: &Context<'_>, corners: Corners, g: &Geometry, images: &[T], output: &mut [f32]) {
    if g.height == g.new_height && g.width == g.new_width {
        output.iter_mut().zip(images).for_each(|(o, i)| *o = i.to_f32());
        return;
    }
    let rows = positions(corners, g.height, g.new_height, g.vertical);
    let columns = positions(corners, g.width, g.new_width, g.horizontal);
    let (row, channels) = (g.width * g.channels, g.channels);
    let new_row = g.new_width * channels;
    ctx.parallel_chunks(output, new_row, new_row as f64 * COST, |range, output| {
        for (index, output) in range.zip(output.chunks_exact_mut(new_row)) {
            let (image, y) = (index / g.new_height, &rows[index % g.new_height]);
            let image = &images[image * g.height * row..][..g.height * row];
            let (top, bottom) = (&image[y.low * row..][..row], &image[y.high * row..][..row]);
            for (x, pixel) in columns.iter().zip(output.chunks_exact_mut(channels)) {
                let (left, right) = (x.low * channels, x.high * channels);
                let corners = top[left..left + channels]
                    .iter()
                    .zip(&top[right..right + channels])
                    .zip(bottom[left..left + channels].iter().zip(&bottom[right..right + channels]));
                for (value, ((tl, tr), (bl, br))) in pixel.iter_mut().zip(corners) {
                    let (tl, bl) = (tl.to_f32(), bl.to_f32());
                    let upper = tl + (tr.to_f32() - tl) * x.part;
                    let lower = bl + (br.to_f32() - bl) * x.part;
                    *value = upper + (lower - upper) * y.part;
                }
            }
        }
    });
}

/// Each gradient goes to the four pixels that its value came from.
struct ResizeBilinearGrad(Corners);

impl Kernel for ResizeBilinearGrad {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let geometry = Geometry::backward(ctx, self.0)?;
        let gradient = ctx.input(0)?.as_slice::<f32>()?;
        let mut output = Tensor::zeros(ctx.output_type(0)?, geometry.original_shape()?)?;
        match output.dtype() {
            DType::Double => scatter(self.0, &geometry, gradient, output.as_mut_slice::<f64>()?),
            DType::Float => scatter(self.0, &geometry, gradient, output.as_mut_slice::<f32>()?),
            DType::Half => scatter_half(self.0, &geometry, gradient, output.as_mut_slice::<f16>()?),
            DType::BFloat16 => scatter_half(self.0, &geometry, gradient, output.as_mut_slice::<bf16>()?),
            other => return Err(internal!("gradients cannot be of type {other}")),
        }
        ctx.set_output(0, output)
    }
}

/// Sums in `f32`, as half precision would lose most of them.
fn scatter_half<T: Real>(corners: Corners, g: &Geometry, gradient: &[f32], output: &mut [T]) {
    let mut sums = vec![0.0f32; output.len()];
    scatter(corners, g, gradient, &mut sums);
    output.iter_mut().zip(sums).for_each(|(o, sum)| *o = T::from_f32(sum));
}

fn scatter<T: Real + std::ops::AddAssign>(corners: Corners, g: &Geometry, gradient: &[f32], output: &mut [T]) {
    let rows = positions(corners, g.height, g.new_height, g.vertical);
    let columns = positions(corners, g.width, g.new_width, g.horizontal);
    let channels = g.channels;
    if channels == 0 {
        return;
    }
    let image = g.height * g.width * channels;
    let mut pixels = gradient.chunks_exact(channels);
    for b in 0..g.batch {
        let output = &mut output[b * image..(b + 1) * image];
        for y in &rows {
            for x in &columns {
                let Some(pixel) = pixels.next() else { return };
                let weights = [
                    (y.low, x.low, (1.0 - y.part) * (1.0 - x.part)),
                    (y.low, x.high, (1.0 - y.part) * x.part),
                    (y.high, x.low, y.part * (1.0 - x.part)),
                    (y.high, x.high, y.part * x.part),
                ];
                for (row, column, weight) in weights {
                    let start = (row * g.width + column) * channels;
                    for (sum, value) in output[start..start + channels].iter_mut().zip(pixel) {
                        *sum += T::from_f32(value * weight);
                    }
                }
            }
        }
    }
}
