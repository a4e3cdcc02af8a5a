//! Datasets in files: those that a program saves and loads, and snapshots, which are read in place of the dataset once they are
//! there. The files are those of TensorFlow.

mod directory;
mod element;
mod fingerprint;
mod reader;
mod save;
mod snappy;
mod version1;
mod version2;

use crate::files::SharedFiles;
use graphmill_runtime::Registry;

pub(crate) fn register(registry: &mut Registry, files: &SharedFiles) {
    reader::register(registry, files);
    save::register(registry, files);
    version1::register(registry, files);
    version2::register(registry, files);
}
