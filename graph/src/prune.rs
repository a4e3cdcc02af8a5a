//! What a step needs of a graph: feeds and fetches become receives and sends, and the rest goes.

use crate::{Attrs, Endpoint, EndpointName, Graph, Node, NodeId, op_def};
use bytes::Bytes;
use graphmill_tensor::{DType, Result, internal, invalid_argument, not_found};
use graphmill_wire::tensorflow::attr_value::Value;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// What a client asks of a step: names of tensors to feed and to fetch, and of nodes to run. Lists are sorted, so that two
/// requests for the same have one signature; names are as the client spelled them.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Signature {
    /// Tensors that the client sends.
    pub feeds: Vec<String>,
    /// Tensors that the client wants.
    pub fetches: Vec<String>,
    /// Nodes to run.
    pub targets: Vec<String>,
}

impl Signature {
    /// A signature from lists in any order.
    pub fn new(mut feeds: Vec<String>, mut fetches: Vec<String>, mut targets: Vec<String>) -> Signature {
        feeds.sort_unstable();
        fetches.sort_unstable();
        targets.sort_unstable();
        Signature { feeds, fetches, targets }
    }

    /// The full name of a tensor, `a:0` for `a`, by which steps exchange it with the client.
    pub fn tensor_name(name: &str) -> String {
        EndpointName::parse(name).to_string()
    }
}

/// The device that feeds come from and fetches go to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientDevice {
    /// The full name.
    pub name: String,
    /// The number that tells this life of the device's process from others.
    pub incarnation: u64,
}

/// The part of a graph that a step needs: nodes that the fetches and targets depend on, where each fed tensor comes from a `_Recv`
/// (`_recv_NODE_SLOT`) and each fetched one goes to a `_Send` (`_send_NODE_SLOT`), both assigned to the client's device. A fed
/// placeholder's control edges come from its `_Recv`. A tensor fetched under two spellings is sent once.
///
/// # Errors
/// With TensorFlow's texts: `INVALID_ARGUMENT` if nothing is asked, for tensors fed twice, or fed and fetched, and slots that do not
/// exist; `NOT_FOUND` for nodes that do not exist.
pub fn prune(graph: &Graph, signature: &Signature, client: &ClientDevice) -> Result<Graph> {
    if signature.fetches.is_empty() && signature.targets.is_empty() {
        return Err(invalid_argument!("Must specify at least one target to fetch or execute."));
    }
    let mut names = HashSet::with_capacity(signature.feeds.len());
    for feed in &signature.feeds {
        if !names.insert(Signature::tensor_name(feed)) {
            return Err(invalid_argument!("Endpoint \"{feed}\" fed more than once."));
        }
    }
    if let Some(fetch) = signature.fetches.iter().find(|fetch| names.contains(&Signature::tensor_name(fetch))) {
        return Err(invalid_argument!("{fetch} is both fed and fetched."));
    }

    let feeds = signature.feeds.iter().map(|name| find_feed(graph, name)).collect::<Result<Vec<_>>>()?;
    let mut fetches = signature.fetches.iter().map(|name| find_fetch(graph, name)).collect::<Result<Vec<_>>>()?;
    let mut seen = HashSet::with_capacity(fetches.len());
    fetches.retain(|&fetch| seen.insert(fetch));
    let targets = find_targets(graph, &signature.targets)?;
    Pruner::new(graph, client, &feeds).run(&fetches, &targets)
}

fn find_feed(graph: &Graph, name: &str) -> Result<Endpoint> {
    let EndpointName { node, slot } = EndpointName::parse(name);
    let Some(id) = graph.find(node) else {
        return Err(not_found!("FeedInputs: unable to find feed output {name}"));
    };
    let outputs = graph.node(id).output_types.len();
    match slot {
        Some(slot) if (slot as usize) < outputs => Ok(Endpoint { node: id, slot }),
        _ => Err(invalid_argument!("FeedInputs: {name} should have output index < {outputs}")),
    }
}

fn find_fetch(graph: &Graph, name: &str) -> Result<Endpoint> {
    let EndpointName { node, slot } = EndpointName::parse(name);
    let Some(id) = graph.find(node) else {
        return Err(not_found!("FetchOutputs node {name}: not found"));
    };
    let outputs = graph.node(id).output_types.len();
    if outputs == 0 {
        return Err(invalid_argument!(
            "Tried to fetch data for '{name}', which produces no output.  To run to a node but not fetch any data, pass '{name}' as \
             an argument to the 'target_node_names' argument of the Session::Run API."
        ));
    }
    match slot {
        Some(slot) if (slot as usize) < outputs => Ok(Endpoint { node: id, slot }),
        _ => Err(invalid_argument!("FetchOutputs {name}: output index too large, must be < {outputs}")),
    }
}

fn find_targets(graph: &Graph, names: &[String]) -> Result<Vec<NodeId>> {
    let mut missing = String::new();
    let mut targets = Vec::with_capacity(names.len());
    for name in names {
        match graph.find(EndpointName::parse(name).node) {
            Some(id) => targets.push(id),
            None => {
                missing.push_str(name);
                missing.push(' ');
            }
        }
    }
    if missing.is_empty() {
        return Ok(targets);
    }
    Err(not_found!("PruneForTargets: Some target nodes not found: {missing}"))
}

/// What an edge comes from after the rewrite.
#[derive(Clone, Copy)]
enum Source {
    /// A node of the graph.
    Node(NodeId),
    /// The receive of the feed with this number.
    Feed(usize),
}

struct Pruner<'a> {
    graph: &'a Graph,
    client: &'a ClientDevice,
    feeds: &'a [Endpoint],
    /// Feeds by what they replace.
    feed_of: HashMap<Endpoint, usize>,
    /// Feeds of placeholders, which replace their control edges too.
    placeholder_feed: HashMap<NodeId, usize>,
    keep: Vec<bool>,
    keep_feed: Vec<bool>,
}

impl<'a> Pruner<'a> {
    fn new(graph: &'a Graph, client: &'a ClientDevice, feeds: &'a [Endpoint]) -> Pruner<'a> {
        let feed_of = feeds.iter().enumerate().map(|(at, &endpoint)| (endpoint, at)).collect();
        let is_placeholder = |id| matches!(&*graph.node(id).op.name, "Placeholder" | "PlaceholderV2");
        let placeholders = feeds.iter().enumerate().filter(|(_, feed)| is_placeholder(feed.node));
        Pruner {
            graph,
            client,
            feeds,
            feed_of,
            placeholder_feed: placeholders.map(|(at, feed)| (feed.node, at)).collect(),
            keep: vec![false; graph.len()],
            keep_feed: vec![false; feeds.len()],
        }
    }

    fn data_source(&self, input: Endpoint) -> Source {
        match self.feed_of.get(&input) {
            Some(&feed) => Source::Feed(feed),
            None => Source::Node(input.node),
        }
    }

    fn control_source(&self, input: NodeId) -> Source {
        match self.placeholder_feed.get(&input) {
            Some(&feed) => Source::Feed(feed),
            None => Source::Node(input),
        }
    }

    fn run(mut self, fetches: &[Endpoint], targets: &[NodeId]) -> Result<Graph> {
        self.mark(fetches.iter().map(|fetch| fetch.node).chain(targets.iter().copied()).collect());
        let mut pruned = Graph::like(self.graph);
        let mut by_name = HashMap::new();
        let mut new_ids = vec![NodeId(0); self.graph.len()];
        let mut count = 0u32;
        for (new, _) in new_ids.iter_mut().zip(&self.keep).filter(|&(_, &keep)| keep) {
            *new = NodeId(count);
            count += 1;
        }
        let mut feed_ids = vec![NodeId(0); self.feeds.len()];
        for (new, _) in feed_ids.iter_mut().zip(&self.keep_feed).filter(|&(_, &keep)| keep) {
            *new = NodeId(count);
            count += 1;
        }
        let new_id = |source| match source {
            Source::Node(id) => new_ids[id.index()],
            Source::Feed(feed) => feed_ids[feed],
        };
        by_name.reserve(count as usize + fetches.len());
        pruned.nodes.reserve(count as usize + fetches.len());

        for (id, node) in self.graph.nodes().filter(|(id, _)| self.keep[id.index()]) {
            let mut node = Node::clone(node);
            for input in &mut node.inputs {
                let source = self.data_source(*input);
                let slot = if matches!(source, Source::Feed(_)) { 0 } else { input.slot };
                *input = Endpoint { node: new_id(source), slot };
            }
            for input in &mut node.control_inputs {
                *input = new_id(self.control_source(*input));
            }
            by_name.insert(node.name.clone(), new_ids[id.index()]);
            pruned.nodes.push(Arc::new(node));
        }
        for (&feed, _) in self.feeds.iter().zip(&self.keep_feed).filter(|&(_, &keep)| keep) {
            let node = self.receive(feed)?;
            by_name.insert(node.name.clone(), crate::graph::next_id(pruned.nodes.len())?);
            pruned.nodes.push(Arc::new(node));
        }
        for &fetch in fetches {
            let source = Endpoint { node: new_ids[fetch.node.index()], slot: fetch.slot };
            let node = self.send(fetch, source)?;
            by_name.insert(node.name.clone(), crate::graph::next_id(pruned.nodes.len())?);
            pruned.nodes.push(Arc::new(node));
        }
        pruned.by_name = Arc::new(by_name);
        Ok(pruned)
    }

    /// Marks what is reached backwards from these nodes.
    fn mark(&mut self, roots: Vec<NodeId>) {
        let mut open = roots;
        while let Some(id) = open.pop() {
            if std::mem::replace(&mut self.keep[id.index()], true) {
                continue;
            }
            let node = self.graph.node(id);
            let data = node.inputs.iter().map(|&input| self.data_source(input));
            let control = node.control_inputs.iter().map(|&input| self.control_source(input));
            let sources: smallvec::SmallVec<[Source; 8]> = data.chain(control).collect();
            for source in sources {
                match source {
                    Source::Node(id) if !self.keep[id.index()] => open.push(id),
                    Source::Node(_) => {}
                    Source::Feed(feed) => self.keep_feed[feed] = true,
                }
            }
        }
    }

    fn receive(&self, feed: Endpoint) -> Result<Node> {
        self.exchange("_Recv", "_recv", "tensor_type", feed)
    }

    fn send(&self, fetch: Endpoint, source: Endpoint) -> Result<Node> {
        let mut node = self.exchange("_Send", "_send", "T", fetch)?;
        node.inputs.push(source);
        Ok(node)
    }

    /// A node that exchanges the tensor of an endpoint with the client.
    fn exchange(&self, op: &str, prefix: &str, type_attr: &str, endpoint: Endpoint) -> Result<Node> {
        let source = self.graph.node(endpoint.node);
        let dtype = source.output_types.get(endpoint.slot as usize).map(|slot| slot.dtype);
        let dtype: DType = dtype.ok_or_else(|| internal!("{} has no output {}", source.name, endpoint.slot))?;
        let op = op_def(op).ok_or_else(|| internal!("The schema of {op} is missing"))?;
        let device = || Value::S(Bytes::copy_from_slice(self.client.name.as_bytes()));
        let mut attrs = Attrs::new();
        attrs.set(type_attr, Value::Type(dtype.number()));
        attrs.set("tensor_name", Value::S(Bytes::from(self.graph.endpoint_name(endpoint))));
        attrs.set("send_device", device());
        attrs.set("recv_device", device());
        attrs.set("send_device_incarnation", Value::I(self.client.incarnation.cast_signed()));
        attrs.set("client_terminated", Value::B(true));
        let mut node = Node::new(&format!("{prefix}_{}_{}", source.name, endpoint.slot), op, attrs)?;
        node.assigned_device = Arc::from(self.client.name.as_str());
        Ok(node)
    }
}
