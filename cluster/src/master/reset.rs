//! `Reset`: ends all sessions and clears containers.

use super::{Master, close_session};
use crate::grpc::{Frames, decode};
use bytes::Bytes;
use graphmill_tensor::Result;
use graphmill_wire::tensorflow::{ResetRequest, ResetResponse};

impl Master {
    /// Ends every session, whichever containers are named; without names the default container is cleared.
    ///
    /// # Errors
    /// None but for a message that cannot be read.
    pub(super) async fn reset(&self, message: Bytes) -> Result<Frames> {
        let request: ResetRequest = decode(message)?;
        self.end_sessions(close_session::closed(), false).await;
        self.task.clear_containers(&request.container);
        Frames::message(&ResetResponse {})
    }
}
