//! `OneShotIterator`: an iterator over the dataset that a function makes.

use super::resource::IteratorResource;
use crate::context::IteratorContext;
use crate::dataset::Spec;
use crate::pool;
use graphmill_runtime::{
    AsyncContext, AsyncKernel, Construction, Device, FunctionHandle, Outputs, OwnedResource, Registry, Value,
};
use graphmill_tensor::{DType, Result, Shape, Status, Tensor, invalid_argument};
use parking_lot::Mutex;
use smallvec::smallvec;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    registry.op("OneShotIterator").async_kernel(OneShot::new);
}

/// Makes its iterator in the first execution; an error then is the outcome of all of them.
struct OneShot {
    shared: Arc<Shared>,
}

struct Shared {
    resource: OwnedResource<IteratorResource>,
    spec: Arc<Spec>,
    factory: FunctionHandle,
    progress: Mutex<Progress>,
}

enum Progress {
    New,
    /// Executions that wait for the first one.
    Making(Vec<AsyncContext>),
    Made(Tensor),
    Failed(Status),
}

impl OneShot {
    fn new(c: &Construction<'_>) -> Result<OneShot> {
        if !c.attrs().str("shared_name")?.is_empty() {
            return Err(invalid_argument!("OneShotIteratorOp does not currently support the 'shared_name' attr."));
        }
        let (resource, spec, factory) = (OwnedResource::new(c, false)?, Spec::of(c)?, c.function("dataset_factory")?);
        Ok(OneShot { shared: Arc::new(Shared { resource, spec, factory, progress: Mutex::new(Progress::New) }) })
    }
}

impl AsyncKernel for OneShot {
    fn start(&self, ctx: AsyncContext) {
        let mut progress = self.shared.progress.lock();
        match &mut *progress {
            Progress::Making(waiting) => waiting.push(ctx),
            Progress::New => {
                *progress = Progress::Making(Vec::new());
                drop(progress);
                let shared = self.shared.clone();
                let spawned = pool::spawn(move || shared.initialize(ctx));
                if let Err(error) = spawned {
                    // The context was dropped with the job, which has failed the step.
                    self.shared.finish(Err(error));
                }
            }
            Progress::Made(handle) => {
                let handle = handle.clone();
                drop(progress);
                ctx.complete(Ok(smallvec![Value::Tensor(handle)]));
            }
            Progress::Failed(error) => {
                let error = error.clone();
                drop(progress);
                ctx.complete(Err(error));
            }
        }
    }
}

impl Shared {
    fn initialize(&self, ctx: AsyncContext) {
        let outcome = self.make(ctx.device(), &IteratorContext::within(ctx.device(), ctx.step()));
        self.finish(outcome.clone());
        ctx.complete(outcome.map(|handle| smallvec![Value::Tensor(handle)]));
    }

    fn finish(&self, outcome: Result<Tensor>) {
        let progress = match &outcome {
            Ok(handle) => Progress::Made(handle.clone()),
            Err(error) => Progress::Failed(error.clone()),
        };
        let before = std::mem::replace(&mut *self.progress.lock(), progress);
        if let Progress::Making(waiting) = before {
            for ctx in waiting {
                let outcome: Result<Outputs> = outcome.clone().map(|handle| smallvec![Value::Tensor(handle)]);
                ctx.complete(outcome);
            }
        }
    }

    /// The handle of an iterator over what the function makes.
    fn make(&self, device: &Arc<Device>, ctx: &IteratorContext) -> Result<Tensor> {
        let results = self.factory.bind()?.call_blocking(ctx.step(), Vec::new())?;
        let dataset = match results.as_slice() {
            [result] if result.dtype() == DType::Variant && result.shape().is_scalar() => result.clone(),
            _ => {
                return Err(invalid_argument!(
                    "The `dataset_factory` function must return a single scalar of dtype DT_VARIANT."
                ));
            }
        };
        let make = || Ok(IteratorResource::new(self.spec.clone()));
        let iterator = self.resource.get(make, |_| Ok(()))?;
        iterator.make(device, &dataset)?;
        let (container, name) = (self.resource.container(), self.resource.name());
        let handle = device.resource_handle::<IteratorResource>(container, name, Vec::new());
        Tensor::from_handles(Shape::scalar(), vec![handle])
    }
}
