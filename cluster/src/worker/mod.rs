//! The worker service.

use crate::grpc::{Frames, decode};
use crate::task::Task;
use bytes::Bytes;
use graphmill_tensor::{Result, unimplemented_op};
use graphmill_wire::service::WorkerMethod;
use graphmill_wire::tensorflow::{GetStatusRequest, GetStatusResponse};
use std::sync::Arc;

/// Answers the calls of masters and of other workers.
pub(crate) struct Worker {
    task: Arc<Task>,
}

impl Worker {
    pub fn new(task: Arc<Task>) -> Worker {
        Worker { task }
    }

    /// Answers one call.
    ///
    /// # Errors
    /// `UNIMPLEMENTED` for methods by which other tasks would run graphs here.
    pub fn call(&self, method: WorkerMethod, message: Bytes) -> Result<Frames> {
        match method {
            WorkerMethod::GetStatus => {
                decode::<GetStatusRequest>(message)?;
                Frames::message(&GetStatusResponse { device_attributes: self.task.device_attributes() })
            }
            _ => Err(unimplemented_op!("Method {} is not implemented", method.path())),
        }
    }
}
