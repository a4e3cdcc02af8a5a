//! From 32 bits to 8 with a range for each channel.

use super::range::{Range, number, set_range};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, QInt8, QInt32, QUInt8, Result, Tensor, internal, invalid_argument};

/// Nanoseconds for an element.
const COST: f64 = 2.0;
/// Levels on either side of 0, as a scale.
const LEVELS: f32 = 2_147_483_648.0;

/// The largest magnitude in the range of each channel.
fn magnitudes(low: &Tensor, high: &Tensor) -> Result<Vec<f32>> {
    let (low, high) = (low.as_slice::<f32>()?, high.as_slice::<f32>()?);
    Ok(low.iter().zip(high).map(|(low, high)| low.abs().max(high.abs())).collect())
}

/// `RequantizePerChannel(input, input_min, input_max, requested_output_min, requested_output_max) -> (output, output_min,
/// output_max)`, of images with the channels last.
struct Requantize(DType);

impl Kernel for Requantize {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (input, low, high) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        if input.shape().rank() != 4 {
            return Err(invalid_argument!("Current RequantizePerChannel operatorsupports 4D tensors only."));
        }
        let depth = low.num_elements();
        if high.num_elements() != depth {
            return Err(invalid_argument!(
                "input_max has incorrect size, expected {depth} was {}",
                high.num_elements()
            ));
        }
        if input.shape().dim(3) != depth {
            return Err(invalid_argument!(
                "input_min must have an element for each of the {} channels, has {depth}",
                input.shape().dim(3)
            ));
        }
        let to = Range { low: number(ctx, 3, "requested_output_min")?, high: number(ctx, 4, "requested_output_max")? };
        if self.0 == DType::QInt8 && (to.low.is_nan() || to.low >= 0.0) {
            return Err(invalid_argument!(
                "If out_type is QINT8, requested_output_max must be non negative, got {}",
                to.low
            ));
        }
        let factor = if self.0 == DType::QInt8 { 127.0 } else { 255.0 };
        let requested = to.low.abs().max(to.high.abs());
        let scales: Vec<f32> =
            magnitudes(low, high)?.iter().map(|magnitude| factor * (magnitude / requested / LEVELS)).collect();
        let x = input.as_slice::<QInt32>()?;
        let scaled = |at: usize| (x[at].0 as f32 * scales[at % depth]).round_ties_even();
        let mut output = ctx.alloc_output(0, input.shape().clone())?;
        match self.0 {
            DType::QInt8 => ctx.parallel_chunks(output.as_mut_slice::<QInt8>()?, 1, COST, |range, part| {
                part.iter_mut().zip(range).for_each(|(to, at)| *to = QInt8(scaled(at) as i8));
            }),
            DType::QUInt8 => ctx.parallel_chunks(output.as_mut_slice::<QUInt8>()?, 1, COST, |range, part| {
                part.iter_mut().zip(range).for_each(|(to, at)| *to = QUInt8(scaled(at) as u8));
            }),
            other => return Err(internal!("32 bits are not requantised to {other}")),
        }
        ctx.set_output(0, output)?;
        set_range(ctx, to)
    }
}

/// `RequantizationRangePerChannel(input, input_min, input_max) -> (output_min, output_max)`: the range that the channels take
/// together, cut off at `clip_value_max`.
struct UsedRange {
    clip: f32,
}

impl Kernel for UsedRange {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (input, low, high) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        let depth = high.num_elements();
        if low.num_elements() != depth {
            return Err(invalid_argument!("input_min has incorrect size, expected {depth} was {}", low.num_elements()));
        }
        if input.num_elements() == 0 {
            return Err(invalid_argument!("input must not be empty"));
        }
        if input.shape().rank() != 4 {
            return Err(invalid_argument!("input must be in NHWC format"));
        }
        let channels = input.shape().dim(3);
        if channels != depth {
            return Err(invalid_argument!(
                "input must have same number of channels as length of input_min: {channels} vs {depth}"
            ));
        }
        let x = input.as_slice::<QInt32>()?;
        let mut largest = vec![0u32; depth];
        for row in x.chunks_exact(depth) {
            largest.iter_mut().zip(row).for_each(|(largest, x)| *largest = (*largest).max(x.0.unsigned_abs()));
        }
        let ranges = magnitudes(low, high)?;
        let widest = ranges.iter().zip(&largest).map(|(scale, &level)| scale * level as f32 / LEVELS);
        let high = widest.fold(f32::MIN_POSITIVE, f32::max).min(self.clip);
        let low = if x.iter().any(|x| x.0 < 0) { -high } else { 0.0 };
        ctx.set_scalar(0, low)?;
        ctx.set_scalar(1, high)
    }
}

pub(super) fn register(registry: &mut Registry) {
    let wide = &[DType::QInt32];
    for dtype in [DType::QInt8, DType::QUInt8] {
        registry
            .op("RequantizePerChannel")
            .types("T", wide)
            .types("out_type", &[dtype])
            .kernel(|c: &Construction<'_>| c.dtype("out_type").map(Requantize));
    }
    registry
        .op("RequantizationRangePerChannel")
        .types("T", wide)
        .kernel(|c: &Construction<'_>| Ok(UsedRange { clip: c.attrs().float("clip_value_max")? }));
}
