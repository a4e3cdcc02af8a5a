//! The resource that an iterator's handle names.

use crate::context::IteratorContext;
use crate::dataset::{Dataset, DatasetIterator, Spec, Tuple, tensor_dataset};
use crate::recipe::StatePolicy;
use crate::state::{Reader, Writer};
use graphmill_runtime::{Context, Device, Resource};
use graphmill_tensor::{ResourceHandle, Result, Tensor, Variant, failed_precondition, invalid_argument};
use parking_lot::{Mutex, RwLock};
use std::sync::Arc;

/// An iterator, made over a dataset again and again by `MakeIterator`.
pub(crate) struct IteratorResource {
    /// What its elements look like; nothing is known of an iterator that was made from a string without types.
    spec: Arc<Spec>,
    run: RwLock<Option<Arc<Run>>>,
}

impl Resource for IteratorResource {
    const TYPE_NAME: &'static str = "N10tensorflow4data16IteratorResourceE";
}

/// One pass over a dataset.
pub(crate) struct Run {
    pub ctx: IteratorContext,
    /// The tensor that stands for the dataset.
    source: Tensor,
    dataset: Arc<dyn Dataset>,
    pub iterator: Mutex<Box<dyn DatasetIterator>>,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.ctx.cancel(crate::context::stopped());
    }
}

impl Run {
    fn new(device: &Arc<Device>, source: &Tensor) -> Result<Run> {
        let ctx = IteratorContext::new(device);
        let dataset = tensor_dataset(source, device)?;
        let iterator = dataset.iterator(&ctx)?;
        Ok(Run { ctx, source: source.clone(), dataset, iterator: Mutex::new(iterator) })
    }

    /// The next element, after what other callers wait for.
    pub fn next(&self) -> Result<Option<Tuple>> {
        self.ctx.check()?;
        self.iterator.lock().next()
    }
}

impl IteratorResource {
    /// An iterator over nothing yet.
    pub fn new(spec: Arc<Spec>) -> IteratorResource {
        IteratorResource { spec, run: RwLock::new(None) }
    }

    /// What its elements look like.
    pub fn spec(&self) -> &Arc<Spec> {
        &self.spec
    }

    /// Starts anew over a dataset.
    pub fn make(&self, device: &Arc<Device>, dataset: &Tensor) -> Result<()> {
        let run = Run::new(device, dataset)?;
        self.spec.verify(run.dataset.spec())?;
        self.replace(run);
        Ok(())
    }

    fn replace(&self, run: Run) {
        // The old one is dropped outside the lock: it may have to stop threads.
        let old = self.run.write().replace(Arc::new(run));
        drop(old);
    }

    /// The pass under way.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` before the first [`IteratorResource::make`].
    pub fn run(&self) -> Result<Arc<Run>> {
        self.started("GetNext", "getting the next element")
    }

    fn started(&self, what: &str, doing: &str) -> Result<Arc<Run>> {
        self.run.read().clone().ok_or_else(|| {
            failed_precondition!(
                "{what}() failed because the iterator has not been initialized. Ensure that you have run the \
                 initializer operation for this iterator before {doing}."
            )
        })
    }

    /// The position.
    pub fn save(&self, policy: &StatePolicy) -> Result<Variant> {
        let run = self.started("Save", "saving it")?;
        policy.check(&run.source)?;
        let mut writer = Writer::default();
        run.iterator.lock().save(&mut writer)?;
        Ok(writer.finish())
    }

    /// Starts anew over the same dataset, at a saved position.
    pub fn restore(&self, device: &Arc<Device>, state: &Variant) -> Result<()> {
        let source = self.started("Restore", "restoring it")?.source.clone();
        let run = Run::new(device, &source)?;
        run.iterator.lock().restore(&mut Reader::new(state)?)?;
        self.replace(run);
        Ok(())
    }
}

/// The handle in an input.
pub(crate) fn input_handle(ctx: &Context<'_>, i: usize) -> Result<ResourceHandle> {
    match ctx.input(i)?.handles()? {
        [handle] => Ok(handle.clone()),
        _ => Err(invalid_argument!("resource_handle must be a scalar")),
    }
}

/// The iterator that an input's handle names.
pub(crate) fn input_iterator(ctx: &Context<'_>, i: usize) -> Result<Arc<IteratorResource>> {
    match ctx.input(i)?.handles()? {
        [handle] => ctx.device().lookup_handle::<IteratorResource>(handle),
        _ => Err(invalid_argument!("resource_handle must be a scalar")),
    }
}
