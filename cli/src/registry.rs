//! The kernels of this binary.

use graphmill_runtime::Registry;

/// All families of kernels.
pub fn registry() -> Registry {
    let mut registry = Registry::new();
    graphmill_kernels_array::register(&mut registry);
    graphmill_kernels_control::register(&mut registry);
    graphmill_kernels_data_flow::register(&mut registry);
    graphmill_kernels_lookup::register(&mut registry);
    graphmill_kernels_math::register(&mut registry);
    graphmill_kernels_nn::register(&mut registry);
    graphmill_kernels_random::register(&mut registry);
    graphmill_kernels_sparse::register(&mut registry);
    graphmill_kernels_state::register(&mut registry);
    graphmill_kernels_string::register(&mut registry);
    registry
}
