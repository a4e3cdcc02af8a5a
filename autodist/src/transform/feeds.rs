//! Which tensors of the written graph stand for those of the old one.

use super::job::scope;
use super::roles::{Direction, closure};
use super::writer::Writer;
use crate::item::update_kind;
use graphmill_graph::op_def;
use graphmill_wire::tensorflow::NodeDef;
use graphmill_wire::tensorflow::attr_value::Value;

/// A node that a user may feed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Feed {
    /// The node's name in the old graph.
    pub node: String,
    /// Its copies, by replica.
    pub copies: Vec<String>,
    /// Whether a value is cut along axis 0 into a piece for each copy, the first ones longer by one where it does not divide; else each
    /// copy gets all of it.
    pub is_split: bool,
}

/// A node that a user may fetch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fetch {
    /// The node's name in the old graph.
    pub node: String,
    /// Its copies, by replica; one if they are the same.
    pub copies: Vec<String>,
    /// Whether all copies run although the first one's results count: they change something, or wait for what does.
    pub runs_all: bool,
    /// Outputs whose values on all copies are put together along axis 0.
    pub concatenated: Vec<u32>,
}

impl Writer<'_> {
    /// The nodes that a user may feed with batches.
    pub fn feeds(&self) -> Vec<Feed> {
        let nodes = self.roles.item.graph().node.iter();
        let placeholders = nodes.filter(|node| node.op.starts_with("Placeholder"));
        let feed = |node: &NodeDef| Feed {
            node: node.name.clone(),
            copies: self.copies_of(&node.name),
            is_split: self.job.replicas.len() > 1
                && matches!(node.attr.get("shape").and_then(|attr| attr.value.as_ref()),
                    Some(Value::Shape(shape)) if shape.dim.first().is_some_and(|dim| dim.size < 0)),
        };
        placeholders.map(feed).collect()
    }

    /// All nodes.
    pub fn fetches(&self) -> Vec<Fetch> {
        let replicas = self.job.replicas.len();
        let updates = self.roles.learners.iter().map(|learner| learner.update);
        let after = closure(self.roles.item, updates, Direction::Forward);
        let fetch = |(at, node): (usize, &NodeDef)| {
            let is_shared = self.roles.homes.contains_key(&at) && self.roles.shared(at).is_some();
            let runs_all = !is_shared
                && replicas > 1
                && (node.op == "NoOp"
                    || after.contains(&at)
                    || update_kind(&node.op).is_some()
                    || op_def(&node.op).is_some_and(|schema| schema.is_stateful));
            let copies = if is_shared { vec![self.node_name(at, 0)] } else { self.copies_of(&node.name) };
            let concatenated = if replicas > 1 { batched_outputs(node) } else { Vec::new() };
            Fetch { node: node.name.clone(), copies, runs_all, concatenated }
        };
        self.roles.item.graph().node.iter().enumerate().map(fetch).collect()
    }

    fn copies_of(&self, name: &str) -> Vec<String> {
        (0..self.job.replicas.len()).map(|i| format!("{}/{name}", scope(i))).collect()
    }
}

/// The outputs whose first axis has no fixed size, as far as the graph tells shapes.
fn batched_outputs(node: &NodeDef) -> Vec<u32> {
    let Some(Value::List(list)) = node.attr.get("_output_shapes").and_then(|attr| attr.value.as_ref()) else {
        return Vec::new();
    };
    let is_batched = |shape: &graphmill_wire::tensorflow::TensorShapeProto| {
        !shape.unknown_rank && shape.dim.first().is_some_and(|dim| dim.size < 0)
    };
    (0u32..).zip(&list.shape).filter(|(_, shape)| is_batched(shape)).map(|(slot, _)| slot).collect()
}
