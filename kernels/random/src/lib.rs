//! Random number kernels. For a seed they give TensorFlow's numbers bit for bit, whatever the number of threads.
//!
//! Every op draws from a Philox stream; how many words a value takes, and how far an execution moves the stream, is part of what
//! makes two implementations agree. Logarithms, sines and cosines come from the C library, as TensorFlow's do.

mod candidates;
mod crop;
mod distribution;
mod fill;
mod fractional_pool;
mod multinomial;
mod rejection;
mod shuffle;
mod sobol;
mod stateful;
mod stateless;
mod truncated;
mod variable;

use graphmill_formats::FileSystem;
use graphmill_runtime::Registry;
use std::sync::Arc;

/// Registers the kernels of this family; they see the files of `files`.
pub fn register(registry: &mut Registry, files: &Arc<dyn FileSystem>) {
    stateful::register(registry);
    shuffle::register(registry);
    sobol::register(registry);
    multinomial::register(registry);
    stateless::register(registry);
    candidates::register(registry, files);
    fractional_pool::register(registry);
    rejection::register(registry);
    truncated::register(registry);
    variable::register(registry);
    crop::register(registry);
}
