//! `CompleteGroup`, `CompleteInstance`, `GetStepSequence` and `RecvBuf`.

use super::Worker;
use crate::grpc::{Frames, decode};
use bytes::Bytes;
use graphmill_tensor::Result;
use graphmill_wire::tensorflow::RecvBufRequest;

impl Worker {
    /// Answers when the buffer of a collective operation is there.
    ///
    /// # Errors
    /// `ABORTED` for a request that came twice, and what [`crate::collective::CollectiveState::recv_buf`] says.
    pub(super) async fn recv_buf(&self, message: Bytes) -> Result<Frames> {
        let request: RecvBufRequest = decode(message)?;
        let describe = || {
            let RecvBufRequest { step_id, buf_rendezvous_key, request_id, .. } = &request;
            format!("step_id: {step_id} buf_rendezvous_key: \"{buf_rendezvous_key}\" request_id: {request_id}")
        };
        self.request_ids.lock().note(request.request_id, "RecvBuf (GrpcWorker)", describe)?;
        self.task.collectives.recv_buf(&self.task, request).await
    }
}
