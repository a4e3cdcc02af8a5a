//! `ListDevices`: which devices a session, or the server, has.

use super::workers::Workers;
use super::{Master, close_session};
use crate::grpc::{Frames, MessageBytes, decode};
use graphmill_tensor::{Result, invalid_argument};
use graphmill_wire::tensorflow::{DeviceAttributes, ListDevicesRequest, ListDevicesResponse};
use tokio::time::Instant;

impl Master {
    /// The devices of a session are local ones, its own first; in a session with a cluster of its own those of other tasks are remote.
    /// Without a session the other tasks are asked.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an unknown session; `DEADLINE_EXCEEDED` if a task does not answer.
    pub(super) async fn list_devices(&self, message: MessageBytes, deadline: Option<Instant>) -> Result<Frames> {
        let request: ListDevicesRequest = decode(message)?;
        let handle = &request.session_handle;
        if handle.is_empty() {
            let own = self.task.device_attributes();
            let workers = Workers::find(&self.task, self.task.peers.clone(), own, &[], deadline).await?;
            return answer(workers.own_devices.clone(), remote_devices(&workers));
        }
        let session = self.find(handle).ok_or_else(|| invalid_argument!("{}", close_session::unknown(handle)))?;
        let workers = &session.workers;
        match session.options.own_cluster {
            true => answer(workers.own_devices.clone(), remote_devices(workers)),
            false => answer(workers.devices().cloned().collect(), Vec::new()),
        }
    }
}

fn remote_devices(workers: &Workers) -> Vec<DeviceAttributes> {
    workers.remote.iter().flat_map(|worker| worker.devices.iter().cloned()).collect()
}

fn answer(local_device: Vec<DeviceAttributes>, remote_device: Vec<DeviceAttributes>) -> Result<Frames> {
    Frames::message(&ListDevicesResponse { local_device, remote_device })
}
