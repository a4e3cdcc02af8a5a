//! `CreateSession`: opens a session on a graph.

use super::session::{Session, SessionOptions};
use super::{Master, placement};
use crate::DeviceSpec;
use crate::grpc::{Frames, decode};
use crate::heavy;
use bytes::Bytes;
use graphmill_graph::{Graph, ImportOptions};
use graphmill_tensor::{Result, invalid_argument, unimplemented_op};
use graphmill_wire::tensorflow::{ConfigProto, CreateSessionRequest, CreateSessionResponse};
use std::sync::Arc;
use std::time::Duration;

impl Master {
    /// Checks the client's settings and its graph as a whole.
    ///
    /// # Errors
    /// What the checks find.
    pub(super) async fn create_session(&self, message: Bytes) -> Result<Frames> {
        let size = message.len() >> 10;
        let task = self.task.clone();
        let session = heavy::run(size, move || {
            let request: CreateSessionRequest = decode(message)?;
            let config = request.config.unwrap_or_default();
            let options = session_options(&config)?;
            let graph = Graph::from_def_with(request.graph_def.unwrap_or_default(), ImportOptions::default())?;
            placement::check(&graph, 0, task.device.name(), options.soft_placement)?;
            let device = match config.isolate_session_state {
                true => Arc::new(task.device.isolated()),
                false => task.device.clone(),
            };
            Ok(Session::new(options, device, graph))
        })
        .await?;
        let handle = self.add(session)?;
        tracing::debug!(%handle, "session opened");
        Frames::message(&CreateSessionResponse { session_handle: handle.to_string(), graph_version: 0 })
    }
}

/// Takes from a client's settings what the server acts on.
///
/// # Errors
/// `INVALID_ARGUMENT` for settings that TensorFlow's master refuses, `UNIMPLEMENTED` for a cluster of the client's own.
fn session_options(config: &ConfigProto) -> Result<SessionOptions> {
    if config.use_per_session_threads || !config.session_inter_op_thread_pool.is_empty() {
        return Err(invalid_argument!("Distributed session does not support session thread pool options."));
    }
    if let Some(filter) = config.device_filters.iter().find(|filter| DeviceSpec::parse(filter).is_none()) {
        return Err(invalid_argument!("\"{filter}\" in device_filters is not a device name"));
    }
    if config.cluster_def.as_ref().is_some_and(|cluster| !cluster.job.is_empty()) {
        return Err(unimplemented_op!("A session with a cluster of its own (cluster_def) is not implemented"));
    }
    let experimental = config.experimental.clone().unwrap_or_default();
    Ok(SessionOptions {
        soft_placement: config.allow_soft_placement,
        timeout: milliseconds(config.operation_timeout_in_ms),
        static_graph: experimental.optimize_for_static_graph,
        no_partition_graphs: experimental.disable_output_partition_graphs,
    })
}

/// A time limit off the wire, where only positive numbers are one.
pub(super) fn milliseconds(number: i64) -> Option<Duration> {
    u64::try_from(number).ok().filter(|&number| number > 0).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::Code;
    use graphmill_wire::tensorflow::{ClusterDef, JobDef, ThreadPoolOptionProto, config_proto};

    #[test]
    fn settings_that_are_refused() {
        let code = |config: ConfigProto| session_options(&config).unwrap_err().code();
        assert_eq!(code(ConfigProto { use_per_session_threads: true, ..Default::default() }), Code::InvalidArgument);
        let pools = vec![ThreadPoolOptionProto::default()];
        assert_eq!(
            code(ConfigProto { session_inter_op_thread_pool: pools, ..Default::default() }),
            Code::InvalidArgument
        );
        assert_eq!(
            code(ConfigProto { device_filters: vec!["nonsense".into()], ..Default::default() }),
            Code::InvalidArgument
        );
        let cluster = ClusterDef { job: vec![JobDef::default()] };
        assert_eq!(code(ConfigProto { cluster_def: Some(cluster), ..Default::default() }), Code::Unimplemented);
    }

    #[test]
    fn settings_that_are_taken() {
        let experimental = config_proto::Experimental { optimize_for_static_graph: true, ..Default::default() };
        let config = ConfigProto {
            operation_timeout_in_ms: 7,
            device_filters: vec!["/job:ps".into()],
            experimental: Some(experimental),
            cluster_def: Some(ClusterDef::default()),
            ..Default::default()
        };
        let options = session_options(&config).unwrap();
        assert_eq!(options.timeout, Some(Duration::from_millis(7)));
        assert!(options.static_graph && !options.soft_placement);
        assert_eq!(milliseconds(-1), None);
        assert_eq!(milliseconds(0), None);
    }
}
