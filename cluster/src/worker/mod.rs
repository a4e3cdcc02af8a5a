//! The worker service: graphs that masters register here, their steps, and the tensors that other workers ask for.

mod clean_up;
mod collective;
mod create_worker_session;
mod logging;
mod recv_tensor;
mod register_graph;
mod run_graph;
mod session;
mod status;

use crate::grpc::{Frames, decode};
use crate::request_ids::RequestIds;
use crate::running::{self, RunningSteps};
use crate::task::Task;
use bytes::Bytes;
pub(crate) use create_worker_session::OwnSession;
use graphmill_tensor::{Result, Status, aborted, payload, unimplemented_op};
use graphmill_wire::service::WorkerMethod;
use graphmill_wire::tensorflow::{GetStatusRequest, GetStatusResponse};
use parking_lot::{Mutex, RwLock};
pub(crate) use recv_tensor::check_source;
use session::WorkerSession;
use std::collections::HashMap;
use std::sync::Arc;

/// Requests of all kinds that are remembered, so that none is served twice.
const REMEMBERED_REQUESTS: usize = 100_000;

/// Answers the calls of masters and of other workers.
pub(crate) struct Worker {
    task: Arc<Task>,
    sessions: RwLock<HashMap<String, Arc<WorkerSession>>>,
    /// The session of masters that make none.
    default_session: Arc<WorkerSession>,
    request_ids: Mutex<RequestIds>,
    partial_runs: run_graph::PartialRuns,
}

impl Worker {
    pub fn new(task: Arc<Task>) -> Worker {
        Worker {
            default_session: Arc::new(WorkerSession::of_task(&task)),
            task,
            sessions: RwLock::default(),
            request_ids: Mutex::new(RequestIds::new(REMEMBERED_REQUESTS)),
            partial_runs: run_graph::PartialRuns::default(),
        }
    }

    /// Answers one call.
    ///
    /// # Errors
    /// The status of the call.
    pub async fn call(&self, method: WorkerMethod, message: Bytes) -> Result<Frames> {
        match method {
            WorkerMethod::GetStatus => {
                decode::<GetStatusRequest>(message)?;
                Frames::message(&GetStatusResponse { device_attributes: self.task.device_attributes() })
            }
            WorkerMethod::CreateWorkerSession => self.create_worker_session(message),
            WorkerMethod::DeleteWorkerSession => self.delete_worker_session(message).await,
            WorkerMethod::RegisterGraph => self.register_graph(message).await,
            WorkerMethod::DeregisterGraph => self.deregister_graph(message),
            WorkerMethod::RunGraph => self.run_graph(message).await,
            WorkerMethod::CleanupGraph => self.cleanup_graph(message),
            WorkerMethod::CleanupAll => self.cleanup_all(message),
            WorkerMethod::RecvTensor => self.recv_tensor(message).await,
            WorkerMethod::RecvBuf => self.recv_buf(message).await,
            WorkerMethod::CompleteGroup => self.task.collectives.complete_group(message).await,
            WorkerMethod::CompleteInstance => self.task.collectives.complete_instance(message).await,
            WorkerMethod::GetStepSequence => self.task.collectives.get_step_sequence(&self.task, message),
            WorkerMethod::Logging => self.logging(message),
            WorkerMethod::Tracing => Err(unimplemented_op!("Tracing")),
            _ => Err(unimplemented_op!("Method {} is not implemented", method.path())),
        }
    }

    /// The session of a handle.
    ///
    /// # Errors
    /// `ABORTED` if there is none, upon which clients make a new session.
    fn session(&self, handle: &str, was_created: bool) -> Result<Arc<WorkerSession>> {
        if !was_created {
            return Ok(self.default_session.clone());
        }
        self.sessions.read().get(handle).cloned().ok_or_else(|| {
            let task = &self.task.name;
            let text =
                aborted!("Session handle is not found: {handle}. Possibly this worker (\"{task}\") just restarted.");
            text.with_payload(payload::WORKER_POSSIBLY_RESTARTED, Bytes::new())
        })
    }

    /// Ends sessions that a condition chooses: their steps get `reason`.
    async fn end_sessions(&self, reason: Status, chosen: impl Fn(&WorkerSession) -> bool) {
        let ended: Vec<Arc<WorkerSession>> = {
            let mut sessions = self.sessions.write();
            let handles: Vec<String> =
                sessions.iter().filter(|(_, session)| chosen(session)).map(|(handle, _)| handle.clone()).collect();
            handles.iter().filter_map(|handle| sessions.remove(handle)).collect()
        };
        for session in &ended {
            session.running.end(reason.clone());
        }
        let deadline = running::patience();
        for session in &ended {
            session.running.wait(deadline).await;
        }
    }

    /// Begins no more steps, which get `reason`. Yields those that go on.
    pub fn drain(&self, reason: &Status) -> Vec<Arc<RunningSteps>> {
        let sessions = self.sessions.read();
        let all = sessions.values().chain([&self.default_session]);
        let running: Vec<_> = all.map(|session| session.running.clone()).collect();
        running.iter().for_each(|steps| steps.refuse(reason.clone()));
        running
    }

    /// Ends all sessions, because the server ends.
    pub async fn end(&self, reason: Status) {
        self.default_session.running.end(reason.clone());
        self.end_sessions(reason, |_| true).await;
    }
}
