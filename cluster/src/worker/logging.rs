//! `Logging`: masters ask for the calls that this worker has made during a traced step.

use super::Worker;
use crate::grpc::{Frames, decode};
use bytes::Bytes;
use graphmill_tensor::Result;
use graphmill_wire::tensorflow::{LoggingRequest, LoggingResponse};

impl Worker {
    /// Answers without records: what a step has received is among the nodes that `RunGraph` reports.
    ///
    /// # Errors
    /// None but for a message that cannot be read.
    pub(super) fn logging(&self, message: Bytes) -> Result<Frames> {
        decode::<LoggingRequest>(message)?;
        Frames::message(&LoggingResponse::default())
    }
}
