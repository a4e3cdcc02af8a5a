//! Nodes of rewritten graphs.

use graphmill_tensor::{DType, Result, already_exists};
use graphmill_wire::tensorflow::attr_value::{ListValue, Value};
use graphmill_wire::tensorflow::tensor_shape_proto::Dim;
use graphmill_wire::tensorflow::{AttrValue, NodeDef, TensorProto, TensorShapeProto};
use std::collections::HashSet;

/// The nodes of a graph that is being written.
pub(super) struct Emitter {
    nodes: Vec<NodeDef>,
    names: HashSet<String>,
}

impl Emitter {
    /// Nothing yet; these names belong to nodes of the old graph.
    pub fn new<'a>(reserved: impl Iterator<Item = &'a str>) -> Emitter {
        Emitter { nodes: Vec::new(), names: reserved.map(str::to_owned).collect() }
    }

    /// Keeps a node of the old graph, or puts one in its place.
    pub fn keep(&mut self, node: NodeDef) {
        self.nodes.push(node);
    }

    /// Adds a node of a new name, which it returns.
    pub fn add(&mut self, node: NodeDef) -> Result<String> {
        if !self.names.insert(node.name.clone()) {
            return Err(already_exists!(
                "A split variable needs the name \"{}\", which another node of the graph has; rename that node",
                node.name
            ));
        }
        let name = node.name.clone();
        self.nodes.push(node);
        Ok(name)
    }

    /// Adds a constant vector of whole numbers.
    pub fn vector(&mut self, name: String, device: &str, dtype: DType, values: &[i64]) -> Result<String> {
        self.add(constant(name, device, dtype, values, false))
    }

    /// Adds a constant whole number.
    pub fn scalar(&mut self, name: String, device: &str, dtype: DType, value: i64) -> Result<String> {
        self.add(constant(name, device, dtype, &[value], true))
    }

    /// All nodes.
    pub fn into_nodes(self) -> Vec<NodeDef> {
        self.nodes
    }
}

/// A node without attributes.
pub(super) fn node(op: &str, name: String, device: &str, input: Vec<String>) -> NodeDef {
    NodeDef { name, op: op.to_owned(), input, device: device.to_owned(), ..NodeDef::default() }
}

/// What may be written after a node.
pub(super) trait WithAttr {
    /// The same with an attribute more.
    fn with(self, name: &str, value: Value) -> Self;

    /// The same with an attribute that is a type.
    fn with_type(self, name: &str, dtype: DType) -> Self;
}

impl WithAttr for NodeDef {
    fn with(mut self, name: &str, value: Value) -> NodeDef {
        self.attr.insert(name.to_owned(), AttrValue { value: Some(value) });
        self
    }

    fn with_type(self, name: &str, dtype: DType) -> NodeDef {
        self.with(name, Value::Type(dtype.number()))
    }
}

/// A constant of `int64` or else `int32`.
pub(super) fn constant(name: String, device: &str, dtype: DType, values: &[i64], is_scalar: bool) -> NodeDef {
    let dims = if is_scalar { vec![] } else { vec![values.len() as u64] };
    let mut tensor = TensorProto { dtype: dtype.number(), tensor_shape: Some(shape(&dims)), ..TensorProto::default() };
    if dtype == DType::Int64 {
        tensor.int64_val = values.to_vec();
    } else {
        tensor.int_val = values.iter().map(|&value| i32::try_from(value).unwrap_or(i32::MAX)).collect();
    }
    node("Const", name, device, vec![]).with_type("dtype", dtype).with("value", Value::Tensor(Box::new(tensor)))
}

/// A shape for an attribute.
pub(super) fn shape(dims: &[u64]) -> TensorShapeProto {
    let dim = dims.iter().map(|&size| Dim { size: i64::try_from(size).unwrap_or(i64::MAX), name: String::new() });
    TensorShapeProto { dim: dim.collect(), unknown_rank: false }
}

/// Makes a copied node one of a part: colocated with the part instead of the variable, and of unknown shape.
pub(super) fn move_to_part(node: &mut NodeDef, variables: &[(String, String)]) {
    node.attr.remove("_output_shapes");
    let Some(Value::List(list)) = node.attr.get_mut("_class").and_then(|attr| attr.value.as_mut()) else { return };
    let ListValue { s: classes, .. } = &mut **list;
    for class in classes {
        for (variable, part) in variables {
            if **class == *format!("loc:@{variable}").as_bytes() {
                *class = format!("loc:@{part}").into_bytes().into();
            }
        }
    }
}
