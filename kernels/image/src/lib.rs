//! Image kernels: coding, resizing, colours, boxes, patches, glimpses and transforms. Images are `[batch, height, width, channels]`.

mod boxes;
mod codec;
mod color;
mod contrast;
mod crop;
mod glimpse;
mod overlap;
mod patches;
mod projective;
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
    glimpse::register(registry);
    projective::register(registry);
    codec::register(registry);
}
