//! Which task of a session has restarted.

use super::workers::{RemoteWorker, Workers, decode_answer};
use crate::grpc::Frames;
use graphmill_tensor::{Code, Status};
use graphmill_wire::service::WorkerMethod;
use graphmill_wire::tensorflow::{GetStatusRequest, GetStatusResponse};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long tasks may take to say who they are.
const PATIENCE: Duration = Duration::from_secs(1);

impl Workers {
    /// The error of a step; where it is `ABORTED` because tasks have restarted, these are named in it.
    pub async fn explain(&self, error: Status) -> Status {
        if error.code() != Code::Aborted || self.remote.is_empty() {
            return error;
        }
        let mut questions = JoinSet::new();
        for worker in &self.remote {
            let channel = worker.channel.clone();
            questions.spawn(async move {
                let message = Frames::message(&GetStatusRequest {}).ok()?;
                let answer =
                    channel.call(WorkerMethod::GetStatus.path(), message, Some(Instant::now() + PATIENCE)).await;
                let status = decode_answer::<GetStatusResponse>(answer.ok()?, "GetStatus").ok()?;
                Some((channel.task().to_owned(), status.device_attributes.first()?.incarnation))
            });
        }
        let mut restarted = Vec::new();
        while let Some(answer) = questions.join_next().await {
            if let Ok(Some((task, now))) = answer {
                restarted.extend(
                    self.remote.iter().find(|worker| worker.channel.task() == task).and_then(|w| restart(w, now)),
                );
            }
        }
        if restarted.is_empty() {
            return error;
        }
        restarted.sort();
        let text = format!("{}\n{}", restarted.join("\n"), error.message());
        error.with_message(text)
    }
}

/// What is to be said of a task whose device now has an incarnation, if it is not the one that the session knows.
fn restart(worker: &RemoteWorker, now: u64) -> Option<String> {
    let before = worker.devices.first()?.incarnation;
    let (task, address) = (worker.channel.task(), worker.channel.address());
    (before != now).then(|| {
        format!(
            "{task} at {address} has restarted since the session began: its incarnation was {before} and is {now} now. A new session is \
             needed."
        )
    })
}
