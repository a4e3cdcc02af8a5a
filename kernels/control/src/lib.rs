//! Control flow of version 1 (`Switch`, `Merge` and the parts of loops), stacks, assertions and printing.

mod assert;
mod flow;
mod print;
mod stack;
mod summarize;

use graphmill_runtime::Registry;

/// Adds the kernels of this family.
pub fn register(registry: &mut Registry) {
    flow::register(registry);
    assert::register(registry);
    print::register(registry);
    stack::register(registry);
}
