//! Coded images.

mod bmp;
mod decode;
mod encode;
mod gif_image;
mod jpeg;
mod png_image;

use graphmill_runtime::Registry;

pub(crate) fn register(registry: &mut Registry) {
    decode::register(registry);
    encode::register(registry);
}

/// Pixels of one or more frames, in bytes or in two bytes each.
struct Decoded {
    frames: usize,
    height: usize,
    width: usize,
    channels: usize,
    samples: Samples,
}

enum Samples {
    Bytes(Vec<u8>),
    Words(Vec<u16>),
}

/// The most pixels that an image may have.
const MOST_PIXELS: usize = 1 << 29;
