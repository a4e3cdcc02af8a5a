//! PNG.

use super::{Decoded, MOST_PIXELS, Samples};
use graphmill_tensor::{Result, invalid_argument};
use png::{BitDepth, ColorType, Decoder, Limits, Transformations};
use std::io::Cursor;

/// What a byte of compressed data can stand for at most.
const MOST_PER_BYTE: usize = 1032;

/// Decodes a picture to a number of channels (0 for its own), and to 8 or 16 bits a sample.
pub(super) fn decode(data: &[u8], channels: usize, wide: bool) -> Result<Decoded> {
    let broken = || invalid_argument!("Invalid PNG data, size {}", data.len());
    let start = || invalid_argument!("Invalid PNG. Failed to initialize decoder.");
    let mut decoder = Decoder::new_with_limits(Cursor::new(data), Limits { bytes: 8 * MOST_PIXELS });
    decoder.set_transformations(Transformations::EXPAND);
    let mut reader = decoder.read_info().map_err(|_| start())?;
    let info = reader.info();
    let (width, height) = (info.width as usize, info.height as usize);
    let too_large = width >= 1 << 27 || height >= 1 << 27 || width.saturating_mul(height) >= MOST_PIXELS;
    if width == 0 || height == 0 || too_large {
        return Err(invalid_argument!("PNG size too large for int: {width} by {height}"));
    }
    let line = info.raw_row_length_from_width(info.width);
    if line.saturating_mul(height) / MOST_PER_BYTE > data.len() {
        return Err(broken());
    }
    let own = match info.color_type {
        ColorType::Indexed if info.trns.is_some() => 4,
        ColorType::Indexed => 3,
        other => other.samples(),
    };
    let channels = if channels == 0 { own } else { channels };
    let size = reader.output_buffer_size().ok_or_else(broken)?;
    let mut buffer = vec![0; size];
    let frame = reader.next_frame(&mut buffer).map_err(|_| broken())?;
    buffer.truncate(frame.buffer_size());
    let (color, depth) = reader.output_color_type();
    let deep = depth == BitDepth::Sixteen;
    let words: Vec<u16> = if deep {
        buffer.as_chunks::<2>().0.iter().map(|&pair| u16::from_be_bytes(pair)).collect()
    } else {
        buffer.iter().map(|&byte| u16::from(byte)).collect()
    };
    // In the file's own depth, as the rounding of grays depends on it.
    let opaque = if deep { u16::MAX } else { 0xff };
    let samples = convert(&words, color.samples(), channels, opaque);
    if samples.len() != width * height * channels {
        return Err(broken());
    }
    let samples = match (deep, wide) {
        (true, true) => Samples::Words(samples),
        (false, true) => Samples::Words(samples.into_iter().map(|sample| sample * 257).collect()),
        // The lower byte is dropped, not rounded.
        (true, false) => Samples::Bytes(samples.into_iter().map(|sample| (sample >> 8) as u8).collect()),
        (false, false) => Samples::Bytes(samples.into_iter().map(|sample| sample as u8).collect()),
    };
    Ok(Decoded { frames: 1, height, width, channels, samples })
}

/// Brings pixels of some channels to another number of them: gray or colour, with or without opacity. `opaque` is the largest sample.
fn convert(samples: &[u16], from: usize, to: usize, opaque: u16) -> Vec<u16> {
    if from == to || from == 0 {
        return samples.to_vec();
    }
    let mut result = Vec::with_capacity(samples.len() / from * to);
    for pixel in samples.chunks_exact(from) {
        let (red, green, blue) = match *pixel {
            [gray] | [gray, _] => (gray, gray, gray),
            [red, green, blue] | [red, green, blue, _] => (red, green, blue),
            _ => (0, 0, 0),
        };
        let opacity = if from.is_multiple_of(2) { pixel.last().copied().unwrap_or(opaque) } else { opaque };
        if to < 3 {
            result.push(gray_of(red, green, blue));
        } else {
            result.extend([red, green, blue]);
        }
        if to.is_multiple_of(2) {
            result.push(opacity);
        }
    }
    result
}

/// Brightness, with the weights of libpng in 32768ths.
fn gray_of(red: u16, green: u16, blue: u16) -> u16 {
    const RED: u64 = 9798;
    const GREEN: u64 = 19235;
    let weighted = RED * u64::from(red) + GREEN * u64::from(green) + (32768 - RED - GREEN) * u64::from(blue);
    ((weighted + 16384) >> 15) as u16
}
