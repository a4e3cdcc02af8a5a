//! Kernels for mathematics: elementwise ops, comparisons, conversion, reductions, scans, matrix products and sequences.

#[macro_use]
mod tables;

mod add_n;
mod bessel;
mod betainc;
mod binary;
mod bins;
mod cast;
mod compare;
mod complex;
mod cross;
mod division;
mod elementwise;
mod gradients;
mod isa;
mod isotonic;
mod matmul;
mod number;
mod population;
mod reduce;
mod search;
mod select;
mod sequence;
mod special;
mod strings;
mod unary;
mod vecmath;

use graphmill_runtime::Registry;

/// Registers the kernels of this crate.
pub fn register(registry: &mut Registry) {
    unary::register(registry);
    complex::register(registry);
    gradients::register(registry);
    binary::register(registry);
    betainc::register(registry);
    division::register(registry);
    compare::register(registry);
    strings::register(registry);
    select::register(registry);
    cast::register(registry);
    add_n::register(registry);
    reduce::register(registry);
    isotonic::register(registry);
    matmul::register(registry);
    sequence::register(registry);
    search::register(registry);
    bins::register(registry);
    population::register(registry);
    cross::register(registry);
}
