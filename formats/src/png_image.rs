//! Encoding pictures as PNG.

use graphmill_tensor::{Result, internal, invalid_argument};
use png::{BitDepth, ColorType, Compression, Encoder};

/// A picture of 1 to 4 channels as PNG. `wide` samples are two bytes each, the higher first. `level` is -1 for the default or 0 to 9.
///
/// # Errors
/// `INVALID_ARGUMENT` for another number of channels, `INTERNAL` if the samples do not fit the size.
pub fn encode_png(width: u32, height: u32, channels: usize, wide: bool, samples: &[u8], level: i32) -> Result<Vec<u8>> {
    let color = match channels {
        1 => ColorType::Grayscale,
        2 => ColorType::GrayscaleAlpha,
        3 => ColorType::Rgb,
        4 => ColorType::Rgba,
        _ => return Err(invalid_argument!("a picture of {channels} channels cannot be encoded")),
    };
    let mut encoded = Vec::new();
    let mut encoder = Encoder::new(&mut encoded, width, height);
    encoder.set_color(color);
    encoder.set_depth(if wide { BitDepth::Sixteen } else { BitDepth::Eight });
    encoder.set_compression(match level {
        0 => Compression::NoCompression,
        1..=2 => Compression::Fast,
        8..=9 => Compression::High,
        _ => Compression::Balanced,
    });
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(samples)?;
        writer.finish()
    });
    written.map_err(|error| internal!("PNG encoding failed: {error}"))?;
    Ok(encoded)
}
