//! Pictures in summaries.

use crate::inputs::{first, set_string, text};
use graphmill_formats::encode_png;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{DType, Result, Tensor, f16, internal, invalid_argument};
use graphmill_wire::tensorflow::Summary;
use graphmill_wire::tensorflow::summary::{Image, Value, value};
use prost::Message;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("ImageSummary").kernel(ImageSummary::new);
}

/// Pictures of a batch under a tag; what is not finite gets a colour of its own.
struct ImageSummary {
    most: usize,
    bad_color: Tensor,
}

impl ImageSummary {
    fn new(c: &Construction<'_>) -> Result<ImageSummary> {
        let bad_color = c.attrs().tensor("bad_color")?;
        if bad_color.dtype() != DType::UInt8 {
            return Err(invalid_argument!("bad_color must be uint8, got {}", bad_color.dtype()));
        }
        check_bad_color(&bad_color)?;
        Ok(ImageSummary { most: most_images(c)?, bad_color })
    }
}

impl Kernel for ImageSummary {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let (tag, images) = (ctx.input(0)?, ctx.input(1)?);
        if !tag.shape().is_scalar() {
            return Err(invalid_argument!("Tags must be a scalar"));
        }
        let value = image_values(&text(first(tag)?), images, self.most, self.bad_color.as_slice::<u8>()?)?;
        set_string(ctx, 0, Summary { value }.encode_to_vec())
    }
}

/// The attribute `max_images`.
pub(super) fn most_images(c: &Construction<'_>) -> Result<usize> {
    let most = c.attrs().int("max_images")?;
    match i32::try_from(most) {
        Ok(most) => Ok(usize::try_from(most).unwrap_or(0)),
        Err(_) => Err(invalid_argument!("max_images must be < 2^31")),
    }
}

/// The colour for what is not finite is one number for each channel.
pub(super) fn check_bad_color(color: &Tensor) -> Result<()> {
    if color.shape().is_vector() {
        return Ok(());
    }
    Err(invalid_argument!("bad_color must be a vector, got shape {}", color.shape()))
}

/// Up to `most` pictures of a batch as PNG under `TAG/image/NUMBER`, or `TAG/image` if there is to be one at most.
pub(super) fn image_values(tag: &str, images: &Tensor, most: usize, bad_color: &[u8]) -> Result<Vec<Value>> {
    let shape = images.shape();
    let &[batch, height, width, depth] = shape.dims() else {
        return Err(invalid_argument!("Tensor must be 4-D with last dim 1, 3, or 4, not {shape}"));
    };
    if !matches!(depth, 1 | 3 | 4) {
        return Err(invalid_argument!("Tensor must be 4-D with last dim 1, 3, or 4, not {shape}"));
    }
    let small = |size: usize| i32::try_from(size).is_ok();
    if !small(batch) || !small(height) || !small(width) || height.saturating_mul(width) >= 1 << 29 {
        return Err(invalid_argument!("Tensor too large for summary {shape}"));
    }
    let pixels = height * width;
    if pixels == 0 {
        return Err(invalid_argument!(
            "input tensor must have non-zero dims. Found: [{batch}, {height}, {width}, {depth}]."
        ));
    }
    let colour = bad_color.get(..depth).filter(|_| images.dtype() != DType::UInt8);
    if colour.is_none() && images.dtype() != DType::UInt8 {
        return Err(invalid_argument!(
            "expected depth <= bad_color.size, got depth = {depth}, bad_color.size = {}",
            bad_color.len()
        ));
    }
    let colour = colour.unwrap_or_default();
    let mut values = Vec::new();
    for i in 0..batch.min(most) {
        let range = i * pixels * depth..(i + 1) * pixels * depth;
        let out = || internal!("an image is out of range");
        let samples = match images.dtype() {
            DType::UInt8 => images.as_slice::<u8>()?.get(range).ok_or_else(out)?.to_vec(),
            DType::Half => normalise::<f16>(images.as_slice()?.get(range).ok_or_else(out)?, depth, colour),
            DType::Float => normalise::<f32>(images.as_slice()?.get(range).ok_or_else(out)?, depth, colour),
            DType::Double => normalise::<f64>(images.as_slice()?.get(range).ok_or_else(out)?, depth, colour),
            other => return Err(internal!("pictures cannot be of type {other}")),
        };
        let image = Image {
            height: height as i32,
            width: width as i32,
            colorspace: depth as i32,
            encoded_image_string: encode_png(width as u32, height as u32, depth, false, &samples, -1)?.into(),
        };
        let tag = if most > 1 { format!("{tag}/image/{i}") } else { format!("{tag}/image") };
        values.push(Value { tag, value: Some(value::Value::Image(image)), ..Value::default() });
    }
    Ok(values)
}

/// A number that brightness is computed with, in its own precision.
trait Sample: Copy {
    fn narrow(self) -> f32;
    fn is_finite(self) -> bool;
    /// `self * scale + offset`, as a byte.
    fn mapped(self, scale: f32, offset: f32) -> u8;
}

impl Sample for f16 {
    fn narrow(self) -> f32 {
        self.to_f32()
    }

    fn is_finite(self) -> bool {
        f16::is_finite(self)
    }

    fn mapped(self, scale: f32, offset: f32) -> u8 {
        (self * f16::from_f32(scale) + f16::from_f32(offset)).to_f32() as u8
    }
}

impl Sample for f32 {
    fn narrow(self) -> f32 {
        self
    }

    fn is_finite(self) -> bool {
        f32::is_finite(self)
    }

    fn mapped(self, scale: f32, offset: f32) -> u8 {
        (self * scale + offset) as u8
    }
}

impl Sample for f64 {
    fn narrow(self) -> f32 {
        self as f32
    }

    fn is_finite(self) -> bool {
        f64::is_finite(self)
    }

    fn mapped(self, scale: f32, offset: f32) -> u8 {
        (self * f64::from(scale) + f64::from(offset)) as u8
    }
}

/// Brings a picture to bytes: without negative values the largest becomes 255, with some of them 0 becomes 128.
fn normalise<T: Sample>(samples: &[T], depth: usize, bad_color: &[u8]) -> Vec<u8> {
    let is_finite = |pixel: &[T]| pixel.iter().all(|sample| sample.is_finite());
    let (mut low, mut high) = (f32::INFINITY, f32::NEG_INFINITY);
    for pixel in samples.chunks_exact(depth).filter(|pixel| is_finite(pixel)) {
        for sample in pixel {
            low = low.min(sample.narrow());
            high = high.max(sample.narrow());
        }
    }
    const NEARLY_ZERO: f32 = 1e-6;
    let (scale, offset) = if low < 0.0 {
        let largest = low.abs().max(high.abs());
        (if largest < NEARLY_ZERO { 0.0 } else { 127.0 / largest }, 128.0)
    } else {
        (if high < NEARLY_ZERO { 0.0 } else { 255.0 / high }, 0.0)
    };
    let mut bytes = Vec::with_capacity(samples.len());
    for pixel in samples.chunks_exact(depth) {
        if is_finite(pixel) {
            bytes.extend(pixel.iter().map(|sample| sample.mapped(scale, offset)));
        } else {
            bytes.extend_from_slice(bad_color);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brightness_is_scaled() {
        assert_eq!(normalise(&[0.0f32, 1.0, 2.0], 1, &[9]), [0, 127, 255]);
        assert_eq!(normalise(&[-1.0f32, 0.0, 0.5], 1, &[9]), [1, 128, 191]);
        assert_eq!(normalise(&[f64::NAN, 2.0], 1, &[9]), [9, 255]);
        assert_eq!(normalise(&[f16::ZERO], 1, &[9]), [0]);
    }
}
