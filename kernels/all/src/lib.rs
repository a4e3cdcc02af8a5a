//! All families of kernels: what a server of graphmill runs.

use graphmill_formats::{FileSystem, LocalFileSystem};
use graphmill_runtime::Registry;
use graphmill_tensor::Result;
use std::path::Path;
use std::sync::Arc;

/// All families of kernels, with all files of this machine.
pub fn registry() -> Registry {
    registry_with(Arc::new(LocalFileSystem::new()))
}

/// All families of kernels, with the files below a directory and no others.
///
/// # Errors
/// `NOT_FOUND` if there is no such directory.
pub fn registry_below(root: &Path) -> Result<Registry> {
    Ok(registry_with(Arc::new(LocalFileSystem::below(root)?)))
}

fn registry_with(files: Arc<dyn FileSystem>) -> Registry {
    let mut registry = Registry::new();
    graphmill_kernels_array::register(&mut registry);
    graphmill_kernels_collective::register(&mut registry);
    graphmill_kernels_control::register(&mut registry);
    graphmill_kernels_data::register(&mut registry, &files);
    graphmill_kernels_data_flow::register(&mut registry);
    graphmill_kernels_lookup::register(&mut registry, &files);
    graphmill_kernels_linalg::register(&mut registry);
    graphmill_kernels_image::register(&mut registry);
    graphmill_kernels_io::register(&mut registry, &files);
    graphmill_kernels_list::register(&mut registry);
    graphmill_kernels_math::register(&mut registry);
    graphmill_kernels_nn::register(&mut registry);
    graphmill_kernels_random::register(&mut registry, &files);
    graphmill_kernels_sparse::register(&mut registry);
    graphmill_kernels_signal::register(&mut registry);
    graphmill_kernels_state::register(&mut registry);
    graphmill_kernels_string::register(&mut registry, &files);
    registry
}
