//! Input pipelines: datasets, which describe sequences of elements, and iterators, which go through them.
//!
//! A dataset is a variant tensor that carries a [`dataset::Dataset`]; ops make new datasets of old ones. An iterator is a
//! resource that `MakeIterator` sets to the start of a dataset. Iterators are asked for one element at a time, and may wait: they
//! run on threads of this crate, unless the whole pipeline is known not to wait, which then runs where it is asked.

mod batch;
mod cache;
mod checks;
mod combine;
mod compress;
mod consume;
mod context;
mod counting;
mod dataset;
mod files;
mod function;
mod generator;
mod group;
mod interleave;
mod iterator;
mod map;
mod matching;
mod naming;
mod padded;
mod parallel;
mod parallel_map;
mod pass;
mod pool;
mod prefetch;
mod random;
mod seeds;
mod shuffle;
mod sources;
mod sparse;
mod state;
mod tuple;
mod window;

use graphmill_formats::FileSystem;
use graphmill_runtime::Registry;
use std::sync::Arc;

/// Registers the kernels of this family, with the files that they may read and write.
pub fn register(registry: &mut Registry, files: &Arc<dyn FileSystem>) {
    batch::register(registry);
    cache::register(registry, files);
    checks::register(registry);
    combine::register(registry);
    compress::register(registry);
    consume::register(registry);
    counting::register(registry);
    files::register(registry, files);
    generator::register(registry);
    group::register(registry);
    interleave::register(registry);
    iterator::register(registry);
    map::register(registry);
    matching::register(registry, files);
    padded::register(registry);
    parallel_map::register(registry);
    pass::register(registry);
    prefetch::register(registry);
    random::register(registry);
    seeds::register(registry);
    shuffle::register(registry);
    sources::register(registry);
    sparse::register(registry);
    window::register(registry);
}
