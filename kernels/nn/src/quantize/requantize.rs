//! From 32 bits to 8: `Requantize`, `RequantizationRange`, `QuantizeDownAndShrinkRange`.

use super::range::{Range, Rescale, range, set_range};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, QInt8, QInt32, QUInt8, Result, Tensor, internal, invalid_argument};

/// Nanoseconds for an element.
const COST: f64 = 2.0;

/// Levels of 32 bits as bytes, in fixed-point arithmetic.
struct FixedPoint {
    scale: i64,
    offset: i64,
}

/// Bits behind the point.
const FRACTION: u32 = 16;

impl FixedPoint {
    fn new(from: Range, to: Range) -> FixedPoint {
        let one = f64::from(1u32 << FRACTION);
        let (from_width, to_width) = (from.high - from.low, to.high - to.low);
        if to_width == 0.0 {
            return FixedPoint { scale: 0, offset: 1 << (FRACTION - 1) };
        }
        let inverse = (255.0 / f64::from(to_width)) as f32;
        let middle = (f64::from(from.low + from.high) / 2.0) as f32;
        let scale = (255.0 * one * f64::from(from_width) / f64::from(to_width)) as i64;
        let from_offset = (middle * inverse * one as f32) as i64;
        let to_offset = (one * (f64::from(to.low) * 255.0) / f64::from(to_width)) as i64;
        FixedPoint { scale, offset: from_offset.wrapping_sub(to_offset).wrapping_add(1 << (FRACTION - 1)) }
    }

    fn byte(&self, level: i32) -> u8 {
        let value = (i64::from(level).wrapping_mul(self.scale) >> 32).wrapping_add(self.offset) >> FRACTION;
        value.clamp(0, 255) as u8
    }
}

/// The levels of `input` in another range and type.
fn requantized(ctx: &Context<'_>, input: &Tensor, from: Range, to: Range, dtype: DType) -> Result<Tensor> {
    let x = input.as_slice::<QInt32>()?;
    let mut result = Tensor::alloc(dtype, input.shape().clone())?;
    match dtype {
        DType::QUInt8 => {
            let fixed = FixedPoint::new(from, to);
            ctx.parallel_chunks(result.as_mut_slice::<QUInt8>()?, 1, COST, |range, part| {
                part.iter_mut().zip(&x[range]).for_each(|(to, x)| *to = QUInt8(fixed.byte(x.0)));
            });
        }
        DType::QInt8 => {
            let rescale = Rescale::new::<QInt32, QInt8>(from, to);
            ctx.parallel_chunks(result.as_mut_slice::<QInt8>()?, 1, COST, |range, part| {
                part.iter_mut().zip(&x[range]).for_each(|(to, x)| *to = QInt8(rescale.level(x.0 as f32) as i8));
            });
        }
        other => return Err(internal!("32 bits are not requantised to {other}")),
    }
    Ok(result)
}

/// The range that the elements really take, which is to hold 0.
fn used_range(input: &Tensor, range: Range) -> Result<Range> {
    let x = input.as_slice::<QInt32>()?;
    let low = x.iter().map(|x| x.0).min().unwrap_or(i32::MAX);
    let high = x.iter().map(|x| x.0).max().unwrap_or(i32::MIN);
    let number = |level: i32| range.number::<QInt32>(i64::from(level));
    Ok(Range { low: number(low).min(0.0), high: number(high) })
}

const INPUT: [&str; 2] = ["input_min", "input_max"];

/// `Requantize(input, input_min, input_max, requested_output_min, requested_output_max) -> (output, output_min, output_max)`.
struct Requantize(DType);

impl Kernel for Requantize {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let from = range(ctx, 1, INPUT)?;
        let to = range(ctx, 3, ["requested_output_min", "requested_output_max"])?;
        if to.low.is_nan() || to.low > 0.0 {
            return Err(invalid_argument!("requested_output_min must be <= 0, but got {}", to.low));
        }
        if to.high.is_nan() || to.high < to.low {
            return Err(invalid_argument!(
                "requested_output_max must be >= requested_output_min, but got {} and {}",
                to.high,
                to.low
            ));
        }
        let output = requantized(ctx, ctx.input(0)?, from, to, self.0)?;
        ctx.set_output(0, output)?;
        set_range(ctx, to)
    }
}

/// `RequantizationRange(input, input_min, input_max) -> (output_min, output_max)`.
struct UsedRange;

impl Kernel for UsedRange {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        for (i, text) in [(1, "Input min must not be empty."), (2, "Input max must not be empty.")] {
            if ctx.input(i)?.num_elements() == 0 {
                return Err(invalid_argument!("{text}"));
            }
        }
        let used = used_range(ctx.input(0)?, range(ctx, 1, INPUT)?)?;
        ctx.set_scalar(0, used.low)?;
        ctx.set_scalar(1, used.high)
    }
}

/// `QuantizeDownAndShrinkRange(input, input_min, input_max) -> (output, output_min, output_max)`: into the range that is used.
struct Shrink;

impl Kernel for Shrink {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let from = range(ctx, 1, INPUT)?;
        let to = used_range(ctx.input(0)?, from)?;
        let output = requantized(ctx, ctx.input(0)?, from, to, DType::QUInt8)?;
        ctx.set_output(0, output)?;
        set_range(ctx, to)
    }
}

pub(super) fn register(registry: &mut Registry) {
    let wide = &[DType::QInt32];
    for dtype in [DType::QInt8, DType::QUInt8] {
        registry
            .op("Requantize")
            .types("Tinput", wide)
            .types("out_type", &[dtype])
            .kernel(|c: &Construction<'_>| c.dtype("out_type").map(Requantize));
    }
    registry.op("RequantizationRange").types("Tinput", wide).kernel(|_| Ok(UsedRange));
    registry
        .op("QuantizeDownAndShrinkRange")
        .types("Tinput", wide)
        .types("out_type", &[DType::QUInt8])
        .kernel(|_| Ok(Shrink));
}
