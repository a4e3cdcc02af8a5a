//! Ranges of quantised tensors, and the arithmetic between levels and the real numbers that they stand for. The precision of
//! each intermediate result is TensorFlow's, on which the last level depends.

use super::convert::Quantized;
use graphmill_runtime::Context;
use graphmill_tensor::{Result, invalid_argument};

/// The real numbers that the lowest and the highest level stand for.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Range {
    pub low: f32,
    pub high: f32,
}

/// The number in input `i`, called `name` in the text of an error.
pub(super) fn number(ctx: &Context<'_>, i: usize, name: &str) -> Result<f32> {
    let tensor = ctx.input(i)?;
    match tensor.as_slice::<f32>()? {
        [value] => Ok(*value),
        values => {
            let (rank, count) = (tensor.shape().rank(), values.len());
            Err(invalid_argument!("`{name}` must be rank 0 but is rank {rank} and has {count} elements"))
        }
    }
}

/// The range in inputs `i` and `i + 1`.
pub(super) fn range(ctx: &Context<'_>, i: usize, names: [&str; 2]) -> Result<Range> {
    Ok(Range { low: number(ctx, i, names[0])?, high: number(ctx, i + 1, names[1])? })
}

/// Sets outputs 1 and 2 to a range.
pub(super) fn set_range(ctx: &mut Context<'_>, range: Range) -> Result<()> {
    ctx.set_scalar(1, range.low)?;
    ctx.set_scalar(2, range.high)
}

impl Range {
    /// The level nearest to a number, beyond the type's if the number is beyond the range.
    pub fn unclamped_level<T: Quantized>(self, x: f32) -> i64 {
        let lowest = T::LOWEST as i64;
        if self.low == self.high {
            return lowest;
        }
        let adjust = T::STEPS / (T::STEPS - 1.0);
        let scale = T::STEPS / (f64::from(self.high - self.low) * adjust);
        let level = ((f64::from(x) * scale).round() - (f64::from(self.low) * scale).round()) as i64;
        level.saturating_add(lowest)
    }

    /// The level nearest to a number.
    pub fn level<T: Quantized>(self, x: f32) -> i64 {
        self.unclamped_level::<T>(x).clamp(T::LOWEST as i64, T::HIGHEST as i64)
    }

    /// The number that a level stands for.
    pub fn number<T: Quantized>(self, level: i64) -> f32 {
        if self.low == self.high {
            return self.low;
        }
        let adjust = T::STEPS / (T::STEPS - 1.0);
        let scale = f64::from(self.high - self.low) * adjust / T::STEPS;
        let low = (self.low / scale as f32).round() * scale as f32;
        (f64::from(low) + (level as f64 - T::LOWEST) * scale) as f32
    }

    /// How many real numbers lie between two levels.
    fn step<T: Quantized>(self) -> f32 {
        (self.high - self.low) / (T::HIGHEST - T::LOWEST) as f32
    }

    /// The range of products of levels of two ranges, in the type `C`.
    pub fn of_products<A: Quantized, B: Quantized, C: Quantized>(a: Range, b: Range) -> Range {
        let step = a.step::<A>() * b.step::<B>();
        Range { low: step * C::LOWEST as f32, high: step * C::HIGHEST as f32 }
    }
}

/// From levels of one range to those of another, in single precision.
#[derive(Clone, Copy)]
pub(super) struct Rescale {
    offset: f32,
    from_scale: f32,
    to_scale: f32,
    shift: f32,
    bounds: (f32, f32),
}

impl Rescale {
    pub fn new<A: Quantized, B: Quantized>(from: Range, to: Range) -> Rescale {
        let from_scale = (f64::from(from.high - from.low) / (A::STEPS - 1.0)) as f32;
        let low = if from.high == from.low { from.low } else { (from.low / from_scale).round() * from_scale };
        let to_scale = if to.high == to.low { 0.0 } else { ((B::STEPS - 1.0) / f64::from(to.high - to.low)) as f32 };
        Rescale {
            offset: low - A::LOWEST as f32 * from_scale,
            from_scale,
            to_scale,
            shift: (to.low * to_scale).round() - B::LOWEST as f32,
            // The last float below 2^31 is the highest that an integer of 32 bits can take.
            bounds: (B::LOWEST as f32, (B::HIGHEST as f32).min(2_147_483_520.0)),
        }
    }

    pub fn level(&self, x: f32) -> i64 {
        let number = self.offset + x * self.from_scale;
        ((number * self.to_scale).round() - self.shift).max(self.bounds.0).min(self.bounds.1) as i64
    }
}
