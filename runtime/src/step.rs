//! What belongs to one step.

use crate::{CancellationManager, ResourceManager};

/// One run of a graph, from its feeds to its fetches.
pub struct Step {
    id: i64,
    cancellation: CancellationManager,
    resources: ResourceManager,
}

impl Step {
    /// A step under this id.
    pub fn new(id: i64) -> Step {
        Step { id, cancellation: CancellationManager::new(), resources: ResourceManager::new() }
    }

    /// The id that all parts of the step share.
    pub fn id(&self) -> i64 {
        self.id
    }

    /// Cancels the step, and tells who waits in it.
    pub fn cancellation(&self) -> &CancellationManager {
        &self.cancellation
    }

    /// Resources that end with the step.
    pub fn resources(&self) -> &ResourceManager {
        &self.resources
    }
}
