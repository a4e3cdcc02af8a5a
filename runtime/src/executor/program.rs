//! The form in which a graph runs: flat arrays, built once.

use crate::executor::exchange::Exchange;
use crate::executor::frame::{Iteration, NodeState};
use crate::executor::kernel_cache::KernelCache;
use crate::{AnyKernel, Call, Construction, Device, Devices, FunctionRuntime, NodeInfo, Registry};
use graphmill_graph::{AttrKind, Endpoint, Flow, FrameMap, Graph, Node, NodeId, frames};
use graphmill_tensor::{DType, Result, Status, internal, invalid_argument};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Where a tensor enters or leaves a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Port {
    /// The endpoint, such as `x:0`.
    pub name: String,
    /// The type of the elements.
    pub dtype: DType,
}

/// A graph ready to run on the devices of a task. Values go from one device to another as they do from node to node.
pub struct Program {
    pub(crate) nodes: Vec<ProgramNode>,
    pub(crate) data_edges: Vec<DataEdge>,
    pub(crate) control_edges: Vec<Target>,
    pub(crate) frames: Vec<FrameInfo>,
    /// Nodes without inputs; they are all in the root frame.
    pub(crate) roots: Vec<u32>,
    devices: Devices,
    feeds: Vec<Port>,
    fetches: Vec<Port>,
    feed_nodes: Vec<u32>,
    /// Whether a kernel may wait.
    may_wait: bool,
    /// Whether there are sends or receives.
    exchanges: bool,
    /// The function whose body this is.
    function: Option<Arc<str>>,
    /// What the functions that nodes call need. The body of a function leaves this to who calls it: it would keep itself alive.
    functions: Option<Arc<FunctionRuntime>>,
    /// Nanoseconds of a whole run, lately.
    cost: AtomicU64,
    runs: AtomicU32,
}

pub(crate) struct ProgramNode {
    pub info: Arc<NodeInfo>,
    pub device: Arc<Device>,
    /// Whether it runs where the resource is that it takes, if that is another device of the task.
    pub follows_resource: bool,
    pub action: Action,
    pub flow: Flow,
    /// Index of its counters in the frame's slab.
    pub state: u32,
    /// Its inputs in the frame's slab.
    pub inputs: Range<u32>,
    pub data_edges: Range<u32>,
    pub control_edges: Range<u32>,
    pub outputs: u32,
    /// Whether an input comes from a slot that gives references.
    pub has_references: bool,
    pub allows_uninitialized: bool,
    /// Of an `Enter`: the static frame it leads to, and whether it delivers to every iteration.
    pub enters: Option<(u32, bool)>,
    /// Data inputs, by which a `Merge` knows that all are dead.
    pub data_inputs: u32,
    /// Names of the inputs as the graph spells them, for errors; empty where no input is a reference.
    pub input_names: Box<[String]>,
    /// Nanoseconds of one run, lately.
    pub cost: AtomicU32,
}

pub(crate) enum Action {
    Kernel(Arc<AnyKernel>),
    Feed(usize),
    Fetch(usize),
    /// Puts its input where another part of the step takes it.
    Send(Exchange),
    /// Takes what another part of the step puts there.
    Receive(Exchange),
}

/// A node that an edge leads to, with what delivery needs to know of it.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub node: u32,
    /// As [`ProgramNode::state`].
    pub state: u32,
    pub is_merge: bool,
    /// Whether the node runs though inputs of it are dead, as `ControlTrigger` does.
    pub runs_dead: bool,
}

impl Target {
    fn of(id: NodeId, node: &ProgramNode) -> Target {
        Target {
            node: id.0,
            state: node.state,
            is_merge: node.flow == Flow::Merge,
            runs_dead: node.flow == Flow::ControlTrigger,
        }
    }
}

#[derive(Clone, Copy)]
pub(crate) struct DataEdge {
    pub target: Target,
    pub output: u32,
    pub slot: u32,
    /// Whether this is the last edge of its output, which takes the value instead of sharing it.
    pub last: bool,
}

/// What is fixed about a frame.
pub(crate) struct FrameInfo {
    pub initial: Vec<NodeState>,
    pub slots: usize,
    pub enters: u32,
    pub name: Arc<str>,
    pub parallel_iterations: usize,
    slabs: Mutex<Vec<Iteration>>,
}

/// Slabs kept for reuse in each frame.
const SLABS_KEPT: usize = 16;

impl FrameInfo {
    pub fn take_slab(&self) -> Iteration {
        let kept = self.slabs.lock().pop();
        kept.unwrap_or_else(|| Iteration::new(self))
    }

    pub fn give_back(&self, mut slab: Iteration) {
        slab.reset(self);
        let mut slabs = self.slabs.lock();
        if slabs.len() < SLABS_KEPT {
            slabs.push(slab);
        }
    }
}

impl Program {
    /// Prepares a pruned graph: makes the kernels and lays out the edges.
    ///
    /// # Errors
    /// `UNIMPLEMENTED` naming the op that has no kernel, what kernels' constructors return (with the node's name), and
    /// `INVALID_ARGUMENT` for loops that are not well formed.
    pub fn build(graph: &Graph, registry: &Registry, device: &Arc<Device>, cache: &KernelCache) -> Result<Program> {
        Builder::new(graph, registry, device.clone().into(), cache)?.build()
    }

    /// As [`Program::build`], for a graph whose nodes may call functions. Each node is on the device that it is assigned to, or
    /// else on the first.
    ///
    /// # Errors
    /// As [`Program::build`].
    pub fn build_with(graph: &Graph, functions: &Arc<FunctionRuntime>, cache: &KernelCache) -> Result<Program> {
        let mut builder = Builder::new(graph, functions.registry(), functions.devices().clone(), cache)?;
        builder.functions = Some(functions);
        let mut program = builder.build()?;
        program.functions = Some(functions.clone());
        Ok(program)
    }

    /// Prepares the body of a function, all on the device that the function is called on but for what uses resources of others.
    pub(crate) fn build_function(
        graph: &Graph,
        functions: &Arc<FunctionRuntime>,
        device: &Arc<Device>,
        name: &str,
    ) -> Result<Program> {
        let cache = KernelCache::new();
        let mut builder = Builder::new(graph, functions.registry(), functions.devices().clone(), &cache)?;
        builder.device = device.clone();
        builder.functions = Some(functions);
        builder.function = Some(Arc::from(name));
        builder.build()
    }

    /// The devices that it may run on.
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// Where tensors enter.
    pub fn feeds(&self) -> &[Port] {
        &self.feeds
    }

    /// Where tensors leave.
    pub fn fetches(&self) -> &[Port] {
        &self.fetches
    }

    pub(crate) fn feed_node(&self, feed: usize) -> Option<&ProgramNode> {
        self.feed_nodes.get(feed).and_then(|&n| self.nodes.get(n as usize))
    }

    /// The function whose body this is.
    pub(crate) fn function(&self) -> Option<&str> {
        self.function.as_deref()
    }

    /// Whether a kernel may wait, and so has to be told when the run has failed.
    pub(crate) fn may_wait(&self) -> bool {
        self.may_wait
    }

    /// Whether other parts of the step may wait for this one.
    pub(crate) fn exchanges(&self) -> bool {
        self.exchanges
    }

    /// An error with the tag of the node that it comes from.
    pub(crate) fn at_node(&self, error: Status, node: &ProgramNode) -> Status {
        tagged(error, self.function.as_deref(), &node.info.name)
    }

    /// Whether a run may take so long that the thread which asks for it should not do it. An ordinary program counts as long
    /// until it has run, as its kernels may do anything; a function's body does not, as it mostly is small.
    pub(crate) fn is_long(&self) -> bool {
        match self.cost.load(Relaxed) {
            0 => self.function.is_none(),
            cost => cost >= SHORT,
        }
    }

    pub(crate) fn note_cost(&self, nanoseconds: u64) {
        let before = self.cost.load(Relaxed);
        let next = if before == 0 { nanoseconds } else { before - before / 4 + nanoseconds / 4 };
        self.cost.store(next.max(1), Relaxed);
    }

    /// Whether the next run should time its nodes: the first few, then one now and then, as the clock costs more than a small op.
    pub(crate) fn should_measure(&self) -> bool {
        let run = self.runs.fetch_add(1, Relaxed);
        run < 3 || run.is_multiple_of(128)
    }
}

/// A program that takes less than this, in nanoseconds, runs on the thread that asks for it.
const SHORT: u64 = 150_000;

fn tagged(error: Status, function: Option<&str>, node: &str) -> Status {
    match function {
        Some(function) => error.at_function_node(function, node),
        None => error.at_node(node),
    }
}

struct Builder<'a> {
    graph: &'a Graph,
    registry: &'a Registry,
    devices: Devices,
    /// Where nodes are that are not assigned to one of the devices.
    device: Arc<Device>,
    cache: &'a KernelCache,
    map: FrameMap,
    frames: Vec<FrameInfo>,
    feeds: Vec<Port>,
    fetches: Vec<Port>,
    feed_nodes: Vec<u32>,
    functions: Option<&'a Arc<FunctionRuntime>>,
    function: Option<Arc<str>>,
}

impl<'a> Builder<'a> {
    fn new(graph: &'a Graph, registry: &'a Registry, devices: Devices, cache: &'a KernelCache) -> Result<Self> {
        let map = frames(graph)?;
        let frames = map
            .frames
            .iter()
            .map(|frame| FrameInfo {
                initial: Vec::new(),
                slots: 0,
                enters: 0,
                name: frame.name.clone(),
                parallel_iterations: frame.parallel_iterations.max(1) as usize,
                slabs: Mutex::new(Vec::new()),
            })
            .collect();
        let (feeds, fetches, feed_nodes) = Default::default();
        let (functions, function) = (None, None);
        let device = devices.first().clone();
        Ok(Builder {
            graph,
            registry,
            devices,
            device,
            cache,
            map,
            frames,
            feeds,
            fetches,
            feed_nodes,
            functions,
            function,
        })
    }

    fn build(mut self) -> Result<Program> {
        let mut nodes = Vec::with_capacity(self.graph.len());
        for (id, node) in self.graph.nodes() {
            let built = self.node(id, node);
            nodes.push(built.map_err(|error| tagged(error, self.function.as_deref(), &node.name))?);
        }
        let (data_edges, control_edges) = self.edges(&mut nodes);
        let roots = self
            .graph
            .nodes()
            .filter(|(_, node)| node.inputs.is_empty() && node.control_inputs.is_empty())
            .map(|(id, _)| id.0)
            .collect();
        let waits =
            |node: &ProgramNode| matches!(&node.action, Action::Kernel(k) if matches!(**k, AnyKernel::Async(_)));
        let exchanges = |node: &ProgramNode| matches!(node.action, Action::Send(_) | Action::Receive(_));
        let exchanges = nodes.iter().any(exchanges);
        Ok(Program {
            may_wait: exchanges || nodes.iter().any(waits),
            exchanges,
            function: self.function,
            functions: None,
            nodes,
            data_edges,
            control_edges,
            frames: self.frames,
            roots,
            devices: self.devices,
            feeds: self.feeds,
            fetches: self.fetches,
            feed_nodes: self.feed_nodes,
            cost: AtomicU64::new(0),
            runs: AtomicU32::new(0),
        })
    }

    fn node(&mut self, id: NodeId, node: &Node) -> Result<ProgramNode> {
        let (number, device) = self.device_of(node);
        let action = self.action(id, node, (number, &device))?;
        let flow = node.op.flow;
        let frame = self.map.of(id).0;
        let enters = self.map.enter(id).map(|enter| (enter.frame.0, enter.is_constant));
        if let Some((child, _)) = enters
            && let Some(child) = self.frames.get_mut(child as usize)
        {
            child.enters += 1;
        }
        let info = self.frames.get_mut(frame as usize).ok_or_else(|| internal!("a node's frame does not exist"))?;
        let count = |n: usize| u32::try_from(n).map_err(|_| invalid_argument!("A node has too many inputs"));
        let (data, control) = (count(node.inputs.len())?, count(node.control_inputs.len())?);
        let pending = if flow == Flow::Merge { control } else { data.saturating_add(control) };
        let state = count(info.initial.len())?;
        info.initial.push(NodeState { pending, dead: 0 });
        let first = count(info.slots)?;
        info.slots += node.inputs.len();
        let gives_reference =
            |e: &Endpoint| self.graph.node(e.node).output_types.get(e.slot as usize).is_some_and(|t| t.is_ref);
        let has_references = node.inputs.iter().any(gives_reference);
        Ok(ProgramNode {
            info: Arc::new(NodeInfo {
                name: node.name.clone(),
                op: node.op.name.clone(),
                input_types: node.input_types.as_slice().into(),
                output_types: node.output_types.as_slice().into(),
            }),
            device,
            follows_resource: self.function.is_some()
                && self.devices.iter().nth(1).is_some()
                && node.input_types.iter().any(|input| input.dtype == DType::Resource),
            action,
            flow,
            state,
            inputs: first..first + data,
            data_edges: 0..0,
            control_edges: 0..0,
            outputs: count(node.output_types.len())?,
            has_references,
            allows_uninitialized: node.op.allows_uninitialized_input,
            enters,
            data_inputs: data,
            input_names: if has_references { self.input_names(node) } else { Box::default() },
            cost: AtomicU32::new(0),
        })
    }

    fn input_names(&self, node: &Node) -> Box<[String]> {
        node.inputs.iter().map(|endpoint| endpoint.name_in(self.graph)).collect()
    }

    /// The device of a node, and the number that tells its kernels from those of others.
    fn device_of(&self, node: &Node) -> (usize, Arc<Device>) {
        if self.function.is_some() {
            // What it asks for counts where the function is made part of the graph that calls it.
            return (0, self.device.clone());
        }
        let name = if node.assigned_device.is_empty() { &node.device } else { &node.assigned_device };
        let found = self.devices.iter().enumerate().find(|(_, device)| device.name() == &**name);
        let (number, device) = found.unwrap_or((0, &self.device));
        (number, device.clone())
    }

    fn action(&mut self, id: NodeId, node: &Node, on: (usize, &Arc<Device>)) -> Result<Action> {
        let from_client = node.attrs.has("client_terminated") && node.attrs.bool("client_terminated")?;
        match node.op.flow {
            Flow::Recv if from_client => {
                let name = node.attrs.str("tensor_name")?.to_owned();
                self.feeds.push(Port { name, dtype: node.attrs.dtype("tensor_type")? });
                self.feed_nodes.push(id.0);
                Ok(Action::Feed(self.feeds.len() - 1))
            }
            Flow::Send if from_client => {
                let name = node.attrs.str("tensor_name")?.to_owned();
                self.fetches.push(Port { name, dtype: node.attrs.dtype("T")? });
                Ok(Action::Fetch(self.fetches.len() - 1))
            }
            Flow::Recv => Ok(Action::Receive(Exchange::new(node)?)),
            Flow::Send => Ok(Action::Send(Exchange::new(node)?)),
            _ if &*node.op.name == "_Arg" => {
                let at = place(node, &mut self.feeds, self.graph.len())?;
                self.feed_nodes.resize(self.feeds.len(), id.0);
                self.feed_nodes[at] = id.0;
                Ok(Action::Feed(at))
            }
            _ if &*node.op.name == "_Retval" => place(node, &mut self.fetches, self.graph.len()).map(Action::Fetch),
            _ => self.kernel(node, on).map(Action::Kernel),
        }
    }

    fn kernel(&self, node: &Node, (number, device): (usize, &Arc<Device>)) -> Result<Arc<AnyKernel>> {
        let construction = match self.functions {
            Some(functions) => Construction::with_functions(node, device, functions),
            None => Construction::new(node, device),
        };
        let construction = construction.in_graph(self.graph);
        if self.registry.kernels_of(&node.op.name).is_empty() && self.graph.library().get(&node.op.name).is_some() {
            return Ok(Arc::new(AnyKernel::Async(Box::new(Call::by_op(&construction)))));
        }
        if !node.op.is_stateful {
            return Ok(Arc::new(self.registry.build(&construction)?));
        }
        let calls = node.op.attrs.iter().any(|attr| attr.ty.kind == AttrKind::Func);
        let functions = self.functions.filter(|_| calls);
        self.cache.get_or_build((number, node.name.clone()), functions, || self.registry.build(&construction))
    }

    fn edges(&self, nodes: &mut [ProgramNode]) -> (Vec<DataEdge>, Vec<Target>) {
        let mut data: Vec<Vec<DataEdge>> = vec![Vec::new(); nodes.len()];
        let mut control: Vec<Vec<Target>> = vec![Vec::new(); nodes.len()];
        for (id, node) in self.graph.nodes() {
            let made = &nodes[id.index()];
            let target = Target::of(id, made);
            for (slot, endpoint) in (made.inputs.start..).zip(&node.inputs) {
                let edge = DataEdge { target, output: endpoint.slot, slot, last: false };
                data[endpoint.node.index()].push(edge);
            }
            for source in &node.control_inputs {
                control[source.index()].push(target);
            }
        }
        let mut data_edges = Vec::new();
        let mut control_edges = Vec::new();
        for ((node, mut data), control) in nodes.iter_mut().zip(data).zip(control) {
            data.sort_by_key(|edge| edge.output);
            for i in 0..data.len() {
                data[i].last = data.get(i + 1).is_none_or(|next| next.output != data[i].output);
            }
            node.data_edges = data_edges.len() as u32..(data_edges.len() + data.len()) as u32;
            data_edges.extend(data);
            node.control_edges = control_edges.len() as u32..(control_edges.len() + control.len()) as u32;
            control_edges.extend(control);
        }
        (data_edges, control_edges)
    }
}

/// Puts an argument or result of a function where its number says; there are fewer than `limit`.
fn place(node: &Node, ports: &mut Vec<Port>, limit: usize) -> Result<usize> {
    let index = node.attrs.int("index")?;
    let at = usize::try_from(index).ok().filter(|&at| at < limit);
    let at = at.ok_or_else(|| invalid_argument!("There is no argument or result {index}"))?;
    let port = Port { name: node.name.to_string(), dtype: node.attrs.dtype("T")? };
    if at >= ports.len() {
        ports.resize(at + 1, port.clone());
    }
    ports[at] = port;
    Ok(at)
}
