//! Functions that other tasks run, as kernels see them.

use crate::Step;
use graphmill_graph::RemoteBody;
use graphmill_tensor::{Result, Tensor};
use std::sync::Arc;

/// The other tasks of a cluster as places where functions run.
pub trait RemoteTasks: Send + Sync {
    /// A function for calls on `device`, the full name of a device of another task, which `body` was made for. The task is told of it
    /// with the first call.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if there is no such task.
    fn function(&self, device: &str, body: RemoteBody) -> Result<Arc<dyn RemoteFunction>>;
}

/// A function that another task runs.
pub trait RemoteFunction: Send + Sync {
    /// Calls the function within a step, whose cancellation ends the call. `done` gets the results exactly once, from any thread.
    fn call(self: Arc<Self>, step: &Arc<Step>, args: Vec<Tensor>, done: Box<dyn FnOnce(Result<Vec<Tensor>>) + Send>);
}
