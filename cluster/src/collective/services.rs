//! The calls by which tasks take part in collective operations.

use super::groups::Applicant;
use super::instances::{Terms, checked_type};
use super::{CollectiveState, recv_buf};
use crate::grpc::{Frames, decode};
use crate::task::Task;
use bytes::Bytes;
use graphmill_tensor::{Result, decode_shape, failed_precondition, internal, invalid_argument};
use graphmill_wire::tensorflow::{
    CompleteGroupRequest, CompleteInstanceRequest, CompleteInstanceResponse, GetStepSequenceRequest,
    GetStepSequenceResponse, RecvBufRequest, StepSequence,
};
use tokio::sync::oneshot;

impl CollectiveState {
    /// Answers `CompleteGroup` when all members of the group are there. Whoever is asked is the leader.
    ///
    /// # Errors
    /// What is wrong with the member.
    pub async fn complete_group(&self, message: Bytes) -> Result<Frames> {
        let request: CompleteGroupRequest = decode(message)?;
        let device = request.device_attributes.ok_or_else(|| {
            internal!(
                "CompleteGroupRequest device_attributes is not set. Make sure you're running the same version of Tensorflow on all \
                 workers."
            )
        })?;
        let CompleteGroupRequest { group_key, group_size, device_type, .. } = request;
        let size = usize::try_from(group_size).ok().filter(|&size| size > 0);
        let group_size =
            size.ok_or_else(|| invalid_argument!("group_size must be positive integer but got {group_size}"))?;
        let applicant = Applicant { name: String::new(), group_key, group_size, device_type, device };
        let group = self.groups.join(&applicant, || self.communicator_key()).await;
        let group = group.inspect_err(|error| self.forget_restarted(group_key, error))?;
        Frames::message(&group.to_response())
    }

    /// Answers `CompleteInstance`.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` for a group that is not complete, and what is wrong with the member's terms.
    pub async fn complete_instance(&self, message: Bytes) -> Result<Frames> {
        let request: CompleteInstanceRequest = decode(message)?;
        let key = request.group_key;
        let group = self.groups.complete(key).ok_or_else(|| {
            let what = if self.groups.is_known(key) { "failed to resolve" } else { "not found" };
            failed_precondition!("group {key} {what}. This normally means the server has restarted")
        })?;
        let terms = Terms {
            kind: request.r#type,
            dtype: checked_type(request.data_type)?,
            shape: decode_shape(&request.shape.unwrap_or_default())?,
            instance_key: request.instance_key,
            device: request.device,
            is_source: request.is_source,
            is_stateless: request.step_id != 0,
        };
        let instance_key = request.instance_key;
        let source = self.instances.agree(&group, &terms).await?;
        let source_rank = source.and_then(|rank| i32::try_from(rank).ok()).unwrap_or(-1);
        Frames::message(&CompleteInstanceResponse { instance_key, source_rank })
    }

    /// Answers `GetStepSequence`.
    ///
    /// # Errors
    /// `INTERNAL` if another task is the leader.
    pub fn get_step_sequence(&self, task: &Task, message: Bytes) -> Result<Frames> {
        let request: GetStepSequenceRequest = decode(message)?;
        if !self.leader.may_be(&task.name) {
            return Err(internal!("GetStepSequenceAsync called at non-group-leader"));
        }
        let sequence = |&graph_key: &i64| {
            let next_step_id = self.sequences.lead(graph_key, || self.random.next());
            StepSequence { graph_key, next_step_id }
        };
        let step_sequence = request.graph_key.iter().map(sequence).collect();
        Frames::message(&GetStepSequenceResponse { step_sequence })
    }

    /// Answers `RecvBuf` when the buffer is there; the request may come before the step begins here. Each buffer is given once.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a foreign device, `FAILED_PRECONDITION` for another incarnation of the own one, and why the step has
    /// failed here.
    pub async fn recv_buf(&self, task: &Task, request: RecvBufRequest) -> Result<Frames> {
        let device = &request.src_device;
        let Some(found) = task.devices.find_local(device) else {
            return Err(invalid_argument!("{device} unknown device."));
        };
        let (given, own) = (request.src_incarnation, found.incarnation());
        if given != own {
            return Err(failed_precondition!(
                "RecvBuf expects a different device incarnation: {given} vs. {own}. Your worker job that contains the device \
                 (\"{device}\") was probably restarted. Check your worker job for the reason why it was restarted."
            ));
        }
        let (sender, receiver) = oneshot::channel();
        let buffers = self.buffers.of(request.step_id);
        let fetched = move |outcome| {
            // Nobody waits any more if the caller has gone.
            let _ = sender.send(outcome);
        };
        let number = buffers.fetch(&request.buf_rendezvous_key, Box::new(fetched));
        let _withdraw = Withdraw { state: self, request: &request, buffers, number };
        let buffer = receiver.await.unwrap_or_else(|_| Err(internal!("The buffers of the step went away")))?;
        recv_buf::answer(&request, &buffer, self.chunk)
    }
}

/// Withdraws a wish when its caller goes away.
struct Withdraw<'a> {
    state: &'a CollectiveState,
    request: &'a RecvBufRequest,
    buffers: std::sync::Arc<super::buffers::Buffers>,
    number: Option<u64>,
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.buffers.withdraw(&self.request.buf_rendezvous_key, number);
        }
        self.state.buffers.forget_if_idle(self.request.step_id, &self.buffers, 2);
    }
}
