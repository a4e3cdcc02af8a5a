//! Kernels for lookup tables: maps from keys to values that outlive a step.
//!
//! There are three kinds: tables that are initialised once, mutable ones, and dense ones, whose buckets the user sees. All take
//! their keys apart into [`key::Key`] and keep values in a tensor, so that one body serves every pair of types.

mod dense;
mod hash;
mod init;
mod key;
mod make;
mod table;
mod text_file;
mod usage;

pub use init::FillOnce;

use graphmill_formats::FileSystem;
use graphmill_runtime::Registry;
use std::sync::Arc;

/// Registers the kernels of this family; they see the files of `files`.
pub fn register(registry: &mut Registry, files: &Arc<dyn FileSystem>) {
    make::register(registry);
    usage::register(registry);
    init::register(registry, files);
}
