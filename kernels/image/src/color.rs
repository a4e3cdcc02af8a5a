//! Colours: hue, saturation, and conversion between RGB and HSV.

use crate::real::Real;
use graphmill_runtime::{Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Tensor, bf16, dispatch, f16, failed_precondition, internal, invalid_argument};

/// Nanoseconds a pixel takes, roughly.
const COST: f64 = 10.0;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("AdjustHue").types("T", &[DType::Float]).kernel(|_| Ok(Adjust("delta", adjust_hue)));
    registry.op("AdjustSaturation").types("T", &[DType::Float]).kernel(|_| Ok(Adjust("scale", adjust_saturation)));
    let floats = [DType::BFloat16, DType::Double, DType::Float, DType::Half];
    registry.op("RGBToHSV").types("T", &floats).kernel(|_| Ok(Convert { to_hsv: true }));
    registry.op("HSVToRGB").types("T", &floats).kernel(|_| Ok(Convert { to_hsv: false }));
}

/// Changes each pixel by a number: the name of the input, and what it does to a pixel.
struct Adjust(&'static str, fn([f32; 3], f32) -> [f32; 3]);

impl Kernel for Adjust {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (images, amount) = (ctx.input(0)?, ctx.input(1)?);
        let shape = images.shape().clone();
        if shape.rank() < 3 {
            return Err(invalid_argument!("input must be at least 3-D, got shape{shape}"));
        }
        if !amount.shape().is_scalar() {
            return Err(invalid_argument!("{} must be scalar: {}", self.0, amount.shape()));
        }
        let channels = shape.dim(shape.rank() - 1);
        if channels != 3 {
            return Err(invalid_argument!("input must have 3 channels but instead has {channels} channels."));
        }
        let amount = amount.scalar_value::<f32>()?;
        let images = ctx.take_input(0)?;
        let mut output = images.into_unique()?;
        let change = self.1;
        ctx.parallel_chunks(output.as_mut_slice::<f32>()?, 3, COST, |_, values| {
            let (pixels, _) = values.as_chunks_mut::<3>();
            pixels.iter_mut().for_each(|pixel| *pixel = change(*pixel, amount));
        });
        ctx.set_output(0, output)
    }
}

/// Turns the hue by `delta` of a whole turn.
fn adjust_hue(rgb: [f32; 3], delta: f32) -> [f32; 3] {
    let [r, g, b] = rgb;
    // The sixth of the circle that the colour is in, and the largest, middle and smallest component.
    let (sixth, high, middle, low) = if r < g {
        if b < r {
            (1, g, r, b)
        } else if b > g {
            (3, b, g, r)
        } else {
            (2, g, b, r)
        }
    } else if b < g {
        (0, r, g, b)
    } else if b > r {
        (4, b, r, g)
    } else {
        (5, r, b, g)
    };
    let hue = if high == low {
        0.0
    } else {
        let ratio = (middle - low) / (high - low);
        sixth as f32 + if sixth % 2 == 0 { ratio } else { 1.0 - ratio }
    };
    let mut hue = (hue + delta * 6.0) % 6.0;
    if hue < 0.0 {
        hue += 6.0;
    }
    let sixth = hue as i32;
    let ratio = hue - sixth as f32;
    let ratio = if sixth % 2 == 0 { ratio } else { 1.0 - ratio };
    let middle = low + ratio * (high - low);
    match sixth {
        0 => [high, middle, low],
        1 => [middle, high, low],
        2 => [low, high, middle],
        3 => [low, middle, high],
        4 => [middle, low, high],
        _ => [high, low, middle],
    }
}

/// Multiplies the saturation, within 0 and 1.
fn adjust_saturation(rgb: [f32; 3], scale: f32) -> [f32; 3] {
    let [h, s, v] = to_hsv_exact(rgb);
    let s = (s * scale).clamp(0.0, 1.0);
    let chroma = s * v;
    let base = v - chroma;
    let sixth = h * 6.0;
    let mut fold = sixth % 2.0;
    if fold < 0.0 {
        fold += 2.0;
    }
    let middle = chroma * (1.0 - (fold - 1.0).abs());
    let [r, g, b] = match sixth as i32 {
        0 => [chroma, middle, 0.0],
        1 => [middle, chroma, 0.0],
        2 => [0.0, chroma, middle],
        3 => [0.0, middle, chroma],
        4 => [middle, 0.0, chroma],
        5 => [chroma, 0.0, middle],
        _ => [0.0, 0.0, 0.0],
    };
    [r + base, g + base, b + base]
}

fn to_hsv_exact([r, g, b]: [f32; 3]) -> [f32; 3] {
    let v = r.max(g.max(b));
    let range = v - r.min(g.min(b));
    let s = if v > 0.0 { range / v } else { 0.0 };
    let norm = 1.0 / (6.0 * range);
    let hue = if r == v {
        norm * (g - b)
    } else if g == v {
        norm * (b - r) + 2.0 / 6.0
    } else {
        norm * (r - g) + 4.0 / 6.0
    };
    let hue = if range <= 0.0 { 0.0 } else { hue };
    [if hue < 0.0 { hue + 1.0 } else { hue }, s, v]
}

/// Between RGB and hue, saturation and value, all within 0 and 1.
struct Convert {
    to_hsv: bool,
}

impl Kernel for Convert {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let input = ctx.input(0)?;
        let shape = input.shape();
        if shape.is_scalar() {
            return Err(invalid_argument!("input must be at least 1D{shape}"));
        }
        let channels = shape.dim(shape.rank() - 1);
        if channels != 3 {
            return Err(failed_precondition!("input must have 3 channels but input only has {channels} channels."));
        }
        let input = ctx.take_input(0)?;
        let mut output: Tensor = input.into_unique()?;
        let to_hsv = self.to_hsv;
        let done = dispatch!(output.dtype(), T in [f32, f64, f16, bf16] => {
            ctx.parallel_chunks(output.as_mut_slice::<T>()?, 3, COST, |_, values| {
                let (pixels, _) = values.as_chunks_mut::<3>();
                for pixel in pixels {
                    let wide = pixel.map(Real::to_f64);
                    *pixel = if to_hsv { hsv_of(wide) } else { rgb_of(wide) }.map(T::from_f64);
                }
            });
            Ok(())
        });
        done.unwrap_or_else(|| Err(internal!("colours cannot be of this type")))?;
        ctx.set_output(0, output)
    }
}

fn hsv_of([r, g, b]: [f64; 3]) -> [f64; 3] {
    let v = r.max(g).max(b);
    let range = v - r.min(g).min(b);
    let s = if v > 0.0 { range / v } else { 0.0 };
    if range <= 0.0 {
        return [0.0, s, v];
    }
    let norm = 1.0 / range / 6.0;
    let hue = if r == v {
        norm * (g - b)
    } else if g == v {
        norm * (b - r) + 2.0 / 6.0
    } else {
        norm * (r - g) + 4.0 / 6.0
    };
    [if hue < 0.0 { hue + 1.0 } else { hue }, s, v]
}

fn rgb_of([h, s, v]: [f64; 3]) -> [f64; 3] {
    let sixth = h * 6.0;
    let red = ((sixth - 3.0).abs() - 1.0).clamp(0.0, 1.0);
    let green = (2.0 - (sixth - 2.0).abs()).clamp(0.0, 1.0);
    let blue = (2.0 - (sixth - 4.0).abs()).clamp(0.0, 1.0);
    [red, green, blue].map(|part| (1.0 - s + s * part) * v)
}
