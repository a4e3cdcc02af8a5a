//! What travels along an edge of the graph.

use crate::Variable;
use graphmill_tensor::{Result, Tensor, internal};
use std::sync::Arc;

/// The value on an edge.
#[derive(Clone, Debug, Default)]
pub enum Value {
    /// Nothing: not yet produced, consumed, or dead.
    #[default]
    None,
    /// A tensor.
    Tensor(Tensor),
    /// A reference to a variable, as `VariableV2` and `Assign` give out.
    Ref(Arc<Variable>),
}

impl Value {
    /// Whether there is no value.
    pub fn is_none(&self) -> bool {
        matches!(self, Value::None)
    }

    /// The tensor: of a reference, what the variable holds at this moment.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if the variable holds nothing yet, `INTERNAL` if there is no value.
    pub fn snapshot(&self) -> Result<Tensor> {
        match self {
            Value::Tensor(tensor) => Ok(tensor.clone()),
            Value::Ref(variable) => variable.snapshot(),
            Value::None => Err(internal!("an input has no value")),
        }
    }
}

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Value {
        Value::Tensor(tensor)
    }
}
