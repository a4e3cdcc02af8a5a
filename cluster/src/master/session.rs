//! A client's session.

use super::callables::Callables;
use super::partial_run::PartialRuns;
use super::prepared::PreparedRuns;
use super::workers::{RemoteSessions, Workers};
use crate::running::RunningSteps;
use graphmill_graph::Graph;
use graphmill_runtime::{Devices, KernelCache};
use graphmill_tensor::{Result, aborted};
use graphmill_wire::tensorflow::ConfigProto;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// What a client's settings mean for its session.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionOptions {
    /// Whether nodes may be on another device of the task than the one they ask for.
    pub soft_placement: bool,
    /// Time of a step that sets none itself.
    pub timeout: Option<Duration>,
    /// Whether the graph stays as it is.
    pub static_graph: bool,
    /// Whether steps may not return the graphs that they ran.
    pub no_partition_graphs: bool,
    /// Whether the log says where nodes are placed.
    pub log_placement: bool,
    /// Whether floats travel between tasks as bfloat16.
    pub bfloat16_sendrecv: bool,
    /// Whether the session has a cluster of its own, in which none of the devices counts as nearer than others.
    pub own_cluster: bool,
    /// The task that leads the groups of collective operations.
    pub leader: String,
    /// When steps record what their nodes cost.
    pub cost_model: Option<CostModel>,
    /// What tasks are told with each graph.
    pub config: ConfigProto,
}

/// Which runs of a prepared step record what their nodes cost: every so many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CostModel {
    every: i64,
    after: i64,
}

impl CostModel {
    /// As clients set it: none for an interval that is not positive.
    pub fn new(every: i64, after: i64) -> Option<CostModel> {
        (every > 0).then_some(CostModel { every, after })
    }

    /// Whether the run is one, after so many others.
    pub fn is_due(self, runs: i64) -> bool {
        let number = i128::from(runs) + 1 - i128::from(self.after);
        number % i128::from(self.every) == 0
    }
}

/// A graph that grows, the runs that were prepared of it, and the steps that run.
pub(super) struct Session {
    pub options: SessionOptions,
    /// Where the steps run; of the session alone if it is isolated.
    pub devices: Devices,
    pub workers: Workers,
    /// The parts of the session on other tasks.
    pub remote: Mutex<Option<RemoteSessions>>,
    /// Counts the nodes that are made where graphs are cut.
    pub next_name: AtomicU64,
    pub kernels: Arc<KernelCache>,
    pub prepared: PreparedRuns,
    pub callables: Callables,
    pub partial_runs: PartialRuns,
    pub running: Arc<RunningSteps>,
    graph: Mutex<Versioned>,
    created: Instant,
    last_used: Mutex<Instant>,
}

struct Versioned {
    graph: Arc<Graph>,
    version: i64,
}

impl Session {
    pub fn new(options: SessionOptions, devices: Devices, workers: Workers, graph: Graph) -> Session {
        Session {
            options,
            devices,
            workers,
            remote: Mutex::default(),
            next_name: AtomicU64::new(0),
            kernels: Arc::new(KernelCache::new()),
            prepared: PreparedRuns::default(),
            callables: Callables::default(),
            partial_runs: PartialRuns::default(),
            running: Arc::default(),
            graph: Mutex::new(Versioned { graph: Arc::new(graph), version: 0 }),
            created: Instant::now(),
            last_used: Mutex::new(Instant::now()),
        }
    }

    /// Ends the parts of the session on other tasks, and does not wait for long.
    pub async fn end_remote(&self) {
        let remote = self.remote.lock().take();
        if let Some(remote) = remote {
            remote.close().await;
        }
    }

    /// Notes that a client uses the session.
    pub fn touch(&self) {
        *self.last_used.lock() = Instant::now();
    }

    /// How long the session has existed.
    pub fn age(&self) -> Duration {
        self.created.elapsed()
    }

    /// How long no client has begun anything in the session.
    pub fn idle(&self) -> Duration {
        self.last_used.lock().elapsed()
    }

    /// The graph as it is now.
    pub fn graph(&self) -> Arc<Graph> {
        self.graph.lock().graph.clone()
    }

    /// The graph if it has the version that the caller expects.
    ///
    /// # Errors
    /// `ABORTED` if it has another.
    pub fn graph_at(&self, expected: i64) -> Result<Arc<Graph>> {
        let current = self.graph.lock();
        check_version(&current, expected)?;
        Ok(current.graph.clone())
    }

    /// Replaces the graph, if nobody else has since the version that the caller expects. Returns the new version.
    ///
    /// # Errors
    /// `ABORTED` if somebody has.
    pub fn replace_graph(&self, expected: i64, graph: Graph) -> Result<i64> {
        let mut current = self.graph.lock();
        check_version(&current, expected)?;
        current.graph = Arc::new(graph);
        current.version += 1;
        Ok(current.version)
    }
}

fn check_version(current: &Versioned, expected: i64) -> Result<()> {
    if current.version == expected {
        return Ok(());
    }
    Err(aborted!("Current version is {} but caller expected {expected}.", current.version))
}
