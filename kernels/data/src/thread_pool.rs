//! `ThreadPoolHandle`: names the threads that a client wants for a dataset.
//!
//! Datasets here take threads as they need them, so that the pool is a name only: it limits nothing and changes no element.

use graphmill_runtime::{Construction, Context, Kernel, OwnedResource, Registry, Resource};
use graphmill_tensor::{Result, invalid_argument};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("ThreadPoolHandle").kernel(Handle::new);
    registry.op("ExperimentalThreadPoolHandle").kernel(Handle::new);
}

struct ThreadPool;

impl Resource for ThreadPool {
    const TYPE_NAME: &'static str = "N10tensorflow4data12experimental18ThreadPoolResourceE";
}

struct Handle(OwnedResource<ThreadPool>);

impl Handle {
    fn new(c: &Construction<'_>) -> Result<Handle> {
        if c.attrs().int("num_threads")? <= 0 {
            return Err(invalid_argument!("`num_threads` must be greater than zero."));
        }
        Ok(Handle(OwnedResource::new(c, false)?))
    }
}

impl Kernel for Handle {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        self.0.give_out(ctx, || Ok(ThreadPool), |_| Ok(()))
    }
}
