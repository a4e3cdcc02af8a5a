//! `CloseSession`: ends a session.

use super::{Handle, Master};
use crate::grpc::{Frames, MessageBytes, decode};
use crate::running;
use graphmill_tensor::{Result, Status, aborted, cancelled};
use graphmill_wire::tensorflow::{CloseSessionRequest, CloseSessionResponse};

impl Master {
    /// Cancels the session's steps and answers when they have ended.
    ///
    /// # Errors
    /// `ABORTED` for an unknown session.
    pub(super) async fn close_session(&self, message: MessageBytes) -> Result<Frames> {
        let request: CloseSessionRequest = decode(message)?;
        let session = Handle::parse(&request.session_handle)
            .and_then(|handle| self.sessions.write().by_handle.remove(&handle))
            .ok_or_else(|| aborted!("{}", unknown(&request.session_handle)))?;
        session.running.end(closed());
        session.running.wait(running::patience()).await;
        session.end_remote().await;
        tracing::debug!(handle = request.session_handle, "session closed");
        Frames::message(&CloseSessionResponse {})
    }
}

/// The text about a handle that names no session.
pub(super) fn unknown(handle: &str) -> String {
    format!("Session {handle} is not found. Possibly, this master has restarted.")
}

/// What the steps of a closed session end with.
pub(super) fn closed() -> Status {
    cancelled!("Step was cancelled by an explicit call to `Session::Close()`.")
}
