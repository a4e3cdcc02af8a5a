//! Kernels for variables: making, reading and assigning them, changes of single rows, and the optimisers.
//!
//! A variable comes as a reference (`VariableV2` and the ops that pass its reference on) or as a resource that a handle names
//! (`VarHandleOp`). Both are a [`graphmill_runtime::Variable`], so that one kernel serves both forms of an op.

mod access;
mod assign;
mod count;
mod gather;
mod handle;
mod naming;
mod number;
mod optimiser;
mod reference;
mod resource;
mod rows;
mod scatter;
mod scatter_nd;
mod types;

use graphmill_runtime::Registry;

/// Registers the kernels of this family.
pub fn register(registry: &mut Registry) {
    reference::register(registry);
    handle::register(registry);
    resource::register(registry);
    assign::register(registry);
    count::register(registry);
    gather::register(registry);
    scatter::register(registry);
    scatter_nd::register(registry);
    optimiser::register(registry);
}
