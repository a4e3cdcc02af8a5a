//! Operations in which several devices compute together: reductions, broadcasts, gathers and exchanges.
//!
//! Rings, trees, keys and sizes are those of TensorFlow's servers, so that these take part too. What travels, and how, is up to
//! [`graphmill_runtime::Collectives`].

mod all_to_all;
mod assign_group;
mod broadcast;
mod communicator;
mod merge;
mod ops;
mod progress;
mod ring;
mod sections;

use graphmill_runtime::Registry;

/// Adds the kernels of this family.
pub fn register(registry: &mut Registry) {
    ops::register(registry);
    assign_group::register(registry);
    communicator::register(registry);
}
