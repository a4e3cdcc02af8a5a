//! Ops that encode images.

use graphmill_formats::encode_png;
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, internal, invalid_argument};
use jpeg_encoder::{ColorType, Density, Encoder, SamplingFactor};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("EncodePng").kernel(EncodePng::new);
    registry.op("EncodeJpeg").kernel(EncodeJpeg::new);
    registry.op("EncodeJpegVariableQuality").kernel(|_| Ok(EncodeJpeg::plain()));
}

/// Encodes each picture of a batch as PNG.
struct EncodePng {
    level: i32,
}

impl EncodePng {
    fn new(c: &Construction<'_>) -> Result<EncodePng> {
        let level = c.attrs().int("compression")?;
        if !(-1..=9).contains(&level) {
            return Err(invalid_argument!("compression should be in [-1,9], got {level}"));
        }
        Ok(EncodePng { level: level as i32 })
    }
}

impl Kernel for EncodePng {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let images = ctx.input(0)?;
        let dims = images.shape().dims();
        let Some((batch, &[height, width, channels])) = dims.split_last_chunk::<3>() else {
            return Err(invalid_argument!("images must be at least rank 3, got {}", images.shape()));
        };
        let small = |size: usize| i32::try_from(size).is_ok();
        if images.num_elements() == 0 {
            return Err(invalid_argument!("Invalid image provided."));
        }
        if !small(width.saturating_mul(channels)) || !small(height) {
            return Err(invalid_argument!("image too large for png: {}", images.shape()));
        }
        if !(1..=4).contains(&channels) {
            return Err(invalid_argument!("image must have 1, 2, 3, or 4 channels, got {channels}"));
        }
        let (size, wide) = (height * width * channels, images.dtype() == DType::UInt16);
        let samples: Vec<u8> = if wide {
            images.as_slice::<u16>()?.iter().flat_map(|sample| sample.to_be_bytes()).collect()
        } else {
            images.as_slice::<u8>()?.to_vec()
        };
        let mut encoded = Vec::new();
        for image in samples.chunks_exact(if wide { 2 * size } else { size }) {
            let image = encode_png(width as u32, height as u32, channels, wide, image, self.level)?;
            encoded.push(Bytes::from(image));
        }
        let output = Tensor::from_strings(Shape::from_dims(batch)?, encoded)?;
        ctx.set_output(0, output)
    }
}

/// Encodes a picture as JPEG.
struct EncodeJpeg {
    /// Channels that the format asks for, if it does.
    format: Option<usize>,
    quality: Option<i32>,
    progressive: bool,
    downsample: bool,
    density: Density,
    xmp: Vec<u8>,
}

impl EncodeJpeg {
    /// With the quality as an input, and defaults.
    fn plain() -> EncodeJpeg {
        EncodeJpeg {
            format: None,
            quality: None,
            progressive: false,
            downsample: true,
            density: Density::Inch { x: 300, y: 300 },
            xmp: Vec::new(),
        }
    }

    fn new(c: &Construction<'_>) -> Result<EncodeJpeg> {
        let attrs = c.attrs();
        let format = match attrs.str("format")? {
            "" => None,
            "grayscale" => Some(1),
            "rgb" => Some(3),
            _ => return Err(invalid_argument!("format must be '', grayscale or rgb")),
        };
        let quality = attrs.int32("quality")?;
        check_quality(quality)?;
        let density = |name: &str| {
            let value = attrs.int("x_density").and_then(|_| attrs.int(name))?;
            u16::try_from(value).map_err(|_| invalid_argument!("{name} must be in [0, 65535], got {value}"))
        };
        let (x, y) = (density("x_density")?, density("y_density")?);
        let density = match attrs.str("density_unit")? {
            "in" => Density::Inch { x, y },
            "cm" => Density::Centimeter { x, y },
            other => return Err(invalid_argument!("Invalid density_unit '{other}': should be 'in' or 'cm'")),
        };
        Ok(EncodeJpeg {
            format,
            quality: Some(quality),
            progressive: attrs.bool("progressive")?,
            downsample: attrs.bool("chroma_downsampling")?,
            density,
            xmp: attrs.string("xmp_metadata")?.to_vec(),
        })
    }
}

fn check_quality(quality: i32) -> Result<()> {
    if (0..=100).contains(&quality) {
        return Ok(());
    }
    Err(invalid_argument!("quality must be in [0,100], got {quality}"))
}

impl Kernel for EncodeJpeg {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let image = ctx.input(0)?;
        let &[height, width, channels] = image.shape().dims() else {
            return Err(invalid_argument!("image must be 3-dimensional{}", image.shape()));
        };
        if image.num_elements() >= i32::MAX as usize {
            return Err(invalid_argument!("Cannot encode images with >= max int32 elements"));
        }
        match self.format {
            Some(wanted) if wanted != channels => {
                let name = if wanted == 1 { "grayscale" } else { "RGB" };
                return Err(invalid_argument!("format is {name} but image channels is {channels}"));
            }
            None if channels != 1 && channels != 3 => {
                return Err(invalid_argument!("image must have 1 or 3 channels, got {channels}"));
            }
            _ => {}
        }
        let quality = match self.quality {
            Some(quality) => quality,
            None => {
                let quality = ctx.input(1)?;
                if !quality.shape().is_scalar() {
                    return Err(invalid_argument!("quality must be scalar: {}", quality.shape()));
                }
                let quality = quality.scalar_value::<i32>()?;
                check_quality(quality)?;
                quality
            }
        };
        let (Ok(width), Ok(height)) = (u16::try_from(width), u16::try_from(height)) else {
            return Err(invalid_argument!("JPEG encoding failed"));
        };
        if width == 0 || height == 0 {
            return Err(invalid_argument!("JPEG encoding failed"));
        }
        let mut encoded = Vec::new();
        let mut encoder = Encoder::new(&mut encoded, quality.max(1) as u8);
        encoder.set_progressive(self.progressive);
        // Whether or not `optimize_size` asks for it: the encoder's fixed tables take more room than those of TensorFlow's.
        encoder.set_optimized_huffman_tables(true);
        encoder.set_density(self.density);
        encoder.set_sampling_factor(if self.downsample && channels == 3 {
            SamplingFactor::F_2_2
        } else {
            SamplingFactor::F_1_1
        });
        let failed = |error: jpeg_encoder::EncodingError| internal!("JPEG encoding failed: {error}");
        if !self.xmp.is_empty() {
            let segment = [b"http://ns.adobe.com/xap/1.0/\0", self.xmp.as_slice()].concat();
            encoder.add_app_segment(1, &segment).map_err(failed)?;
        }
        let color = if channels == 1 { ColorType::Luma } else { ColorType::Rgb };
        encoder.encode(image.as_slice::<u8>()?, width, height, color).map_err(failed)?;
        ctx.set_output(0, Tensor::from_strings(Shape::scalar(), vec![encoded.into()])?)
    }
}
