//! `RegisterGraph` and `DeregisterGraph`.

use super::Worker;
use super::session::RegisteredGraph;
use crate::grpc::{Frames, decode};
use crate::heavy;
use crate::late_reads::read_references_late;
use crate::remote_functions::RemoteFunctions;
use bytes::Bytes;
use graphmill_graph::{Graph, ImportOptions};
use graphmill_runtime::{FunctionRuntime, Program};
use graphmill_tensor::Result;
use graphmill_wire::tensorflow::{
    DeregisterGraphRequest, DeregisterGraphResponse, RegisterGraphRequest, RegisterGraphResponse,
};
use std::sync::Arc;

impl Worker {
    /// Makes the kernels of a graph, so that it can be run by its handle.
    ///
    /// # Errors
    /// `ABORTED` for an unknown session, `INVALID_ARGUMENT` for a node that is not on this task, and what else is wrong with the
    /// graph.
    pub(super) async fn register_graph(&self, message: Bytes) -> Result<Frames> {
        let size = message.len() >> 10;
        let request: RegisterGraphRequest = decode(message)?;
        let session = self.session(&request.session_handle, request.create_worker_session_called)?;
        let task = self.task.clone();
        let graph_handle = heavy::run(size, move || {
            let graph_def = request.graph_def.unwrap_or_default();
            let options = ImportOptions { allow_internal_names: true, expect_device: true };
            let mut graph = Graph::from_def_with(graph_def, options)?;
            graphmill_graph::check_partition_devices(&graph, &|device| session.devices.find(device).is_some())?;
            read_references_late(&mut graph);
            let (registry, devices, executor) = (task.registry.clone(), session.devices.clone(), task.executor.clone());
            let remote = RemoteFunctions::new(&task, &session.peers, &session.handle);
            let functions = FunctionRuntime::in_cluster(&graph, registry, devices, executor, Some(remote));
            let program = Arc::new(Program::build_with(&graph, &functions, &session.kernels)?);
            let config = request.config_proto.unwrap_or_default();
            let leader = (request.collective_graph_key != 0).then(|| task.collectives.leader.of(&config));
            Ok(session.add(RegisteredGraph { program, graph, leader }))
        })
        .await?;
        Frames::message(&RegisterGraphResponse { graph_handle })
    }

    /// Forgets a graph.
    ///
    /// # Errors
    /// `ABORTED` for an unknown session or graph.
    pub(super) fn deregister_graph(&self, message: Bytes) -> Result<Frames> {
        let request: DeregisterGraphRequest = decode(message)?;
        let session = self.session(&request.session_handle, request.create_worker_session_called)?;
        session.remove(&request.graph_handle)?;
        Frames::message(&DeregisterGraphResponse {})
    }
}
