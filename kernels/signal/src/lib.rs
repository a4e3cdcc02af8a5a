//! Kernels of signals: Fourier transforms.

mod fourier;

use graphmill_runtime::Registry;

/// Registers the kernels of this family.
pub fn register(registry: &mut Registry) {
    fourier::register(registry);
}
