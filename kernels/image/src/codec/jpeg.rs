//! JPEG.

use super::{Decoded, MOST_PIXELS, Samples};
use graphmill_tensor::{Result, Status, invalid_argument};
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::colorspace::ColorSpace;
use zune_jpeg::zune_core::options::DecoderOptions;

/// How to decode.
#[derive(Clone, Copy)]
pub(super) struct Settings {
    /// 0 for the picture's own.
    pub channels: usize,
    /// By how much it is made smaller: 1, 2, 4 or 8.
    pub ratio: usize,
    /// Whether a picture that is cut off is decoded as far as it goes.
    pub recover: bool,
    /// Top, left, height and width of the part to take.
    pub window: Option<[i32; 4]>,
}

fn failed() -> Status {
    invalid_argument!("jpeg::Uncompress failed. Invalid JPEG data or crop window.")
}

/// Height, width and channels as the header has them.
pub(super) fn shape(data: &[u8]) -> Result<[usize; 3]> {
    let mut decoder = JpegDecoder::new(ZCursor::new(data));
    decoder.decode_headers().map_err(|_| invalid_argument!("Invalid JPEG data, size {}", data.len()))?;
    match decoder.info() {
        Some(info) => Ok([usize::from(info.height), usize::from(info.width), usize::from(info.components)]),
        None => Err(invalid_argument!("Invalid JPEG data, size {}", data.len())),
    }
}

/// Decodes a picture.
pub(super) fn decode(data: &[u8], settings: Settings) -> Result<Decoded> {
    let [height, width, components] = shape(data).map_err(|_| failed())?;
    if height == 0 || width == 0 || height.saturating_mul(width) >= MOST_PIXELS {
        return Err(failed());
    }
    if !settings.recover && !is_complete(data) {
        return Err(failed());
    }
    let channels = match settings.channels {
        0 if components == 1 => 1,
        0 => 3,
        wanted => wanted,
    };
    let pixels = if components > 1 && has_scan_for_each_component(data) {
        decode_scans(data, channels)?
    } else {
        let color = if channels == 1 { ColorSpace::Luma } else { ColorSpace::RGB };
        let options =
            DecoderOptions::default().jpeg_set_out_colorspace(color).set_max_width(1 << 16).set_max_height(1 << 16);
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(data), options);
        decoder.decode().map_err(|_| failed())?
    };
    if pixels.len() != height * width * channels {
        return Err(failed());
    }
    let (pixels, height, width) = shrink(pixels, height, width, channels, settings.ratio);
    let (pixels, height, width) = match settings.window {
        Some(window) => cut(&pixels, height, width, channels, window)?,
        None => (pixels, height, width),
    };
    Ok(Decoded { frames: 1, height, width, channels, samples: Samples::Bytes(pixels) })
}

/// Whether a picture that is not progressive has its components one after another, which `zune-jpeg` decodes wrongly (0.5) where
/// they differ in resolution.
fn has_scan_for_each_component(data: &[u8]) -> bool {
    let mut rest = data.get(2..).unwrap_or_default();
    while let [0xff, marker, high, low, ..] = *rest {
        match marker {
            // Progressive frames are fine.
            0xc2 => return false,
            // The number of components in the first scan.
            0xda => return rest.get(4) == Some(&1),
            _ => {}
        }
        rest = rest.get(2 + usize::from(u16::from_be_bytes([high, low]))..).unwrap_or_default();
    }
    false
}

fn decode_scans(data: &[u8], channels: usize) -> Result<Vec<u8>> {
    let mut decoder = jpeg_decoder::Decoder::new(data);
    decoder.set_max_decoding_buffer_size(MOST_PIXELS.saturating_mul(3));
    let pixels = decoder.decode().map_err(|_| failed())?;
    match (decoder.info().map(|info| info.pixel_format), channels) {
        (Some(jpeg_decoder::PixelFormat::RGB24), 3) => Ok(pixels),
        (Some(jpeg_decoder::PixelFormat::RGB24), 1) => Ok(pixels.chunks_exact(3).map(luma).collect()),
        _ => Err(failed()),
    }
}

/// The brightness of a pixel (ITU-R BT.601).
fn luma(pixel: &[u8]) -> u8 {
    let weighted = pixel.iter().zip([299, 587, 114]).map(|(&level, weight)| u32::from(level) * weight).sum::<u32>();
    ((weighted + 500) / 1000).min(255) as u8
}

/// Whether the data has the mark of its end.
fn is_complete(data: &[u8]) -> bool {
    data.windows(2).rev().any(|pair| pair == [0xff, 0xd9])
}

/// Means over squares of `ratio` pixels; what is left at the edges counts as a whole pixel.
fn shrink(pixels: Vec<u8>, height: usize, width: usize, channels: usize, ratio: usize) -> (Vec<u8>, usize, usize) {
    if ratio <= 1 {
        return (pixels, height, width);
    }
    let (rows, columns) = (height.div_ceil(ratio), width.div_ceil(ratio));
    let mut result = Vec::with_capacity(rows * columns * channels);
    for row in 0..rows {
        for column in 0..columns {
            let (bottom, right) = (((row + 1) * ratio).min(height), ((column + 1) * ratio).min(width));
            let count = (bottom - row * ratio) * (right - column * ratio);
            for channel in 0..channels {
                let mut sum = 0usize;
                for y in row * ratio..bottom {
                    for x in column * ratio..right {
                        sum += usize::from(pixels[(y * width + x) * channels + channel]);
                    }
                }
                result.push(((sum + count / 2) / count) as u8);
            }
        }
    }
    (result, rows, columns)
}

fn cut(
    pixels: &[u8],
    height: usize,
    width: usize,
    channels: usize,
    window: [i32; 4],
) -> Result<(Vec<u8>, usize, usize)> {
    let sizes: Result<Vec<usize>, _> = window.iter().map(|&size| usize::try_from(size)).collect();
    let Ok(&[top, left, rows, columns]) = sizes.as_deref() else { return Err(failed()) };
    let fits = |start: usize, length: usize, size: usize| start.checked_add(length).is_some_and(|end| end <= size);
    if rows == 0 || columns == 0 || !fits(top, rows, height) || !fits(left, columns, width) {
        return Err(failed());
    }
    let mut part = Vec::with_capacity(rows * columns * channels);
    for row in top..top + rows {
        let start = (row * width + left) * channels;
        part.extend_from_slice(&pixels[start..start + columns * channels]);
    }
    Ok((part, rows, columns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

    /// A picture of slow ramps, which JPEG keeps well.
    fn ramps() -> Vec<u8> {
        (0..64 * 64).flat_map(|i| [(i % 64) as u8 * 3, (i / 64) as u8 * 3, 90]).collect()
    }

    fn encoded(optimised: bool, sampling: SamplingFactor) -> Vec<u8> {
        let mut data = Vec::new();
        let mut encoder = Encoder::new(&mut data, 95);
        encoder.set_optimized_huffman_tables(optimised);
        encoder.set_sampling_factor(sampling);
        encoder.encode(&ramps(), 64, 64, ColorType::Rgb).unwrap();
        data
    }

    #[test]
    fn components_may_be_interleaved_or_one_after_another() {
        for (optimised, sampling) in [
            (false, SamplingFactor::F_1_1),
            (false, SamplingFactor::F_2_2),
            (true, SamplingFactor::F_1_1),
            (true, SamplingFactor::F_2_2),
        ] {
            let data = encoded(optimised, sampling);
            for channels in [1, 3] {
                let settings = Settings { channels, ratio: 1, recover: false, window: None };
                let Samples::Bytes(pixels) = decode(&data, settings).unwrap().samples else { panic!("bytes") };
                let expected = ramps();
                let expected: Vec<u8> =
                    if channels == 3 { expected } else { expected.chunks_exact(3).map(luma).collect() };
                let error: u32 = pixels.iter().zip(&expected).map(|(&a, &b)| u32::from(a.abs_diff(b))).sum();
                assert!(f64::from(error) / (expected.len() as f64) < 2.0, "{optimised} {channels}");
            }
        }
    }
}
