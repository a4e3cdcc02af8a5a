//! `QuantizedInstanceNorm`.

use super::range::{Range, range, set_range};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, QUInt8, Result, invalid_argument};

/// `QuantizedInstanceNorm(x, x_min, x_max) -> (y, y_min, y_max)`: each channel of each image with mean 0 and variance 1, in a range
/// that is given or the one that the results take.
struct InstanceNorm {
    epsilon: f32,
    separation: f32,
    given: Option<Range>,
}

impl InstanceNorm {
    fn new(c: &Construction<'_>) -> Result<InstanceNorm> {
        let attrs = c.attrs();
        let range = Range { low: attrs.float("given_y_min")?, high: attrs.float("given_y_max")? };
        let is_given = attrs.bool("output_range_given")?;
        if is_given && (range.low.is_nan() || range.high.is_nan() || range.low >= range.high) {
            return Err(invalid_argument!(
                "given_y_min must be less than given_y_max : {} >= {}",
                range.low,
                range.high
            ));
        }
        Ok(InstanceNorm {
            epsilon: attrs.float("variance_epsilon")?,
            separation: attrs.float("min_separation")?,
            given: is_given.then_some(range),
        })
    }
}

impl Kernel for InstanceNorm {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        let from = range(ctx, 1, ["input_min", "input_max"])?;
        if from.low.is_nan() || from.high.is_nan() || from.low >= from.high {
            return Err(invalid_argument!("input_min must be less than input_max : {} >= {}", from.low, from.high));
        }
        let shape = input.shape();
        if shape.rank() != 4 {
            return Err(invalid_argument!("input must be 4-dimensional{shape}"));
        }
        let scale = (from.high - from.low) / 255.0;
        let (pixels, channels) = (shape.dim(1) * shape.dim(2), shape.dim(3));
        let x = input.as_slice::<QUInt8>()?;
        let mut normed = vec![0f32; x.len()];
        if !x.is_empty() {
            for (image, normed) in x.chunks_exact(pixels * channels).zip(normed.chunks_exact_mut(pixels * channels)) {
                for channel in 0..channels {
                    let levels = || image.iter().skip(channel).step_by(channels).map(|x| f32::from(x.0));
                    let mean = levels().sum::<f32>() / pixels as f32;
                    let square = |level: f32| (scale * (level - mean)) * (scale * (level - mean));
                    let variance = levels().map(square).sum::<f32>() / pixels as f32;
                    let factor = 1.0 / (variance + self.epsilon).sqrt();
                    let places = normed.iter_mut().skip(channel).step_by(channels);
                    places.zip(levels()).for_each(|(to, level)| *to = scale * (level - mean) * factor);
                }
            }
        }
        let used = || Range {
            low: normed.iter().copied().fold(f32::INFINITY, f32::min),
            high: normed.iter().copied().fold(f32::NEG_INFINITY, f32::max),
        };
        let mut to = self.given.unwrap_or_else(used);
        if to.high - to.low < self.separation {
            to.high = to.low + self.separation;
        }
        let steps = if to.high == to.low { 0.0 } else { (255.0 / f64::from(to.high - to.low)) as f32 };
        let lowest = (to.low * steps).round();
        let mut output = ctx.alloc_output(0, shape.clone())?;
        for (to, x) in output.as_mut_slice::<QUInt8>()?.iter_mut().zip(&normed) {
            *to = QUInt8(((x * steps).round() - lowest).clamp(0.0, 255.0) as u8);
        }
        ctx.set_output(0, output)?;
        set_range(ctx, to)
    }
}

pub(super) fn register(registry: &mut Registry) {
    registry.op("QuantizedInstanceNorm").types("T", &[DType::QUInt8]).kernel(InstanceNorm::new);
}
