//! `CreateWorkerSession` and `DeleteWorkerSession`.

use super::Worker;
use super::session::WorkerSession;
use crate::ClusterSpec;
use crate::grpc::{Frames, decode};
use crate::peers::{Peers, task_name};
use bytes::Bytes;
use graphmill_runtime::{Devices, is_job_name};
use graphmill_tensor::{Result, aborted, cancelled, invalid_argument};
use graphmill_wire::tensorflow::{
    CreateWorkerSessionRequest, CreateWorkerSessionResponse, DeleteWorkerSessionRequest, DeleteWorkerSessionResponse,
    ServerDef,
};
use std::sync::{Arc, Weak};

/// The part of a session on the task of its own master. Dropping it ends it.
pub(crate) struct OwnSession {
    worker: Weak<Worker>,
    handle: String,
}

impl Drop for OwnSession {
    fn drop(&mut self) {
        if let Some(worker) = self.worker.upgrade() {
            worker.end_session(&self.handle);
        }
    }
}

impl Worker {
    /// Opens the part of a master's session that is here. A handle that is known already stays as it is. Sessions of the same
    /// master before it restarted are ended.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an empty handle and for a cluster that is not well formed.
    pub(super) fn create_worker_session(&self, message: Bytes) -> Result<Frames> {
        let request: CreateWorkerSessionRequest = decode(message)?;
        let handle = request.session_handle;
        if handle.is_empty() {
            return Err(invalid_argument!("Session must be non-empty."));
        }
        let master = (request.master_task, request.master_incarnation);
        self.end_sessions_of_predecessors(&master);
        let server = request.server_def.unwrap_or_default();
        let peers = self.peers_of(&server)?;
        let renamed = peers.own() != self.task.name;
        let devices = match (renamed, request.isolate_session_state) {
            (false, false) => self.task.devices.clone(),
            (false, true) => self.task.devices.isolated(),
            (true, isolated) => self.task.devices.renamed(peers.own(), &server.job_name, isolated),
        };
        let mut sessions = self.sessions.write();
        let session = || Arc::new(WorkerSession::new(handle.clone(), devices, peers, master));
        sessions.entry(handle.clone()).or_insert_with(session);
        Frames::message(&CreateWorkerSessionResponse {})
    }

    /// Opens the part of a session of this server's own master, so that other tasks can call functions here. It ends with what is
    /// returned.
    pub fn own_session(self: &Arc<Self>, handle: &str, devices: &Devices, peers: &Arc<Peers>) -> OwnSession {
        let master = (String::new(), 0);
        let session = Arc::new(WorkerSession::new(handle.to_owned(), devices.clone(), peers.clone(), master));
        self.sessions.write().insert(handle.to_owned(), session);
        OwnSession { worker: Arc::downgrade(self), handle: handle.to_owned() }
    }

    /// The tasks of a session: those of its own cluster, or of this server's.
    fn peers_of(&self, server: &ServerDef) -> Result<Arc<Peers>> {
        let Some(cluster) = server.cluster.as_ref().filter(|cluster| !cluster.job.is_empty()) else {
            return Ok(self.task.peers.clone());
        };
        let spec = ClusterSpec::from_proto(cluster)?;
        let index = u32::try_from(server.task_index).ok().filter(|_| is_job_name(&server.job_name));
        let index = index.ok_or_else(|| {
            invalid_argument!("There is no task {} of job \"{}\"", server.task_index, server.job_name)
        })?;
        Ok(Arc::new(Peers::new(&task_name(&server.job_name, index), &spec, &self.task.network)))
    }

    fn end_sessions_of_predecessors(&self, (task, incarnation): &(String, i64)) {
        if task.is_empty() {
            return;
        }
        let mut sessions = self.sessions.write();
        sessions.retain(|_, session| {
            let stays = session.master.0 != *task || session.master.1 == *incarnation;
            if !stays {
                session.running.end(aborted!("The master {task} of this session has restarted."));
            }
            stays
        });
    }

    /// Ends a session and its steps; an unknown one is fine.
    ///
    /// # Errors
    /// None but for a message that cannot be read.
    pub(super) async fn delete_worker_session(&self, message: Bytes) -> Result<Frames> {
        let request: DeleteWorkerSessionRequest = decode(message)?;
        self.end_session(&request.session_handle);
        Frames::message(&DeleteWorkerSessionResponse {})
    }

    fn end_session(&self, handle: &str) {
        let removed = self.sessions.write().remove(handle);
        if let Some(session) = removed {
            session.running.end(cancelled!("The master has ended the session."));
        }
    }
}
