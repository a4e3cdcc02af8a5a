//! Locks: `MutexV2`, `MutexLock`, `ConsumeMutexLock`. A lock is held as long as the value that `MutexLock` gives out lives.

use crate::monitor::Monitor;
use graphmill_runtime::{AsyncContext, AsyncKernel, Construction, Context, Kernel, OwnedResource, Registry, Resource};
use graphmill_tensor::{Result, Shape, Tensor, Variant, VariantObject, invalid_argument};
use std::fmt;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("MutexV2").kernel(MakeMutex::new);
    registry.op("MutexLock").async_kernel(|_| Ok(Lock));
    registry.op("ConsumeMutexLock").kernel(|_| Ok(Consume));
}

/// Whether somebody holds the lock.
struct StepMutex(Arc<Monitor<bool>>);

impl Resource for StepMutex {
    const TYPE_NAME: &'static str = "N10tensorflow12_GLOBAL__N_15MutexE";
}

struct MakeMutex(OwnedResource<StepMutex>);

impl MakeMutex {
    fn new(c: &Construction<'_>) -> Result<MakeMutex> {
        OwnedResource::new(c, true).map(MakeMutex)
    }
}

impl Kernel for MakeMutex {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let create = || Ok(StepMutex(Arc::new(Monitor::new(false, true, "Lock acquisition cancelled."))));
        self.0.give_out(ctx, create, |_| Ok(()))
    }
}

/// Gives the lock back when the last copy of its value goes.
struct Held(Arc<Monitor<bool>>);

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Held")
    }
}

impl VariantObject for Held {
    fn type_name(&self) -> &str {
        "SharedPtrVariant"
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.with(|locked| *locked = false);
    }
}

struct Lock;

impl AsyncKernel for Lock {
    fn start(&self, mut ctx: AsyncContext) {
        match ctx.with_context(|ctx| ctx.input_resource::<StepMutex>(0)) {
            Ok((mutex, _)) => {
                let monitor = mutex.0.clone();
                mutex.0.wait(
                    ctx,
                    |_| "a lock that is held".to_owned(),
                    move |locked| {
                        if *locked {
                            return None;
                        }
                        *locked = true;
                        let held = Variant::of(Held(monitor.clone()));
                        Some(Tensor::from_variants(Shape::scalar(), vec![held]).map(|lock| vec![lock]))
                    },
                );
            }
            Err(error) => ctx.complete(Err(error)),
        }
    }
}

/// Checks that a lock is the last of its kind, which then goes.
struct Consume;

impl Kernel for Consume {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let lock = ctx.take_input(0)?;
        let [variant] = lock.variants()? else {
            return Err(invalid_argument!("Expected input to be a scalar, saw shape: {}", lock.shape()));
        };
        if variant.get::<Held>().is_none() {
            return Err(invalid_argument!(
                "Expected input to contain a SharedLockReleaser object, but saw variant: '{}'",
                variant.type_name
            ));
        }
        let uses = variant.object.as_ref().map_or(0, Arc::strong_count);
        if uses != 1 || !lock.is_unique() {
            return Err(invalid_argument!("Expected use count of lock to be 1, but saw: {}", uses.max(2)));
        }
        Ok(())
    }
}
