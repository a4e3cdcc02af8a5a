//! `ResizeBicubic` and its gradient.

use super::geometry::{Corners, Geometry};
use crate::real::{REALS, Real};
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Tensor, dispatch, internal};
use std::sync::LazyLock;

/// Steps from one pixel to the next for which weights are tabulated.
const STEPS: usize = 1 << 10;
/// Nanoseconds a value takes, roughly.
const COST: f64 = 12.0;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("ResizeBicubic").types("T", &REALS).kernel(|c| Ok(ResizeBicubic(Corners::new(c)?)));
    let floats = [DType::Double, DType::Float];
    registry.op("ResizeBicubicGrad").types("T", &floats).kernel(|c| Ok(ResizeBicubicGrad(Corners::new(c)?)));
}

/// For each step, the weights of the nearer and of the farther pixel on one side.
type Table = Vec<[f32; 2]>;

/// Weights of cubic convolution with the parameter `a` (Keys 1981).
fn table(a: f64) -> Table {
    let a = a as f32 as f64;
    let weights = |i: usize| {
        let near = (i as f64 / STEPS as f64) as f32;
        let far = (f64::from(near) + 1.0) as f32;
        let (x, y) = (f64::from(near), f64::from(far));
        [(((a + 2.0) * x - (a + 3.0)) * x * x + 1.0) as f32, (((a * y - 5.0 * a) * y + 8.0 * a) * y - 4.0 * a) as f32]
    };
    (0..=STEPS).map(weights).collect()
}

static KEYS: LazyLock<Table> = LazyLock::new(|| table(-0.5));
static SHARP: LazyLock<Table> = LazyLock::new(|| table(-0.75));

/// The four pixels around a coordinate, and their weights.
struct Around {
    at: [usize; 4],
    weights: [f32; 4],
}

/// For each pixel of a resized row or column, what of the original it is made of. With half-pixel centres, what would lie outside of
/// the image has no weight; otherwise the pixel at the edge stands in for it.
fn surroundings(corners: Corners, original: usize, resized: usize, scale: f32) -> Vec<Around> {
    let table = if corners.half_pixel { &*KEYS } else { &*SHARP };
    let last = original as i64 - 1;
    (0..resized)
        .map(|at| {
            let source = corners.source(at, scale);
            let base = source.floor();
            let step = ((source - base) * STEPS as f32).round_ties_even() as usize;
            let (front, back) = (table[step.min(STEPS)], table[STEPS - step.min(STEPS)]);
            let wanted = [-1, 0, 1, 2].map(|offset| base as i64 + offset);
            let at = wanted.map(|i| i.clamp(0, last) as usize);
            let mut weights = [front[1], front[0], back[0], back[1]];
            if corners.half_pixel {
                for (weight, i) in weights.iter_mut().zip(wanted) {
                    if i < 0 || i > last {
                        *weight = 0.0;
                    }
                }
                let sum: f32 = weights.iter().sum();
                if sum.abs() >= 1000.0 * f32::MIN_POSITIVE {
                    let inverse = 1.0 / sum;
                    weights.iter_mut().for_each(|weight| *weight *= inverse);
                }
            }
            Around { at, weights }
        })
        .collect()
}

/// Each pixel is a weighted sum of the sixteen around its place in the original. The result is `float`.
struct ResizeBicubic(Corners);

impl Kernel for ResizeBicubic {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let g = Geometry::forward(ctx, self.0)?;
        let images = ctx.input(0)?;
        let mut output = Tensor::alloc(DType::Float, g.resized_shape()?)?;
        if output.num_elements() > 0 {
            let done = dispatch!(images.dtype(), T in reals => {
                resize::<T>(ctx, self.0, &g, images.as_slice()?, output.as_mut_slice()?);
                Ok(())
            });
            done.unwrap_or_else(|| Err(internal!("images cannot be of type {}", images.dtype())))?;
        }
        ctx.set_output(0, output)
    }
}

fn resize<T: Real>(ctx: &Context<'_>, corners: Corners, g: &Geometry, images: &[T], output: &mut [f32]) {
    let rows = surroundings(corners, g.height, g.new_height, g.vertical);
    let columns = surroundings(corners, g.width, g.new_width, g.horizontal);
    let row = g.width * g.channels;
    let new_row = g.new_width * g.channels;
    ctx.parallel_chunks(output, new_row, new_row as f64 * COST, |range, output| {
        let mut sums = vec![0.0f32; row];
        for (index, output) in range.zip(output.chunks_exact_mut(new_row)) {
            let (image, y) = (index / g.new_height, &rows[index % g.new_height]);
            let lines = y.at.map(|i| &images[(image * g.height + i) * row..][..row]);
            let [w0, w1, w2, w3] = y.weights;
            for (i, sum) in sums.iter_mut().enumerate() {
                let [a, b, c, d] = lines.map(|line| line[i].to_f32());
                *sum = a * w0 + b * w1 + c * w2 + d * w3;
            }
            for (x, pixel) in columns.iter().zip(output.chunks_exact_mut(g.channels)) {
                let [w0, w1, w2, w3] = x.weights;
                for (channel, value) in pixel.iter_mut().enumerate() {
                    let [a, b, c, d] = x.at.map(|i| sums[i * g.channels + channel]);
                    *value = a * w0 + b * w1 + c * w2 + d * w3;
                }
            }
        }
    });
}

/// Each gradient goes to the sixteen pixels that its value came from.
struct ResizeBicubicGrad(Corners);

impl Kernel for ResizeBicubicGrad {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let g = Geometry::backward(ctx, self.0)?;
        let gradient = ctx.input(0)?.as_slice::<f32>()?;
        let mut output = Tensor::zeros(ctx.output_type(0)?, g.original_shape()?)?;
        match output.dtype() {
            DType::Double => scatter(self.0, &g, gradient, output.as_mut_slice::<f64>()?),
            _ => scatter(self.0, &g, gradient, output.as_mut_slice::<f32>()?),
        }
        ctx.set_output(0, output)
    }
}

fn scatter<T: Real + std::ops::AddAssign>(corners: Corners, g: &Geometry, gradient: &[f32], output: &mut [T]) {
    if g.channels == 0 {
        return;
    }
    let rows = surroundings(corners, g.height, g.new_height, g.vertical);
    let columns = surroundings(corners, g.width, g.new_width, g.horizontal);
    let mut pixels = gradient.chunks_exact(g.channels);
    for b in 0..g.batch {
        for y in &rows {
            for x in &columns {
                let Some(pixel) = pixels.next() else { return };
                for (&row, &vertical) in y.at.iter().zip(&y.weights) {
                    for (&column, &horizontal) in x.at.iter().zip(&x.weights) {
                        let start = ((b * g.height + row) * g.width + column) * g.channels;
                        for (sum, value) in output[start..start + g.channels].iter_mut().zip(pixel) {
                            *sum += T::from_f32(value * vertical * horizontal);
                        }
                    }
                }
            }
        }
    }
}
