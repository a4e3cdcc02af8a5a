//! `QuantizeV2` and `Dequantize`.

use super::{Slices, single};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{
    DType, Element, QInt8, QInt16, QInt32, QUInt8, QUInt16, Result, Tensor, bf16, dispatch, internal, invalid_argument,
    unimplemented_op,
};

/// Nanoseconds for an element.
const COST: f64 = 2.0;

/// A quantised type.
pub(super) trait Quantized: Element {
    const LOWEST: f64;
    const HIGHEST: f64;
    /// The number of values.
    const STEPS: f64;
    /// The nearest value towards zero; those out of range become the last one.
    fn from_f32(value: f32) -> Self;
    fn to_f32(self) -> f32;
    /// The level of this number, which is one of the type's.
    fn from_level(level: i64) -> Self;
    fn level(self) -> i64;
}

macro_rules! quantized {
    ($($t:ident($int:ty);)*) => {$(
        impl Quantized for $t {
            const LOWEST: f64 = <$int>::MIN as f64;
            const HIGHEST: f64 = <$int>::MAX as f64;
            const STEPS: f64 = (1u64 << (8 * size_of::<$int>())) as f64;

            fn from_f32(value: f32) -> $t {
                $t(value as $int)
            }

            fn to_f32(self) -> f32 {
                self.0 as f32
            }

            fn from_level(level: i64) -> $t {
                $t(level as $int)
            }

            fn level(self) -> i64 {
                i64::from(self.0)
            }
        }
    )*};
}

quantized! { QInt8(i8); QUInt8(u8); QInt16(i16); QUInt16(u16); QInt32(i32); }

#[derive(Clone, Copy, PartialEq)]
enum Mode {
    MinCombined,
    MinFirst,
    Scaled,
}

impl Mode {
    fn new(c: &Construction<'_>) -> Result<Mode> {
        match c.attrs().str("mode")? {
            "MIN_COMBINED" => Ok(Mode::MinCombined),
            "MIN_FIRST" => Ok(Mode::MinFirst),
            "SCALED" => Ok(Mode::Scaled),
            other => {
                Err(invalid_argument!("Mode string must be 'MIN_COMBINED', 'MIN_FIRST', or 'SCALED', is '{other}'"))
            }
        }
    }
}

/// Half of a signed type's range, by which its values are shifted.
fn half_range<T: Quantized>() -> f32 {
    if T::LOWEST < 0.0 { ((T::HIGHEST - T::LOWEST + 1.0) / 2.0) as f32 } else { 0.0 }
}

/// `QuantizeV2(input, min_range, max_range) -> (output, output_min, output_max)`.
struct Quantize {
    mode: Mode,
    to_even: bool,
    narrow: bool,
    axis: i64,
    minimum_range: f32,
}

/// How the elements of a slice are quantised.
struct Scale<T> {
    low: f32,
    high: f32,
    quantize: Box<dyn Fn(f32) -> T + Sync>,
}

impl Quantize {
    fn new(c: &Construction<'_>) -> Result<Quantize> {
        let mode = Mode::new(c)?;
        let to_even = match c.attrs().str("round_mode")? {
            "HALF_AWAY_FROM_ZERO" => false,
            "HALF_TO_EVEN" if mode == Mode::Scaled => true,
            "HALF_TO_EVEN" => {
                return Err(invalid_argument!(
                    "Round mode 'HALF_TO_EVEN' only supported for mode 'SCALED', but mode is '{}'.",
                    c.attrs().str("mode")?
                ));
            }
            other => {
                return Err(invalid_argument!(
                    "Round mode string must be 'HALF_AWAY_FROM_ZERO' or 'HALF_TO_EVEN', is '{other}'"
                ));
            }
        };
        let attrs = c.attrs();
        Ok(Quantize {
            mode,
            to_even,
            narrow: attrs.bool("narrow_range")?,
            axis: attrs.int("axis")?,
            minimum_range: attrs.float("ensure_minimum_range")?,
        })
    }

    /// The slices, checked against the ranges.
    fn slices(&self, input: &Tensor, ranges: [&Tensor; 2]) -> Result<Slices> {
        let names = ["min_range", "max_range"];
        let Ok(axis) = usize::try_from(self.axis) else {
            for (name, range) in names.iter().zip(ranges) {
                if range.num_elements() != 1 {
                    return Err(invalid_argument!(
                        "If axis is not specified, {name} must contain a single float element, but it contains {} \
                         elements",
                        range.num_elements()
                    ));
                }
            }
            return Ok(Slices::new(input.shape(), None));
        };
        let rank = input.shape().rank();
        if rank <= axis {
            return Err(invalid_argument!(
                "Axis is on a zero-based index, so its value must always be less than number of input's dims, but given \
                 axis value was {axis} and input's dims was {rank}"
            ));
        }
        let slices = Slices::new(input.shape(), Some(axis));
        for (name, range) in names.iter().zip(ranges) {
            let text = format!(
                "If axis is specified, {name} must be a 1-D tensor whose size matches the axis dimension of the input \
                 and output tensors, but {name}"
            );
            if range.shape().rank() != 1 {
                return Err(invalid_argument!("{text} dims are {}", range.shape().rank()));
            }
            if range.num_elements() != slices.count {
                return Err(invalid_argument!(
                    "{text} is a 1-D tensor of size {} and input's axis dimension is of size {}",
                    range.num_elements(),
                    slices.count
                ));
            }
        }
        Ok(slices)
    }

    fn scale<T: Quantized>(&self, low: f32, high: f32) -> Result<Scale<T>> {
        if high < low {
            return Err(invalid_argument!("input_max_range must be larger than input_min_range."));
        }
        let epsilon = low.abs().max(high.abs()).max(1.0) * self.minimum_range;
        let low = low.min(0.0);
        let high = high.max(low + epsilon).max(0.0);
        match self.mode {
            Mode::MinCombined => {
                let factor = ((T::HIGHEST - T::LOWEST) / f64::from(high - low)) as f32;
                let half = half_range::<T>();
                let quantize: Box<dyn Fn(f32) -> T + Sync> = if T::LOWEST < 0.0 {
                    Box::new(move |x| T::from_f32(((x.min(high).max(low) - low) * factor - half).round()))
                } else {
                    Box::new(move |x| T::from_f32((x.min(high).max(low) - low) * factor + 0.5))
                };
                Ok(Scale { low, high, quantize })
            }
            Mode::MinFirst => {
                let factor = if low == high { 0.0 } else { ((T::STEPS - 1.0) / f64::from(high - low)) as f32 };
                let shift = (low * factor).round() - T::LOWEST as f32;
                let bounds = ((T::LOWEST as f32).max(-2_147_483_648.0), (T::HIGHEST as f32).min(2_147_483_520.0));
                let quantize =
                    Box::new(move |x: f32| T::from_f32(((x * factor).round() - shift).max(bounds.0).min(bounds.1)));
                Ok(Scale { low, high, quantize })
            }
            Mode::Scaled => {
                let least = (T::LOWEST + f64::from(u8::from(self.narrow))) as f32;
                let most = T::HIGHEST as f32;
                let from = |output: f32, range: f32| if output * range > 0.0 { output / range } else { f32::MAX };
                let factor = from(least, low).min(from(most, high));
                let (low, high) = (least / factor, most / factor);
                let to_even = self.to_even;
                let quantize = Box::new(move |x: f32| {
                    let scaled = x.min(high).max(low) * factor;
                    T::from_f32(if to_even { scaled.round_ties_even() } else { scaled.round() })
                });
                Ok(Scale { low, high, quantize })
            }
        }
    }

    fn run<T: Quantized>(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (input, low, high) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        let slices = self.slices(input, [low, high])?;
        if slices.count != 1 && self.mode == Mode::MinFirst {
            return Err(unimplemented_op!("MIN_FIRST mode is not implemented for Quantize with axis != -1."));
        }
        let (lows, highs) = (low.as_slice::<f32>()?, high.as_slice::<f32>()?);
        let scales: Vec<Scale<T>> =
            lows.iter().zip(highs).map(|(&low, &high)| self.scale(low, high)).collect::<Result<_>>()?;
        let mut out = ctx.alloc_output(0, input.shape().clone())?;
        let x = input.as_slice::<f32>()?;
        ctx.parallel_chunks(out.as_mut_slice::<T>()?, 1, COST, |range, part| {
            for (at, out) in range.zip(part) {
                *out = (scales[slices.of(at)].quantize)(x[at]);
            }
        });
        let range = |value: fn(&Scale<T>) -> f32| -> Result<Tensor> {
            let values: Vec<f32> = scales.iter().map(value).collect();
            match values[..] {
                [value] => Tensor::scalar(value),
                _ => Tensor::from_slice(low.shape().clone(), &values),
            }
        };
        let (low, high) = (range(|s| s.low)?, range(|s| s.high)?);
        ctx.set_output(0, out)?;
        ctx.set_output(1, low)?;
        ctx.set_output(2, high)
    }
}

impl Kernel for Quantize {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        dispatch!(ctx.output_type(0)?, T in quantized => self.run::<T>(ctx))
            .unwrap_or_else(|| Err(internal!("QuantizeV2 does not give this type")))
    }
}

/// `Dequantize(input, min_range, max_range)`.
struct Dequantize {
    mode: Mode,
    narrow: bool,
    axis: i64,
}

impl Dequantize {
    fn new(c: &Construction<'_>) -> Result<Dequantize> {
        let mode = Mode::new(c)?;
        if c.dtype("dtype")? == DType::BFloat16 && mode != Mode::MinCombined {
            return Err(invalid_argument!(
                "When output type is bfloat16, Mode string must be 'MIN_COMBINED', is '{}'",
                c.attrs().str("mode")?
            ));
        }
        Ok(Dequantize { mode, narrow: c.attrs().bool("narrow_range")?, axis: c.attrs().int("axis")? })
    }

    /// `(x + shift) * factor + offset` for a slice.
    fn formula<T: Quantized>(&self, low: f32, high: f32) -> [f32; 3] {
        let range = (T::HIGHEST as f32) - (T::LOWEST as f32);
        match self.mode {
            Mode::MinCombined => [half_range::<T>(), (high - low) / range, low],
            Mode::MinFirst => {
                let factor = (f64::from(high - low) / (T::STEPS - 1.0)) as f32;
                let offset = if low == high { low } else { (low / factor).round() * factor };
                [-(T::LOWEST as f32), factor, offset]
            }
            Mode::Scaled => {
                let least = (T::LOWEST + f64::from(u8::from(self.narrow))) as f32;
                let by_high = high / T::HIGHEST as f32;
                [0.0, if T::LOWEST == 0.0 { by_high } else { (low / least).max(by_high) }, 0.0]
            }
        }
    }

    fn run<T: Quantized>(&self, ctx: &Context<'_>) -> Result<Vec<f32>> {
        let (input, low, high) = (ctx.input(0)?, ctx.input(1)?, ctx.input(2)?);
        let rank = input.shape().rank();
        if self.axis >= rank as i64 {
            return Err(invalid_argument!("Axis must be less than input dimension({rank}), got {}", self.axis));
        }
        let slices = Slices::new(input.shape(), usize::try_from(self.axis).ok());
        for (name, range) in [("input_min_tensor", low), ("input_max_tensor", high)] {
            if range.num_elements() != slices.count {
                return Err(invalid_argument!(
                    "{name} must have as many elements as input on the dequantization axis ({}), got {}, expected {}",
                    self.axis,
                    range.num_elements(),
                    slices.count
                ));
            }
        }
        if slices.count != 1 && self.mode == Mode::MinFirst {
            return Err(unimplemented_op!("MIN_FIRST mode is not implemented for Dequantize with axis != -1."));
        }
        let formulas: Vec<[f32; 3]> = if slices.count == 1 {
            vec![self.formula::<T>(single(low)?, single(high)?)]
        } else {
            let (low, high) = (low.as_slice::<f32>()?, high.as_slice::<f32>()?);
            low.iter().zip(high).map(|(&low, &high)| self.formula::<T>(low, high)).collect()
        };
        let x = input.as_slice::<T>()?;
        let mut out = vec![0.0; x.len()];
        ctx.parallel_chunks(&mut out, 1, COST, |range, part| {
            for (at, out) in range.zip(part) {
                let [shift, factor, offset] = formulas[slices.of(at)];
                *out = (x[at].to_f32() + shift) * factor + offset;
            }
        });
        Ok(out)
    }
}

impl Kernel for Dequantize {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let values = dispatch!(ctx.input(0)?.dtype(), T in quantized => self.run::<T>(ctx))
            .unwrap_or_else(|| Err(internal!("Dequantize does not take this type")))?;
        let mut out = ctx.alloc_output(0, ctx.input(0)?.shape().clone())?;
        if out.dtype() == DType::Float {
            out.as_mut_slice::<f32>()?.copy_from_slice(&values);
        } else {
            let target = out.as_mut_slice::<bf16>()?;
            target.iter_mut().zip(&values).for_each(|(t, &v)| *t = bf16::from_f32(v));
        }
        ctx.set_output(0, out)
    }
}

pub(super) fn register(registry: &mut Registry) {
    registry.op("QuantizeV2").types("T", DType::QUANTIZED).kernel(Quantize::new);
    registry
        .op("Dequantize")
        .types("T", DType::QUANTIZED)
        .types("dtype", &[DType::BFloat16, DType::Float])
        .kernel(Dequantize::new);
}
