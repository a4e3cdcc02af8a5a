//! Collections of tensors: lists, maps and optionals, which are values, and tensor arrays, which are resources of a step.

mod array;
mod list;
mod map;
mod optional;
mod pieces;
mod variants;

use graphmill_runtime::Registry;

/// Adds the kernels of this family.
pub fn register(registry: &mut Registry) {
    array::register(registry);
    list::register(registry);
    map::register(registry);
    optional::register(registry);
}
