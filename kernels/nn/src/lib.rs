//! Kernels for neural networks: convolution, pooling, activations, normalisation, softmax, losses and top-k, recurrent cells,
//! quantised ops, and ops that are several of these in one.

mod activation;
mod batch_norm;
mod bias;
mod conv;
mod convert;
mod ctc;
mod dilation;
mod fused;
mod global_norm;
mod layout;
mod lrn;
mod pool;
mod quantize;
mod rnn;
mod simd;
mod softmax;
mod top_k;
mod volume;
mod window;

use graphmill_runtime::Registry;

/// Adds this family's kernels.
pub fn register(registry: &mut Registry) {
    activation::register(registry);
    batch_norm::register(registry);
    bias::register(registry);
    conv::register(registry);
    ctc::register(registry);
    dilation::register(registry);
    fused::register(registry);
    global_norm::register(registry);
    layout::register(registry);
    lrn::register(registry);
    pool::register(registry);
    quantize::register(registry);
    rnn::register(registry);
    softmax::register(registry);
    top_k::register(registry);
}
