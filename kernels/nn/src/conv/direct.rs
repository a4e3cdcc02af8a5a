//! Convolutions of `f32` without patches: tiles of pixels by channels are summed in registers, over a copy of the image with its
//! padding (the scheme of Georganas et al., "Anatomy of High-Performance Deep Learning Convolutions on SIMD Architectures", 2018,
//! for images with the channels last).

use super::attrs::ConvShape;
use super::general::{image_parts, sum_of_parts};
use super::tile::{Correlation, Outer, Run, Tiles};
use crate::convert::try_parallel_chunks;
use crate::window::Axis;
use graphmill_runtime::Context;
use graphmill_tensor::{DType, Result, Shape, Tensor};

/// Nanoseconds for a multiplication and an addition, roughly.
const COST: f64 = 0.015;

/// Elements of padded rows, and rows of a panel, that are worked on at once: each half of a second-level cache.
const ROWS: usize = 48 << 10;
const PANEL_ROWS: usize = 2048;

/// One dimension of a sliding window, and where its elements lie in a padded copy of the source.
#[derive(Clone, Copy)]
struct Slide {
    /// Positions of the window.
    output: usize,
    /// Steps of the source from one position to the next.
    stride: usize,
    /// Elements of the window, and steps of the source from one to the next.
    window: usize,
    dilation: usize,
    /// Elements of the source, and elements of padding before it; negative padding cuts elements off.
    source: usize,
    before: i64,
}

impl Slide {
    fn forward(axis: &Axis) -> Slide {
        Slide {
            output: axis.output,
            stride: axis.stride,
            window: axis.window,
            dilation: axis.dilation,
            source: axis.input,
            before: axis.before as i64,
        }
    }

    /// The window that gathers the gradient of the input, for a stride of 1: over the output's gradient, mirrored.
    fn backward(axis: &Axis) -> Slide {
        Slide {
            output: axis.input,
            stride: 1,
            window: axis.window,
            dilation: axis.dilation,
            source: axis.output,
            before: ((axis.window - 1) * axis.dilation) as i64 - axis.before as i64,
        }
    }

    /// Elements of the padded source under `positions` neighbouring positions.
    fn extent(&self, positions: usize) -> usize {
        (positions.max(1) - 1) * self.stride + (self.window - 1) * self.dilation + 1
    }

    /// Whether the source needs no padding.
    fn is_plain(&self) -> bool {
        self.before == 0 && self.extent(self.output) <= self.source
    }
}

/// A source image with its padding, from some row on; or the image itself where that needs none.
struct Padded<'a> {
    elements: &'a [f32],
    /// Elements from one row to the next.
    row: usize,
}

/// Copies the rows under positions `first..first + count` of `rows` into `buffer`, with padding.
fn pad<'a>(
    (rows, cols, depth): (&Slide, &Slide, usize),
    image: &'a [f32],
    (first, count): (usize, usize),
    buffer: &'a mut [f32],
) -> Padded<'a> {
    if rows.is_plain() && cols.is_plain() {
        let row = cols.source * depth;
        return Padded { elements: &image[first * rows.stride * row..], row };
    }
    let width = cols.extent(cols.output);
    let row = width * depth;
    let left = usize::try_from(cols.before).unwrap_or(0).min(width);
    let cut = usize::try_from(-cols.before).unwrap_or(0).min(cols.source);
    let copied = (width - left).min(cols.source - cut);
    for (number, line) in buffer[..rows.extent(count) * row].chunks_exact_mut(row).enumerate() {
        let at = (first * rows.stride + number) as i64 - rows.before;
        match usize::try_from(at).ok().filter(|&at| at < rows.source) {
            Some(at) => {
                let from = (at * cols.source + cut) * depth;
                line[..left * depth].fill(0.0);
                line[left * depth..(left + copied) * depth].copy_from_slice(&image[from..from + copied * depth]);
                line[(left + copied) * depth..].fill(0.0);
            }
            None => line.fill(0.0),
        }
    }
    Padded { elements: buffer, row }
}

/// The runs of source elements under a window, in the order of the window's rows, columns and channels. Without dilation a row
/// of the window is one run.
fn runs(rows: &Slide, cols: &Slide, depth: usize, row: usize) -> Vec<Run> {
    let per_row = if cols.dilation == 1 { 1 } else { cols.window };
    let length = if cols.dilation == 1 { cols.window * depth } else { depth };
    let taps = (0..rows.window).flat_map(|y| (0..per_row).map(move |x| (y, x)));
    taps.map(|(y, x)| Run { offset: y * rows.dilation * row + x * cols.dilation * depth, length }).collect()
}

/// Cuts runs into groups of at most [`PANEL_ROWS`] elements.
fn grouped(runs: &[Run]) -> Vec<Vec<Run>> {
    let mut groups = vec![Vec::new()];
    let mut room = PANEL_ROWS;
    for run in runs {
        let (mut offset, end) = (run.offset, run.offset + run.length);
        while offset < end {
            if room == 0 {
                groups.push(Vec::new());
                room = PANEL_ROWS;
            }
            let length = (end - offset).min(room);
            if let Some(group) = groups.last_mut() {
                group.push(Run { offset, length });
            }
            offset += length;
            room -= length;
        }
    }
    groups
}

/// Splits `total` into the fewest parts of at most `limit`, as even as can be.
fn even_parts(total: usize, limit: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let parts = total.div_ceil(limit);
    (0..parts).map(move |part| total * part / parts..total * (part + 1) / parts)
}

/// Weights in panels: for every block of output channels as wide as a tile, one row of weights for each element of a window.
struct Panels {
    tensor: Tensor,
    block: usize,
    size: usize,
    channels: usize,
}

impl Panels {
    /// Packs weights; `weight(k, first, row)` fills the row of window element `k` with the channels from `first` on.
    fn pack(
        ctx: &Context<'_>,
        tiles: &Tiles,
        (size, channels): (usize, usize),
        weight: impl Fn(usize, usize, &mut [f32]) + Sync,
    ) -> Result<Panels> {
        let block = tiles.panel_width(channels);
        let blocks = channels.div_ceil(block);
        let mut tensor = Tensor::alloc(DType::Float, Shape::from_dims(&[blocks, size, block])?)?;
        ctx.parallel_chunks(tensor.as_mut_slice::<f32>()?, block, block as f64 * 0.5, |range, part| {
            for (at, row) in range.zip(part.chunks_exact_mut(block)) {
                let first = at / size * block;
                let (used, unused) = row.split_at_mut((channels - first).min(block));
                weight(at % size, first, used);
                unused.fill(0.0);
            }
        });
        Ok(Panels { tensor, block, size, channels })
    }

    fn blocks(&self) -> usize {
        self.channels.div_ceil(self.block)
    }
}

/// Slides a window with packed weights over images: the sums at each position fill `output`.
fn slide(
    ctx: &Context<'_>,
    tiles: &Tiles,
    (rows, cols, depth): (&Slide, &Slide, usize),
    images: &[f32],
    panels: &Panels,
    output: &mut [f32],
) -> Result<()> {
    let plain = rows.is_plain() && cols.is_plain();
    let width = if plain { cols.source } else { cols.extent(cols.output) };
    let all = runs(rows, cols, depth, width * depth);
    let reach = all.iter().map(|r| r.offset + r.length).max().unwrap_or(0);
    let groups = grouped(&all);
    let (channels, image_size) = (panels.channels, rows.source * cols.source * depth);
    let row_size = cols.output * channels;
    let per_block = ((ROWS / (width * depth).max(1)).saturating_sub(rows.extent(1)) / rows.stride + 1).min(rows.output);
    let cost = row_size as f64 * panels.size as f64 * COST;
    let weights = panels.tensor.as_slice::<f32>()?;
    try_parallel_chunks(ctx, output, row_size, cost, |range, part| {
        let room = if plain { 0 } else { rows.extent(per_block) * width * depth };
        let mut buffer = Tensor::alloc(DType::Float, Shape::vector(room))?;
        let buffer = buffer.as_mut_slice::<f32>()?;
        for (image, image_rows, at) in image_parts(range, rows.output) {
            let image = &images[image * image_size..(image + 1) * image_size];
            for first in image_rows.clone().step_by(per_block) {
                let count = per_block.min(image_rows.end - first);
                let source = pad((rows, cols, depth), image, (first, count), buffer);
                let target = &mut part[(at + first - image_rows.start) * row_size..][..count * row_size];
                for block in 0..panels.blocks() {
                    let mut panel = &weights[block * panels.size * panels.block..][..panels.size * panels.block];
                    let channel = block * panels.block;
                    for (number, group) in groups.iter().enumerate() {
                        let used: usize = group.iter().map(|r| r.length).sum();
                        let (now, later) = panel.split_at(used * panels.block);
                        panel = later;
                        for (row, target) in target.chunks_exact_mut(row_size).enumerate() {
                            for pixels in even_parts(cols.output, tiles.pixels()) {
                                let correlation = Correlation {
                                    source: source.elements,
                                    start: row * rows.stride * source.row + pixels.start * cols.stride * depth,
                                    step: cols.stride * depth,
                                    runs: group,
                                    reach,
                                    panel: now,
                                    panel_step: panels.block,
                                    pixels: pixels.len(),
                                    channels: panels.block.min(channels - channel),
                                    add: number > 0,
                                };
                                tiles.correlate(
                                    &correlation,
                                    &mut target[pixels.start * channels + channel..],
                                    channels,
                                );
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    })
}

/// Whether a shape is one for this file: without groups, and large enough that packing pays.
fn suits(shape: &ConvShape) -> bool {
    shape.groups() == 1 && !shape.is_empty()
}

/// As [`super::general::forward`]; `None` if the shape or the machine is none for this.
pub(super) fn forward(
    ctx: &Context<'_>,
    shape: &ConvShape,
    input: &[f32],
    filter: &[f32],
    output: &mut [f32],
) -> Option<Result<()>> {
    let tiles = Tiles::detect().filter(|_| suits(shape))?;
    let (rows, cols) = (Slide::forward(&shape.rows), Slide::forward(&shape.cols));
    let channels = shape.out_depth;
    let panels = Panels::pack(ctx, tiles, (shape.patch_size(), channels), |k, first, row| {
        row.copy_from_slice(&filter[k * channels + first..][..row.len()]);
    });
    Some(panels.and_then(|panels| slide(ctx, tiles, (&rows, &cols, shape.in_depth), input, &panels, output)))
}

/// As [`super::general::input_gradient`]; `None` if the shape or the machine is none for this.
pub(super) fn input_gradient(
    ctx: &Context<'_>,
    shape: &ConvShape,
    filter: &[f32],
    out_backprop: &[f32],
    gradient: &mut [f32],
) -> Option<Result<()>> {
    let tiles = Tiles::detect().filter(|_| suits(shape) && shape.rows.stride == 1 && shape.cols.stride == 1)?;
    let (rows, cols) = (Slide::backward(&shape.rows), Slide::backward(&shape.cols));
    let (in_depth, out_depth) = (shape.in_depth, shape.out_depth);
    let taps = shape.rows.window * shape.cols.window;
    let panels = Panels::pack(ctx, tiles, (taps * out_depth, in_depth), |k, first, row| {
        // The window mirrored, and input and output channels exchanged.
        let (tap, out_channel) = (taps - 1 - k / out_depth, k % out_depth);
        let from = &filter[(tap * in_depth + first) * out_depth + out_channel..];
        row.iter_mut().zip(from.iter().step_by(out_depth)).for_each(|(to, from)| *to = *from);
    });
    Some(panels.and_then(|panels| slide(ctx, tiles, (&rows, &cols, out_depth), out_backprop, &panels, gradient)))
}

/// As [`super::general::filter_gradient`]; `None` if the shape or the machine is none for this.
pub(super) fn filter_gradient(
    ctx: &Context<'_>,
    shape: &ConvShape,
    input: &[f32],
    out_backprop: &[f32],
    gradient: &mut [f32],
) -> Option<Result<()>> {
    let tiles = Tiles::detect().filter(|_| suits(shape))?;
    let (rows, cols) = (Slide::forward(&shape.rows), Slide::forward(&shape.cols));
    let (depth, channels) = (shape.in_depth, shape.out_depth);
    let plain = rows.is_plain() && cols.is_plain();
    let width = if plain { cols.source } else { cols.extent(cols.output) };
    let all = runs(&rows, &cols, depth, width * depth);
    let output_size = rows.output * shape.output_row();
    Some(sum_of_parts(ctx, shape, gradient, |images, sum| {
        let room = if plain { 0 } else { rows.extent(rows.output) * width * depth };
        let mut buffer = Tensor::alloc(DType::Float, Shape::vector(room))?;
        let buffer = buffer.as_mut_slice::<f32>()?;
        for image in images {
            let from = &input[image * shape.image()..(image + 1) * shape.image()];
            let source = pad((&rows, &cols, depth), from, (0, rows.output), buffer);
            let out_backprop = &out_backprop[image * output_size..(image + 1) * output_size];
            // The channels outermost: what one tile reads of the gradient then stays in the first-level cache.
            for first in (0..channels).step_by(tiles.width()) {
                let mut tap = 0;
                for run in &all {
                    for taps in even_parts(run.length, tiles.pixels()) {
                        let outer = Outer {
                            source: source.elements,
                            start: run.offset + taps.start,
                            row: rows.stride * source.row,
                            step: cols.stride * depth,
                            gradient: out_backprop,
                            gradient_start: first,
                            gradient_row: shape.output_row(),
                            gradient_step: channels,
                            rows: rows.output,
                            cols: cols.output,
                            taps: taps.len(),
                            channels: tiles.width().min(channels - first),
                        };
                        tiles.outer(&outer, &mut sum[(tap + taps.start) * channels + first..], channels);
                    }
                    tap += run.length;
                }
            }
        }
        Ok(())
    }))
}
