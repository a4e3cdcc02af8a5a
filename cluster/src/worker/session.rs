//! What a master has made on this worker.

use crate::peers::Peers;
use crate::running::RunningSteps;
use crate::task::Task;
use graphmill_graph::Graph;
use graphmill_runtime::{Devices, KernelCache, Program};
use graphmill_tensor::{Result, aborted};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The part of a master's session that is here: graphs, kernels, steps.
pub(super) struct WorkerSession {
    /// Where graphs run; of the session alone if they are isolated.
    pub devices: Devices,
    /// The tasks as this session's cluster calls them.
    pub peers: Arc<Peers>,
    /// The handle; empty for the session of masters that make none.
    pub handle: String,
    pub kernels: KernelCache,
    pub running: Arc<RunningSteps>,
    /// The master's task and the number that changes when it restarts.
    pub master: (String, i64),
    created: Instant,
    graphs: Mutex<Graphs>,
}

#[derive(Default)]
struct Graphs {
    last: u64,
    by_handle: HashMap<String, Arc<RegisteredGraph>>,
}

/// A part of a client's graph, ready to run.
pub(super) struct RegisteredGraph {
    pub program: Arc<Program>,
    pub graph: Graph,
    /// The task that leads the groups of the collective operations, if there are any.
    pub leader: Option<String>,
}

impl WorkerSession {
    pub fn new(handle: String, devices: Devices, peers: Arc<Peers>, master: (String, i64)) -> WorkerSession {
        WorkerSession {
            devices,
            peers,
            handle,
            kernels: KernelCache::new(),
            running: Arc::default(),
            master,
            created: Instant::now(),
            graphs: Mutex::default(),
        }
    }

    /// A session with the task's own devices and cluster.
    pub fn of_task(task: &Task) -> WorkerSession {
        WorkerSession::new(String::new(), task.devices.clone(), task.peers.clone(), (String::new(), 0))
    }

    /// How long the session has existed.
    pub fn age(&self) -> Duration {
        self.created.elapsed()
    }

    /// How many graphs are registered.
    pub fn graphs(&self) -> usize {
        self.graphs.lock().by_handle.len()
    }

    /// Files a graph. Handles count from 1, in hexadecimal digits.
    pub fn add(&self, graph: RegisteredGraph) -> String {
        let mut graphs = self.graphs.lock();
        graphs.last += 1;
        let handle = format!("{:016x}", graphs.last);
        graphs.by_handle.insert(handle.clone(), Arc::new(graph));
        handle
    }

    /// The graph of a handle.
    ///
    /// # Errors
    /// `ABORTED` if there is none.
    pub fn graph(&self, handle: &str) -> Result<Arc<RegisteredGraph>> {
        let found = self.graphs.lock().by_handle.get(handle).cloned();
        found.ok_or_else(|| aborted!("Graph handle is not found: {handle}"))
    }

    /// Forgets a graph. Steps that run it go on.
    ///
    /// # Errors
    /// `ABORTED` if there is none.
    pub fn remove(&self, handle: &str) -> Result<()> {
        let removed = self.graphs.lock().by_handle.remove(handle);
        match removed {
            Some(_) => Ok(()),
            None => Err(aborted!("Graph handle is not found: {handle}. Possibly, this worker just restarted.")),
        }
    }
}
