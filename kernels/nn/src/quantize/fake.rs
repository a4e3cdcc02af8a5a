//! `FakeQuantWithMinMax...`: floats rounded as if they were quantised, and the gradients that pass through.

use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Result, Shape, Tensor, invalid_argument};

/// Nanoseconds for an element.
const COST: f64 = 1.0;

/// Where the range comes from.
#[derive(Clone, Copy)]
enum Range {
    /// Attributes.
    Args(f32, f32),
    /// Scalars among the inputs.
    Vars,
    /// Vectors among the inputs, one range for each channel.
    PerChannel,
}

struct FakeQuant {
    range: Range,
    gradient: bool,
    /// The least and the largest quantised value.
    least: f32,
    most: f32,
}

/// A range that holds zero exactly, and the step between its values. `None` for a range of zero to zero.
#[derive(Clone, Copy)]
struct Nudged {
    low: f32,
    high: f32,
    step: f32,
}

impl FakeQuant {
    fn new(c: &Construction<'_>, range: Range, gradient: bool) -> Result<FakeQuant> {
        let attrs = c.attrs();
        let range = match range {
            Range::Args(..) => {
                let (low, high) = (attrs.float("min")?, attrs.float("max")?);
                if low >= high || low.is_nan() || high.is_nan() {
                    return Err(invalid_argument!("min has to be smaller than max, was: {low} >= {high}"));
                }
                Range::Args(low, high)
            }
            other => other,
        };
        let bits = attrs.int("num_bits")?;
        if !(2..=16).contains(&bits) {
            return Err(invalid_argument!("num_bits must be between 2 and 16, inclusive"));
        }
        let least = f32::from(u8::from(attrs.bool("narrow_range")?));
        Ok(FakeQuant { range, gradient, least, most: ((1u32 << bits) - 1) as f32 })
    }

    fn nudge(&self, low: f32, high: f32) -> Option<Nudged> {
        if low == 0.0 && high == 0.0 {
            return None;
        }
        let step = (high - low) / (self.most - self.least);
        let zero = self.least - low / step;
        let zero = if zero < self.least {
            self.least
        } else if zero > self.most {
            self.most
        } else {
            zero.round()
        };
        Some(Nudged { low: (self.least - zero) * step, high: (self.most - zero) * step, step })
    }

    /// The ranges, one for each channel or one for all. `first` is the input with the lower ends.
    fn ranges(&self, ctx: &Context<'_>, first: usize, shape: &Shape) -> Result<Vec<Option<Nudged>>> {
        if let Range::Args(low, high) = self.range {
            return Ok(vec![self.nudge(low, high)]);
        }
        let (low, high) = (ctx.input(first)?, ctx.input(first + 1)?);
        let per_channel = matches!(self.range, Range::PerChannel);
        let depth = if per_channel { shape.rank().checked_sub(1).map_or(0, |last| shape.dim(last)) } else { 1 };
        for (name, tensor) in [("min", low), ("max", high)] {
            let rank = usize::from(per_channel);
            if tensor.shape().rank() != rank {
                let rank_name = if per_channel { "a vector" } else { "a scalar" };
                return Err(invalid_argument!("`{name}` must be {rank_name}, got shape {}", tensor.shape()));
            }
            if tensor.num_elements() != depth {
                return Err(invalid_argument!(
                    "{name} has incorrect size, expected {depth} was {}",
                    tensor.num_elements()
                ));
            }
        }
        let (low, high) = (low.as_slice::<f32>()?, high.as_slice::<f32>()?);
        Ok(low.iter().zip(high).map(|(&low, &high)| self.nudge(low, high)).collect())
    }

    fn forward(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        let ranges = self.ranges(ctx, 1, input.shape())?;
        let mut out = ctx.alloc_output(0, input.shape().clone())?;
        let x = input.as_slice::<f32>()?;
        let step = ranges.len().max(1);
        ctx.parallel_chunks(out.as_mut_slice::<f32>()?, step, COST * step as f64, |rows, part| {
            for (row, out) in rows.zip(part.chunks_exact_mut(step)) {
                for ((out, &x), range) in out.iter_mut().zip(&x[row * step..]).zip(&ranges) {
                    *out = range
                        .map_or(0.0, |r| ((x.min(r.high).max(r.low) - r.low) / r.step + 0.5).floor() * r.step + r.low);
                }
            }
        });
        ctx.set_output(0, out)
    }

    fn backward(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (gradient, input) = (ctx.input(0)?, ctx.input(1)?);
        if gradient.shape() != input.shape() {
            return Err(invalid_argument!("gradient and input must be the same size"));
        }
        let ranges = self.ranges(ctx, 2, input.shape())?;
        let mut out = ctx.alloc_output(0, input.shape().clone())?;
        let (g, x) = (gradient.as_slice::<f32>()?, input.as_slice::<f32>()?);
        let (mut below, mut above) = (vec![0.0f32; ranges.len()], vec![0.0f32; ranges.len()]);
        for (at, out) in out.as_mut_slice::<f32>()?.iter_mut().enumerate() {
            let channel = at % ranges.len().max(1);
            let Some(range) = ranges[channel] else {
                *out = g[at];
                continue;
            };
            let inside = x[at] >= range.low && x[at] <= range.high;
            *out = if inside { g[at] } else { g[at] * 0.0 };
            if x[at] < range.low {
                below[channel] += g[at];
            }
            if x[at] > range.high {
                above[channel] += g[at];
            }
        }
        ctx.set_output(0, out)?;
        let shape = match self.range {
            Range::Args(..) => return Ok(()),
            Range::Vars => Shape::scalar(),
            Range::PerChannel => Shape::vector(ranges.len()),
        };
        ctx.set_output(1, Tensor::from_slice(shape.clone(), &below)?)?;
        ctx.set_output(2, Tensor::from_slice(shape, &above)?)
    }
}

impl Kernel for FakeQuant {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        if self.gradient { self.backward(ctx) } else { self.forward(ctx) }
    }
}

pub(super) fn register(registry: &mut Registry) {
    for (op, range, gradient) in [
        ("FakeQuantWithMinMaxArgs", Range::Args(0.0, 0.0), false),
        ("FakeQuantWithMinMaxArgsGradient", Range::Args(0.0, 0.0), true),
        ("FakeQuantWithMinMaxVars", Range::Vars, false),
        ("FakeQuantWithMinMaxVarsGradient", Range::Vars, true),
        ("FakeQuantWithMinMaxVarsPerChannel", Range::PerChannel, false),
        ("FakeQuantWithMinMaxVarsPerChannelGradient", Range::PerChannel, true),
    ] {
        registry.op(op).kernel(move |c| FakeQuant::new(c, range, gradient));
    }
}
