//! Image kernels: coding, resizing, colours, boxes and patches. Images are `[batch, height, width, channels]`.

mod boxes;
mod codec;
mod color;
mod contrast;
mod crop;
mod overlap;
mod patches;
mod real;
mod resize;
mod suppression;

use graphmill_runtime::Registry;

/// Registers the kernels of this family.
pub fn register(registry: &mut Registry) {
    resize::register(registry);
    color::register(registry);
    contrast::register(registry);
    boxes::register(registry);
    crop::register(registry);
    suppression::register(registry);
    patches::register(registry);
    codec::register(registry);
}
