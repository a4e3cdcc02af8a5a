//! Groups of nodes that must be on one device.

use super::Place;
use super::devices::Types;
use super::explain::{self, Link, Why};
use super::specs::SpecId;
use crate::{Conflict, Graph, Node, NodeId};
use graphmill_tensor::{DType, Result, SlotType, Status, internal, invalid_argument};
use graphmill_wire::tensorflow::attr_value::Value;
use std::collections::HashMap;

/// What the classes of nodes that stay together begin with.
const CLASS_PREFIX: &str = "loc:@";

/// A node, and what its group asks for if it is the group's root.
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    parent: u32,
    rank: u32,
    /// Where a node of the group was placed.
    pub assigned: SpecId,
    /// What nodes of the group that make resources or references ask for.
    pub resource: SpecId,
    /// What the group's nodes ask for; no less than `assigned` and `resource`.
    pub requested: SpecId,
    /// The types of devices that all of the group can run on.
    pub types: Types,
}

impl Member {
    pub(super) fn new(id: NodeId) -> Member {
        Member {
            parent: id.0,
            rank: 0,
            assigned: SpecId::OPEN,
            resource: SpecId::OPEN,
            requested: SpecId::OPEN,
            types: Types(0),
        }
    }

    /// A node of the same group that is nearer to the root, or the root itself.
    pub(super) fn parent(&self) -> NodeId {
        NodeId(self.parent)
    }
}

impl<'g> Place<'g, '_> {
    /// The root of a node's group.
    pub(super) fn root(&mut self, id: NodeId) -> usize {
        let mut at = id.index();
        loop {
            let parent = self.members[at].parent as usize;
            if parent == at {
                return at;
            }
            // Halves the way for the next time.
            let above = self.members[parent].parent;
            self.members[at].parent = above;
            at = above as usize;
        }
    }

    /// Joins the ends of edges that carry references, resources or datasets.
    pub(super) fn join_edges(&mut self) -> Result<()> {
        let graph = self.graph;
        for (id, node) in graph.nodes() {
            if node.input_types.iter().all(|input| !holds_state(*input) && input.dtype != DType::Variant) {
                continue;
            }
            for (input, slot) in node.inputs.iter().zip(&node.input_types) {
                let source = graph.node(input.node);
                if gives_resources(graph, source) && slot.dtype == DType::Resource && !gives_resources(graph, node) {
                    if let Some(origin) = self.resource_of_call(*input, id)? {
                        self.join_edge(origin, id, Why::Call(&source.name))?;
                    }
                    continue;
                }
                if gives_resources(graph, source) || gives_resources(graph, node) {
                    continue;
                }
                let why = if slot.dtype == DType::Variant && is_dataset(source) && is_dataset(node) {
                    Why::Dataset
                } else if !holds_state(*slot) || takes_resources_from_anywhere(node) {
                    continue;
                } else if slot.is_ref {
                    Why::Reference
                } else {
                    Why::Resource
                };
                self.join_edge(input.node, id, why)?;
            }
        }
        Ok(())
    }

    fn join_edge(&mut self, source: NodeId, target: NodeId, why: Why<'g>) -> Result<()> {
        let (source_root, target_root) = (self.root(source), self.root(target));
        let from = self.members[source_root];
        let to = self.members[target_root];
        for (what, a, b) in [("assigned", from.assigned, to.assigned), ("resource", from.resource, to.resource)] {
            if !self.specs.are_compatible(a, b) {
                let (a, b) = (self.specs.get(a).to_string(), self.specs.get(b).to_string());
                return Err(invalid_argument!(
                    "Cannot place the graph because a reference or resource edge connects colocation groups with incompatible {what} \
                     devices: {a} vs {b}. The edge src node is {} , and the dst node is {}{}",
                    self.graph.node(source).name,
                    self.graph.node(target).name,
                    explain::conflict(self, Link { a: source, b: target, why })
                ));
            }
        }
        if !self.specs.are_compatible(from.requested, to.requested) {
            if self.options.log {
                self.log.push(format!(
                    "Ignoring device specification {} for node '{}' because the input edge from '{}' is a reference connection and \
                     already has a device field set to {}",
                    self.specs.get(to.requested),
                    self.graph.node(target).name,
                    self.graph.node(source).name,
                    self.specs.get(from.requested)
                ));
            }
            let requested = self.specs.specialised(from.requested, to.assigned);
            self.members[target_root].requested = self.specs.specialised(requested, to.resource);
        }
        self.join(source, target, why).map_err(|error| {
            let text = format!(
                "Nodes were connected by a reference or resource connection (requiring them to be on the same device), but the two \
                 nodes were assigned two different devices: {}",
                error.message()
            );
            error.with_message(text).at_node(&self.graph.node(target).name)
        })
    }

    /// Joins nodes with the nodes that their classes name, which need not exist.
    pub(super) fn join_classes(&mut self) -> Result<()> {
        let graph = self.graph;
        let mut first_of: HashMap<&str, Option<NodeId>> = HashMap::new();
        for (_, node) in graph.nodes() {
            first_of.extend(classes(node).map(|class| (class, None)));
        }
        if first_of.is_empty() {
            return Ok(());
        }
        for (id, node) in graph.nodes() {
            // A node is of the class of its own name.
            for class in classes(node).chain(std::iter::once(&*node.name)) {
                match first_of.get_mut(class) {
                    None => {}
                    Some(Some(first)) => {
                        let first = *first;
                        self.join_class(id, first, class)?;
                    }
                    Some(first) => *first = Some(id),
                }
            }
        }
        Ok(())
    }

    fn join_class(&mut self, node: NodeId, first: NodeId, class: &'g str) -> Result<()> {
        match self.join(node, first, Why::Class(class)) {
            Err(error) => {
                let name = &self.graph.node(node).name;
                let error = error.at_node(name);
                if !self.options.soft {
                    return Err(error);
                }
                if self.options.log {
                    self.log.push(format!(
                        "Ignoring request to colocate node '{name}' with nodes in colocation group '{class}' because soft placement is \
                         on and an attempt at doing so resulted in the following error: {}",
                        error.message()
                    ));
                }
                Ok(())
            }
            Ok(()) => Ok(()),
        }
    }

    /// Makes one group of the groups of two nodes.
    fn join(&mut self, x: NodeId, y: NodeId, why: Why<'g>) -> Result<()> {
        let (x_root, y_root) = (self.root(x), self.root(y));
        if x_root == y_root {
            return Ok(());
        }
        let (new, old) =
            if self.members[x_root].rank < self.members[y_root].rank { (y_root, x_root) } else { (x_root, y_root) };
        let link = Link { a: x, b: y, why };
        let (into, from) = (self.members[new], self.members[old]);
        let merged = self.merged(into, from).map_err(|error| {
            let text = format!("{}: {}{}", self.pair(x, y), error.message(), explain::conflict(self, link));
            error.with_message(text)
        })?;
        if merged.types.0 == 0 {
            return Err(invalid_argument!(
                "{} because no device type supports both of those nodes and the other nodes colocated with them.{}{}",
                self.pair(x, y),
                explain::members(self, x_root),
                explain::members(self, y_root)
            ));
        }
        self.members[new] = Member { rank: into.rank + u32::from(into.rank == from.rank), ..merged };
        self.members[old].parent = new as u32;
        self.links.push(link);
        Ok(())
    }

    fn pair(&self, x: NodeId, y: NodeId) -> String {
        let name = |id| &self.graph.node(id).name;
        format!("Cannot colocate nodes {{{{colocation_node {}}}}} and {{{{colocation_node {}}}}}", name(x), name(y))
    }

    fn merged(&mut self, into: Member, from: Member) -> Result<Member> {
        let conflict = if self.options.soft { Conflict::Drops } else { Conflict::Fails };
        let assigned = self.specs.merge(into.assigned, from.assigned, Conflict::Fails)?;
        let resource = self.specs.merge(into.resource, from.resource, Conflict::Fails)?;
        let requested = self.specs.merge(into.requested, from.requested, conflict)?;
        let requested = self.specs.specialised(requested, assigned);
        let requested = self.specs.specialised(requested, resource);
        Ok(Member { assigned, resource, requested, types: Types(into.types.0 & from.types.0), ..into })
    }

    /// Binds a node's group to the device that the node was placed on.
    pub(super) fn bind(&mut self, id: NodeId, device: usize) -> Result<()> {
        let root = self.root(id);
        let spec = self.devices.all[device].spec;
        let member = self.members[root];
        if member.assigned == spec {
            return Ok(());
        }
        let failed = |error: Status| {
            internal!("Constraining by assigned device should not cause an error. Error: {}", error.message())
        };
        let assigned = self.specs.merge(member.assigned, spec, Conflict::Fails).map_err(failed)?;
        let resource = self.specs.merge(member.resource, spec, Conflict::Overrides).map_err(failed)?;
        let requested = self.specs.merge(member.requested, spec, Conflict::Overrides).map_err(failed)?;
        self.members[root] = Member { assigned, resource, requested, ..member };
        Ok(())
    }
}

/// The groups that a node asks to be in.
fn classes(node: &Node) -> impl Iterator<Item = &str> {
    let list = match node.attrs.get("_class").and_then(|attr| attr.value.as_ref()) {
        Some(Value::List(list)) => list.s.as_slice(),
        _ => &[],
    };
    list.iter().filter_map(|class| std::str::from_utf8(class).ok()?.strip_prefix(CLASS_PREFIX))
}

fn holds_state(slot: SlotType) -> bool {
    slot.is_ref || slot.dtype == DType::Resource
}

/// Whether this is where a resource or reference comes into being, whose device nothing else may decide.
pub(super) fn makes_state(node: &Node) -> bool {
    node.input_types.is_empty() && matches!(node.output_types.as_slice(), [output] if holds_state(*output))
}

/// Whether this is a call whose body decides where the resources that it gives are.
fn gives_resources(graph: &Graph, node: &Node) -> bool {
    let is_call = matches!(&*node.op.name, "PartitionedCall" | "StatefulPartitionedCall")
        || graph.library().get(&node.op.name).is_some();
    is_call && node.output_types.iter().any(|output| output.dtype == DType::Resource)
}

/// Whether the op passes resources on to functions that are placed on their own.
fn takes_resources_from_anywhere(node: &Node) -> bool {
    matches!(
        &*node.op.name,
        "IdentityN"
            | "PartitionedCall"
            | "StatefulPartitionedCall"
            | "DeleteMultiDeviceIterator"
            | "ParallelMapDataset"
            | "ParallelMapDatasetV2"
            | "ParallelInterleaveDataset"
            | "ExperimentalParallelInterleaveDataset"
            | "LegacyParallelInterleaveDatasetV2"
            | "ParallelInterleaveDatasetV2"
            | "ParallelInterleaveDatasetV3"
            | "ParallelInterleaveDatasetV4"
            | "MapDataset"
            | "InterleaveDataset"
            | "ReduceDataset"
            | "GroupByReducerDataset"
            | "ExperimentalGroupByReducerDataset"
            | "ScanDataset"
            | "ExperimentalScanDataset"
            | "MapAndBatchDataset"
            | "ExperimentalMapAndBatchDataset"
            | "GroupByWindowDataset"
            | "ExperimentalGroupByWindowDataset"
            | "TakeWhileDataset"
            | "ExperimentalTakeWhileDataset"
            | "FlatMapDataset"
            | "FilterDataset"
    )
}

/// Whether the op makes a dataset: `...Dataset` or `...DatasetV<number>` with a variant for its only output.
fn is_dataset(node: &Node) -> bool {
    let name = node.op.name.trim_end_matches(|c: char| c.is_ascii_digit());
    let named = node.op.name.ends_with("Dataset") || name.len() < node.op.name.len() && name.ends_with("DatasetV");
    named && matches!(node.output_types.as_slice(), [output] if output.dtype == DType::Variant)
}
