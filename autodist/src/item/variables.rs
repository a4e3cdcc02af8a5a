//! The variables of a graph.

use super::index::GraphIndex;
use super::update_ops::is_variable;
use graphmill_graph::{EndpointName, PartialShape};
use graphmill_tensor::{DType, Result, invalid_argument};
use graphmill_wire::tensorflow::attr_value::Value;
use graphmill_wire::tensorflow::{GraphDef, NodeDef, VariableDef};

/// A variable.
#[derive(Clone, PartialEq, Debug)]
pub struct Variable {
    /// The name of its tensor: `W:0`.
    pub name: String,
    /// The number of its node.
    pub node: usize,
    /// The type of its elements.
    pub dtype: DType,
    /// Its shape, as far as the graph says.
    pub shape: PartialShape,
    /// Whether it is trained.
    pub trainable: bool,
    /// The names of the nodes around it.
    pub def: VariableDef,
}

impl Variable {
    /// Finds the variable that a `VariableDef` describes.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the graph has no such variable or its attributes are damaged.
    pub(super) fn new(def: VariableDef, graph: &GraphDef, index: &GraphIndex) -> Result<Variable> {
        let name = EndpointName::parse(&def.variable_name);
        let node = index.find(name.node).filter(|&node| is_variable(&graph.node[node].op) && name.slot == Some(0));
        let Some(node) = node else {
            return Err(invalid_argument!(
                "The collections name the variable \"{}\", which is no variable of the graph; export both together",
                def.variable_name
            ));
        };
        let (dtype, shape) = attributes(&graph.node[node])?;
        Ok(Variable { name: def.variable_name.clone(), node, dtype, shape, trainable: def.trainable, def })
    }

    /// The name of its node.
    pub fn op_name(&self) -> &str {
        EndpointName::parse(&self.name).node
    }

    /// The number of bytes.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` unless the shape is known.
    pub fn bytes(&self) -> Result<u64> {
        let elements = self.shape.to_shape().map(|shape| shape.num_elements());
        let bytes = elements.and_then(|n| u64::try_from(n).ok()?.checked_mul(self.dtype.size() as u64));
        bytes.ok_or_else(|| {
            invalid_argument!(
                "Variable \"{}\" has the shape {}, so its size is not known; give it a full shape to balance loads",
                self.name,
                self.shape
            )
        })
    }
}

/// The element type and the shape of a variable's node.
pub(super) fn attributes(node: &NodeDef) -> Result<(DType, PartialShape)> {
    let value = |name: &str| node.attr.get(name).and_then(|attr| attr.value.as_ref());
    let dtype = match value("dtype") {
        Some(Value::Type(number)) => DType::from_number(*number),
        _ => None,
    };
    let Some(dtype) = dtype else {
        return Err(invalid_argument!("Variable \"{}\" has no valid attribute \"dtype\"", node.name));
    };
    let shape = match value("shape") {
        Some(Value::Shape(shape)) => PartialShape::from_proto(shape)?,
        _ => PartialShape::unknown(),
    };
    Ok((dtype, shape))
}
