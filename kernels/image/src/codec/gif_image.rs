//! GIF.

use super::{Decoded, MOST_PIXELS, Samples};
use gif::{ColorOutput, DecodeOptions};
use graphmill_tensor::{Result, Status, invalid_argument};

/// Decodes all frames, or the first one alone. A frame covers what lay below it but for its transparent pixels.
pub(super) fn decode(data: &[u8], all: bool) -> Result<Decoded> {
    let failed = |detail: &dyn std::fmt::Display| -> Status {
        invalid_argument!("Invalid GIF data (size {}), {detail}", data.len())
    };
    let mut options = DecodeOptions::new();
    options.set_color_output(ColorOutput::Indexed);
    options.set_memory_limit(gif::MemoryLimit::Bytes(std::num::NonZeroU64::MIN.saturating_add(MOST_PIXELS as u64)));
    let mut decoder = options.read_info(data).map_err(|error| failed(&error))?;
    let (width, height) = (usize::from(decoder.width()), usize::from(decoder.height()));
    if width == 0 || height == 0 {
        return Err(failed(&"the canvas is empty"));
    }
    let size = width * height * 3;
    let global = decoder.global_palette().map(<[u8]>::to_vec);
    let mut pixels: Vec<u8> = Vec::new();
    let mut frames = 0;
    while let Some(frame) = decoder.read_next_frame().map_err(|error| failed(&error))? {
        if pixels.len().saturating_add(size) > 4 * MOST_PIXELS {
            return Err(failed(&"the frames are too large"));
        }
        let below = pixels.len().checked_sub(size);
        match below {
            Some(start) => pixels.extend_from_within(start..),
            None => pixels.resize(size, 0),
        }
        let canvas = pixels.len() - size;
        let palette = frame.palette.as_deref().or(global.as_deref()).unwrap_or_default();
        let (left, top) = (usize::from(frame.left), usize::from(frame.top));
        let columns = usize::from(frame.width);
        for (row, line) in frame.buffer.chunks_exact(columns.max(1)).enumerate() {
            for (column, &index) in line.iter().enumerate() {
                let (y, x) = (top + row, left + column);
                if frame.transparent == Some(index) || y >= height || x >= width {
                    continue;
                }
                let color = usize::from(index) * 3;
                let color = palette.get(color..color + 3).ok_or_else(|| {
                    failed(&format!("found color index {index} outside of color map range {}", palette.len() / 3))
                })?;
                let at = canvas + (y * width + x) * 3;
                pixels[at..at + 3].copy_from_slice(color);
            }
        }
        frames += 1;
        if !all {
            break;
        }
    }
    if frames == 0 {
        return Err(failed(&"there is no frame"));
    }
    Ok(Decoded { frames, height, width, channels: 3, samples: Samples::Bytes(pixels) })
}
