//! `Reset`: ends all sessions and clears containers.

use super::workers::{clean_up_all, is_wanted};
use super::{Master, close_session};
use crate::DeviceSpec;
use crate::grpc::{Frames, MessageBytes, decode};
use graphmill_tensor::Result;
use graphmill_wire::tensorflow::{ResetRequest, ResetResponse};

impl Master {
    /// Ends every session, whichever containers are named; without names the default container is cleared.
    ///
    /// # Errors
    /// None but for a message that cannot be read.
    pub(super) async fn reset(&self, message: MessageBytes) -> Result<Frames> {
        let request: ResetRequest = decode(message)?;
        self.end_sessions(close_session::closed(), false).await;
        self.task.clear_containers(&request.container);
        let filters = request.device_filters.iter().filter_map(|filter| DeviceSpec::parse(filter)).collect::<Vec<_>>();
        let others = self.task.peers.others().filter(|channel| is_wanted(channel.task(), &filters));
        clean_up_all(others.cloned().collect(), &request.container).await?;
        Frames::message(&ResetResponse {})
    }
}
