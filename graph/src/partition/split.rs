//! Parts of a graph, with sends and receives for the edges between them.

use super::control_loop::{FLOAT, empty_constant, float_attrs, is_control_merge, new_node};
use super::memory::{is_host_input, is_host_output};
use super::{Partition, PartitionOptions, Places, fresh_name};
use crate::{Attrs, Endpoint, Flow, Graph, Node, NodeId};
use graphmill_tensor::{DType, Result, internal, invalid_argument};
use graphmill_wire::tensorflow::attr_value::Value;
use smallvec::{SmallVec, smallvec};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

pub(super) struct Splitter<'a> {
    graph: &'a Graph,
    places: &'a Places,
    options: &'a PartitionOptions<'a>,
    /// The number of each node within its part.
    local: Vec<NodeId>,
    parts: Vec<Part>,
    /// What stands for a value (or for a node's completion) in a part that it was sent to.
    received: HashMap<(Source, usize), NodeId>,
    incarnations: HashMap<Arc<str>, i64>,
}

/// What an edge carries.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Source {
    Value(Endpoint),
    Control(NodeId),
}

impl Source {
    fn node(self) -> NodeId {
        match self {
            Source::Value(endpoint) => endpoint.node,
            Source::Control(node) => node,
        }
    }
}

/// An edge between two parts. `slot` is the input that it leads to; no matter for control edges.
#[derive(Clone, Copy)]
struct Crossing {
    number: usize,
    source: Source,
    target: NodeId,
    slot: usize,
}

/// The nodes of one part: those of the graph, then those that are made.
#[derive(Default)]
struct Part {
    own: Vec<Node>,
    made: Vec<Node>,
    /// How many there will be of the graph's.
    own_len: usize,
}

impl Part {
    fn add(&mut self, node: Node) -> Result<NodeId> {
        let id = crate::graph::next_id(self.own_len.saturating_add(self.made.len()))?;
        self.made.push(node);
        Ok(id)
    }

    /// A node that was made.
    fn made_mut(&mut self, id: NodeId) -> Result<&mut Node> {
        let at = id.index().checked_sub(self.own_len);
        at.and_then(|at| self.made.get_mut(at)).ok_or_else(|| internal!("Node {id:?} was not made for this part"))
    }
}

/// What comes of an edge between two parts in the target's part.
struct Arrival {
    /// The receive.
    recv: NodeId,
    /// What the target takes: the receive, a cast of its value, or an `Identity` that stands for a control edge.
    taken: NodeId,
}

impl<'a> Splitter<'a> {
    pub(super) fn new(graph: &'a Graph, places: &'a Places, options: &'a PartitionOptions<'a>) -> Result<Splitter<'a>> {
        let mut parts: Vec<Part> = places.locations.iter().map(|_| Part::default()).collect();
        let mut local = Vec::with_capacity(graph.len());
        for &place in &places.of {
            let part = &mut parts[place];
            local.push(crate::graph::next_id(part.own_len)?);
            part.own_len += 1;
        }
        for part in &mut parts {
            part.own.reserve(part.own_len);
        }
        Ok(Splitter { graph, places, options, local, parts, received: HashMap::new(), incarnations: HashMap::new() })
    }

    pub(super) fn run(mut self) -> Result<Vec<Partition>> {
        let mut edges = 0usize;
        for (id, node) in self.graph.nodes() {
            let node = self.place(id, node, &mut edges)?;
            self.parts[self.places.of[id.index()]].own.push(node);
        }
        let parts = std::mem::take(&mut self.parts).into_iter().zip(&self.places.locations);
        Ok(parts.map(|(part, location)| self.finish(part, location)).collect())
    }

    /// A node as it stands in its part. `edges` counts the edges of the graph.
    fn place(&mut self, id: NodeId, node: &Node, edges: &mut usize) -> Result<Node> {
        let place = self.places.of[id.index()];
        let mut placed = node.clone();
        placed.device = node.assigned_device.clone();
        placed.control_inputs.clear();
        self.complete_incarnation(&mut placed)?;

        // Control edges from a control loop are for the receives of this node; those that no receive takes stay.
        let is_control_loop =
            |&source: &NodeId| self.places.of[source.index()] == place && is_control_merge(self.graph.node(source));
        let (mut loop_edges, control): (SmallVec<[NodeId; 4]>, SmallVec<[NodeId; 4]>) =
            node.control_inputs.iter().copied().partition(is_control_loop);
        let control_merge = loop_edges.last().map(|&merge| self.local[merge.index()]);
        // A receive of a reference waits for everything else that the node takes: the node reads the variable no sooner.
        let mut reference_recvs: SmallVec<[NodeId; 2]> = SmallVec::new();
        let mut waits_for: SmallVec<[NodeId; 8]> = SmallVec::new();

        let data = node.inputs.iter().map(|&input| Source::Value(input));
        for (slot, source) in data.chain(control.into_iter().map(Source::Control)).enumerate() {
            let number = *edges;
            *edges += 1;
            let is_reference = match source {
                Source::Value(input) => self.graph.node(input.node).output_types[input.slot as usize].is_ref,
                Source::Control(_) => false,
            };
            let local = self.places.of[source.node().index()] == place;
            let taken = if local {
                let taken = self.local[source.node().index()];
                if !is_reference {
                    waits_for.push(taken);
                }
                taken
            } else if let Some(&taken) = self.received.get(&(source, place)) {
                waits_for.push(taken);
                taken
            } else {
                let arrival = self.send(Crossing { number, source, target: id, slot })?;
                if let Some(merge) = control_merge {
                    loop_edges.pop();
                    self.parts[place].made_mut(arrival.recv)?.control_inputs.push(merge);
                }
                if is_reference {
                    reference_recvs.push(arrival.recv);
                } else {
                    self.received.insert((source, place), arrival.taken);
                    waits_for.push(arrival.taken);
                }
                arrival.taken
            };
            match source {
                Source::Value(input) => {
                    placed.inputs[slot] = Endpoint { node: taken, slot: if local { input.slot } else { 0 } };
                }
                Source::Control(_) => placed.control_inputs.push(taken),
            }
        }
        for recv in reference_recvs {
            let recv = self.parts[place].made_mut(recv)?;
            recv.control_inputs.extend(waits_for.iter().copied());
            once_each(&mut recv.control_inputs);
        }
        if !loop_edges.is_empty() {
            placed.control_inputs.extend(control_merge);
        }
        once_each(&mut placed.control_inputs);
        Ok(placed)
    }

    /// Makes the pair that an edge crosses by.
    fn send(&mut self, edge: Crossing) -> Result<Arrival> {
        let source_id = edge.source.node();
        let (graph, target) = (self.graph, self.graph.node(edge.target));
        let source = graph.node(source_id);
        let (from, to) = (self.places.of[source_id.index()], self.places.of[edge.target.index()]);
        let (send_device, recv_device) = (&source.assigned_device, &target.assigned_device);

        let (mut sent, dtype, host) = match edge.source {
            Source::Value(input) => {
                let sent = Endpoint { node: self.local[source_id.index()], slot: input.slot };
                let dtype = target.input_types[edge.slot].number();
                (sent, dtype, (is_host_output(source, input.slot as usize), is_host_input(target, edge.slot)))
            }
            Source::Control(_) => {
                let name = fresh_name(graph, self.options, "", &format!("{}/ctrl", source.name));
                let mut constant = empty_constant(&name, send_device)?;
                constant.control_inputs.push(self.local[source_id.index()]);
                (Endpoint { node: self.parts[from].add(constant)?, slot: 0 }, FLOAT, (false, false))
            }
        };
        let is_value = matches!(edge.source, Source::Value(_));
        let casts = self.options.bfloat16_sendrecv && is_value && dtype == DType::Float.number();
        let wire = if casts { DType::BFloat16.number() } else { dtype };
        if casts {
            let cast = self.cast(source, send_device, (dtype, wire), sent)?;
            sent = Endpoint { node: self.parts[from].add(cast)?, slot: 0 };
        }

        let mut attrs = Attrs::new();
        attrs.set("tensor_name", text(&format!("edge_{}_{}", edge.number, source.name)));
        attrs.set("send_device", text(send_device));
        attrs.set("send_device_incarnation", Value::I(self.incarnation(send_device)?));
        attrs.set("recv_device", text(recv_device));
        attrs.set("client_terminated", Value::B(false));
        attrs.set("_src", text(&source.name));
        attrs.set("_dst", text(&target.name));

        let op = if host.0 { "_HostSend" } else { "_Send" };
        let mut send_attrs = attrs.clone();
        send_attrs.set("T", Value::Type(wire));
        let mut send = self.made(source, op, send_attrs, send_device).map_err(|e| e.at_node(&target.name))?;
        send.inputs = smallvec![sent];
        self.parts[from].add(send)?;

        let op = if host.1 { "_HostRecv" } else { "_Recv" };
        attrs.set("tensor_type", Value::Type(wire));
        let recv = self.made(source, op, attrs, recv_device)?;
        let recv = self.parts[to].add(recv)?;
        let received = Endpoint { node: recv, slot: 0 };
        let taken = if casts {
            let cast = self.cast(source, recv_device, (wire, dtype), received)?;
            self.parts[to].add(cast)?
        } else if is_value {
            recv
        } else {
            let mut identity = self.made(source, "Identity", float_attrs("T"), recv_device)?;
            identity.inputs = smallvec![received];
            self.parts[to].add(identity)?
        };
        Ok(Arrival { recv, taken })
    }

    /// A node named for the source of an edge.
    fn made(&self, source: &Node, op: &str, attrs: Attrs, device: &Arc<str>) -> Result<Node> {
        new_node(&fresh_name(self.graph, self.options, "", &source.name), op, attrs, device)
    }

    /// A cast that cuts digits off rather than rounding, as long as it makes values shorter.
    fn cast(&self, source: &Node, device: &Arc<str>, (from, to): (i32, i32), input: Endpoint) -> Result<Node> {
        let mut attrs = Attrs::new();
        attrs.set("SrcT", Value::Type(from));
        attrs.set("DstT", Value::Type(to));
        attrs.set("Truncate", Value::B(to == DType::BFloat16.number()));
        let mut cast = self.made(source, "Cast", attrs, device)?;
        cast.inputs = smallvec![input];
        Ok(cast)
    }

    fn incarnation(&mut self, device: &Arc<str>) -> Result<i64> {
        match self.incarnations.entry(device.clone()) {
            Entry::Occupied(known) => Ok(*known.get()),
            Entry::Vacant(place) => {
                let incarnation = (self.options.incarnation)(device);
                let incarnation = incarnation.ok_or_else(|| invalid_argument!("{device} unknown device."))?;
                Ok(*place.insert(incarnation.cast_signed()))
            }
        }
    }

    /// Fills in the number of a sending device where a send or receive of the graph lacks it.
    fn complete_incarnation(&mut self, node: &mut Node) -> Result<()> {
        if !matches!(node.op.flow, Flow::Send | Flow::Recv) || node.attrs.int("send_device_incarnation")? != 0 {
            return Ok(());
        }
        let device: Arc<str> = Arc::from(node.attrs.str("send_device")?);
        if let Some(incarnation) = (self.options.incarnation)(&device) {
            node.attrs.set("send_device_incarnation", Value::I(incarnation.cast_signed()));
        }
        Ok(())
    }

    fn finish(&self, part: Part, location: &str) -> Partition {
        let nodes: Vec<Arc<Node>> = part.own.into_iter().chain(part.made).map(Arc::new).collect();
        // There is room: ids were given out one by one.
        let by_name = nodes.iter().enumerate().map(|(at, node)| (node.name.clone(), NodeId(at as u32))).collect();
        let library = match self.graph.library() {
            library if library.is_empty() => library.clone(),
            library => Arc::new(library.reachable(nodes.iter().map(|node| &**node))),
        };
        let graph = Graph { nodes, by_name: Arc::new(by_name), library, versions: self.graph.versions().clone() };
        Partition { location: location.to_owned(), graph }
    }
}

fn text(value: &str) -> Value {
    Value::S(value.as_bytes().to_vec().into())
}

/// Leaves out what comes again.
pub(super) fn once_each(ids: &mut SmallVec<[NodeId; 4]>) {
    if ids.len() > 1 {
        let mut seen = std::collections::HashSet::with_capacity(ids.len());
        ids.retain(|id| seen.insert(*id));
    }
}
