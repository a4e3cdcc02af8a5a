//! Iterators as resources, and the ops on them.

mod handle;
mod multi_device;
mod next;
mod one_shot;

mod resource;
mod state;
mod string_handle;

use graphmill_runtime::Registry;

pub(crate) fn register(registry: &mut Registry) {
    handle::register(registry);
    multi_device::register(registry);
    next::register(registry);
    one_shot::register(registry);

    state::register(registry);
    string_handle::register(registry);
}
