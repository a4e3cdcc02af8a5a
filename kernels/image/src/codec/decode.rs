//! Ops that decode images. Most of them decode the formats of the others too.

use super::{Decoded, Samples, bmp, gif_image, jpeg, png_image};
use graphmill_runtime::{Construction, Context, Kernel, Registry};
use graphmill_tensor::{Bytes, DType, Result, Shape, Tensor, internal, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    for op in ["DecodeJpeg", "DecodeAndCropJpeg", "DecodePng", "DecodeGif", "DecodeBmp", "DecodeImage"] {
        registry.op(op).kernel(move |c| DecodeImage::new(c, op));
    }
    let types = [DType::Int32, DType::Int64];
    registry.op("ExtractJpegShape").types("output_type", &types).kernel(|_| Ok(ExtractJpegShape));
}

/// Decodes an image of any of the formats that the op takes.
struct DecodeImage {
    op: &'static str,
    dtype: DType,
    channels: usize,
    ratio: usize,
    recover: bool,
    expand_animations: bool,
}

impl DecodeImage {
    fn new(c: &Construction<'_>, op: &'static str) -> Result<DecodeImage> {
        let attrs = c.attrs();
        let mut kernel =
            DecodeImage { op, dtype: DType::UInt8, channels: 3, ratio: 1, recover: false, expand_animations: true };
        if op == "DecodeJpeg" || op == "DecodeAndCropJpeg" {
            let ratio = attrs.int("ratio")?;
            if !matches!(ratio, 1 | 2 | 4 | 8) {
                return Err(invalid_argument!("ratio must be 1, 2, 4, or 8, got {ratio}"));
            }
            kernel.ratio = ratio as usize;
            kernel.recover = attrs.bool("try_recover_truncated")?;
            if !matches!(attrs.str("dct_method")?, "" | "INTEGER_FAST" | "INTEGER_ACCURATE") {
                return Err(invalid_argument!("dct_method must be one of {{'', 'INTEGER_FAST', 'INTEGER_ACCURATE'}}"));
            }
        }
        if op == "DecodePng" || op == "DecodeImage" {
            kernel.dtype = c.dtype("dtype")?;
        }
        if op == "DecodeImage" {
            kernel.expand_animations = attrs.bool("expand_animations")?;
        }
        if op != "DecodeGif" {
            let channels = attrs.int("channels")?;
            if !matches!(channels, 0 | 1 | 3 | 4) {
                return Err(invalid_argument!("`channels` must be 0, 1, 3 or 4 but got {channels}"));
            }
            kernel.channels = channels as usize;
        }
        Ok(kernel)
    }

    /// Whether the op takes a format; all but `DecodeBmp` and `DecodeAndCropJpeg` take all but BMP.
    fn check_format(&self, format: &str) -> Result<()> {
        match (self.op, format) {
            ("DecodeBmp", "BMP") | ("DecodeAndCropJpeg", "JPEG") | ("DecodeImage", _) => Ok(()),
            ("DecodeBmp", _) => Err(invalid_argument!(
                "Trying to decode {format} format using DecodeBmp op. Use `decode_{}` or `decode_image` instead.",
                format.to_lowercase()
            )),
            ("DecodeAndCropJpeg", _) => {
                Err(invalid_argument!("DecodeAndCropJpeg operation can run on JPEG only, but detected {format}."))
            }
            (op, "BMP") => Err(invalid_argument!(
                "Trying to decode BMP format using a wrong op. Use `decode_bmp` or `decode_image` instead. Op used: {op}"
            )),
            _ => Ok(()),
        }
    }

    fn decode(&self, ctx: &Context<'_>, data: &[u8]) -> Result<Decoded> {
        if data.starts_with(b"\xff\xd8\xff") {
            if self.channels == 4 {
                return Err(invalid_argument!("JPEG does not support 4 channels"));
            }
            self.check_format("JPEG")?;
            let window = if self.op == "DecodeAndCropJpeg" { Some(window(ctx.input(1)?)?) } else { None };
            let settings = jpeg::Settings { channels: self.channels, ratio: self.ratio, recover: self.recover, window };
            return jpeg::decode(data, settings);
        }
        if data.starts_with(b"\x89PNG\r\n\x1a\n") {
            self.check_format("PNG")?;
            return png_image::decode(data, self.channels, self.dtype != DType::UInt8);
        }
        if data.starts_with(b"GIF8") {
            if !matches!(self.channels, 0 | 3) {
                return Err(invalid_argument!("channels must be 0 or 3 for GIF, got {}", self.channels));
            }
            self.check_format("GIF")?;
            return gif_image::decode(data, self.op != "DecodeImage" || self.expand_animations);
        }
        if data.starts_with(b"BM") {
            self.check_format("BMP")?;
            return bmp::decode(data, self.channels);
        }
        Err(invalid_argument!("Unknown image file format. One of JPEG, PNG, GIF, BMP required."))
    }

    /// The shape of the result: three dimensions, or four for animations.
    fn shape(&self, image: &Decoded, animated: bool) -> Result<Shape> {
        let frame = [image.height, image.width, image.channels];
        let frames = [&[image.frames], &frame[..]].concat();
        match self.op {
            "DecodeGif" => Shape::from_dims(&frames),
            "DecodeImage" if animated && self.expand_animations => Shape::from_dims(&frames),
            _ if image.frames == 1 => Shape::from_dims(&frame),
            _ => Err(invalid_argument!(
                "Got {} frames, but animated gifs can only be decoded by tf.io.decode_gif or tf.io.decode_image",
                image.frames
            )),
        }
    }
}

fn contents<'a>(ctx: &'a Context<'_>) -> Result<&'a Bytes> {
    let contents = ctx.input(0)?;
    if !contents.shape().is_scalar() {
        return Err(invalid_argument!("`contents` must be scalar but got shape{}", contents.shape()));
    }
    contents.strings()?.first().ok_or_else(|| internal!("a scalar has no value"))
}

fn window(tensor: &Tensor) -> Result<[i32; 4]> {
    if !tensor.shape().is_vector() {
        return Err(invalid_argument!("crop_window must be 1-D, got shape {}", tensor.shape()));
    }
    match tensor.as_slice::<i32>()? {
        &[top, left, height, width] => Ok([top, left, height, width]),
        _ => Err(invalid_argument!("crop_size must have four elements {}", tensor.shape())),
    }
}

impl Kernel for DecodeImage {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let data = contents(ctx)?;
        if data.is_empty() {
            return Err(invalid_argument!("Input is empty."));
        }
        let image = self.decode(ctx, data)?;
        let shape = self.shape(&image, data.starts_with(b"GIF8"))?;
        let output = match (image.samples, self.dtype) {
            (Samples::Bytes(samples), DType::UInt8) => Tensor::from_slice(shape, &samples)?,
            (Samples::Bytes(samples), DType::UInt16) => {
                Tensor::from_slice(shape, &samples.iter().map(|&s| u16::from(s) * 256).collect::<Vec<_>>())?
            }
            (Samples::Bytes(samples), DType::Float) => {
                const SCALE: f32 = 1.0 / 255.0;
                Tensor::from_slice(shape, &samples.iter().map(|&s| f32::from(s) * SCALE).collect::<Vec<_>>())?
            }
            (Samples::Words(samples), DType::UInt16) => Tensor::from_slice(shape, &samples)?,
            (Samples::Words(samples), DType::Float) => {
                const SCALE: f32 = 1.0 / 65535.0;
                Tensor::from_slice(shape, &samples.iter().map(|&s| f32::from(s) * SCALE).collect::<Vec<_>>())?
            }
            (_, other) => return Err(internal!("images cannot be decoded to {other}")),
        };
        ctx.set_output(0, output)
    }
}

/// Height, width and channels of a JPEG image, from its header.
struct ExtractJpegShape;

impl Kernel for ExtractJpegShape {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let [height, width, channels] = jpeg::shape(contents(ctx)?)?;
        let output = match ctx.output_type(0)? {
            DType::Int64 => Tensor::vector(&[height, width, channels].map(|size| size as i64))?,
            _ => Tensor::vector(&[height, width, channels].map(|size| size as i32))?,
        };
        ctx.set_output(0, output)
    }
}
