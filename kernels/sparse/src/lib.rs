//! Kernels for sparse tensors (indices, values and a shape), for sets of values, and for ragged tensors (values and splits).

mod arrange;
mod bins;
mod columns;
mod coo;
mod counts;
mod cross;
mod csr;
mod edit_distance;
mod number;
mod pairwise;
mod ragged;
mod ragged_dense;
mod ragged_variant;
mod reduce;
mod rows;
mod segment;
mod serialize;
mod sets;
mod stack;
mod tensors_map;
mod to_dense;
mod types;
mod with_dense;

use graphmill_runtime::Registry;

/// Registers the kernels of this family.
pub fn register(registry: &mut Registry) {
    to_dense::register(registry);
    arrange::register(registry);
    pairwise::register(registry);
    with_dense::register(registry);
    rows::register(registry);
    reduce::register(registry);
    segment::register(registry);
    serialize::register(registry);
    tensors_map::register(registry);
    sets::register(registry);
    edit_distance::register(registry);
    bins::register(registry);
    counts::register(registry);
    cross::register(registry);
    ragged::register(registry);
    ragged_dense::register(registry);
    ragged_variant::register(registry);
    csr::register(registry);
}
