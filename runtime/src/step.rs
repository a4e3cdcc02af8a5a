//! What belongs to one step.

use crate::{CallbackId, CancellationManager, Collectives, Rendezvous, ResourceManager, Trace};
use graphmill_tensor::{Result, internal, resource_exhausted};
use std::sync::{Arc, OnceLock};

/// Calls within calls that a step may have. Each holds some kilobytes; recursion that goes deeper hardly ends.
const MAX_DEPTH: u32 = 10_000;

/// One run of a graph, from its feeds to its fetches, or of a function that is called within one.
pub struct Step {
    id: i64,
    depth: u32,
    cancellation: Arc<CancellationManager>,
    resources: Arc<ResourceManager>,
    rendezvous: Option<Arc<dyn Rendezvous>>,
    collectives: Option<Arc<dyn Collectives>>,
    /// What ties a cancellation of its own to that of the step around it.
    link: Option<Link>,
    trace: OnceLock<Arc<Trace>>,
}

struct Link {
    outer: Arc<CancellationManager>,
    callback: CallbackId,
}

impl Step {
    /// A step under this id.
    pub fn new(id: i64) -> Step {
        Step {
            id,
            depth: 0,
            cancellation: Arc::default(),
            resources: Arc::default(),
            rendezvous: None,
            collectives: None,
            link: None,
            trace: OnceLock::new(),
        }
    }

    /// This step with a place where its parts exchange tensors.
    pub fn with_rendezvous(mut self, rendezvous: Arc<dyn Rendezvous>) -> Step {
        self.rendezvous = Some(rendezvous);
        self
    }

    /// Where the parts of the step exchange tensors.
    ///
    /// # Errors
    /// `INTERNAL` for a step that was begun as one of a single part.
    pub fn rendezvous(&self) -> Result<&Arc<dyn Rendezvous>> {
        self.rendezvous.as_ref().ok_or_else(|| internal!("The step has no other parts to exchange tensors with"))
    }

    /// This step with a way to take part in collective operations.
    pub fn with_collectives(mut self, collectives: Arc<dyn Collectives>) -> Step {
        self.collectives = Some(collectives);
        self
    }

    /// How the step takes part in collective operations, if it was begun as one that does.
    pub fn collectives(&self) -> Option<&Arc<dyn Collectives>> {
        self.collectives.as_ref()
    }

    /// The id that all parts of the step share.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// How many function calls this part of the step is in.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// Cancels the step, and tells who waits in it.
    pub fn cancellation(&self) -> &CancellationManager {
        &self.cancellation
    }

    /// Resources that end with the step.
    pub fn resources(&self) -> &ResourceManager {
        &self.resources
    }

    /// Has the nodes of the step recorded, those of runs that begin from now on.
    pub fn start_trace(&self) -> &Arc<Trace> {
        self.trace.get_or_init(|| Arc::new(Trace::new()))
    }

    /// The record of nodes, if there is one.
    pub fn trace(&self) -> Option<&Arc<Trace>> {
        self.trace.get()
    }

    /// The same step one call deeper.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if calls are nested too deep.
    pub(crate) fn deeper(&self) -> Result<Step> {
        if self.depth >= MAX_DEPTH {
            return Err(resource_exhausted!("Functions call each other more than {MAX_DEPTH} deep"));
        }
        let (cancellation, resources) = (self.cancellation.clone(), self.resources.clone());
        let (rendezvous, collectives) = (self.rendezvous.clone(), self.collectives.clone());
        let (depth, trace) = (self.depth + 1, self.trace.clone());
        Ok(Step { id: self.id, depth, cancellation, resources, rendezvous, collectives, link: None, trace })
    }

    /// This step with resources of its own.
    pub(crate) fn with_own_resources(mut self) -> Step {
        self.resources = Arc::default();
        self
    }

    /// This step with a cancellation of its own, which that of the step around it sets off but not the other way round: a call
    /// that fails ends its own kernels and leaves the rest to the caller.
    pub(crate) fn with_own_cancellation(mut self) -> Step {
        let outer = std::mem::take(&mut self.cancellation);
        let inner = Arc::downgrade(&self.cancellation);
        let (from, within) = (Arc::downgrade(&outer), inner.clone());
        let cancel = move || {
            if let (Some(inner), Some(outer)) = (inner.upgrade(), from.upgrade())
                && let Some(reason) = outer.reason()
            {
                inner.cancel(reason);
            }
        };
        let waits = move || within.upgrade().map_or_else(Vec::new, |inner| inner.waits());
        let callback = outer.register_waiting(cancel, waits);
        match callback {
            Some(callback) => self.link = Some(Link { outer, callback }),
            None => {
                if let Some(reason) = outer.reason() {
                    self.cancellation.cancel(reason);
                }
            }
        }
        self
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            link.outer.deregister(link.callback);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::cancelled;

    #[test]
    fn cancellation_goes_inwards_only() {
        let outer = Step::new(1);
        let inner = outer.deeper().unwrap().with_own_cancellation();
        let waits = || vec!["a call".to_owned()];
        inner.cancellation().register_waiting(|| {}, waits).unwrap();
        assert_eq!(outer.cancellation().waits(), ["a call"]);
        let sibling = outer.deeper().unwrap().with_own_cancellation();
        sibling.cancellation().cancel(cancelled!("own"));
        assert!(!outer.cancellation().is_cancelled() && !inner.cancellation().is_cancelled());
        outer.cancellation().cancel(cancelled!("outer"));
        assert_eq!(inner.cancellation().reason().unwrap().message(), "outer");
        let late = outer.deeper().unwrap().with_own_cancellation();
        assert_eq!(late.cancellation().reason().unwrap().message(), "outer");
    }

    #[test]
    fn calls_share_the_step_down_to_a_limit() {
        let mut step = Step::new(7);
        for depth in 1..=MAX_DEPTH {
            step = step.deeper().unwrap();
            assert_eq!((step.id(), step.depth()), (7, depth));
        }
        let error = step.deeper().err().unwrap();
        assert_eq!(error.code(), graphmill_tensor::Code::ResourceExhausted);
    }
}
