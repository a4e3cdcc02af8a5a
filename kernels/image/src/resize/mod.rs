//! Resizing.

mod area;
mod bicubic;
mod bilinear;
mod geometry;
mod nearest;
mod scale;

use graphmill_runtime::Registry;

pub(crate) fn register(registry: &mut Registry) {
    bilinear::register(registry);
    nearest::register(registry);
    bicubic::register(registry);
    area::register(registry);
    scale::register(registry);
}
