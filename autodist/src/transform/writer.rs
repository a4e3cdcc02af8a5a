//! The graph of one task as it is written.

use super::copies::Proxy;
use super::job::{Job, scope};
use super::nodes::{Emitter, constant, node};
use super::roles::{Learner, Roles};
use crate::item::Source;
use graphmill_tensor::{DType, Result};
use graphmill_wire::tensorflow::attr_value::Value;
use graphmill_wire::tensorflow::{AttrValue, NodeDef};
use std::collections::HashMap;

/// The graph of one task as it is written.
pub(super) struct Writer<'a> {
    pub job: &'a Job<'a>,
    pub roles: &'a Roles<'a>,
    /// Nodes in loops that take a shared variable's value for its handle, with the variable.
    pub in_loops: HashMap<usize, usize>,
    /// Copies for reading, by variable.
    pub proxies: HashMap<usize, Proxy>,
    pub out: Emitter,
}

/// Where added nodes stand: what their names begin with, and their device.
#[derive(Clone)]
pub(super) struct Spot {
    pub scope: String,
    pub device: String,
}

impl Spot {
    /// For nodes about a variable.
    pub fn of(learner: &Learner<'_>, device: &str) -> Spot {
        Spot { scope: format!("autodist-between/{}", learner.op_name()), device: device.to_owned() }
    }

    pub fn name(&self, name: &str) -> String {
        format!("{}/{name}", self.scope)
    }
}

/// A type as the value of an attribute.
pub(super) fn ty(dtype: DType) -> Value {
    Value::Type(dtype.number())
}

/// Bytes as the value of an attribute.
pub(super) fn bytes(text: &str) -> Value {
    Value::S(text.as_bytes().to_vec().into())
}

/// The control input of a node.
pub(super) fn after(node: &str) -> String {
    format!("^{node}")
}

impl Writer<'_> {
    /// The name of a node of a replica; what all replicas share is the first one's.
    pub fn node_name(&self, node: usize, replica: usize) -> String {
        let replica = if self.roles.shared(node).is_some() { 0 } else { replica };
        format!("{}/{}", scope(replica), self.roles.item.graph().node[node].name)
    }

    /// The name of a tensor of a replica.
    pub fn tensor(&self, source: Source, replica: usize) -> String {
        let name = self.node_name(source.node, replica);
        match source.slot {
            None => format!("^{name}"),
            Some(0) => name,
            Some(slot) => format!("{name}:{slot}"),
        }
    }

    /// Adds a node at a spot.
    pub fn add(
        &mut self,
        spot: &Spot,
        name: &str,
        op: &str,
        inputs: &[&str],
        attrs: &[(&str, Value)],
    ) -> Result<String> {
        let mut def = node(op, spot.name(name), &spot.device, inputs.iter().map(|&input| input.to_owned()).collect());
        set(&mut def, attrs);
        self.out.add(def)
    }

    /// Adds a node that waits for others.
    pub fn group(&mut self, spot: &Spot, name: &str, nodes: &[String]) -> Result<String> {
        let inputs: Vec<String> = nodes.iter().map(|node| after(node)).collect();
        self.out.add(node("NoOp", spot.name(name), &spot.device, inputs))
    }

    /// Adds a constant whole number in any type.
    pub fn number(&mut self, spot: &Spot, name: &str, dtype: DType, value: i64) -> Result<String> {
        if matches!(dtype, DType::Int32 | DType::Int64) {
            return self.out.add(constant(spot.name(name), &spot.device, dtype, &[value], true));
        }
        let whole =
            self.out.add(constant(spot.name(&format!("{name}/value")), &spot.device, DType::Int64, &[value], true))?;
        self.cast(spot, name, &whole, DType::Int64, dtype)
    }

    /// Adds a constant vector.
    pub fn vector(&mut self, spot: &Spot, name: &str, dtype: DType, values: &[i64]) -> Result<String> {
        self.out.add(constant(spot.name(name), &spot.device, dtype, values, false))
    }

    pub fn cast(&mut self, spot: &Spot, name: &str, input: &str, from: DType, to: DType) -> Result<String> {
        self.add(spot, name, "Cast", &[input], &[("SrcT", ty(from)), ("DstT", ty(to))])
    }

    /// Adds the sum of tensors of one shape.
    pub fn sum(&mut self, spot: &Spot, name: &str, dtype: DType, inputs: &[String]) -> Result<String> {
        let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
        self.add(spot, name, "AddN", &inputs, &[("T", ty(dtype)), ("N", Value::I(inputs.len() as i64))])
    }

    /// Adds the quotient of a tensor and a whole number.
    pub fn divide(&mut self, spot: &Spot, name: &str, dtype: DType, input: &str, by: usize) -> Result<String> {
        let by = self.number(spot, &format!("{name}/by"), dtype, by as i64)?;
        self.add(spot, name, "RealDiv", &[input, &by], &[("T", ty(dtype))])
    }

    /// Adds tensors behind each other on axis 0.
    pub fn concat(&mut self, spot: &Spot, name: &str, dtype: DType, inputs: &[&str]) -> Result<String> {
        let axis = self.number(spot, &format!("{name}/axis"), DType::Int32, 0)?;
        let count = inputs.len() as i64;
        let inputs: Vec<&str> = inputs.iter().copied().chain([axis.as_str()]).collect();
        self.add(
            spot,
            name,
            "ConcatV2",
            &inputs,
            &[("T", ty(dtype)), ("Tidx", ty(DType::Int32)), ("N", Value::I(count))],
        )
    }

    /// Adds the rows of a tensor that `indices`, of 32 bits, name.
    pub fn gather(&mut self, spot: &Spot, name: &str, dtype: DType, input: &str, indices: &str) -> Result<String> {
        let axis = self.number(spot, &format!("{name}/axis"), DType::Int32, 0)?;
        let attrs = [("Tparams", ty(dtype)), ("Tindices", ty(DType::Int32)), ("Taxis", ty(DType::Int32))];
        self.add(spot, name, "GatherV2", &[input, indices, &axis], &attrs)
    }

    /// Adds the number of elements of a vector.
    pub fn size(&mut self, spot: &Spot, name: &str, dtype: DType, input: &str) -> Result<String> {
        self.add(spot, name, "Size", &[input], &[("T", ty(dtype)), ("out_type", ty(DType::Int32))])
    }
}

/// Sets attributes of a node.
pub(super) fn set(node: &mut NodeDef, attrs: &[(&str, Value)]) {
    for (name, value) in attrs {
        node.attr.insert((*name).to_owned(), AttrValue { value: Some(value.clone()) });
    }
}
