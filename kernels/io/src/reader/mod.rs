//! Readers: they take names of files (or other work) out of a queue and give out records, with a key for each.

mod line;
mod make;
mod read;
mod resource;
mod source;

use graphmill_formats::FileSystem;
use graphmill_runtime::Registry;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry, files: &Arc<dyn FileSystem>) {
    make::register(registry, files);
    read::register(registry);
}
