//! Convolutions in which every output channel sees one input channel: a filter for each channel, or several.

use super::attrs::ConvShape;
use super::general::{image_parts, sum_of_parts};
use super::product::Scalar;
use crate::simd::vectorized;
use graphmill_runtime::Context;
use graphmill_tensor::Result;

/// Nanoseconds for a multiplication and an addition, roughly.
const COST: f64 = 0.1;

/// Whether the shape is one for this file.
pub(super) fn suits(shape: &ConvShape) -> bool {
    shape.patch_depth == 1 && shape.in_depth > 1 && !shape.is_empty()
}

/// Calls `f` with the offset of the input pixel and of the filter's weights for each element of the window at an output pixel.
fn taps(shape: &ConvShape, row: usize, col: usize, mut f: impl FnMut(usize, usize)) {
    for i in 0..shape.rows.window {
        let Some(y) = shape.rows.source(row, i) else { continue };
        for j in 0..shape.cols.window {
            if let Some(x) = shape.cols.source(col, j) {
                let tap = i * shape.cols.window + j;
                f((y * shape.cols.input + x) * shape.in_depth, tap * shape.out_depth);
            }
        }
    }
}

vectorized! {
    /// `to[c * m + q] += x[c] * w[c * m + q]` with as many `q` for each `c` as there are.
    fn spread[T: Scalar](to: &mut [T], x: &[T], w: &[T]) {
        let multiple = to.len() / x.len();
        if multiple == 1 {
            for ((to, &x), &w) in to.iter_mut().zip(x).zip(w) {
                *to = to.plus(x.times(w));
            }
            return;
        }
        for ((to, w), &x) in to.chunks_exact_mut(multiple).zip(w.chunks_exact(multiple)).zip(x) {
            to.iter_mut().zip(w).for_each(|(to, &w)| *to = to.plus(x.times(w)));
        }
    }
}

vectorized! {
    /// `to[c] += sum over q of g[c * m + q] * w[c * m + q]`.
    fn collect[T: Scalar](to: &mut [T], g: &[T], w: &[T]) {
        let multiple = g.len() / to.len();
        if multiple == 1 {
            for ((to, &g), &w) in to.iter_mut().zip(g).zip(w) {
                *to = to.plus(g.times(w));
            }
            return;
        }
        for (to, (g, w)) in to.iter_mut().zip(g.chunks_exact(multiple).zip(w.chunks_exact(multiple))) {
            g.iter().zip(w).for_each(|(&g, &w)| *to = to.plus(g.times(w)));
        }
    }
}

/// As [`super::general::forward`].
pub(super) fn forward<T: Scalar>(ctx: &Context<'_>, shape: &ConvShape, input: &[T], filter: &[T], output: &mut [T]) {
    let (depth, channels) = (shape.in_depth, shape.out_depth);
    let cost = shape.output_row() as f64 * shape.patch_size() as f64 * COST;
    ctx.parallel_chunks(output, shape.output_row(), cost, |rows, part| {
        for (image, image_rows, at) in image_parts(rows, shape.rows.output) {
            let image = &input[image * shape.image()..(image + 1) * shape.image()];
            let targets = part[at * shape.output_row()..].chunks_exact_mut(shape.output_row());
            for (row, target) in image_rows.zip(targets) {
                for (col, to) in target.chunks_exact_mut(channels).enumerate() {
                    to.fill(T::default());
                    taps(shape, row, col, |from, weight| {
                        let (from, weights) = (&image[from..from + depth], &filter[weight..weight + channels]);
                        spread(to, from, weights);
                    });
                }
            }
        }
    });
}

/// As [`super::general::input_gradient`].
pub(super) fn input_gradient<T: Scalar>(
    ctx: &Context<'_>,
    shape: &ConvShape,
    filter: &[T],
    out_backprop: &[T],
    gradient: &mut [T],
) {
    let (depth, channels) = (shape.in_depth, shape.out_depth);
    let output_image = shape.rows.output * shape.output_row();
    let cost = output_image as f64 * shape.patch_size() as f64 * COST;
    ctx.parallel_chunks(gradient, shape.image(), cost, |images, part| {
        for (image, target) in images.zip(part.chunks_exact_mut(shape.image())) {
            target.fill(T::default());
            let pixels = out_backprop[image * output_image..(image + 1) * output_image].chunks_exact(channels);
            for (pixel, from) in pixels.enumerate() {
                taps(shape, pixel / shape.cols.output, pixel % shape.cols.output, |to, weight| {
                    let (to, weights) = (&mut target[to..to + depth], &filter[weight..weight + channels]);
                    collect(to, from, weights);
                });
            }
        }
    });
}

/// As [`super::general::filter_gradient`].
pub(super) fn filter_gradient<T: Scalar>(
    ctx: &Context<'_>,
    shape: &ConvShape,
    input: &[T],
    out_backprop: &[T],
    gradient: &mut [T],
) -> Result<()> {
    let (depth, channels) = (shape.in_depth, shape.out_depth);
    let output_image = shape.rows.output * shape.output_row();
    sum_of_parts(ctx, shape, gradient, |images, sum| {
        for image in images {
            let source = &input[image * shape.image()..(image + 1) * shape.image()];
            let pixels = out_backprop[image * output_image..(image + 1) * output_image].chunks_exact(channels);
            for (pixel, backprop) in pixels.enumerate() {
                taps(shape, pixel / shape.cols.output, pixel % shape.cols.output, |from, to| {
                    let (from, to) = (&source[from..from + depth], &mut sum[to..to + channels]);
                    spread(to, from, backprop);
                });
            }
        }
        Ok(())
    })
}
