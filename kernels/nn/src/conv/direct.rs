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
struct Slide {
    /// Positions of the window.
    output: usize,
    /// Steps of the source from one position to the next.
    stride: usize,
    /// The elements of the filter under the window, and how far behind a position each looks, in ascending order.
    taps: Vec<(usize, usize)>,
    /// Elements of the source, and elements of padding before it; negative padding cuts elements off.
    source: usize,
    before: i64,
}

impl Slide {
    fn forward(axis: &Axis) -> Slide {
        Slide {
            output: axis.output,
            stride: axis.stride,
            taps: (0..axis.window).map(|tap| (tap, tap * axis.dilation)).collect(),
            source: axis.input,
            before: axis.before as i64,
        }
    }

    /// The windows that gather the gradient of the input from that of the output, and the first input element that each is for:
    /// every stride-th element from there on sees the same part of the filter, mirrored.
    fn backward(axis: &Axis) -> Vec<(usize, Slide)> {
        let window = |first: usize| {
            // Element first + t of the input lies at phase + stride * (start + t) of the padded input, so tap k carries it to
            // output start + t - (k * dilation - phase) / stride, if that is whole.
            let (phase, start) = ((first + axis.before) % axis.stride, (first + axis.before) / axis.stride);
            let whole = |tap: &usize| (tap * axis.dilation) % axis.stride == phase;
            let back = |tap: usize| (tap * axis.dilation - phase) / axis.stride;
            let farthest = (0..axis.window).filter(whole).map(back).max().unwrap_or(0);
            let slide = Slide {
                output: (axis.input - first).div_ceil(axis.stride),
                stride: 1,
                taps: (0..axis.window).rev().filter(whole).map(|tap| (tap, farthest - back(tap))).collect(),
                source: axis.output,
                before: farthest as i64 - start as i64,
            };
            (first, slide)
        };
        (0..axis.stride.min(axis.input)).map(window).collect()
    }

    /// Elements of the padded source under `positions` neighbouring positions.
    fn extent(&self, positions: usize) -> usize {
        (positions.max(1) - 1) * self.stride + self.taps.last().map_or(0, |(_, offset)| *offset) + 1
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

/// The runs of source elements under a window, in the order of the window's rows, columns and channels. Neighbouring columns are
/// one run.
fn runs(rows: &Slide, cols: &Slide, depth: usize, row: usize) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (_, y) in &rows.taps {
        for (_, x) in &cols.taps {
            let offset = y * row + x * depth;
            match runs.last_mut() {
                Some(run) if run.offset + run.length == offset => run.length += depth,
                _ => runs.push(Run { offset, length: depth }),
            }
        }
    }
    runs
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

/// Where the sums of a window go: the element of the first position, and elements from one row and one column to the next.
#[derive(Clone, Copy)]
struct Places {
    first: usize,
    row: usize,
    col: usize,
}

/// A window with packed weights over images of `depth` channels.
struct Sliding<'a> {
    tiles: &'static Tiles,
    rows: &'a Slide,
    cols: &'a Slide,
    depth: usize,
    panels: &'a Panels,
    groups: Vec<Vec<Run>>,
    reach: usize,
}

impl<'a> Sliding<'a> {
    fn new(
        tiles: &'static Tiles,
        (rows, cols, depth): (&'a Slide, &'a Slide, usize),
        panels: &'a Panels,
    ) -> Sliding<'a> {
        let width = if rows.is_plain() && cols.is_plain() { cols.source } else { cols.extent(cols.output) };
        let all = runs(rows, cols, depth, width * depth);
        let reach = all.iter().map(|r| r.offset + r.length).max().unwrap_or(0);
        Sliding { tiles, rows, cols, depth, panels, groups: grouped(&all), reach }
    }

    /// Elements of an image.
    fn image(&self) -> usize {
        self.rows.source * self.cols.source * self.depth
    }

    /// Rows of positions to work on at once.
    fn rows_at_once(&self) -> usize {
        let row = self.cols.extent(self.cols.output) * self.depth;
        let rows = (ROWS / row.max(1)).saturating_sub(self.rows.extent(1)) / self.rows.stride + 1;
        rows.min(self.rows.output.max(1))
    }

    /// A buffer for [`Sliding::sum`].
    fn buffer(&self) -> Result<Tensor> {
        let plain = self.rows.is_plain() && self.cols.is_plain();
        let row = self.cols.extent(self.cols.output) * self.depth;
        let room = if plain { 0 } else { self.rows.extent(self.rows_at_once()) * row };
        Tensor::alloc(DType::Float, Shape::vector(room))
    }

    /// Puts the sums at the positions in `rows` of an image to their places in `target`.
    fn sum(
        &self,
        image: &[f32],
        rows: std::ops::Range<usize>,
        buffer: &mut [f32],
        target: &mut [f32],
        places: Places,
    ) -> Result<()> {
        let weights = self.panels.tensor.as_slice::<f32>()?;
        let (panels, step) = (self.panels, self.cols.stride * self.depth);
        for first in rows.clone().step_by(self.rows_at_once()) {
            let count = self.rows_at_once().min(rows.end - first);
            let source = pad((self.rows, self.cols, self.depth), image, (first, count), buffer);
            for block in 0..panels.blocks() {
                let mut panel = &weights[block * panels.size * panels.block..][..panels.size * panels.block];
                let channel = block * panels.block;
                for (number, group) in self.groups.iter().enumerate() {
                    let used: usize = group.iter().map(|r| r.length).sum();
                    let (now, later) = panel.split_at(used * panels.block);
                    panel = later;
                    for row in 0..count {
                        let to_row = places.first + (first - rows.start + row) * places.row + channel;
                        for pixels in even_parts(self.cols.output, self.tiles.pixels()) {
                            let correlation = Correlation {
                                source: source.elements,
                                start: row * self.rows.stride * source.row + pixels.start * step,
                                step,
                                runs: group,
                                reach: self.reach,
                                panel: now,
                                panel_step: panels.block,
                                pixels: pixels.len(),
                                channels: panels.block.min(panels.channels - channel),
                                add: number > 0,
                            };
                            let to = &mut target[to_row + pixels.start * places.col..];
                            self.tiles.correlate(&correlation, to, places.col);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}

/// Slides one window over all images; every position of it has a pixel of `output`.
fn slide(ctx: &Context<'_>, sliding: &Sliding<'_>, images: &[f32], output: &mut [f32]) -> Result<()> {
    let (rows, channels) = (sliding.rows, sliding.panels.channels);
    let row_size = sliding.cols.output * channels;
    let cost = row_size as f64 * sliding.panels.size as f64 * COST;
    try_parallel_chunks(ctx, output, row_size, cost, |range, part| {
        let mut buffer = sliding.buffer()?;
        let buffer = buffer.as_mut_slice::<f32>()?;
        for (image, image_rows, at) in image_parts(range, rows.output) {
            let image = &images[image * sliding.image()..(image + 1) * sliding.image()];
            let places = Places { first: at * row_size, row: row_size, col: channels };
            sliding.sum(image, image_rows, buffer, part, places)?;
        }
        Ok(())
    })
}

/// Elements that a padded image may have.
const PADDED: usize = 1 << 28;

/// Whether a shape is one for this file: without groups, and not mostly padding.
fn suits(shape: &ConvShape) -> bool {
    let padded = |axis: &Axis| {
        let window = axis.window.saturating_mul(axis.dilation);
        window.saturating_mul(2).saturating_add(axis.output.saturating_mul(axis.stride)).saturating_add(axis.input)
    };
    let pixels = padded(&shape.rows).saturating_mul(padded(&shape.cols));
    shape.groups() == 1
        && !shape.is_empty()
        && pixels.saturating_mul(shape.in_depth.max(shape.out_depth)) <= PADDED
        && shape.rows.stride.saturating_mul(shape.cols.stride) <= 64
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
    Some(panels.and_then(|panels| {
        let sliding = Sliding::new(tiles, (&rows, &cols, shape.in_depth), &panels);
        slide(ctx, &sliding, input, output)
    }))
}

/// The weights under the window of [`Slide::backward`]: input and output channels exchanged.
fn mirrored(
    ctx: &Context<'_>,
    tiles: &Tiles,
    shape: &ConvShape,
    filter: &[f32],
    (rows, cols): (&Slide, &Slide),
) -> Result<Panels> {
    let (in_depth, out_depth) = (shape.in_depth, shape.out_depth);
    let size = rows.taps.len() * cols.taps.len() * out_depth;
    Panels::pack(ctx, tiles, (size, in_depth), |k, first, row| {
        let (tap, out_channel) = (k / out_depth, k % out_depth);
        let (y, x) = (rows.taps[tap / cols.taps.len()].0, cols.taps[tap % cols.taps.len()].0);
        let from = &filter[((y * shape.cols.window + x) * in_depth + first) * out_depth + out_channel..];
        row.iter_mut().zip(from.iter().step_by(out_depth)).for_each(|(to, from)| *to = *from);
    })
}

/// As [`super::general::input_gradient`]; `None` if the shape or the machine is none for this.
pub(super) fn input_gradient(
    ctx: &Context<'_>,
    shape: &ConvShape,
    filter: &[f32],
    out_backprop: &[f32],
    gradient: &mut [f32],
) -> Option<Result<()>> {
    let tiles = Tiles::detect().filter(|_| suits(shape))?;
    Some(gather_gradient(ctx, tiles, shape, filter, out_backprop, gradient))
}

fn gather_gradient(
    ctx: &Context<'_>,
    tiles: &'static Tiles,
    shape: &ConvShape,
    filter: &[f32],
    out_backprop: &[f32],
    gradient: &mut [f32],
) -> Result<()> {
    let (all_rows, all_cols) = (Slide::backward(&shape.rows), Slide::backward(&shape.cols));
    let pairs: Vec<_> = all_rows.iter().flat_map(|rows| all_cols.iter().map(move |cols| (rows, cols))).collect();
    let panels: Result<Vec<Panels>> =
        pairs.iter().map(|((_, rows), (_, cols))| mirrored(ctx, tiles, shape, filter, (rows, cols))).collect();
    let panels = panels?;
    let windows: Vec<(Places, Sliding<'_>)> = pairs
        .iter()
        .zip(&panels)
        .map(|(((top, rows), (left, cols)), panels)| {
            let row = shape.cols.input * shape.in_depth;
            let places = Places {
                first: top * row + left * shape.in_depth,
                row: shape.rows.stride * row,
                col: shape.cols.stride * shape.in_depth,
            };
            (places, Sliding::new(tiles, (rows, cols, shape.out_depth), panels))
        })
        .collect();
    if let [(_, sliding)] = windows.as_slice() {
        return slide(ctx, sliding, out_backprop, gradient);
    }
    let cost = (shape.rows.output * shape.output_row() * shape.patch_size()) as f64 * COST;
    try_parallel_chunks(ctx, gradient, shape.image(), cost, |images, part| {
        for (image, target) in images.zip(part.chunks_exact_mut(shape.image())) {
            for (places, sliding) in &windows {
                let mut buffer = sliding.buffer()?;
                let source = &out_backprop[image * sliding.image()..(image + 1) * sliding.image()];
                sliding.sum(source, 0..sliding.rows.output, buffer.as_mut_slice::<f32>()?, target, *places)?;
            }
        }
        Ok(())
    })
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
