//! `QuantizeAndDequantize` in its four versions, and the gradient of the last.

use super::{Slices, axis_of};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Element, Result, Tensor, dispatch, internal, invalid_argument};
use num_traits::Float;

/// Nanoseconds for an element.
const COST: f64 = 2.0;

struct RoundTrip {
    signed: bool,
    /// `None` where they are an input.
    bits: Option<i64>,
    narrow: bool,
    half_up: bool,
    axis: i64,
    given: Given,
}

/// The range of the values.
#[derive(Clone, Copy)]
enum Given {
    /// As the values have it.
    Not,
    Attributes(f32, f32),
    Inputs,
}

fn number<T: Float>(value: f64) -> T {
    <T as num_traits::NumCast>::from(value).unwrap_or_else(T::nan)
}

fn check_bits(bits: i64, signed: bool) -> Result<()> {
    if bits > 0 && bits < if signed { 62 } else { 63 } {
        return Ok(());
    }
    Err(invalid_argument!("num_bits is out of range: {bits} with signed_input_ {}", u8::from(signed)))
}

/// A step and its inverse, and the range that whole steps cover.
struct Steps<T> {
    low: T,
    high: T,
    scale: T,
    inverse: T,
}

impl RoundTrip {
    fn new(c: &Construction<'_>, version: u8) -> Result<RoundTrip> {
        let attrs = c.attrs();
        let signed = attrs.bool("signed_input")?;
        let bits = if version == 3 { None } else { Some(attrs.int("num_bits")?) };
        if let Some(bits) = bits {
            check_bits(bits, signed)?;
        }
        let half_up = match version {
            2 | 4 => match attrs.str("round_mode")? {
                "HALF_UP" => true,
                "HALF_TO_EVEN" => false,
                other => {
                    return Err(invalid_argument!(
                        "Round mode string must be 'HALF_UP' or 'HALF_TO_EVEN', is '{other}'"
                    ));
                }
            },
            _ => false,
        };
        let given = match (attrs.bool("range_given")?, version) {
            (false, _) => Given::Not,
            (true, 1) => {
                let (low, high) = (attrs.float("input_min")?, attrs.float("input_max")?);
                if low > high || low.is_nan() || high.is_nan() {
                    return Err(invalid_argument!("Invalid range: input_min {low} > input_max {high}"));
                }
                Given::Attributes(low, high)
            }
            (true, _) => Given::Inputs,
        };
        let (narrow, axis) = if version == 1 { (false, -1) } else { (attrs.bool("narrow_range")?, attrs.int("axis")?) };
        Ok(RoundTrip { signed, bits, narrow, half_up, axis, given })
    }

    fn steps<T: Float>(&self, bits: i64, mut low: T, mut high: T) -> Steps<T> {
        let (least, most) = if self.signed {
            let half = 1i64 << (bits - 1);
            (i64::from(self.narrow) - half, half - 1)
        } else {
            (0, (1i64 << bits) - 1)
        };
        let (least, most) = (number::<T>(least as f64), number::<T>(most as f64));
        let from = |quantized: T, range: T| {
            if quantized * range > T::zero() { quantized / range } else { T::max_value() }
        };
        let (from_low, from_high) = (from(least, low), from(most, high));
        if from_low < from_high {
            let inverse = low / least;
            high = most * inverse;
            Steps { low, high, scale: from_low, inverse }
        } else {
            let inverse = high / most;
            low = least * inverse;
            Steps { low, high, scale: from_high, inverse }
        }
    }

    fn run<T: Element + Float>(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        let axis = axis_of(self.axis, input.shape().rank())?;
        let slices = Slices::new(input.shape(), axis);
        let bits = match self.bits {
            Some(bits) => bits,
            None => {
                let bits = i64::from(ctx.input(3)?.scalar_value::<i32>()?);
                check_bits(bits, self.signed)?;
                bits
            }
        };
        let x = input.as_slice::<T>()?;
        let (lows, highs): (Vec<T>, Vec<T>) = match self.given {
            Given::Attributes(low, high) => (vec![number(f64::from(low))], vec![number(f64::from(high))]),
            Given::Inputs => {
                let (low, high) = (ctx.input(1)?, ctx.input(2)?);
                for (name, tensor) in [("input_min_tensor", low), ("input_max_tensor", high)] {
                    if tensor.num_elements() != slices.count {
                        return Err(invalid_argument!(
                            "{name} has incorrect size, was {} expected {} to match dim {} of the input {}",
                            tensor.num_elements(),
                            slices.count,
                            self.axis,
                            tensor.shape()
                        ));
                    }
                }
                let (low, high) = (low.as_slice::<T>()?, high.as_slice::<T>()?);
                if let (None, [low], [high]) = (axis, low, high)
                    && (low > high || low.is_nan() || high.is_nan())
                {
                    return Err(invalid_argument!("Invalid range: input_min {low:?} > input_max {high:?}"));
                }
                (low.to_vec(), high.to_vec())
            }
            Given::Not => {
                let mut lows = vec![T::max_value(); slices.count];
                let mut highs = vec![T::min_value(); slices.count];
                for (at, &x) in x.iter().enumerate() {
                    let slice = slices.of(at);
                    lows[slice] = lows[slice].min(x);
                    highs[slice] = highs[slice].max(x);
                }
                (lows, highs)
            }
        };
        let steps: Vec<Steps<T>> = lows.iter().zip(&highs).map(|(&low, &high)| self.steps(bits, low, high)).collect();
        let clamp = !matches!(self.given, Given::Not);
        let half = number::<T>(0.5);
        let mut out = ctx.alloc_output(0, input.shape().clone())?;
        ctx.parallel_chunks(out.as_mut_slice::<T>()?, 1, COST, |range, part| {
            for (at, out) in range.zip(part) {
                let s = &steps[slices.of(at)];
                let value = if clamp { x[at].min(s.high).max(s.low) } else { x[at] } * s.scale;
                let rounded = if self.half_up { (value + half).floor() } else { to_even(value) };
                *out = rounded * s.inverse;
            }
        });
        ctx.set_output(0, out)
    }
}

/// Rounded to the nearest integer, ties to even.
fn to_even<T: Float>(x: T) -> T {
    let (floor, half, two) = (x.floor(), number::<T>(0.5), number::<T>(2.0));
    let rest = x - floor;
    if rest > half || (rest == half && (floor / two).floor() * two != floor) { floor + T::one() } else { floor }
}

impl Kernel for RoundTrip {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        dispatch!(ctx.output_type(0)?, T in [f32, f64] => self.run::<T>(ctx))
            .unwrap_or_else(|| Err(internal!("QuantizeAndDequantize does not take this type")))
    }
}

/// `QuantizeAndDequantizeV4Grad(gradients, input, input_min, input_max)`: the gradient within the range, zero outside.
struct RoundTripGradient {
    axis: i64,
}

impl RoundTripGradient {
    fn run<T: Element + Float>(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (gradient, input) = (ctx.input(0)?, ctx.input(1)?);
        let slices = Slices::new(input.shape(), axis_of(self.axis, input.shape().rank())?);
        if gradient.shape() != input.shape() {
            return Err(invalid_argument!("gradient and input must be the same size"));
        }
        let (low, high) = (ctx.input(2)?, ctx.input(3)?);
        for (name, tensor) in [("min", low), ("max", high)] {
            if tensor.shape().rank() > 1 {
                return Err(invalid_argument!(
                    "Input {name} tensor must have dimension 0 or 1. Received {}.",
                    tensor.shape().rank()
                ));
            }
            if tensor.num_elements() != slices.count {
                return Err(invalid_argument!(
                    "{name} has incorrect size, expected {} was {}",
                    slices.count,
                    tensor.num_elements()
                ));
            }
        }
        let mut out = ctx.alloc_output(0, input.shape().clone())?;
        let shape = low.shape().clone();
        let (g, x) = (gradient.as_slice::<T>()?, input.as_slice::<T>()?);
        let (low, high) = (low.as_slice::<T>()?, high.as_slice::<T>()?);
        ctx.parallel_chunks(out.as_mut_slice::<T>()?, 1, COST, |range, part| {
            for (at, out) in range.zip(part) {
                let slice = slices.of(at);
                let inside = x[at] >= low[slice] && x[at] <= high[slice];
                *out = g[at] * if inside { T::one() } else { T::zero() };
            }
        });
        let zeros = Tensor::zeros(out.dtype(), shape)?;
        ctx.set_output(0, out)?;
        ctx.set_output(1, zeros.clone())?;
        ctx.set_output(2, zeros)
    }
}

impl Kernel for RoundTripGradient {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        dispatch!(ctx.output_type(0)?, T in [f32, f64] => self.run::<T>(ctx))
            .unwrap_or_else(|| Err(internal!("QuantizeAndDequantizeV4Grad does not take this type")))
    }
}

pub(super) fn register(registry: &mut Registry) {
    let types = [DType::Double, DType::Float];
    for (op, version) in [
        ("QuantizeAndDequantize", 1),
        ("QuantizeAndDequantizeV2", 2),
        ("QuantizeAndDequantizeV3", 3),
        ("QuantizeAndDequantizeV4", 4),
    ] {
        registry.op(op).types("T", &types).kernel(move |c| RoundTrip::new(c, version));
    }
    registry
        .op("QuantizeAndDequantizeV4Grad")
        .types("T", &types)
        .kernel(|c| Ok(RoundTripGradient { axis: c.attrs().int("axis")? }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_go_to_even() {
        let rounded: Vec<f32> = [-2.5f32, -1.5, -0.5, 0.5, 1.5, 2.4, 2.6].iter().map(|&x| to_even(x)).collect();
        assert_eq!(rounded, [-2.0, -2.0, 0.0, 0.0, 2.0, 2.0, 3.0]);
    }
}
