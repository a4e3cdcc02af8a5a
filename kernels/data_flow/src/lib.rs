//! Kernels through which steps hand tensors to each other: queues, barriers, staging areas, accumulators of gradients, locks,
//! batches, and tensors that a session keeps.
//!
//! All that may wait is asynchronous: it holds no thread and ends with its step.

mod accumulator;
mod barrier;
mod batch;
mod gradient;
mod map_stage;
mod monitor;
mod mutex;
mod order;
mod pending;
mod queue_make;
mod queue_use;
mod session;
mod signature;
mod stage;
mod timer;
mod unbatch;

use graphmill_runtime::Registry;

/// Registers the kernels of this family.
pub fn register(registry: &mut Registry) {
    queue_make::register(registry);
    queue_use::register(registry);
    barrier::register(registry);
    stage::register(registry);
    map_stage::register(registry);
    accumulator::register(registry);
    mutex::register(registry);
    batch::register(registry);
    unbatch::register(registry);
    session::register(registry);
}
