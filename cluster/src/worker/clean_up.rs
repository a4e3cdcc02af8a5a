//! `CleanupGraph` and `CleanupAll`.

use super::Worker;
use crate::grpc::{Frames, decode};
use bytes::Bytes;
use graphmill_tensor::{Result, aborted};
use graphmill_wire::tensorflow::{CleanupAllRequest, CleanupAllResponse, CleanupGraphRequest, CleanupGraphResponse};

impl Worker {
    /// Forgets what a step has left; an unknown step is fine.
    ///
    /// # Errors
    /// None but for a message that cannot be read.
    pub(super) fn cleanup_graph(&self, message: Bytes) -> Result<Frames> {
        let step = decode::<CleanupGraphRequest>(message)?.step_id;
        self.task.exchanges.end(step, aborted!("Cleanup {step}").derived());
        self.task.collectives.clean_up(step);
        self.partial_runs.remove(step);
        Frames::message(&CleanupGraphResponse {})
    }

    /// Clears containers, without names the default one.
    ///
    /// # Errors
    /// None but for a message that cannot be read.
    pub(super) fn cleanup_all(&self, message: Bytes) -> Result<Frames> {
        let request: CleanupAllRequest = decode(message)?;
        self.task.clear_containers(&request.container);
        Frames::message(&CleanupAllResponse {})
    }
}
