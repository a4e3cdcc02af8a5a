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

/// As [`super::general::forward`].
pub(super) fn forward<T: Scalar>(ctx: &Context<'_>, shape: &ConvShape, input: &[T], filter: &[T], output: &mut [T]) {
    let (depth, channels) = (shape.in_depth, shape.out_depth);
    let multiple = channels / depth;
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
                        vectorized(|| {
                            if multiple == 1 {
                                for ((to, &x), &w) in to.iter_mut().zip(from).zip(weights) {
                                    *to = to.plus(x.times(w));
                                }
                            } else {
                                let groups = to.chunks_exact_mut(multiple).zip(weights.chunks_exact(multiple));
                                for ((to, weights), &x) in groups.zip(from) {
                                    to.iter_mut().zip(weights).for_each(|(to, &w)| *to = to.plus(x.times(w)));
                                }
                            }
                        });
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
    let multiple = channels / depth;
    let output_image = shape.rows.output * shape.output_row();
    let cost = output_image as f64 * shape.patch_size() as f64 * COST;
    ctx.parallel_chunks(gradient, shape.image(), cost, |images, part| {
        for (image, target) in images.zip(part.chunks_exact_mut(shape.image())) {
            target.fill(T::default());
            let pixels = out_backprop[image * output_image..(image + 1) * output_image].chunks_exact(channels);
            for (pixel, from) in pixels.enumerate() {
                taps(shape, pixel / shape.cols.output, pixel % shape.cols.output, |to, weight| {
                    let (to, weights) = (&mut target[to..to + depth], &filter[weight..weight + channels]);
                    vectorized(|| {
                        if multiple == 1 {
                            for ((to, &g), &w) in to.iter_mut().zip(from).zip(weights) {
                                *to = to.plus(g.times(w));
                            }
                        } else {
                            let groups = from.chunks_exact(multiple).zip(weights.chunks_exact(multiple));
                            for (to, (from, weights)) in to.iter_mut().zip(groups) {
                                from.iter().zip(weights).for_each(|(&g, &w)| *to = to.plus(g.times(w)));
                            }
                        }
                    });
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
    let multiple = channels / depth;
    let output_image = shape.rows.output * shape.output_row();
    sum_of_parts(ctx, shape, gradient, |images, sum| {
        for image in images {
            let source = &input[image * shape.image()..(image + 1) * shape.image()];
            let pixels = out_backprop[image * output_image..(image + 1) * output_image].chunks_exact(channels);
            for (pixel, backprop) in pixels.enumerate() {
                taps(shape, pixel / shape.cols.output, pixel % shape.cols.output, |from, to| {
                    let (from, to) = (&source[from..from + depth], &mut sum[to..to + channels]);
                    vectorized(|| {
                        if multiple == 1 {
                            for ((to, &x), &g) in to.iter_mut().zip(from).zip(backprop) {
                                *to = to.plus(x.times(g));
                            }
                        } else {
                            let groups = to.chunks_exact_mut(multiple).zip(backprop.chunks_exact(multiple));
                            for ((to, backprop), &x) in groups.zip(from) {
                                to.iter_mut().zip(backprop).for_each(|(to, &g)| *to = to.plus(x.times(g)));
                            }
                        }
                    });
                });
            }
        }
        Ok(())
    })
}
