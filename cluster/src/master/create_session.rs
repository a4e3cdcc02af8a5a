//! `CreateSession`: opens a session on a graph.

use super::session::{CostModel, Session, SessionOptions};
use super::workers::{RemoteSessions, SessionTerms, Workers};
use super::{Handle, Master, placement, run_step};
use crate::collective::Leader;
use crate::grpc::{Frames, MessageBytes, decode};
use crate::peers::{Peers, task_name};
use crate::task::attributes_of;
use crate::{ClusterSpec, DeviceSpec, heavy};
use bytes::Buf;
use graphmill_graph::{Graph, ImportOptions};
use graphmill_runtime::Devices;
use graphmill_tensor::{Result, invalid_argument};
use graphmill_wire::tensorflow::{ConfigProto, CreateSessionRequest, CreateSessionResponse, ServerDef};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

impl Master {
    /// Finds the session's tasks, checks the client's settings and its graph as a whole, places the graph, and opens the session on the
    /// other tasks.
    ///
    /// # Errors
    /// What the checks find, and `DEADLINE_EXCEEDED` naming the tasks that do not answer.
    pub(super) async fn create_session(&self, message: MessageBytes, deadline: Option<Instant>) -> Result<Frames> {
        let size = message.remaining() >> 10;
        let request: CreateSessionRequest = decode(message)?;
        let config = self.defaults.merged_into(request.config.unwrap_or_default())?;
        let mut options = session_options(&config)?;
        let filters = device_filters(&config)?;
        let own = milliseconds(config.operation_timeout_in_ms).and_then(|limit| Instant::now().checked_add(limit));
        let limit = run_step::earlier(deadline, own);
        let view = self.view(&config, &request.target)?;
        options.leader = match &config.cluster_def {
            Some(cluster) if view.server.is_some() => {
                Leader::new(None, &ClusterSpec::from_proto(cluster)?, view.peers.own())?.of(&config)
            }
            _ => self.task.collectives.leader.of(&config),
        };
        options.config.experimental.get_or_insert_default().collective_group_leader = options.leader.clone();
        let terms = SessionTerms {
            isolate: view.isolate,
            server: view.server,
            share_devices: config.share_cluster_devices_in_session
                || config.experimental.as_ref().is_some_and(|more| more.share_cluster_devices_in_session),
        };
        let devices = view.devices;
        let own_devices = devices.iter().map(|device| attributes_of(device)).collect();
        let workers = tokio::select! {
            biased;
            status = self.closed() => return Err(status),
            workers = Workers::find(&self.task, view.peers, own_devices, &filters, limit) => workers?,
        };
        let registry = self.task.registry.clone();
        let session = heavy::run(size, move || {
            let mut graph = Graph::from_def_with(request.graph_def.unwrap_or_default(), ImportOptions::default())?;
            placement::place_graph(&mut graph, &workers, &registry, &options)?;
            Ok(Session::new(options, devices, workers, graph))
        })
        .await?;
        let handle = Handle(self.task.random.next());
        if !session.workers.remote.is_empty() {
            let own = self.worker.own_session(&handle.to_string(), &session.devices, &session.workers.peers);
            let remote = RemoteSessions::open(&self.task, handle.to_string(), &session.workers, &terms, own, limit);
            let remote = remote.await?;
            *session.remote.lock() = Some(remote);
        }
        self.add(handle, session)?;
        tracing::debug!(%handle, "session opened");
        Frames::message(&CreateSessionResponse { session_handle: handle.to_string(), graph_version: 0 })
    }

    /// How a session with these settings sees the cluster and the own task.
    fn view(&self, config: &ConfigProto, target: &str) -> Result<View> {
        let task = &self.task;
        let Some(cluster) = config.cluster_def.as_ref().filter(|cluster| !cluster.job.is_empty()) else {
            let devices = match config.isolate_session_state {
                true => task.devices.isolated(),
                false => task.devices.clone(),
            };
            return Ok(View {
                peers: task.peers.clone(),
                devices,
                isolate: config.isolate_session_state,
                server: None,
            });
        };
        let spec = ClusterSpec::from_proto(cluster)?;
        let (job, index) = own_place(&spec, target)?;
        let own = task_name(&job, index);
        if own == task.name {
            return Err(invalid_argument!(
                "The ClusterSpec provided by the client names the job and task index to be the same names that were provided when \
                 the server booted. This is currently not allowed. Job: {job}, task index: {index}"
            ));
        }
        let shared =
            config.experimental.as_ref().is_some_and(|more| more.share_session_state_in_clusterspec_propagation);
        Ok(View {
            peers: Arc::new(Peers::new(&own, &spec, &task.network)),
            devices: task.devices.renamed(&own, &job, !shared),
            isolate: !shared,
            server: Some(ServerDef { cluster: Some(cluster.clone()), ..Default::default() }),
        })
    }
}

/// The cluster and the own task as one session sees them.
struct View {
    peers: Arc<Peers>,
    devices: Devices,
    isolate: bool,
    server: Option<ServerDef>,
}

/// The task at the address under which the client reached this server.
fn own_place(spec: &ClusterSpec, target: &str) -> Result<(String, u32)> {
    let address = target.strip_prefix("grpc://").unwrap_or(target);
    let mut found = Vec::new();
    for job in spec.jobs() {
        let tasks = spec.job(job).into_iter().flatten();
        found.extend(tasks.filter(|(_, place)| *place == address).map(|(&task, _)| (job.to_owned(), task)));
    }
    match found.as_slice() {
        [place] => Ok(place.clone()),
        [] => Err(invalid_argument!(
            "The provided target {target} is not in the cluster of the session, so that this server does not know its own place"
        )),
        [(first, one), (second, other), ..] => Err(invalid_argument!(
            "At least two tasks in the cluster match the target {target}: /job:{first}/task:{one} and /job:{second}/task:{other}"
        )),
    }
}

/// Takes from a client's settings what the server acts on.
///
/// # Errors
/// `INVALID_ARGUMENT` for settings that TensorFlow's master refuses.
fn session_options(config: &ConfigProto) -> Result<SessionOptions> {
    if config.use_per_session_threads || !config.session_inter_op_thread_pool.is_empty() {
        return Err(invalid_argument!("Distributed session does not support session thread pool options."));
    }
    let experimental = config.experimental.clone().unwrap_or_default();
    let graph_options = config.graph_options.clone().unwrap_or_default();
    Ok(SessionOptions {
        soft_placement: config.allow_soft_placement,
        timeout: milliseconds(config.operation_timeout_in_ms),
        static_graph: experimental.optimize_for_static_graph,
        no_partition_graphs: experimental.disable_output_partition_graphs,
        log_placement: config.log_device_placement,
        bfloat16_sendrecv: graph_options.enable_bfloat16_sendrecv,
        own_cluster: config.cluster_def.as_ref().is_some_and(|cluster| !cluster.job.is_empty()),
        leader: String::new(),
        cost_model: CostModel::new(graph_options.build_cost_model, graph_options.build_cost_model_after),
        config: ConfigProto { cluster_def: None, ..config.clone() },
    })
}

/// The devices that the session may use; empty for all.
fn device_filters(config: &ConfigProto) -> Result<Vec<DeviceSpec>> {
    let parse = |filter: &String| {
        DeviceSpec::parse(filter)
            .ok_or_else(|| invalid_argument!("\"{filter}\" in device_filters is not a device name"))
    };
    config.device_filters.iter().map(parse).collect()
}

/// A time limit off the wire, where only positive numbers are one.
pub(super) fn milliseconds(number: i64) -> Option<Duration> {
    u64::try_from(number).ok().filter(|&number| number > 0).map(Duration::from_millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::Code;
    use graphmill_wire::tensorflow::{ClusterDef, ThreadPoolOptionProto, config_proto};

    #[test]
    fn settings_that_are_refused() {
        let code = |config: ConfigProto| session_options(&config).unwrap_err().code();
        assert_eq!(code(ConfigProto { use_per_session_threads: true, ..Default::default() }), Code::InvalidArgument);
        let pools = vec![ThreadPoolOptionProto::default()];
        assert_eq!(
            code(ConfigProto { session_inter_op_thread_pool: pools, ..Default::default() }),
            Code::InvalidArgument
        );
        let filters = ConfigProto { device_filters: vec!["nonsense".into()], ..Default::default() };
        assert_eq!(device_filters(&filters).unwrap_err().code(), Code::InvalidArgument);
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
        let due = |every, after| {
            let model = CostModel::new(every, after);
            (0..5).map(|runs| model.is_some_and(|model| model.is_due(runs))).collect::<Vec<_>>()
        };
        assert_eq!(due(2, 1), [true, false, true, false, true]);
        assert_eq!(due(3, 0), [false, false, true, false, false]);
        assert_eq!((due(0, 0), due(-1, 0), due(1, i64::MIN)), (vec![false; 5], vec![false; 5], vec![true; 5]));
        assert_eq!(milliseconds(-1), None);
        assert_eq!(milliseconds(0), None);
    }

    #[test]
    fn the_own_place_is_where_the_client_came_to() {
        let spec: ClusterSpec = "a=h:1,h:2;b=h:3".parse().unwrap();
        assert_eq!(own_place(&spec, "grpc://h:2").unwrap(), ("a".to_owned(), 1));
        assert!(own_place(&spec, "grpc://h:4").unwrap_err().message().contains("h:4"));
        let twice: ClusterSpec = "a=h:1;b=h:1".parse().unwrap();
        assert!(own_place(&twice, "grpc://h:1").unwrap_err().message().starts_with("At least two tasks"));
    }
}
