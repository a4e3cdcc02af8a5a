//! Kernels that make, reshape, slice, join and rearrange tensors.
//!
//! Ops that only pass a value on move it, ops that only move elements work by element size ([`graphmill_tensor::Mover`]), and
//! whatever can be said as strides goes through one copying loop (`walk`).

mod args;
mod broadcast;
mod concat;
mod constant;
mod device;
mod diag;
mod dynamic;
mod gather;
mod gather_nd;
mod identity;
mod inplace;
mod numerics;
mod one_hot;
mod pad;
mod placeholder;
mod reverse;
mod scatter_nd;
mod segment;
mod shape;
mod slice;
mod space;
mod split;
mod stretch;
mod strided_slice;
mod tile;
mod transpose;
mod types;
mod unique;
mod unravel;
mod walk;
mod where_op;

#[cfg(test)]
mod testing;

use graphmill_runtime::Registry;

/// Adds the kernels of this family.
pub fn register(registry: &mut Registry) {
    constant::register(registry);
    identity::register(registry);
    inplace::register(registry);
    placeholder::register(registry);
    numerics::register(registry);
    shape::register(registry);
    broadcast::register(registry);
    concat::register(registry);
    split::register(registry);
    slice::register(registry);
    strided_slice::register(registry);
    transpose::register(registry);
    tile::register(registry);
    pad::register(registry);
    one_hot::register(registry);
    gather::register(registry);
    gather_nd::register(registry);
    scatter_nd::register(registry);
    dynamic::register(registry);
    segment::register(registry);
    reverse::register(registry);
    where_op::register(registry);
    unique::register(registry);
    unravel::register(registry);
    space::register(registry);
    device::register(registry);
    diag::register(registry);
}
