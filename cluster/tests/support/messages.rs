//! Messages that tests send.

use graphmill_tensor::Tensor;
use graphmill_wire::tensorflow::attr_value::Value;
use graphmill_wire::tensorflow::{AttrValue, GraphDef, NodeDef, VersionDef};

/// Bytes with gRPC's header.
pub fn framed(message: &[u8]) -> Vec<u8> {
    let mut all = vec![0];
    all.extend((message.len() as u32).to_be_bytes());
    all.extend(message);
    all
}

/// A node without a device.
pub fn node(name: &str, op: &str, inputs: &[&str], attrs: &[(&str, Value)]) -> NodeDef {
    NodeDef {
        name: name.to_owned(),
        op: op.to_owned(),
        input: inputs.iter().map(|input| (*input).to_owned()).collect(),
        attr: attrs
            .iter()
            .map(|(name, value)| ((*name).to_owned(), AttrValue { value: Some(value.clone()) }))
            .collect(),
        ..Default::default()
    }
}

/// A graph of these nodes.
pub fn graph(nodes: Vec<NodeDef>) -> GraphDef {
    let versions = Some(VersionDef { producer: 2474, ..Default::default() });
    GraphDef { node: nodes, versions, ..Default::default() }
}

/// A constant.
pub fn constant(name: &str, tensor: &Tensor) -> NodeDef {
    let dtype = Value::Type(tensor.dtype().number());
    node(name, "Const", &[], &[("value", Value::Tensor(Box::new(tensor.to_proto()))), ("dtype", dtype)])
}
