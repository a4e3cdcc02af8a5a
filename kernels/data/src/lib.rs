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
mod csv;
mod dataset;
mod files;
mod function;
mod generator;
mod graph;
mod group;
mod interleave;
mod iterator;
mod lmdb;
mod map;
mod matching;
mod naming;
mod padded;
mod parallel;
mod parallel_map;
mod parse_example;
mod pass;
mod pool;
mod prefetch;
mod random;
mod rebatch;
mod recipe;
mod seeds;
mod sharding;
mod shuffle;
mod snapshot;
mod sources;
mod sparse;
mod sql;
mod state;
mod table;
mod thread_pool;
mod tuple;
mod window;
mod write;

use graphmill_formats::FileSystem;
use graphmill_runtime::Registry;
use std::sync::Arc;

/// Registers the kernels of this family, with the files that they may read and write.
pub fn register(registry: &mut Registry, files: &Arc<dyn FileSystem>) {
    cache::register(registry, files);
    csv::register(registry, files);
    files::register(registry, files);
    lmdb::register(registry, files);
    matching::register(registry, files);
    snapshot::register(registry, files);
    write::register(registry, files);
    sql::register(registry);
    register_without_files(registry);
}

/// The kernels that touch no file.
fn register_without_files(registry: &mut Registry) {
    batch::register(registry);
    checks::register(registry);
    combine::register(registry);
    compress::register(registry);
    consume::register(registry);
    counting::register(registry);
    generator::register(registry);
    graph::register(registry);
    group::register(registry);
    interleave::register(registry);
    iterator::register(registry);
    map::register(registry);
    padded::register(registry);
    parallel_map::register(registry);
    parse_example::register(registry);
    pass::register(registry);
    prefetch::register(registry);
    random::register(registry);
    rebatch::register(registry);
    seeds::register(registry);
    sharding::register(registry);
    shuffle::register(registry);
    sources::register(registry);
    sparse::register(registry);
    table::register(registry);
    thread_pool::register(registry);
    window::register(registry);
}
