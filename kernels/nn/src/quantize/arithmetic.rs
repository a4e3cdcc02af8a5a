//! Element by element: rectifiers, bias, sum and product of quantised tensors.

use super::convert::Quantized;
use super::range::{Range, Rescale, range, set_range};
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{Broadcast, DType, QInt8, QInt32, QUInt8, Result, Tensor, dispatch, internal, invalid_argument};

/// Nanoseconds for an element.
const COST: f64 = 1.0;

/// `QuantizedRelu(features, min_features, max_features) -> (activations, min_activations, max_activations)` and `QuantizedRelu6`:
/// levels below that of 0, or above that of 6, become that level.
struct Rectifier {
    limit: Option<f32>,
}

impl Rectifier {
    fn run<T: Quantized>(&self, ctx: &mut Context<'_>, range: Range) -> Result<()> {
        let shape = ctx.input(0)?.shape().clone();
        let low = range.level::<T>(0.0);
        let high = self.limit.map_or(T::HIGHEST as i64, |limit| range.level::<T>(limit));
        let x = ctx.input(0)?.as_slice::<T>()?;
        let mut output = ctx.alloc_output(0, shape)?;
        ctx.parallel_chunks(output.as_mut_slice::<T>()?, 1, COST, |range, part| {
            part.iter_mut().zip(&x[range]).for_each(|(to, x)| *to = T::from_level(x.level().max(low).min(high)));
        });
        ctx.set_output(0, output)
    }
}

impl Kernel for Rectifier {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let range = range(ctx, 1, ["min_input", "max_input"])?;
        dispatch!(ctx.input(0)?.dtype(), T in [QInt32, QUInt8] => self.run::<T>(ctx, range))
            .ok_or_else(|| internal!("no rectifier of this type"))??;
        set_range(ctx, range)
    }
}

/// `QuantizedBiasAdd(input, bias, min_input, max_input, min_bias, max_bias) -> (output, min_out, max_out)`: a vector added along
/// the last dimension. The result's range has room for many such sums.
struct BiasAdd;

impl BiasAdd {
    fn run<T: Quantized>(ctx: &Context<'_>, ranges: [Range; 2], total: Range) -> Result<Tensor> {
        let (x, bias) = (ctx.input(0)?, ctx.input(1)?);
        let rescale = ranges.map(|range| Rescale::new::<T, QInt32>(range, total));
        let zero = total.level::<QInt32>(0.0) as i32;
        let added: Vec<i32> =
            bias.as_slice::<T>()?.iter().map(|b| (rescale[1].level(b.to_f32()) as i32).wrapping_add(zero)).collect();
        let mut output = ctx.alloc_output(0, x.shape().clone())?;
        let x = x.as_slice::<T>()?;
        ctx.parallel_chunks(output.as_mut_slice::<QInt32>()?, 1, COST, |range, part| {
            for (to, at) in part.iter_mut().zip(range) {
                let level = rescale[0].level(x[at].to_f32()) as i32;
                *to = QInt32(level.wrapping_add(added[at % added.len()]));
            }
        });
        Ok(output)
    }
}

impl Kernel for BiasAdd {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (shape, bias) = (ctx.input(0)?.shape(), ctx.input(1)?.shape());
        let ranges = [range(ctx, 2, ["input_min", "input_max"])?, range(ctx, 4, ["bias_min", "bias_max"])?];
        if shape.rank() < 2 {
            return Err(invalid_argument!("Input tensor must be at least 2D: {shape}"));
        }
        if !bias.is_vector() {
            return Err(invalid_argument!("Biases must be 1D: {bias}"));
        }
        if bias.dim(0) != shape.dim(shape.rank() - 1) {
            return Err(invalid_argument!(
                "Must provide as many biases as the last dimension of the input tensor: {bias} vs. {shape}"
            ));
        }
        if bias.dim(0) == 0 {
            return Err(invalid_argument!("Must provide at least 1 bias"));
        }
        let [x, b] = ranges;
        let high = x.high.max(-x.low).max(b.high).max(-b.low) * 131_072.0;
        let total = Range { low: -high, high };
        let output = dispatch!(ctx.input(0)?.dtype(), T in [QInt8, QUInt8] => Self::run::<T>(ctx, ranges, total))
            .ok_or_else(|| internal!("no bias of this type"))??;
        ctx.set_output(0, output)?;
        set_range(ctx, total)
    }
}

/// Checks ranges and shapes of two operands, and calls `body` with the positions of each pair of elements.
fn pairs(
    ctx: &Context<'_>,
    ranges: [Range; 2],
    texts: [&str; 2],
    body: impl Fn(QUInt8, QUInt8) -> i32 + Sync,
) -> Result<Tensor> {
    let (x, y) = (ctx.input(0)?, ctx.input(1)?);
    let plan = Broadcast::new(x.shape(), y.shape())
        .map_err(|e| e.with_message(format!("Incompatible shapes: {} vs. {}", x.shape(), y.shape())))?;
    for (range, text) in ranges.iter().zip(texts) {
        if range.high.is_nan() || range.high <= range.low {
            return Err(invalid_argument!("{text}"));
        }
    }
    let mut output = ctx.alloc_output(0, plan.shape().clone())?;
    let (x, y) = (x.as_slice::<QUInt8>()?, y.as_slice::<QUInt8>()?);
    ctx.parallel_chunks(output.as_mut_slice::<QInt32>()?, 1, COST, |range, part| {
        let first = range.start;
        plan.for_each_run(range, |run, at| {
            let to = &mut part[run.start - first..run.end - first];
            for (i, to) in to.iter_mut().enumerate() {
                let (a, b) = (at[0] + i * plan.run_stride(0), at[1] + i * plan.run_stride(1));
                *to = QInt32(body(x[a], y[b]));
            }
        });
    });
    Ok(output)
}

const OPERANDS: [[&str; 2]; 2] = [["min_x", "max_x"], ["min_y", "max_y"]];

/// Levels of 8 bits as those of 32 in another range, by one multiplication.
struct Linear {
    zero: i64,
    step: i64,
}

impl Linear {
    fn new(from: Range, to: Range) -> Linear {
        let level = |level| to.unclamped_level::<QInt32>(from.number::<QUInt8>(level));
        let zero = level(0);
        Linear { zero, step: i64::from(level(1).wrapping_sub(zero) as i32) }
    }

    fn level(&self, x: QUInt8) -> i32 {
        let level = self.zero.wrapping_add(i64::from(x.0) * self.step);
        level.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
    }
}

/// `QuantizedAdd(x, y, min_x, max_x, min_y, max_y) -> (z, min_z, max_z)`.
struct Add;

impl Kernel for Add {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let [a, b] = [range(ctx, 2, OPERANDS[0])?, range(ctx, 4, OPERANDS[1])?];
        let largest = a.low.min(b.low).abs().max(a.high.max(b.high).abs()) * 16_384.0;
        let total = Range { low: -largest, high: largest };
        let (of_a, of_b) = (Linear::new(a, total), Linear::new(b, total));
        // A single element is converted by itself, which may give another last digit.
        let exact = |range: Range, x: QUInt8| total.level::<QInt32>(range.number::<QUInt8>(i64::from(x.0))) as i32;
        let (single_a, single_b) = (ctx.input(0)?.num_elements() == 1, ctx.input(1)?.num_elements() == 1);
        let texts = ["max_x must be larger than min_x.", "max_y must be larger than min_y."];
        let output = pairs(ctx, [a, b], texts, |x, y| {
            let x = if single_a { exact(a, x) } else { of_a.level(x) };
            let y = if single_b && !single_a { exact(b, y) } else { of_b.level(y) };
            x.wrapping_add(y)
        })?;
        ctx.set_output(0, output)?;
        set_range(ctx, total)
    }
}

/// `QuantizedMul(x, y, min_x, max_x, min_y, max_y) -> (z, min_z, max_z)`: products of the distances from the level of 0.
struct Multiply;

impl Kernel for Multiply {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let [a, b] = [range(ctx, 2, OPERANDS[0])?, range(ctx, 4, OPERANDS[1])?];
        let zeros = [a, b].map(|range| range.unclamped_level::<QUInt8>(0.0) as i32);
        let texts = ["max_x must be larger than min_a.", "max_x must be larger than min_b."];
        let output = pairs(ctx, [a, b], texts, |x, y| {
            i32::from(x.0).wrapping_sub(zeros[0]).wrapping_mul(i32::from(y.0).wrapping_sub(zeros[1]))
        })?;
        ctx.set_output(0, output)?;
        set_range(ctx, Range::of_products::<QUInt8, QUInt8, QInt32>(a, b))
    }
}

pub(super) fn register(registry: &mut Registry) {
    use DType::{QInt8, QInt32, QUInt8};
    for dtype in [QInt32, QUInt8] {
        for (op, limit) in [("QuantizedRelu", None), ("QuantizedRelu6", Some(6.0))] {
            let entry = registry.op(op).types("Tinput", &[dtype]).types("out_type", &[dtype]);
            entry.kernel(move |_| Ok(Rectifier { limit }));
        }
    }
    for dtype in [QInt8, QUInt8] {
        let entry = registry.op("QuantizedBiasAdd").types("T1", &[dtype]).types("T2", &[dtype]);
        entry.types("out_type", &[QInt32]).kernel(|_| Ok(BiasAdd));
    }
    let entry = registry.op("QuantizedAdd").types("T1", &[QUInt8]).types("T2", &[QUInt8]);
    entry.types("Toutput", &[QInt32]).kernel(|_| Ok(Add));
    let entry = registry.op("QuantizedMul").types("T1", &[QUInt8]).types("T2", &[QUInt8]);
    entry.types("Toutput", &[QInt32]).kernel(|_| Ok(Multiply));
}
