//! Taking apart what files hold: examples, tables of text, raw bytes, tensors.

mod compressed;
mod csv;
mod example;
mod number;
mod raw;
mod tensor;

use graphmill_runtime::Registry;

pub(crate) fn register(registry: &mut Registry) {
    example::register(registry);
    csv::register(registry);
    raw::register(registry);
    compressed::register(registry);
    tensor::register(registry);
}
