//! `IteratorV2`, `Iterator`, the anonymous kinds, `MakeIterator` and `DeleteIterator`.

use super::resource::{IteratorResource, input_handle, input_iterator};
use crate::dataset::Spec;
use crate::naming::Anonymous;
use crate::pool;
use graphmill_runtime::{AsyncContext, AsyncKernel, Construction, Context, Kernel, Outputs, OwnedResource, Registry};
use graphmill_tensor::Result;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("Iterator").kernel(IteratorHandle::new);
    registry.op("IteratorV2").kernel(IteratorHandle::new);
    for op in ["AnonymousIterator", "AnonymousIteratorV2", "AnonymousIteratorV3"] {
        registry.op(op).kernel(AnonymousIterator::new);
    }
    registry.op("MakeIterator").async_kernel(|_| Ok(MakeIterator));
    registry.op("DeleteIterator").kernel(|_| Ok(DeleteIterator));
}

/// Gives out the handle of an iterator, which it makes on first use.
struct IteratorHandle {
    resource: OwnedResource<IteratorResource>,
    spec: Arc<Spec>,
}

impl IteratorHandle {
    fn new(c: &Construction<'_>) -> Result<IteratorHandle> {
        Ok(IteratorHandle { resource: OwnedResource::new(c, false)?, spec: Spec::of(c)? })
    }
}

impl Kernel for IteratorHandle {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let make = || Ok(IteratorResource::new(self.spec.clone()));
        // A shared name may belong to an iterator of another op.
        self.resource.give_out(ctx, make, |found| self.spec.verify(found.spec()))
    }
}

/// Makes an iterator of its own in every execution. The second output, where there is one, deletes it when it is dropped.
struct AnonymousIterator(Arc<Spec>);

impl AnonymousIterator {
    fn new(c: &Construction<'_>) -> Result<AnonymousIterator> {
        Ok(AnonymousIterator(Spec::of(c)?))
    }
}

impl Kernel for AnonymousIterator {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let anonymous = Anonymous::create(ctx, "AnonymousIterator", IteratorResource::new(self.0.clone()))?;
        anonymous.set_outputs(ctx)
    }
}

/// Starts an iterator over a dataset.
struct MakeIterator;

impl AsyncKernel for MakeIterator {
    fn start(&self, mut ctx: AsyncContext) {
        let prepared = ctx.with_context(|ctx| {
            let dataset = ctx.input(0)?.clone();
            Ok((dataset, input_iterator(ctx, 1)?, ctx.device().clone()))
        });
        match prepared {
            Err(error) => ctx.complete(Err(error)),
            Ok(((dataset, iterator, device), _)) => {
                // Making an iterator may call functions.
                let spawned = pool::spawn(move || {
                    let outcome = iterator.make(&device, &dataset);
                    ctx.complete(outcome.map(|()| Outputs::new()));
                });
                // On an error the context was dropped with the job, which has failed the step.
                drop(spawned);
            }
        }
    }
}

/// Removes an iterator.
struct DeleteIterator;

impl Kernel for DeleteIterator {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let handle = input_handle(ctx, 0)?;
        ctx.device().check_handle::<IteratorResource>(&handle)?;
        ctx.device().resources().delete::<IteratorResource>(&handle.container, &handle.name)
    }
}
