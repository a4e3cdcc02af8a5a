//! What iterators share: the device, and the step in which they call functions, which carries their cancellation.

use graphmill_runtime::{CallbackId, CancellationManager, Device, Step};
use graphmill_tensor::{Result, Status, cancelled};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// The surroundings of an iterator and of those below it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct IteratorContext {
    shared: Arc<Shared>,
    path: Option<Arc<Above>>,
    /// Whether elements keep their order where the transformation leaves that open; the outermost dataset that says it decides.
    ordered: Option<bool>,
}

/// A transformation that an iterator is an input of, and those above it.
struct Above {
    name: &'static str,
    next: Option<Arc<Above>>,
}

struct Shared {
    device: Arc<Device>,
    root: Arc<Step>,
    parent: Option<(Arc<Step>, CallbackId)>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some((parent, callback)) = self.parent.take() {
            parent.cancellation().deregister(callback);
        }
    }
}

/// A step under an id of its own.
fn new_step() -> Arc<Step> {
    static NEXT: AtomicI64 = AtomicI64::new(-2);
    Arc::new(Step::new(NEXT.fetch_sub(1, Ordering::Relaxed)))
}

/// Has `step` cancelled with `parent`; the callback, if the parent is not cancelled yet.
fn link(parent: &Arc<Step>, step: &Arc<Step>) -> Option<CallbackId> {
    let (weak, origin) = (Arc::downgrade(step), Arc::downgrade(parent));
    let within = weak.clone();
    let cancel = move || {
        if let Some(step) = weak.upgrade() {
            let reason = origin.upgrade().and_then(|parent| parent.cancellation().reason());
            step.cancellation().cancel(reason.unwrap_or_else(stopped));
        }
    };
    let waits = move || within.upgrade().map_or_else(Vec::new, |step| step.cancellation().waits());
    let callback = parent.cancellation().register_waiting(cancel, waits);
    if callback.is_none() {
        step.cancellation().cancel(parent.cancellation().reason().unwrap_or_else(stopped));
    }
    callback
}

/// The error of an iterator that has been cancelled.
pub(crate) fn stopped() -> Status {
    cancelled!("Iterator was cancelled")
}

impl IteratorContext {
    /// For an iterator that outlives the step that makes it.
    pub fn new(device: &Arc<Device>) -> IteratorContext {
        let shared = Shared { device: device.clone(), root: new_step(), parent: None };
        IteratorContext { shared: Arc::new(shared), path: None, ordered: None }
    }

    /// For an iterator that is cancelled with a step.
    pub fn within(device: &Arc<Device>, step: &Arc<Step>) -> IteratorContext {
        let root = new_step();
        let parent = link(step, &root).map(|callback| (step.clone(), callback));
        let shared = Arc::new(Shared { device: device.clone(), root, parent });
        IteratorContext { shared, path: None, ordered: None }
    }

    /// For iterators that are cancelled with this context, or before it.
    pub fn child(&self) -> IteratorContext {
        let within = IteratorContext::within(&self.shared.device, &self.shared.root);
        IteratorContext { path: self.path.clone(), ordered: self.ordered, ..within }
    }

    /// This context for the inputs of a transformation.
    pub fn under(&self, name: &'static str) -> IteratorContext {
        let path = Some(Arc::new(Above { name, next: self.path.clone() }));
        IteratorContext { shared: self.shared.clone(), path, ordered: self.ordered }
    }

    /// This context for datasets that keep the order of elements, or need not, if no outer one has said so.
    pub fn with_order(&self, ordered: Option<bool>) -> IteratorContext {
        IteratorContext { ordered: self.ordered.or(ordered), ..self.clone() }
    }

    /// Whether a transformation keeps the order, which its attribute may have said.
    pub fn is_ordered(&self, declared: Option<bool>) -> bool {
        declared.or(self.ordered).unwrap_or(true)
    }

    /// The transformations above, the nearest first.
    pub fn path(&self) -> impl Iterator<Item = &'static str> {
        let mut above = self.path.clone();
        std::iter::from_fn(move || {
            let here = above.take()?;
            above = here.next.clone();
            Some(here.name)
        })
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.shared.device
    }

    /// Cancellation of everything that runs in this context.
    pub fn cancellation(&self) -> &CancellationManager {
        self.shared.root.cancellation()
    }

    /// Cancels what runs in this context.
    pub fn cancel(&self, reason: Status) {
        self.cancellation().cancel(reason);
    }

    /// An error if the context is cancelled.
    pub fn check(&self) -> Result<()> {
        if self.cancellation().is_cancelled() { Err(stopped()) } else { Ok(()) }
    }

    /// The step within which functions are called.
    pub fn step(&self) -> &Arc<Step> {
        &self.shared.root
    }
}
