//! Finds the operation that trains each variable.

use super::index::{GraphIndex, Source, tensor_name};
use super::update_ops::{UpdateKind, is_variable, update_kind};
use super::variables::{Variable, attributes};
use super::{Gradient, Update, hand_written, sparse};
use graphmill_tensor::{Result, invalid_argument};
use graphmill_wire::tensorflow::GraphDef;

/// A graph under search.
pub(super) struct Search<'a> {
    pub graph: &'a GraphDef,
    pub index: &'a GraphIndex,
    pub variables: &'a [Variable],
}

/// The updates of the trained variables. What an optimiser's own operation updates is clear; else an assignment whose value comes
/// from a gradient counts, unless it initialises or restores the variable.
pub(super) fn find(graph: &GraphDef, index: &GraphIndex, variables: &[Variable]) -> Result<Vec<Update>> {
    let search = Search { graph, index, variables };
    let mut updates = Vec::new();
    for variable in variables.iter().filter(|variable| variable.trainable) {
        updates.extend(search.update_of(variable)?);
    }
    Ok(updates)
}

impl Search<'_> {
    fn update_of(&self, variable: &Variable) -> Result<Option<Update>> {
        let candidates = self.updates_of_handle(variable.node);
        let is_apply = |kind| matches!(kind, UpdateKind::ApplyDense { .. } | UpdateKind::ApplySparse { .. });
        let mut applied = candidates.iter().filter(|(_, kind)| is_apply(*kind));
        if let Some(&(op, kind)) = applied.next() {
            if let Some((second, _)) = applied.next() {
                return Err(self.two_updates(variable, op, *second));
            }
            let gradient = match kind {
                UpdateKind::ApplyDense { gradient } => self.input(op, gradient)?.map(|source| self.dense(source)),
                UpdateKind::ApplySparse { values, indices } => {
                    match (self.input(op, indices)?, self.input(op, values)?) {
                        (Some(indices), Some(values)) => Some(self.sparse(variable, indices, values)),
                        _ => None,
                    }
                }
                UpdateKind::Assign | UpdateKind::Scatter => None,
            };
            return Ok(gradient.map(|gradient| self.update(variable, op, gradient, self.slot_inputs(variable, op))));
        }
        let mut found: Option<(usize, Update)> = None;
        for (op, kind) in candidates {
            if self.graph.node[op].name == variable.def.initializer_name || self.is_restored(op) {
                continue;
            }
            let Some((gradient, slots)) = hand_written::gradient(self, variable, op, kind) else { continue };
            if let Some((first, _)) = found {
                return Err(self.two_updates(variable, first, op));
            }
            found = Some((op, self.update(variable, op, gradient, slots)));
        }
        Ok(found.map(|(_, update)| update))
    }

    /// The nodes that change the variable of this node.
    pub fn updates_of_handle(&self, handle: usize) -> Vec<(usize, UpdateKind)> {
        let changes = |op: usize| self.index.data_input(op, 0).is_some_and(|source| source.node == handle);
        let consumers = self.index.consumers(handle).iter().copied().filter(|&op| changes(op));
        consumers.filter_map(|op| Some((op, update_kind(&self.graph.node[op].op)?))).collect()
    }

    fn two_updates(&self, variable: &Variable, first: usize, second: usize) -> graphmill_tensor::Status {
        invalid_argument!(
            "Variable \"{}\" is updated by \"{}\" and by \"{}\"; a strategy needs one update a variable",
            variable.name,
            self.graph.node[first].name,
            self.graph.node[second].name
        )
    }

    fn update(&self, variable: &Variable, op: usize, gradient: Gradient, slots: Vec<usize>) -> Update {
        Update {
            variable: variable.name.clone(),
            gradient,
            op: self.graph.node[op].name.clone(),
            slots: slots.into_iter().map(|slot| self.graph.node[slot].name.clone()).collect(),
        }
    }

    fn input(&self, op: usize, index: usize) -> Result<Option<Source>> {
        self.index.data_input(op, index).map(Some).ok_or_else(|| {
            invalid_argument!("Node \"{}\" lacks its input {index}; the graph is damaged", self.graph.node[op].name)
        })
    }

    /// The name of a tensor.
    pub fn name(&self, source: Source) -> String {
        tensor_name(&self.graph.node[source.node], source.slot.unwrap_or(0))
    }

    /// A dense gradient. Keras passes all gradients through one `IdentityN`; what enters it is meant.
    pub fn dense(&self, source: Source) -> Gradient {
        let passed_on = || self.index.data_input(source.node, usize::try_from(source.slot?).ok()?);
        let is_identity = self.graph.node[source.node].op == "IdentityN";
        Gradient::Dense(self.name(passed_on().filter(|_| is_identity).unwrap_or(source)))
    }

    /// A sparse gradient, as it was before the optimiser summed rows of the same number.
    pub fn sparse(&self, variable: &Variable, indices: Source, values: Source) -> Gradient {
        let (indices, values) = sparse::before_deduplication(self, indices, values);
        Gradient::Sparse {
            indices: self.name(indices),
            values: self.name(values),
            dense_shape: sparse::dense_shape(self, variable, values).map(|source| self.name(source)),
        }
    }

    /// The variables of the same shape among the inputs of an update.
    fn slot_inputs(&self, variable: &Variable, op: usize) -> Vec<usize> {
        self.index.data_inputs(op).map(|source| source.node).filter(|&node| self.is_slot(variable, node)).collect()
    }

    /// Whether this node is another variable of the same shape that is not trained itself.
    pub fn is_slot(&self, variable: &Variable, node: usize) -> bool {
        node != variable.node
            && is_variable(&self.graph.node[node].op)
            && !self.variables.iter().any(|other| other.node == node && other.trainable)
            && attributes(&self.graph.node[node]).is_ok_and(|(_, shape)| shape == variable.shape)
    }

    /// Whether an assignment takes its value from a checkpoint.
    pub fn is_restored(&self, op: usize) -> bool {
        let mut at = self.index.data_input(op, 1);
        let mut seen = 0;
        while let Some(source) = at
            && seen < self.graph.node.len()
        {
            let node = &self.graph.node[source.node];
            match node.op.as_str() {
                "RestoreV2" | "Restore" | "RestoreSlice" => return true,
                "Identity" | "Reshape" | "Split" | "Slice" | "Cast" => at = self.index.data_input(source.node, 0),
                _ => return false,
            }
            seen += 1;
        }
        false
    }
}
