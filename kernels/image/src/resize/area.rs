//! `ResizeArea`.

use super::geometry::{Corners, Geometry};
use crate::real::{REALS, Real};
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Tensor, dispatch, internal};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("ResizeArea").types("T", &REALS).kernel(|c| Ok(ResizeArea(Corners::new(c)?)));
}

/// Each pixel is the mean over the area of the original that it covers. The result is `float`.
struct ResizeArea(Corners);

impl Kernel for ResizeArea {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let g = Geometry::forward(ctx, Corners { half_pixel: false, ..self.0 })?;
        let images = ctx.input(0)?;
        let mut output = Tensor::alloc(DType::Float, g.resized_shape()?)?;
        if output.num_elements() > 0 {
            let done = dispatch!(images.dtype(), T in reals => {
                resize::<T>(ctx, &g, images.as_slice()?, output.as_mut_slice()?);
                Ok(())
            });
            done.unwrap_or_else(|| Err(internal!("images cannot be of type {}", images.dtype())))?;
        }
        ctx.set_output(0, output)
    }
}

/// The pixels that an interval covers, and how much of each.
struct Covered(Vec<(usize, f32)>);

fn covered(original: usize, resized: usize, scale: f32) -> Vec<Covered> {
    let last = original as i64 - 1;
    (0..resized)
        .map(|at| {
            let (start, end) = (at as f32 * scale, (at + 1) as f32 * scale);
            let part = |i: i64| {
                let (left, right) = (i as f32, (i + 1) as f32);
                let weight = match (left < start, right > end) {
                    (true, true) => scale,
                    (true, false) => right - start,
                    (false, true) => end - left,
                    (false, false) => 1.0,
                };
                (i.clamp(0, last) as usize, weight)
            };
            Covered((start.floor() as i64..end.ceil() as i64).map(part).collect())
        })
        .collect()
}

fn resize<T: Real>(ctx: &Context<'_>, g: &Geometry, images: &[T], output: &mut [f32]) {
    let rows = covered(g.height, g.new_height, g.vertical);
    let columns = covered(g.width, g.new_width, g.horizontal);
    let scale = (1.0 / f64::from(g.vertical * g.horizontal)) as f32;
    let row = g.width * g.channels;
    let new_row = g.new_width * g.channels;
    let cost = new_row as f64 * f64::from((g.vertical * g.horizontal).max(1.0));
    ctx.parallel_chunks(output, new_row, cost, |range, output| {
        for (index, output) in range.zip(output.chunks_exact_mut(new_row)) {
            let (image, y) = (index / g.new_height, &rows[index % g.new_height]);
            for (x, pixel) in columns.iter().zip(output.chunks_exact_mut(g.channels)) {
                for (channel, value) in pixel.iter_mut().enumerate() {
                    let mut sum = 0.0;
                    for &(line, vertical) in &y.0 {
                        let line = &images[(image * g.height + line) * row..][..row];
                        let part: f32 =
                            x.0.iter().map(|&(at, weight)| line[at * g.channels + channel].to_f32() * weight).sum();
                        sum += part * vertical;
                    }
                    *value = sum * scale;
                }
            }
        }
    });
}
