//! Gradients of updates that are written out in several operations, as Keras and some of TensorFlow's optimisers do.

use super::Gradient;
use super::index::Source;
use super::update_ops::{UpdateKind, update_kind};
use super::updates::Search;
use super::variables::Variable;
use graphmill_wire::tensorflow::attr_value::Value;
use std::collections::HashSet;

/// Bounds the search in graphs that look like no optimiser.
const MAX_STEPS: usize = 512;

/// The optimiser's part of the graph behind an update, as it is uncovered backwards from the update.
struct Region<'a, 'g> {
    search: &'a Search<'g>,
    variable: &'a Variable,
    /// Nodes whose values depend on the model.
    model: HashSet<usize>,
    inside: HashSet<usize>,
    /// Tensors of the model that nodes inside read.
    entering: Vec<Source>,
    /// Variables beside this one that nodes inside read or change.
    slots: Vec<usize>,
    /// The rows that nodes inside change.
    indices: Option<Source>,
}

/// The gradient behind an assignment to the variable, and the optimiser's slots; `None` if the value comes from no model.
///
/// The gradient is the one tensor through which the model reaches the update. To find it, what lies nearest to the update is taken into the
/// optimiser's region first, in the order of the graph: when a single tensor enters the region, everything behind it is the model's.
pub(super) fn gradient(
    search: &Search<'_>,
    variable: &Variable,
    op: usize,
    kind: UpdateKind,
) -> Option<(Gradient, Vec<usize>)> {
    let model = model_nodes(search, variable);
    if !model.contains(&op) {
        return None;
    }
    let mut region = Region {
        search,
        variable,
        model,
        inside: HashSet::new(),
        entering: Vec::new(),
        slots: Vec::new(),
        indices: None,
    };
    if kind == UpdateKind::Scatter {
        region.indices = search.index.data_input(op, 1);
    }
    region.take_in(op);
    let mut best = None;
    let mut touched_slots = false;
    for _ in 0..MAX_STEPS {
        let indices = region.indices;
        let others = || region.entering.iter().copied().filter(|&source| Some(source) != indices);
        let single = others().count() == 1;
        let Some(latest) = others().max_by_key(|source| search.index.position(source.node)) else { break };
        // What joins two values of the model may be the gradient's last operation, or the optimiser's, as in a momentum over the root of
        // another. It was the optimiser's if there are slots behind it.
        if single && !region.mixes(latest.node) && (best.is_none() || touched_slots) {
            best = Some((indices, latest, region.slots.clone()));
            touched_slots = false;
        }
        if !region.may_grow_to(latest.node) {
            break;
        }
        touched_slots |= region.is_of_slot(latest.node);
        region.take_in(latest.node);
    }
    let (indices, values, slots) = best?;
    let gradient = match indices {
        Some(indices) => search.sparse(variable, indices, values),
        None => search.dense(values),
    };
    Some((gradient, slots))
}

impl Region<'_, '_> {
    fn op(&self, node: usize) -> &str {
        &self.search.graph.node[node].op
    }

    /// Adds a node, and what it reads to what enters. Waiting for a change to the variable that is read is reading what was
    /// written.
    fn take_in(&mut self, node: usize) {
        self.inside.insert(node);
        self.entering.retain(|source| source.node != node);
        let handle = self.search.index.data_input(node, 0).map(|source| source.node);
        if update_kind(self.op(node)) == Some(UpdateKind::Scatter) {
            self.indices = self.search.index.data_input(node, 1);
        }
        if let Some(handle) = handle
            && self.search.is_slot(self.variable, handle)
            && !self.slots.contains(&handle)
        {
            self.slots.push(handle);
        }
        for &source in self.search.index.inputs(node) {
            let changes_handle = update_kind(self.op(source.node)).is_some()
                && self.search.index.data_input(source.node, 0).map(|target| target.node) == handle;
            let counts = source.slot.is_some() || changes_handle;
            let is_new = !self.inside.contains(&source.node) && !self.entering.contains(&source);
            if counts && is_new && (self.model.contains(&source.node) || changes_handle) {
                self.entering.push(source);
            }
        }
    }

    /// Whether the node belongs to the optimiser although nothing else of the model enters: it combines the model's value with something of the
    /// optimiser's own, such as a learning rate.
    fn mixes(&self, node: usize) -> bool {
        match self.op(node) {
            "Neg" => true,
            op if is_arithmetic(op) => {
                self.search.index.data_inputs(node).any(|source| !self.model.contains(&source.node))
            }
            _ => self.is_of_slot(node),
        }
    }

    fn may_grow_to(&self, node: usize) -> bool {
        is_arithmetic(self.op(node)) || self.is_of_slot(node)
    }

    /// Whether the node reads or changes the variable or a slot.
    fn is_of_slot(&self, node: usize) -> bool {
        let op = self.op(node);
        let accesses =
            matches!(op, "ReadVariableOp" | "Identity" | "ResourceGather" | "Gather") || update_kind(op).is_some();
        accesses
            && self.search.index.data_input(node, 0).is_some_and(|source| {
                source.node == self.variable.node
                    || self.search.is_slot(self.variable, source.node)
                    // References are passed on by the operations that change them.
                    || update_kind(self.op(source.node)).is_some()
            })
    }
}

fn is_arithmetic(op: &str) -> bool {
    matches!(
        op,
        "Mul"
            | "RealDiv"
            | "Sub"
            | "Add"
            | "AddV2"
            | "Maximum"
            | "Minimum"
            | "Pow"
            | "Neg"
            | "Square"
            | "Sqrt"
            | "Rsqrt"
            | "Abs"
            | "Sign"
            | "GatherV2"
    )
}

/// Nodes whose values depend on data or on other trained variables, as gradients do and learning rates do not.
fn model_nodes(search: &Search<'_>, variable: &Variable) -> HashSet<usize> {
    let is_other =
        |node: usize| search.variables.iter().any(|v| v.trainable && v.node == node && v.node != variable.node);
    let nodes = || 0..search.graph.node.len();
    let sources: Vec<usize> = nodes().filter(|&node| is_data(search, node) || is_other(node)).collect();
    if !sources.is_empty() {
        return reach(search, sources);
    }
    // A model of one variable with its data in constants.
    reach(search, nodes().filter(|&node| search.graph.node[node].op == "Const" && !is_scalar(search, node)).collect())
}

/// The nodes that a value reaches along edges of data, and through variables that it is written to.
fn reach(search: &Search<'_>, sources: Vec<usize>) -> HashSet<usize> {
    let mut reached: HashSet<usize> = HashSet::new();
    let mut queue = sources;
    while let Some(node) = queue.pop() {
        if !reached.insert(node) {
            continue;
        }
        let written = update_kind(&search.graph.node[node].op).and_then(|_| search.index.data_input(node, 0));
        queue.extend(search.index.consumers(node).iter().copied().filter(|&consumer| {
            let reads_written = || written.is_some() && search.index.data_input(consumer, 0) == written;
            search.index.data_inputs(consumer).any(|source| source.node == node) || reads_written()
        }));
    }
    reached
}

fn is_data(search: &Search<'_>, node: usize) -> bool {
    let op = search.graph.node[node].op.as_str();
    match op {
        "Placeholder" | "PlaceholderV2" | "PlaceholderWithDefault" => !is_scalar(search, node),
        _ => {
            op.starts_with("Iterator")
                || op.starts_with("QueueDequeue")
                || op.starts_with("ReaderRead")
                || op == "Unstage"
        }
    }
}

fn is_scalar(search: &Search<'_>, node: usize) -> bool {
    let attrs = &search.graph.node[node].attr;
    let value = |name: &str| attrs.get(name).and_then(|attr| attr.value.as_ref());
    let shape = match (value("shape"), value("value")) {
        (Some(Value::Shape(shape)), _) => Some(shape),
        (_, Some(Value::Tensor(tensor))) => tensor.tensor_shape.as_ref(),
        _ => None,
    };
    shape.is_some_and(|shape| shape.dim.is_empty() && !shape.unknown_rank)
}
