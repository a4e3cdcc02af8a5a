//! A graph, with what a strategy needs to know of it: variables, gradients, updates, initialisers, savers.

mod hand_written;
mod index;
mod meta_graph;
mod sparse;
mod update_ops;
mod updates;
mod variables;
mod wire;

pub use index::{GraphIndex, Source};
pub(crate) use meta_graph::meta_graph;
pub use update_ops::{UpdateKind, is_control_flow, is_variable, update_kind};
pub use variables::Variable;

use graphmill_wire::tensorflow::{GraphDef, SaverDef};
use updates::Search;

/// A graph for one device and what is known of it.
#[derive(Clone, Debug)]
pub struct GraphItem {
    graph: GraphDef,
    index: GraphIndex,
    variables: Vec<Variable>,
    updates: Vec<Update>,
    table_initializers: Vec<String>,
    savers: Vec<SaverDef>,
}

/// A gradient, as it is passed to an optimiser.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Gradient {
    /// One tensor of the variable's shape.
    Dense(String),
    /// Some rows of it (`IndexedSlices`).
    Sparse {
        /// The tensor with the numbers of the rows; they may repeat.
        indices: String,
        /// The tensor with the rows.
        values: String,
        /// The tensor with the shape of the whole; `None` if the graph does not hold it.
        dense_shape: Option<String>,
    },
}

/// How a variable learns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Update {
    /// The name of the variable's tensor.
    pub variable: String,
    /// The gradient.
    pub gradient: Gradient,
    /// The node that changes the variable.
    pub op: String,
    /// Nodes of the variables of the same shape that the optimiser keeps beside it, such as momenta.
    pub slots: Vec<String>,
}

impl Gradient {
    /// The key of AutoDist's graph items: one name, or three with semicolons between.
    pub fn key(&self) -> String {
        match self {
            Gradient::Dense(name) => name.clone(),
            Gradient::Sparse { indices, values, dense_shape } => {
                format!("{indices};{values};{}", dense_shape.as_deref().unwrap_or_default())
            }
        }
    }
}

impl GraphItem {
    /// The graph.
    pub fn graph(&self) -> &GraphDef {
        &self.graph
    }

    /// The edges of the graph.
    pub fn index(&self) -> &GraphIndex {
        &self.index
    }

    /// All variables, in the order of their making.
    pub fn variables(&self) -> &[Variable] {
        &self.variables
    }

    /// The variables that are trained.
    pub fn trainable_variables(&self) -> impl Iterator<Item = &Variable> {
        self.variables.iter().filter(|variable| variable.trainable)
    }

    /// The variable with this tensor name (`W:0`).
    pub fn variable(&self, name: &str) -> Option<&Variable> {
        self.variables.iter().find(|variable| variable.name == name)
    }

    /// The trained variables that something in the graph updates from a gradient, in order.
    pub fn updates(&self) -> &[Update] {
        &self.updates
    }

    /// How the variable with this tensor name learns; `None` if it does not.
    pub fn update(&self, variable: &str) -> Option<&Update> {
        self.updates.iter().find(|update| update.variable == variable)
    }

    /// Whether the variable's gradient has rows of it only.
    pub fn is_sparse(&self, variable: &str) -> bool {
        self.update(variable).is_some_and(|update| matches!(update.gradient, Gradient::Sparse { .. }))
    }

    /// The nodes that initialise lookup tables.
    pub fn table_initializers(&self) -> &[String] {
        &self.table_initializers
    }

    /// The nodes to run before the first step: those of variables, then those of tables.
    pub fn initializers(&self) -> impl Iterator<Item = &str> {
        let variables = self.variables.iter().map(|variable| variable.def.initializer_name.as_str());
        variables.chain(self.table_initializers.iter().map(String::as_str)).filter(|name| !name.is_empty())
    }

    /// The savers.
    pub fn savers(&self) -> &[SaverDef] {
        &self.savers
    }

    /// Whether this node assigns what a checkpoint holds.
    pub(crate) fn is_restored(&self, node: usize) -> bool {
        Search { graph: &self.graph, index: &self.index, variables: &self.variables }.is_restored(node)
    }

    /// Whether the handle of a variable feeds v1 control flow, so that the variable cannot be split.
    pub fn is_under_control_flow(&self, variable: &Variable) -> bool {
        self.index.data_consumers(variable.node).any(|consumer| is_control_flow(&self.graph.node[consumer].op))
    }
}
