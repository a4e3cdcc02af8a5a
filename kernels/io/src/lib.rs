//! Kernels that read and write files, and those that take apart what files hold.
//!
//! Ops that touch files run on threads that may wait for them, never on the executor's.

mod audio;
mod checkpoint;
mod checkpoint_v1;
mod files;
mod inputs;
mod json_example;
mod parse;
mod proto;
mod reader;
mod record_input;
mod remap;
mod sharded;
mod summary;

use graphmill_formats::FileSystem;
use graphmill_runtime::Registry;
use std::sync::Arc;

/// Registers the kernels of this family; they see the files of `files`.
pub fn register(registry: &mut Registry, files: &Arc<dyn FileSystem>) {
    checkpoint::register(registry, files);
    checkpoint_v1::register(registry, files);
    files::register(registry, files);
    remap::register(registry, files);
    sharded::register(registry);
    parse::register(registry);
    json_example::register(registry);
    record_input::register(registry, files);
    proto::register(registry, files);
    audio::register(registry);
    reader::register(registry, files);
    summary::register(registry, files);
}
