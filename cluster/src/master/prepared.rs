//! Runs that were prepared: what a session's requests come down to.

use super::heavy;
use super::session::Session;
use crate::task::Task;
use graphmill_graph::{Graph, Signature, prune};
use graphmill_runtime::Program;
use graphmill_tensor::{Result, internal};
use graphmill_wire::tensorflow::RunStepRequest;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use tokio::sync::OnceCell;

/// Most orders of names that are remembered. A client sends few; one that shuffles its names only loses the shortcut.
const MAX_REQUESTS: usize = 4096;

/// A program, and the part of the graph that it was made of.
pub(super) struct Prepared {
    pub program: Arc<Program>,
    pub graph: Graph,
}

/// The prepared runs of a session. They live as long as it does.
#[derive(Default)]
pub(super) struct PreparedRuns {
    /// By the names in the order of the request, of which only the hash is the key, so that looking up copies nothing.
    requests: RwLock<HashMap<u64, Arc<PreparedRequest>>>,
    hasher: RandomState,
    runs: Mutex<HashMap<Signature, Arc<OnceCell<Arc<Prepared>>>>>,
}

/// A prepared run as a request with these names in this order sees it.
pub(super) struct PreparedRequest {
    feeds: Box<[String]>,
    fetches: Box<[String]>,
    targets: Box<[String]>,
    pub run: Arc<Prepared>,
    /// For each feed of the program, its number in the request. Feeds that nothing needs are not in it.
    pub feed_order: Box<[usize]>,
    /// Each fetch under a name of its own: its number in the request and in the program.
    pub fetch_order: Box<[(usize, usize)]>,
}

impl PreparedRequest {
    fn is_for(&self, request: &RunStepRequest) -> bool {
        let feeds = request.feed.iter().map(|feed| &feed.name);
        self.feeds.iter().eq(feeds) && *self.fetches == request.fetch[..] && *self.targets == request.target[..]
    }
}

impl PreparedRuns {
    fn hash(&self, request: &RunStepRequest) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        let feeds = request.feed.iter().map(|feed| &feed.name);
        for name in feeds.chain(&request.fetch).chain(&request.target) {
            hasher.write(name.as_bytes());
            // No name has this byte, as names are UTF-8.
            hasher.write_u8(0xff);
        }
        hasher.finish()
    }

    fn known(&self, hash: u64, request: &RunStepRequest) -> Option<Arc<PreparedRequest>> {
        self.requests.read().get(&hash).filter(|known| known.is_for(request)).cloned()
    }
}

impl Session {
    /// The prepared run of a request. Requests that differ in the order of names alone share one, and of several requests
    /// that come first at the same time one prepares it while the others wait.
    ///
    /// # Errors
    /// What is wrong with the names, and what kernels find wrong with their nodes. A later request tries again.
    pub(super) async fn prepare(
        self: &Arc<Self>,
        task: &Arc<Task>,
        request: &RunStepRequest,
    ) -> Result<Arc<PreparedRequest>> {
        let hash = self.prepared.hash(request);
        if let Some(known) = self.prepared.known(hash, request) {
            return Ok(known);
        }
        let feeds: Vec<String> = request.feed.iter().map(|feed| feed.name.clone()).collect();
        let signature = Signature::new(feeds.clone(), request.fetch.clone(), request.target.clone());
        let cell = self.prepared.runs.lock().entry(signature.clone()).or_default().clone();
        let prepared = cell.get_or_try_init(|| self.build(task, signature.clone())).await;
        let run = match prepared {
            Ok(run) => run.clone(),
            Err(error) => {
                let mut runs = self.prepared.runs.lock();
                if runs.get(&signature).is_some_and(|cell| !cell.initialized()) {
                    runs.remove(&signature);
                }
                return Err(error);
            }
        };
        let arranged = Arc::new(arrange(run, feeds, request)?);
        let mut requests = self.prepared.requests.write();
        if requests.len() >= MAX_REQUESTS {
            requests.clear();
        }
        requests.insert(hash, arranged.clone());
        Ok(arranged)
    }

    async fn build(self: &Arc<Self>, task: &Arc<Task>, signature: Signature) -> Result<Arc<Prepared>> {
        let graph = self.graph();
        let (session, task) = (self.clone(), task.clone());
        heavy::run(graph.len(), move || {
            let graph = prune(&graph, &signature, &task.client_device())?;
            let program = Program::build(&graph, &task.registry, &session.device, &session.kernels)?;
            Ok(Arc::new(Prepared { program: Arc::new(program), graph }))
        })
        .await
    }
}

/// Relates the names of a request to the ports of its program.
fn arrange(run: Arc<Prepared>, feeds: Vec<String>, request: &RunStepRequest) -> Result<PreparedRequest> {
    let number: HashMap<String, usize> =
        feeds.iter().enumerate().map(|(at, name)| (Signature::tensor_name(name), at)).collect();
    let port = |name: &String| number.get(name).copied();
    let feed_order = run.program.feeds().iter().map(|feed| port(&feed.name)).collect::<Option<Box<[usize]>>>();

    let ports = run.program.fetches();
    let port_of: HashMap<&str, usize> = ports.iter().enumerate().map(|(at, port)| (port.name.as_str(), at)).collect();
    let mut fetch_order = Vec::with_capacity(request.fetch.len());
    let mut seen = std::collections::HashSet::with_capacity(request.fetch.len());
    for (at, name) in request.fetch.iter().enumerate() {
        if seen.insert(name) {
            let port = port_of.get(Signature::tensor_name(name).as_str());
            fetch_order.push((at, *port.ok_or_else(|| internal!("The program does not give {name}"))?));
        }
    }
    Ok(PreparedRequest {
        feeds: feeds.into(),
        fetches: request.fetch.as_slice().into(),
        targets: request.target.as_slice().into(),
        feed_order: feed_order.ok_or_else(|| internal!("The program takes a feed that the request lacks"))?,
        fetch_order: fetch_order.into(),
        run,
    })
}
