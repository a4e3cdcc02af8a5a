//! `ListDevices`: which devices a session, or the server, has.

use super::{Master, close_session};
use crate::grpc::{Frames, decode};
use bytes::Bytes;
use graphmill_tensor::{Result, invalid_argument};
use graphmill_wire::tensorflow::{ListDevicesRequest, ListDevicesResponse};

impl Master {
    /// All devices are local ones.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an unknown session.
    pub(super) fn list_devices(&self, message: Bytes) -> Result<Frames> {
        let request: ListDevicesRequest = decode(message)?;
        let handle = &request.session_handle;
        if !handle.is_empty() && self.find(handle).is_none() {
            return Err(invalid_argument!("{}", close_session::unknown(handle)));
        }
        Frames::message(&ListDevicesResponse { local_device: self.task.device_attributes(), remote_device: Vec::new() })
    }
}
