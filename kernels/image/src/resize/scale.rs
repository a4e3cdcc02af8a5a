//! `ScaleAndTranslate` and its gradient: resampling with a filter.

use crate::real::{REALS, Real};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Shape, Tensor, dispatch, internal, invalid_argument};
use std::f32::consts::PI;

/// Nanoseconds a product takes, roughly.
const COST: f64 = 0.5;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("ScaleAndTranslate").types("T", &REALS).kernel(|c| Ok(ScaleAndTranslate(Sampling::new(c)?)));
    registry
        .op("ScaleAndTranslateGrad")
        .types("T", &[DType::Float])
        .kernel(|c| Ok(ScaleAndTranslateGrad(Sampling::new(c)?)));
}

/// A filter: how much a pixel counts by its distance.
#[derive(Clone, Copy)]
enum Filter {
    Lanczos(f32),
    Gaussian,
    Box,
    Triangle,
    KeysCubic,
    MitchellCubic,
}

impl Filter {
    fn from_name(name: &str) -> Result<Filter> {
        Ok(match name {
            "lanczos1" => Filter::Lanczos(1.0),
            "lanczos3" => Filter::Lanczos(3.0),
            "lanczos5" => Filter::Lanczos(5.0),
            "gaussian" => Filter::Gaussian,
            "box" => Filter::Box,
            "triangle" => Filter::Triangle,
            "keyscubic" => Filter::KeysCubic,
            "mitchellcubic" => Filter::MitchellCubic,
            other => return Err(invalid_argument!("Unrecognized kernel type: {other}")),
        })
    }

    /// The distance from which on pixels do not count.
    fn radius(self) -> f32 {
        match self {
            Filter::Lanczos(radius) => radius,
            Filter::Gaussian => 1.5,
            Filter::Box | Filter::Triangle => 1.0,
            Filter::KeysCubic | Filter::MitchellCubic => 2.0,
        }
    }

    fn weight(self, distance: f32) -> f32 {
        let x = distance.abs();
        match self {
            Filter::Lanczos(radius) if x > radius => 0.0,
            Filter::Lanczos(_) if x <= 1e-3 => 1.0,
            Filter::Lanczos(radius) => radius * (PI * x).sin() * (PI * x / radius).sin() / (PI * PI * x * x),
            Filter::Gaussian if x >= 1.5 => 0.0,
            Filter::Gaussian => (f64::from(-x * x) / (2.0 * 0.25)).exp() as f32,
            Filter::Box if x < 0.5 => 1.0,
            Filter::Box if x == 0.5 => 0.5,
            Filter::Box => 0.0,
            Filter::Triangle => (1.0 - x).max(0.0),
            _ if x >= 2.0 => 0.0,
            Filter::KeysCubic if x >= 1.0 => ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0,
            Filter::KeysCubic => ((1.5 * x - 2.5) * x) * x + 1.0,
            Filter::MitchellCubic if x >= 1.0 => (((-7.0 / 18.0) * x + 2.0) * x - 10.0 / 3.0) * x + 16.0 / 9.0,
            Filter::MitchellCubic => (((7.0 / 6.0) * x - 2.0) * x) * x + 8.0 / 9.0,
        }
    }
}

/// The attributes of both ops.
struct Sampling {
    filter: Filter,
    antialias: bool,
}

/// The pixels that one of the result is made of: the first one, and the weights from there on.
#[derive(Clone, Default)]
struct Span {
    start: usize,
    weights: Vec<f32>,
}

impl Sampling {
    fn new(c: &Construction<'_>) -> Result<Sampling> {
        let filter = Filter::from_name(c.attrs().str("kernel_type")?)?;
        Ok(Sampling { filter, antialias: c.attrs().bool("antialias")? })
    }

    /// For each place of the result along an axis, what it is made of.
    fn spans(&self, output: usize, input: usize, scale: f32, translation: f32) -> Vec<Span> {
        let inverse = (1.0 / f64::from(scale)) as f32;
        let offset = -inverse * translation;
        // The filter grows with what one pixel of the result covers, but never below the size of a pixel.
        let stretch = if self.antialias { inverse.max(1.0) } else { 1.0 };
        let reach = self.filter.radius() * stretch;
        let last = input as i64 - 1;
        (0..output)
            .map(|at| {
                let sample = (at as f32 + 0.5) * inverse + offset;
                if sample.is_nan() || sample < 0.0 || sample > input as f32 {
                    return Span::default();
                }
                let start = ((sample - reach - 0.5).ceil() as i64).clamp(0, last);
                let end = ((sample + reach - 0.5).floor() as i64).clamp(0, last);
                let weight = |source: i64| self.filter.weight((source as f32 + 0.5 - sample) * (1.0 / stretch));
                let mut weights: Vec<f32> = (start..=end).map(weight).collect();
                let sum: f32 = weights.iter().sum();
                if sum.abs() < 1000.0 * f32::MIN_POSITIVE {
                    return Span::default();
                }
                let inverse_sum = 1.0 / sum;
                weights.iter_mut().for_each(|weight| *weight *= inverse_sum);
                Span { start: start as usize, weights }
            })
            .collect()
    }

    /// The spans of the gradient: which places of the result a pixel went into.
    fn gradient_spans(&self, output: usize, input: usize, scale: f32, translation: f32) -> Vec<Span> {
        let mut result: Vec<Span> = vec![Span::default(); input];
        for (at, span) in self.spans(output, input, scale, translation).iter().enumerate() {
            for (source, &weight) in result.iter_mut().skip(span.start).zip(&span.weights) {
                if weight == 0.0 {
                    continue;
                }
                if source.weights.is_empty() {
                    source.start = at;
                }
                source.weights.resize(at - source.start, 0.0);
                source.weights.push(weight);
            }
        }
        result
    }
}

fn pair(ctx: &Context<'_>, i: usize) -> Result<[f32; 2]> {
    let tensor = ctx.input(i)?;
    if !tensor.shape().is_vector() {
        return Err(invalid_argument!("t must be 1-dimensional{}", tensor.shape()));
    }
    match tensor.as_slice::<f32>()? {
        &[a, b] => Ok([a, b]),
        _ => Err(invalid_argument!("t must have two elements{}", tensor.shape())),
    }
}

fn scales(ctx: &Context<'_>) -> Result<[f32; 2]> {
    let scales = pair(ctx, 2)?;
    if scales.iter().all(|&scale| scale > 0.0) {
        return Ok(scales);
    }
    Err(invalid_argument!("Scale must be greater than zero."))
}

/// Resamples rows, then columns.
fn gather<T: Real>(
    ctx: &Context<'_>,
    image: &[T],
    dims: [usize; 4],
    rows: &[Span],
    columns: &[Span],
    output: &mut [f32],
) {
    let [_, height, width, channels] = dims;
    let (row, new_row) = (width * channels, columns.len() * channels);
    let taps = rows.iter().chain(columns).map(|span| span.weights.len()).max().unwrap_or(1);
    ctx.parallel_chunks(output, new_row, (row * taps) as f64 * COST, |range, output| {
        let mut sums = vec![0.0f32; row];
        for (index, output) in range.zip(output.chunks_exact_mut(new_row)) {
            let (picture, span) = (index / rows.len(), &rows[index % rows.len()]);
            sums.fill(0.0);
            for (tap, &weight) in span.weights.iter().enumerate() {
                let line = &image[(picture * height + span.start + tap) * row..][..row];
                sums.iter_mut().zip(line).for_each(|(sum, value)| *sum += weight * value.to_f32());
            }
            for (span, pixel) in columns.iter().zip(output.chunks_exact_mut(channels)) {
                pixel.fill(0.0);
                for (tap, &weight) in span.weights.iter().enumerate() {
                    let source = &sums[(span.start + tap) * channels..][..channels];
                    pixel.iter_mut().zip(source).for_each(|(sum, value)| *sum += weight * value);
                }
            }
        }
    });
}

/// Scales and moves images; what lies outside of an image is 0. The result is `float`.
struct ScaleAndTranslate(Sampling);

impl Kernel for ScaleAndTranslate {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (images, size) = (ctx.input(0)?, ctx.input(1)?);
        let &[batch, height, width, channels] = images.shape().dims() else {
            return Err(invalid_argument!("input must be 4-dimensional{}", images.shape()));
        };
        if !size.shape().is_vector() {
            return Err(invalid_argument!("output_shape_t must be 1-dimensional{}", size.shape()));
        }
        let &[new_height, new_width] = size.as_slice::<i32>()? else {
            return Err(invalid_argument!("output_shape_t must have two elements{}", size.shape()));
        };
        if height >= i32::MAX as usize || width >= i32::MAX as usize {
            return Err(invalid_argument!("input sizes must be between 0 and max int32"));
        }
        let positive = |size: i32| usize::try_from(size).ok().filter(|&size| size > 0);
        let (Some(new_height), Some(new_width)) = (positive(new_height), positive(new_width)) else {
            return Err(invalid_argument!("output dimensions must be positive"));
        };
        if channels == 0 {
            return Err(invalid_argument!("image must have at least one channel"));
        }
        if height == 0 || width == 0 {
            return Err(invalid_argument!("input image must be of non-zero size"));
        }
        let ([row_scale, column_scale], [down, right]) = (scales(ctx)?, pair(ctx, 3)?);
        let shape = Shape::from_dims(&[batch, new_height, new_width, channels])?;
        let mut output = Tensor::alloc(DType::Float, shape)?;
        if output.num_elements() > 0 {
            let rows = self.0.spans(new_height, height, row_scale, down);
            let columns = self.0.spans(new_width, width, column_scale, right);
            let dims = [batch, height, width, channels];
            let done = dispatch!(images.dtype(), T in reals => {
                gather::<T>(ctx, images.as_slice()?, dims, &rows, &columns, output.as_mut_slice()?);
                Ok(())
            });
            done.unwrap_or_else(|| Err(internal!("images cannot be of type {}", images.dtype())))?;
        }
        ctx.set_output(0, output)
    }
}

/// Each gradient goes to the pixels that its value came from, by their weights.
struct ScaleAndTranslateGrad(Sampling);

impl Kernel for ScaleAndTranslateGrad {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (gradient, original) = (ctx.input(0)?, ctx.input(1)?.shape());
        let &[batch, new_height, new_width, channels] = gradient.shape().dims() else {
            return Err(invalid_argument!("input_grad must be 4-dimensional{}", gradient.shape()));
        };
        let &[_, height, width, _] = original.dims() else {
            return Err(invalid_argument!("original_image must be 4-dimensional{original}"));
        };
        if height >= i32::MAX as usize || width >= i32::MAX as usize {
            return Err(invalid_argument!("original sizes must be between 0 and max int32"));
        }
        let ([row_scale, column_scale], [down, right]) = (scales(ctx)?, pair(ctx, 3)?);
        let mut output = Tensor::zeros(DType::Float, Shape::from_dims(&[batch, height, width, channels])?)?;
        if output.num_elements() > 0 && gradient.num_elements() > 0 {
            let rows = self.0.gradient_spans(new_height, height, row_scale, down);
            let columns = self.0.gradient_spans(new_width, width, column_scale, right);
            let dims = [batch, new_height, new_width, channels];
            gather::<f32>(ctx, gradient.as_slice()?, dims, &rows, &columns, output.as_mut_slice()?);
        }
        ctx.set_output(0, output)
    }
}
