//! Convolutions of every shape as matrix products over patches (im2col), a block of output pixels at a time.

use super::attrs::ConvShape;
use super::product::{Scalar, View};
use crate::convert::{try_parallel_chunks, try_parallel_for};
use graphmill_runtime::Context;
use graphmill_tensor::{Result, Shape, Tensor};
use std::ops::Range;
use std::sync::Mutex;

/// Elements of a block of patches at most, unless one pixel has more: half of a second-level cache.
const BLOCK: usize = 64 << 10;

/// Nanoseconds for a multiplication and an addition, roughly.
const COST: f64 = 0.02;

fn block_pixels(shape: &ConvShape) -> usize {
    (BLOCK / shape.patch_size().max(1)).clamp(1, (shape.rows.output * shape.cols.output).max(1))
}

fn scratch<T: Scalar>(length: usize) -> Result<Tensor> {
    Tensor::alloc(T::DTYPE, Shape::from_dims(&[length])?)
}

/// Writes the patch of each pixel of `pixels` (row-major in one output image): the elements of `image` in channels
/// `group * patch_depth ..` under the window, zero where the window lies outside.
fn gather<T: Scalar>(shape: &ConvShape, image: &[T], group: usize, pixels: Range<usize>, patches: &mut [T]) {
    let depth = shape.patch_depth;
    for (pixel, patch) in pixels.zip(patches.chunks_exact_mut(shape.patch_size())) {
        let (row, col) = (pixel / shape.cols.output, pixel % shape.cols.output);
        for (tap, target) in patch.chunks_exact_mut(depth).enumerate() {
            let (tap_row, tap_col) = (tap / shape.cols.window, tap % shape.cols.window);
            match (shape.rows.source(row, tap_row), shape.cols.source(col, tap_col)) {
                (Some(y), Some(x)) => {
                    let at = (y * shape.cols.input + x) * shape.in_depth + group * depth;
                    target.copy_from_slice(&image[at..at + depth]);
                }
                _ => target.fill(T::default()),
            }
        }
    }
}

/// Adds the patches back to where [`gather`] would take them from.
fn scatter<T: Scalar>(shape: &ConvShape, patches: &[T], group: usize, pixels: Range<usize>, image: &mut [T]) {
    let depth = shape.patch_depth;
    for (pixel, patch) in pixels.zip(patches.chunks_exact(shape.patch_size())) {
        let (row, col) = (pixel / shape.cols.output, pixel % shape.cols.output);
        for (tap, source) in patch.chunks_exact(depth).enumerate() {
            let (tap_row, tap_col) = (tap / shape.cols.window, tap % shape.cols.window);
            if let (Some(y), Some(x)) = (shape.rows.source(row, tap_row), shape.cols.source(col, tap_col)) {
                let at = (y * shape.cols.input + x) * shape.in_depth + group * depth;
                image[at..at + depth].iter_mut().zip(source).for_each(|(t, s)| *t = t.plus(*s));
            }
        }
    }
}

fn blocks(pixels: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    let end = pixels.end;
    pixels.step_by(size).map(move |start| start..(start + size).min(end))
}

/// `output = input * filter`: `output[n, y, x, o] = sum input[n, y * s + i * d - p, ..., c] * filter[i, j, c, o]`.
pub(crate) fn forward<T: Scalar>(
    ctx: &Context<'_>,
    shape: &ConvShape,
    input: &[T],
    filter: &[T],
    output: &mut [T],
) -> Result<()> {
    if shape.is_empty() {
        output.fill(T::default());
        return Ok(());
    }
    let (patch, groups) = (shape.patch_size(), shape.groups());
    let per_group = shape.out_depth / groups;
    let cost = shape.output_row() as f64 * patch as f64 * COST;
    try_parallel_chunks(ctx, output, shape.output_row(), cost, |rows, part| {
        let size = block_pixels(shape);
        let mut patches = scratch::<T>(size * patch)?;
        let patches = patches.as_mut_slice::<T>()?;
        for (image, image_rows, at) in image_parts(rows, shape.rows.output) {
            let source = &input[image * shape.image()..(image + 1) * shape.image()];
            let first = image_rows.start * shape.cols.output;
            for pixels in blocks(first..image_rows.end * shape.cols.output, size) {
                let count = pixels.len();
                let start = at * shape.output_row() + (pixels.start - first) * shape.out_depth;
                for group in 0..groups {
                    gather(shape, source, group, pixels.clone(), patches);
                    T::product(
                        (count, per_group, patch),
                        (part, View::rows(start + group * per_group, shape.out_depth)),
                        (patches, View::rows(0, patch)),
                        (filter, View::rows(group * per_group, shape.out_depth)),
                        false,
                    );
                }
            }
        }
        Ok(())
    })
}

/// Cuts a range of rows, counted through all images, into images: the image, its rows, and where they begin in the range.
pub(crate) fn image_parts(rows: Range<usize>, per_image: usize) -> impl Iterator<Item = (usize, Range<usize>, usize)> {
    let (start, end) = (rows.start, rows.end);
    (start / per_image..end.div_ceil(per_image)).map(move |image| {
        let first = (image * per_image).max(start);
        let last = ((image + 1) * per_image).min(end);
        (image, first - image * per_image..last - image * per_image, first - start)
    })
}

/// The gradient of [`forward`]'s input from that of its output.
pub(crate) fn input_gradient<T: Scalar>(
    ctx: &Context<'_>,
    shape: &ConvShape,
    filter: &[T],
    out_backprop: &[T],
    gradient: &mut [T],
) -> Result<()> {
    if shape.is_empty() || gradient.is_empty() {
        gradient.fill(T::default());
        return Ok(());
    }
    let (patch, groups) = (shape.patch_size(), shape.groups());
    let per_group = shape.out_depth / groups;
    let pixels = shape.rows.output * shape.cols.output;
    let cost = pixels as f64 * shape.out_depth as f64 * patch as f64 * COST;
    try_parallel_chunks(ctx, gradient, shape.image(), cost, |images, part| {
        let size = block_pixels(shape);
        let mut patches = scratch::<T>(size * patch)?;
        let patches = patches.as_mut_slice::<T>()?;
        for (image, target) in images.zip(part.chunks_exact_mut(shape.image())) {
            target.fill(T::default());
            for block in blocks(0..pixels, size) {
                let start = (image * pixels + block.start) * shape.out_depth;
                for group in 0..groups {
                    T::product(
                        (block.len(), patch, per_group),
                        (patches, View::rows(0, patch)),
                        (out_backprop, View::rows(start + group * per_group, shape.out_depth)),
                        (filter, View::rows(group * per_group, shape.out_depth).transposed()),
                        false,
                    );
                    scatter(shape, patches, group, block.clone(), target);
                }
            }
        }
        Ok(())
    })
}

/// Into how many parts the images are dealt for a filter gradient. It does not depend on the number of threads, so that the sum
/// has one order; a large filter makes fewer, as every part sums into a copy of it.
pub(crate) fn gradient_parts(batch: usize, filter: usize) -> usize {
    ((512 << 10) / filter.max(1)).clamp(4, 32).min(batch.max(1))
}

/// The gradient of [`forward`]'s filter from that of its output.
pub(crate) fn filter_gradient<T: Scalar>(
    ctx: &Context<'_>,
    shape: &ConvShape,
    input: &[T],
    out_backprop: &[T],
    gradient: &mut [T],
) -> Result<()> {
    gradient.fill(T::default());
    if shape.is_empty() {
        return Ok(());
    }
    let (patch, groups) = (shape.patch_size(), shape.groups());
    let per_group = shape.out_depth / groups;
    let pixels = shape.rows.output * shape.cols.output;
    sum_of_parts(ctx, shape, gradient, |images, sum| {
        let size = block_pixels(shape);
        let mut patches = scratch::<T>(size * patch)?;
        let patches = patches.as_mut_slice::<T>()?;
        for image in images {
            let source = &input[image * shape.image()..(image + 1) * shape.image()];
            for block in blocks(0..pixels, size) {
                let start = (image * pixels + block.start) * shape.out_depth;
                for group in 0..groups {
                    gather(shape, source, group, block.clone(), patches);
                    T::product(
                        (patch, per_group, block.len()),
                        (sum, View::rows(group * per_group, shape.out_depth)),
                        (patches, View::rows(0, patch).transposed()),
                        (out_backprop, View::rows(start + group * per_group, shape.out_depth)),
                        true,
                    );
                }
            }
        }
        Ok(())
    })
}

/// Deals the images into parts, lets `body` add the gradient of each part to zeros, and sums the parts into `gradient`.
pub(crate) fn sum_of_parts<T: Scalar>(
    ctx: &Context<'_>,
    shape: &ConvShape,
    gradient: &mut [T],
    body: impl Fn(Range<usize>, &mut [T]) -> Result<()> + Sync,
) -> Result<()> {
    let parts = gradient_parts(shape.batch, gradient.len());
    let length = gradient.len();
    let mut sums = Tensor::zeros(T::DTYPE, Shape::from_dims(&[parts, length])?)?;
    let cost =
        shape.batch.div_ceil(parts) as f64 * (shape.rows.output * shape.cols.output) as f64 * length as f64 * COST;
    let slots: Vec<Mutex<&mut [T]>> = sums.as_mut_slice::<T>()?.chunks_exact_mut(length).map(Mutex::new).collect();
    try_parallel_for(ctx, parts, cost, |range| {
        for part in range {
            let images = shape.batch * part / parts..shape.batch * (part + 1) / parts;
            // Each part is one thread's, so that the lock is free; a panic elsewhere does not make the numbers wrong.
            let mut sum = slots[part].lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            body(images, &mut sum)?;
        }
        Ok(())
    })?;
    drop(slots);
    let sums = sums.as_slice::<T>()?;
    ctx.parallel_chunks(gradient, 1, parts as f64 * 0.2, |range, target| {
        target.copy_from_slice(&sums[range.clone()]);
        for part in sums.chunks_exact(length).skip(1) {
            target.iter_mut().zip(&part[range.clone()]).for_each(|(t, s)| *t = t.plus(*s));
        }
    });
    Ok(())
}
