//! `RecvTensor`: another task asks for a tensor that a step sends it.

use super::Worker;
use crate::encoded::{EncodedTensor, begin, field_len};
use crate::grpc::{Frames, FramesBuilder, decode};
use crate::task::Task;
use bytes::Bytes;
use graphmill_graph::RendezvousKey;
use graphmill_runtime::{LocalRendezvous, Parcel, WaiterId, local_name};
use graphmill_tensor::{DType, Result, Shape, Tensor, aborted, internal, invalid_argument, payload};
use graphmill_wire::tensorflow::{RecvTensorRequest, RecvTensorResponse};
use std::sync::Arc;
use tokio::sync::oneshot;

/// Number of the field of `RecvTensorResponse` that is written by hand.
const RESPONSE_TENSOR: u32 = 1;

impl Worker {
    /// Answers when the tensor is there; the request may come before the step begins here. Each tensor is given once.
    ///
    /// # Errors
    /// `ABORTED` for a request that came twice or for another incarnation of the device, `INVALID_ARGUMENT` for a key that is none
    /// or names another device, and what the step fails with.
    pub(super) async fn recv_tensor(&self, message: Bytes) -> Result<Frames> {
        let request: RecvTensorRequest = decode(message)?;
        let RecvTensorRequest { step_id, rendezvous_key, request_id, .. } = &request;
        let describe = || format!("step_id: {step_id} rendezvous_key: \"{rendezvous_key}\" request_id: {request_id}");
        self.request_ids.lock().note(*request_id, "RecvTensor (GrpcWorker)", describe)?;
        check_source(&self.task, rendezvous_key)?;
        let parcel = self.take(*step_id, rendezvous_key).await?;
        answer(parcel)
    }

    /// Takes a tensor out of a step's rendezvous. A receive whose caller goes away takes nothing.
    pub(super) async fn take(&self, step: i64, key: &str) -> Result<Parcel> {
        let (sender, receiver) = oneshot::channel();
        let rendezvous = self.task.exchanges.of(step);
        let key: Arc<str> = Arc::from(key);
        let deliver = move |outcome| {
            let _ = sender.send(outcome);
        };
        let waiter = rendezvous.receive_or_wait(&key, Box::new(deliver));
        let _withdrawn = Withdraw { task: &self.task, step, rendezvous: Some(rendezvous), key, waiter };
        receiver.await.unwrap_or_else(|_| Err(internal!("The rendezvous of the step went away")))
    }
}

/// Withdraws a receive when its caller goes away.
struct Withdraw<'a> {
    task: &'a Task,
    step: i64,
    rendezvous: Option<Arc<LocalRendezvous>>,
    key: Arc<str>,
    waiter: Option<WaiterId>,
}

impl Drop for Withdraw<'_> {
    fn drop(&mut self) {
        let Some(rendezvous) = self.rendezvous.take() else { return };
        if let Some(waiter) = self.waiter {
            rendezvous.withdraw(&self.key, waiter);
        }
        self.task.exchanges.forget_if_idle(self.step, rendezvous);
    }
}

/// Checks that a key is one, and that it is a device of this task, in this life of the process, that sends.
pub(crate) fn check_source(task: &Task, key: &str) -> Result<()> {
    let RendezvousKey { send_device: device, send_device_incarnation: incarnation, .. } = RendezvousKey::parse(key)?;
    // A session may call the task by another name, but not the device.
    let Some(found) = task.devices.find_local(device) else {
        return Err(invalid_argument!("{} unknown device.", local_name(device)));
    };
    let own = found.incarnation();
    if incarnation != own {
        let error = aborted!(
            "RecvTensor expects a different device incarnation: {incarnation} vs. {own}. Your worker job (\"{}\") was probably \
             restarted. Check your worker job for the reason why it was restarted.",
            task.name
        );
        return Err(error.with_payload(payload::WORKER_POSSIBLY_RESTARTED, Bytes::new()));
    }
    Ok(())
}

/// The answer with a tensor, whose bytes are not copied. A dead value travels as an empty float tensor, whatever its type.
fn answer(parcel: Parcel) -> Result<Frames> {
    let Some(tensor) = parcel else {
        let tensor = Tensor::zeros(DType::Float, Shape::vector(0))?.to_proto();
        return Frames::message(&RecvTensorResponse { tensor: Some(tensor), is_dead: true, ..Default::default() });
    };
    let tensor = EncodedTensor::new(&tensor);
    let mut frames = FramesBuilder::new(field_len(RESPONSE_TENSOR, tensor.encoded_len()))?;
    begin(frames.buffer(), RESPONSE_TENSOR, tensor.encoded_len());
    tensor.write(&mut frames);
    Ok(frames.finish())
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    #[test]
    fn answers_are_messages() {
        let decoded = |parcel| {
            let bytes: Vec<u8> = answer(parcel).unwrap().frames().flat_map(|f| f.iter().copied()).collect();
            RecvTensorResponse::decode(&bytes[5..]).unwrap()
        };
        let tensor = Tensor::vector(&[1.0f32, 2.0]).unwrap();
        let live = decoded(Some(tensor.clone()));
        assert!(!live.is_dead);
        assert_eq!(live.tensor.unwrap(), tensor.to_proto());
        let dead = decoded(None);
        assert!(dead.is_dead);
        assert_eq!(dead.tensor.unwrap().dtype, DType::Float.number());
    }
}
