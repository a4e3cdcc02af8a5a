//! Kernels for lookup tables: making, filling and using them. The table itself is in `graphmill-runtime`.

mod init;
mod make;
mod text_file;
mod usage;

use graphmill_formats::FileSystem;
use graphmill_runtime::Registry;
use std::sync::Arc;

/// Registers the kernels of this family; they see the files of `files`.
pub fn register(registry: &mut Registry, files: &Arc<dyn FileSystem>) {
    make::register(registry);
    usage::register(registry);
    init::register(registry, files);
}
