//! Kernels for neural networks: convolution, pooling, activations, normalisation, softmax, losses and top-k.

mod activation;
mod bias;
mod conv;
mod convert;
mod pool;
mod simd;
mod window;

use graphmill_runtime::Registry;

/// Adds this family's kernels.
pub fn register(registry: &mut Registry) {
    activation::register(registry);
    bias::register(registry);
    conv::register(registry);
    pool::register(registry);
}
