//! Runs that were prepared: what a session's requests come down to.

use super::placement;
use super::remote_parts::RemotePart;
use super::session::Session;
use crate::collective::key_of_graph;
use crate::heavy;
use crate::late_reads::read_references_late;
use crate::peers::task_of;
use crate::remote_functions::RemoteFunctions;
use crate::task::Task;
use graphmill_graph::{ClientDevice, Graph, Partition, PartitionOptions, Signature, lower, partition, prune};
use graphmill_runtime::{FunctionRuntime, Port, Program, RemoteTasks};
use graphmill_tensor::{Result, Tensor, failed_precondition, internal, invalid_argument};
use graphmill_wire::tensorflow::{RunOptions, RunStepRequest, TensorProto};
use parking_lot::{Mutex, RwLock};
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use tokio::sync::OnceCell;

/// Most orders of names that are remembered. A client sends few; one that shuffles its names only loses the shortcut.
const MAX_REQUESTS: usize = 4096;

/// The part of a graph that a signature needs, ready to run.
pub(super) struct Prepared {
    /// What runs on the own task, feeds and fetches included.
    pub program: Arc<Program>,
    /// What `program` was made of.
    pub graph: Graph,
    /// What runs on other tasks.
    pub remote: Vec<RemotePart>,
    /// Names the graph where tasks count its steps together; 0 without collective operations.
    pub collective_graph_key: i64,
    /// How often it was run, where the session counts that.
    pub runs: AtomicI64,
}

/// A run that is being prepared, for all who ask for it meanwhile, or is ready.
type Shared = Arc<OnceCell<Arc<Prepared>>>;

/// The prepared runs of a session. They live as long as it does.
#[derive(Default)]
pub(super) struct PreparedRuns {
    /// By the names in the order of the request, of which only the hash is the key, so that looking up copies nothing.
    requests: RwLock<HashMap<u64, Arc<PreparedRequest>>>,
    hasher: RandomState,
    /// By signature and the collective graph key that the client wants.
    runs: Mutex<HashMap<(Signature, i64), Shared>>,
}

/// A prepared run as a request with these names in this order sees it.
pub(super) struct PreparedRequest {
    feeds: Box<[String]>,
    fetches: Box<[String]>,
    targets: Box<[String]>,
    graph_key: i64,
    pub run: Arc<Prepared>,
    pub order: Order,
    /// The numbers of the request's fetches, without those whose name came before.
    pub distinct_fetches: Box<[usize]>,
}

/// How lists of names relate to the ports of a program.
pub(super) struct Order {
    /// For each feed of the program, its number in the list. Feeds that nothing needs are not in it.
    feeds: Box<[usize]>,
    /// For each fetch of the list, its number in the program.
    fetches: Box<[usize]>,
}

impl Order {
    /// # Errors
    /// `INTERNAL` if the program takes or lacks what the lists do not have.
    pub fn new(program: &Program, feeds: &[String], fetches: &[String]) -> Result<Order> {
        let number: HashMap<String, usize> =
            feeds.iter().enumerate().map(|(at, name)| (Signature::tensor_name(name), at)).collect();
        let feed = |port: &Port| number.get(&port.name).copied();
        let feeds = program.feeds().iter().map(feed).collect::<Option<Box<[usize]>>>();

        let ports: HashMap<&str, usize> =
            program.fetches().iter().enumerate().map(|(at, port)| (port.name.as_str(), at)).collect();
        let fetch = |name: &String| ports.get(Signature::tensor_name(name).as_str()).copied();
        let fetches = fetches.iter().map(fetch).collect::<Option<Box<[usize]>>>();
        match (feeds, fetches) {
            (Some(feeds), Some(fetches)) => Ok(Order { feeds, fetches }),
            _ => Err(internal!("The program does not fit the request")),
        }
    }

    /// The feeds of a request in the order of the program. Those that the program does not need have to be well formed too.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` naming the first one that is not.
    pub fn feeds<'a>(&self, feeds: impl Iterator<Item = Option<&'a TensorProto>>) -> Result<Vec<Tensor>> {
        let mut tensors = feeds
            .enumerate()
            .map(|(at, feed)| match feed.map(Tensor::from_proto) {
                Some(Ok(tensor)) => Ok(Some(tensor)),
                _ => Err(invalid_argument!("Invalid TensorProto for feed value {at}")),
            })
            .collect::<Result<Vec<_>>>()?;
        let take = |&at: &usize| tensors.get_mut(at).and_then(Option::take);
        let ordered = self.feeds.iter().map(take).collect::<Option<Vec<Tensor>>>();
        ordered.ok_or_else(|| internal!("The program takes a feed that the request lacks"))
    }

    /// The value of a fetch among the outputs of the program.
    pub fn fetch(&self, number: usize, outputs: &[Tensor]) -> Result<Tensor> {
        let output = self.fetches.get(number).and_then(|&port| outputs.get(port));
        output.cloned().ok_or_else(|| internal!("The step has given too few tensors"))
    }
}

impl PreparedRequest {
    fn is_for(&self, request: &RunStepRequest) -> bool {
        let feeds = request.feed.iter().map(|feed| &feed.name);
        self.feeds.iter().eq(feeds)
            && *self.fetches == request.fetch[..]
            && *self.targets == request.target[..]
            && self.graph_key == graph_key(request.options.as_ref())
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

    /// How many there are.
    pub fn len(&self) -> usize {
        self.runs.lock().len()
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
        let graph_key = graph_key(request.options.as_ref());
        let run = self.run_of(task, signature, graph_key).await?;
        let arranged = Arc::new(PreparedRequest {
            order: Order::new(&run.program, &feeds, &request.fetch)?,
            feeds: feeds.into(),
            fetches: request.fetch.as_slice().into(),
            targets: request.target.as_slice().into(),
            graph_key,
            distinct_fetches: distinct(&request.fetch),
            run,
        });
        let mut requests = self.prepared.requests.write();
        if requests.len() >= MAX_REQUESTS {
            requests.clear();
        }
        requests.insert(hash, arranged.clone());
        Ok(arranged)
    }

    /// The prepared run of a signature in the session's graph, made once for all who ask. `wanted_key` is the collective graph key that
    /// the client wants, or 0.
    ///
    /// # Errors
    /// As [`Session::prepare`].
    pub(super) async fn run_of(
        self: &Arc<Self>,
        task: &Arc<Task>,
        signature: Signature,
        wanted_key: i64,
    ) -> Result<Arc<Prepared>> {
        let key = (signature, wanted_key);
        let cell = self.prepared.runs.lock().entry(key.clone()).or_default().clone();
        match cell.get_or_try_init(|| self.build(task, self.graph(), key.0.clone(), wanted_key)).await {
            Ok(run) => Ok(run.clone()),
            Err(error) => {
                let mut runs = self.prepared.runs.lock();
                if runs.get(&key).is_some_and(|cell| !cell.initialized()) {
                    runs.remove(&key);
                }
                Err(error)
            }
        }
    }

    /// Prepares a run of a graph, which is that of the session or was made of it. `wanted_key` is the collective graph key that the client
    /// wants, or 0.
    ///
    /// # Errors
    /// As [`Session::prepare`].
    pub(super) async fn build(
        self: &Arc<Self>,
        task: &Arc<Task>,
        graph: Arc<Graph>,
        signature: Signature,
        wanted_key: i64,
    ) -> Result<Arc<Prepared>> {
        let (session, on) = (self.clone(), task.clone());
        let (mut prepared, parts) = heavy::run(graph.len(), move || {
            let (mut own, others, key) = session.cut(&on, &graph, &signature)?;
            let collective_graph_key = if wanted_key == 0 { key } else { wanted_key };
            read_references_late(&mut own);
            let (registry, devices, executor) = (on.registry.clone(), session.devices.clone(), on.executor.clone());
            let handle = session.remote.lock().as_ref().map(|remote| remote.handle.clone());
            let remote = handle
                .map(|handle| -> Arc<dyn RemoteTasks> { RemoteFunctions::new(&on, &session.workers.peers, &handle) });
            let functions = FunctionRuntime::in_cluster(&own, registry, devices, executor, remote);
            let program = Program::build_with(&own, &functions, &session.kernels)?;
            let (program, remote, runs) = (Arc::new(program), Vec::new(), AtomicI64::new(0));
            Ok((Prepared { program, graph: own, remote, collective_graph_key, runs }, others))
        })
        .await?;
        for part in parts {
            match self.register(task, part, prepared.collective_graph_key).await {
                Ok(part) => prepared.remote.push(part),
                Err(error) => return Err(self.workers.explain(error).await),
            }
        }
        Ok(Arc::new(prepared))
    }

    /// What a signature needs of a graph: the part of the own task, those of others, and the collective graph key.
    fn cut(&self, task: &Task, graph: &Graph, signature: &Signature) -> Result<(Graph, Vec<Partition>, i64)> {
        let first = self.devices.first();
        let client = ClientDevice { name: first.name().to_owned(), incarnation: first.incarnation() };
        let mut graph = lower(prune(graph, signature, &client)?)?;
        // Bodies of functions come with wishes of their own.
        placement::place_graph(&mut graph, &self.workers, &task.registry, &self.options)?;
        let key = key_of_graph(&graph);
        if self.workers.remote.is_empty() {
            return Ok((graph, Vec::new(), key));
        }
        let options = PartitionOptions {
            incarnation: &|device| self.workers.incarnation(device),
            next_name: &self.next_name,
            bfloat16_sendrecv: self.options.bfloat16_sendrecv,
            location: &|device| task_of(device).to_owned(),
        };
        let (own, others): (Vec<_>, Vec<_>) =
            partition(&graph, &options)?.into_iter().partition(|part| part.location == self.workers.peers.own());
        let own = own.into_iter().next().map_or_else(|| Graph::like(&graph), |part| part.graph);
        Ok((own, others, key))
    }

    async fn register(&self, task: &Arc<Task>, part: Partition, key: i64) -> Result<RemotePart> {
        let handle = self.remote.lock().as_ref().map(|remote| remote.handle.clone());
        let handle = handle.ok_or_else(|| failed_precondition!("Session is closed."))?;
        let worker = self.workers.remote.iter().find(|worker| worker.channel.task() == part.location);
        let worker = worker.ok_or_else(|| internal!("{} is not in the session", part.location))?;
        let config = self.options.config.clone();
        let terms = (config.graph_options.clone(), Some(config));
        RemotePart::register(&task.runtime, worker.channel.clone(), handle, &part.graph, terms, key).await
    }
}

/// The collective graph key that a client wants, or 0.
pub(super) fn graph_key(options: Option<&RunOptions>) -> i64 {
    options.and_then(|options| options.experimental.as_ref()).map_or(0, |more| more.collective_graph_key)
}

/// The numbers of names that did not come before.
fn distinct(names: &[String]) -> Box<[usize]> {
    let mut seen = HashSet::with_capacity(names.len());
    (0..names.len()).filter(|&at| seen.insert(names[at].as_str())).collect()
}
