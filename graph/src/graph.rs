//! The graph: an arena of nodes.

use crate::{Attrs, EndpointName, FunctionLibrary, OpDef, validate};
use graphmill_tensor::{Result, SlotType, already_exists, internal, invalid_argument};
use graphmill_wire::tensorflow::{AttrValue, GraphDef, NodeDef, VersionDef};
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::Arc;

/// A node of one graph. Ids count from 0 in the order of insertion.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The id as an index of arrays with an element for each node.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// An output of a node.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Endpoint {
    /// The node.
    pub node: NodeId,
    /// Which of its outputs.
    pub slot: u32,
}

impl Endpoint {
    /// The endpoint as the definition of a node in `graph` has it: `name` or `name:slot`.
    pub fn name_in(self, graph: &Graph) -> String {
        let name = &graph.node(self.node).name;
        if self.slot == 0 { name.to_string() } else { format!("{name}:{}", self.slot) }
    }
}

/// Where a node's data inputs come from.
pub type Inputs = SmallVec<[Endpoint; 2]>;

/// Types of a node's inputs or outputs.
pub type SlotTypes = SmallVec<[SlotType; 8]>;

/// One node: an op with attributes, inputs and a device.
#[derive(Clone, Debug)]
pub struct Node {
    /// The name, unique in the graph.
    pub name: Arc<str>,
    /// The op, or the signature of the function that the node calls.
    pub op: Arc<OpDef>,
    /// The attributes; those that the client left out have their defaults.
    pub attrs: Attrs,
    /// The data inputs: as many as `input_types`.
    pub inputs: Inputs,
    /// Nodes that must have run before, each once.
    pub control_inputs: SmallVec<[NodeId; 4]>,
    /// The device as the client typed it; may be empty.
    pub device: Arc<str>,
    /// The device that the node was placed on; empty until then.
    pub assigned_device: Arc<str>,
    /// What the node takes.
    pub input_types: SlotTypes,
    /// What the node gives.
    pub output_types: SlotTypes,
}

impl Node {
    /// A node without inputs and device. Defaults are filled in, and slot types follow from the attributes.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the attributes do not fit the op.
    pub fn new(name: &str, op: &Arc<OpDef>, mut attrs: Attrs) -> Result<Node> {
        for attr in &op.attrs {
            if let (Some(default), false) = (&attr.default, attrs.has(&attr.name))
                && let Some(value) = &default.value
            {
                attrs.set(&attr.name, value.clone());
            }
        }
        validate::check_attrs(op, &attrs, name)?;
        let (input_types, output_types) = validate::slot_types(op, &attrs)?;
        Ok(Node {
            name: Arc::from(name),
            op: op.clone(),
            attrs,
            inputs: Inputs::new(),
            control_inputs: SmallVec::new(),
            device: Arc::from(""),
            assigned_device: Arc::from(""),
            input_types,
            output_types,
        })
    }

    /// The name of the op.
    pub fn op_name(&self) -> &str {
        &self.op.name
    }
}

/// A graph with its function library. Cheap to clone: clones share nodes and library.
#[derive(Clone, Default, Debug)]
pub struct Graph {
    pub(crate) nodes: Vec<Arc<Node>>,
    pub(crate) by_name: Arc<HashMap<Arc<str>, NodeId>>,
    pub(crate) library: Arc<FunctionLibrary>,
    pub(crate) versions: VersionDef,
}

impl Graph {
    /// A graph without nodes.
    pub fn new() -> Graph {
        Graph::default()
    }

    /// A graph without nodes, with the library and versions of another one.
    pub fn like(other: &Graph) -> Graph {
        Graph { library: other.library.clone(), versions: other.versions.clone(), ..Graph::default() }
    }

    /// A node of this graph.
    ///
    /// # Panics
    /// If the id belongs to another graph.
    pub fn node(&self, id: NodeId) -> &Arc<Node> {
        &self.nodes[id.index()]
    }

    /// A node of this graph, to be changed; clones of the graph keep theirs. Its name must stay.
    ///
    /// # Panics
    /// If the id belongs to another graph.
    pub fn node_mut(&mut self, id: NodeId) -> &mut Node {
        Arc::make_mut(&mut self.nodes[id.index()])
    }

    /// All nodes in the order of insertion.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (NodeId, &Arc<Node>)> + DoubleEndedIterator {
        // The number of nodes fits: `add_node` and import check it.
        self.nodes.iter().enumerate().map(|(index, node)| (NodeId(index as u32), node))
    }

    /// The number of nodes.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The node of this name.
    pub fn find(&self, name: &str) -> Option<NodeId> {
        self.by_name.get(name).copied()
    }

    /// The functions that nodes may call.
    pub fn library(&self) -> &Arc<FunctionLibrary> {
        &self.library
    }

    /// Puts another library in place.
    pub fn set_library(&mut self, library: Arc<FunctionLibrary>) {
        self.library = library;
    }

    /// Versions of the producer and of permitted consumers.
    pub fn versions(&self) -> &VersionDef {
        &self.versions
    }

    /// Puts other versions in place.
    pub fn set_versions(&mut self, versions: VersionDef) {
        self.versions = versions;
    }

    /// Adds a node whose inputs are in the graph.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` for a name in use; `INVALID_ARGUMENT` for inputs that are missing, do not exist or have another type.
    pub fn add_node(&mut self, node: Node) -> Result<NodeId> {
        if self.by_name.contains_key(&node.name) {
            return Err(already_exists!("Node already exists: {}", node.name));
        }
        if node.inputs.len() != node.input_types.len() {
            return Err(invalid_argument!(
                "Node '{}' has {} inputs where {} takes {}",
                node.name,
                node.inputs.len(),
                node.op.name,
                node.input_types.len()
            ));
        }
        for (index, &input) in node.inputs.iter().enumerate() {
            let Some(source) = self.nodes.get(input.node.index()) else {
                return Err(internal!("Input {index} of node {} is not in the graph", node.name));
            };
            validate::check_edge(source, input.slot, &node, index)?;
        }
        if let Some(id) = node.control_inputs.iter().find(|id| id.index() >= self.nodes.len()) {
            return Err(internal!("Control input {id:?} of node {} is not in the graph", node.name));
        }
        let id = next_id(self.nodes.len())?;
        Arc::make_mut(&mut self.by_name).insert(node.name.clone(), id);
        self.nodes.push(Arc::new(node));
        Ok(id)
    }

    /// The graph without the nodes for which `keep` says no; `keep` has an element for each node. Control edges from them go,
    /// and ids are counted anew.
    ///
    /// # Errors
    /// `INTERNAL` if a node that stays needs the value of one that goes.
    pub fn retain(&self, keep: &[bool]) -> Result<Graph> {
        let kept = |id: NodeId| keep.get(id.index()).copied().unwrap_or(false);
        let mut renumbered = vec![None; self.nodes.len()];
        let mut next = 0;
        for (index, new) in renumbered.iter_mut().enumerate() {
            if kept(NodeId(index as u32)) {
                *new = Some(NodeId(next));
                next += 1;
            }
        }
        let mut graph = Graph::like(self);
        let mut by_name = HashMap::with_capacity(next as usize);
        for (id, node) in self.nodes().filter(|&(id, _)| kept(id)) {
            let mut node = Node::clone(node);
            for input in &mut node.inputs {
                match renumbered[input.node.index()] {
                    Some(source) => input.node = source,
                    None => {
                        let source = &self.node(input.node).name;
                        return Err(internal!("Node {} needs {source}, which is to be removed", node.name));
                    }
                }
            }
            node.control_inputs = node.control_inputs.iter().filter_map(|c| renumbered[c.index()]).collect();
            by_name.insert(node.name.clone(), renumbered[id.index()].unwrap_or(id));
            graph.nodes.push(Arc::new(node));
        }
        graph.by_name = Arc::new(by_name);
        Ok(graph)
    }

    /// The graph for the wire. A node's device is the assigned one, or the requested one before placement.
    pub fn to_def(&self) -> GraphDef {
        GraphDef {
            node: self.nodes.iter().map(|node| self.node_to_def(node)).collect(),
            versions: Some(self.versions.clone()),
            library: Some(self.library.to_proto()),
            ..Default::default()
        }
    }

    /// As [`Graph::to_def`], without the attributes of nodes that equal the defaults of their ops, as masters send graphs to workers:
    /// a worker of another release then need not know attributes that nobody uses.
    pub fn to_stripped_def(&self) -> GraphDef {
        let mut def = GraphDef {
            versions: Some(self.versions.clone()),
            library: Some(self.library.to_proto()),
            ..Default::default()
        };
        let nodes = self.nodes.iter().map(|node| {
            let is_default = |name: &str, value: &AttrValue| {
                node.op.attr(name).and_then(|attr| attr.default.as_ref()).is_some_and(|default| default == value)
            };
            let kept = node.attrs.iter().filter(|(name, value)| !is_default(name, value));
            let attr = kept.map(|(name, value)| (name.to_owned(), value.clone())).collect();
            NodeDef { attr, ..self.bare_def(node) }
        });
        def.node = nodes.collect();
        def
    }

    pub(crate) fn node_to_def(&self, node: &Node) -> NodeDef {
        NodeDef { attr: node.attrs.to_proto(), ..self.bare_def(node) }
    }

    /// A node's message without attributes.
    fn bare_def(&self, node: &Node) -> NodeDef {
        let data = node.inputs.iter().map(|input| {
            let name = &self.node(input.node).name;
            if input.slot == 0 { name.to_string() } else { format!("{name}:{}", input.slot) }
        });
        let control = node.control_inputs.iter().map(|&id| format!("^{}", self.node(id).name));
        let device = if node.assigned_device.is_empty() { &node.device } else { &node.assigned_device };
        NodeDef {
            name: node.name.to_string(),
            op: node.op.name.to_string(),
            input: data.chain(control).collect(),
            device: device.to_string(),
            ..Default::default()
        }
    }

    /// The endpoint as tensors are named: `node:0`.
    pub fn endpoint_name(&self, endpoint: Endpoint) -> String {
        EndpointName { node: &self.node(endpoint.node).name, slot: Some(endpoint.slot) }.to_string()
    }

    /// For each node the nodes that take one of its outputs or wait for it, each consumer once.
    pub fn consumers(&self) -> Vec<SmallVec<[NodeId; 4]>> {
        let mut consumers = vec![SmallVec::new(); self.nodes.len()];
        for (id, node) in self.nodes() {
            for source in node.inputs.iter().map(|i| i.node).chain(node.control_inputs.iter().copied()) {
                let list: &mut SmallVec<[NodeId; 4]> = &mut consumers[source.index()];
                // All edges of a consumer come together, so that a repeat is the last entry.
                if list.last() != Some(&id) {
                    list.push(id);
                }
            }
        }
        consumers
    }

    /// A name that no node has: `base`, or `base` with a number behind it.
    pub fn unique_name(&self, base: &str) -> String {
        let free = |name: &str| !self.by_name.contains_key(name);
        if free(base) {
            return base.to_owned();
        }
        let mut count = 1usize;
        loop {
            let name = format!("{base}_{count}");
            if free(&name) {
                return name;
            }
            count += 1;
        }
    }
}

/// The id of the node that comes next.
pub(crate) fn next_id(len: usize) -> Result<NodeId> {
    match u32::try_from(len) {
        Ok(index) if index != u32::MAX => Ok(NodeId(index)),
        _ => Err(invalid_argument!("A graph has no room for more than {len} nodes")),
    }
}
