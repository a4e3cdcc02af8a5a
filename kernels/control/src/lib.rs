//! Control flow of version 1 (`Switch`, `Merge` and the parts of loops), functional control flow and calls, stacks, assertions and
//! printing.

mod assert;
mod flow;
mod functional;
mod map;
mod parameter;
mod print;
mod remote;
mod sequence;
mod stack;
mod summarize;
mod truth;

use graphmill_runtime::Registry;

/// Adds the kernels of this family.
pub fn register(registry: &mut Registry) {
    flow::register(registry);
    assert::register(registry);
    print::register(registry);
    functional::register(registry);
    map::register(registry);
    parameter::register(registry);
    remote::register(registry);
    stack::register(registry);
    truth::register(registry);
}
