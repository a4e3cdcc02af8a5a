//! `ResizeNearestNeighbor` and its gradient.

use super::geometry::{Corners, Geometry, new_size, positive};
use crate::real::{REALS, Real};
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{Result, Shape, Tensor, dispatch, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("ResizeNearestNeighbor").types("T", &REALS).kernel(|c| Ok(ResizeNearest(Corners::new(c)?)));
    registry.op("ResizeNearestNeighborGrad").types("T", &REALS).kernel(|c| Ok(ResizeNearestGrad(Corners::new(c)?)));
}

/// The pixels of the original that those of a resized row or column are.
fn sources(corners: Corners, original: usize, resized: usize, scale: f32) -> Vec<usize> {
    (0..resized)
        .map(|at| {
            // The centre lies half a pixel further, which rounding down then takes into account.
            let source = if corners.half_pixel { (at as f32 + 0.5) * scale } else { at as f32 * scale };
            let rounded = if corners.aligned { source.round() } else { source.floor() };
            (rounded.max(0.0) as usize).min(original - 1)
        })
        .collect()
}

/// Each pixel is the one nearest to its place in the original.
struct ResizeNearest(Corners);

impl Kernel for ResizeNearest {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let g = Geometry::forward(ctx, self.0)?;
        if g.height >= 1 << 24 || g.width >= 1 << 24 {
            return Err(invalid_argument!("nearest neighbor requires max height & width of 2^24"));
        }
        let images = ctx.input(0)?;
        let mut output = Tensor::alloc(images.dtype(), g.resized_shape()?)?;
        if output.num_elements() > 0 {
            let rows = sources(self.0, g.height, g.new_height, g.vertical);
            let columns = sources(self.0, g.width, g.new_width, g.horizontal);
            let done = dispatch!(images.dtype(), T in reals => {
                let images = images.as_slice::<T>()?;
                let (row, new_row) = (g.width * g.channels, g.new_width * g.channels);
                ctx.parallel_chunks(output.as_mut_slice::<T>()?, new_row, new_row as f64, |range, output| {
                    for (index, output) in range.zip(output.chunks_exact_mut(new_row)) {
                        let y = (index / g.new_height) * g.height + rows[index % g.new_height];
                        let source = &images[y * row..][..row];
                        for (&x, pixel) in columns.iter().zip(output.chunks_exact_mut(g.channels)) {
                            pixel.copy_from_slice(&source[x * g.channels..][..g.channels]);
                        }
                    }
                });
                Ok(())
            });
            done.unwrap_or_else(|| Err(internal!("images cannot be of type {}", images.dtype())))?;
        }
        ctx.set_output(0, output)
    }
}

/// Each gradient goes to the pixel that its value came from.
struct ResizeNearestGrad(Corners);

impl Kernel for ResizeNearestGrad {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let gradient = ctx.input(0)?;
        let &[batch, new_height, new_width, channels] = gradient.shape().dims() else {
            return Err(invalid_argument!("input must be 4-dimensional{}", gradient.shape()));
        };
        let [height, width] = new_size(ctx.input(1)?)?;
        let (Some(height), Some(width)) = (positive(height), positive(width)) else {
            return Err(invalid_argument!("shape_t's elements must be positive"));
        };
        let mut output = Tensor::zeros(gradient.dtype(), Shape::from_dims(&[batch, height, width, channels])?)?;
        if gradient.num_elements() > 0 {
            let rows = sources(self.0, height, new_height, self.0.scale(height, new_height));
            let columns = sources(self.0, width, new_width, self.0.scale(width, new_width));
            let done = dispatch!(gradient.dtype(), T in reals => {
                let output = output.as_mut_slice::<T>()?;
                let mut pixels = gradient.as_slice::<T>()?.chunks_exact(channels);
                for b in 0..batch {
                    for &y in &rows {
                        for &x in &columns {
                            let start = ((b * height + y) * width + x) * channels;
                            for (sum, value) in output[start..start + channels].iter_mut().zip(pixels.next().unwrap_or_default()) {
                                *sum = add(*sum, *value);
                            }
                        }
                    }
                }
                Ok(())
            });
            done.unwrap_or_else(|| Err(internal!("gradients cannot be of type {}", gradient.dtype())))?;
        }
        ctx.set_output(0, output)
    }
}

/// A sum that wraps around where the type does; exact for all but 64-bit integers beyond 2^53.
fn add<T: Real>(a: T, b: T) -> T {
    T::from_f64(a.to_f64() + b.to_f64())
}
