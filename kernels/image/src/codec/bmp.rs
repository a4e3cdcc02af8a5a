//! BMP.

use super::{Decoded, Samples};
use graphmill_tensor::{Result, invalid_argument};

fn number(data: &[u8], at: usize) -> i32 {
    data.get(at..at + 4).and_then(|bytes| bytes.first_chunk().copied()).map_or(0, i32::from_le_bytes)
}

/// Decodes a picture of 8, 24 or 32 bits a pixel to a number of channels (0 for its own).
pub(super) fn decode(data: &[u8], channels: usize) -> Result<Decoded> {
    if channels == 1 {
        return Err(invalid_argument!("`channels` must be 0, 3 or 4 for BMP, but got 1"));
    }
    if data.len() < 32 {
        return Err(invalid_argument!(
            "Incomplete bmp content, requires at least 32 bytes to find the header size, width, height, and bpp, got {} bytes",
            data.len()
        ));
    }
    let (header, width, height) = (number(data, 10), number(data, 18), number(data, 22));
    let bits = i16::from_le_bytes([data[28], data[29]]);
    let own = match bits / 8 {
        1 => 1,
        3 => 3,
        4 => 4,
        other => {
            return Err(invalid_argument!("Number of channels inherent in the image must be 1, 3 or 4, was {other}"));
        }
    };
    if width <= 0 {
        return Err(invalid_argument!("Width must be positive"));
    }
    if height == 0 {
        return Err(invalid_argument!("Height must be nonzero"));
    }
    let Ok(header) = usize::try_from(header) else {
        return Err(invalid_argument!("header size must be nonnegative"));
    };
    let (columns, rows) = (width as usize, height.unsigned_abs() as usize);
    if columns.saturating_mul(rows) >= i32::MAX as usize / 8 {
        return Err(invalid_argument!("Total possible pixel bytes must be less than 2^30"));
    }
    let line = (own * columns).div_ceil(4) * 4;
    let expected = header.saturating_add(line * rows);
    if expected != data.len() {
        return Err(invalid_argument!(
            "Input size should match (header_size + row_size * abs_height) but they differ by {}",
            data.len() as i64 - expected as i64
        ));
    }
    let channels = if channels == 0 { own } else { channels };
    let mut pixels = Vec::with_capacity(columns * rows * channels);
    for row in 0..rows {
        // The lowest row comes first unless the height is negative.
        let row = if height < 0 { row } else { rows - 1 - row };
        let start = header + row * line;
        let bytes = data.get(start..start + own * columns).unwrap_or_default();
        for pixel in bytes.chunks_exact(own) {
            let (color, opacity) = match *pixel {
                [gray] => ([gray; 3], u8::MAX),
                [blue, green, red] => ([red, green, blue], u8::MAX),
                [blue, green, red, opacity] => ([red, green, blue], opacity),
                _ => ([0; 3], 0),
            };
            match channels {
                1 => pixels.push(color[0]),
                3 => pixels.extend(color),
                _ => pixels.extend([color[0], color[1], color[2], opacity]),
            }
        }
    }
    Ok(Decoded { frames: 1, height: rows, width: columns, channels, samples: Samples::Bytes(pixels) })
}
