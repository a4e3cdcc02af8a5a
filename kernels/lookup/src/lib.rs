//! Kernels for lookup tables: making, filling and using them. The table itself is in `graphmill-runtime`.

mod init;
mod make;
mod text_file;
mod usage;

use graphmill_runtime::Registry;

/// Registers the kernels of this family.
pub fn register(registry: &mut Registry) {
    make::register(registry);
    usage::register(registry);
    init::register(registry);
}
