//! Gradients of functions: what `SymbolicGradient` stands for.
//!
//! The gradient of a body is built backwards from its results, each node giving a `SymbolicGradient` of its own (reverse-mode
//! differentiation, as TensorFlow's core/common_runtime/gradients.cc does it); those of ops come from recipes.

mod recipe;

use crate::inline::{Body, Call, inline};
use crate::{Attrs, FunctionLibrary, validate};
use graphmill_tensor::{DType, Result, SlotType, internal, invalid_argument};
use graphmill_wire::tensorflow::attr_value::{ListValue, Value};
use graphmill_wire::tensorflow::{AttrValue, NameAttrList, NodeDef};
use std::collections::{HashMap, HashSet};

/// The op.
pub(crate) const OP: &str = "SymbolicGradient";

/// The function that computes a gradient, if it is one: given by the library for a function, or the function that a call calls.
pub(crate) fn called(library: &FunctionLibrary, function: &NameAttrList) -> Option<NameAttrList> {
    let gradient = library.gradient(&function.name)?;
    Some(NameAttrList { name: gradient.to_owned(), ..function.clone() })
}

/// The nodes of a gradient. `call` has the function, or the op, that is differentiated, and as arguments its arguments and the
/// gradients of its results.
///
/// # Errors
/// `NOT_FOUND` for an op whose gradient is not known, and what is wrong with the function's body.
pub(crate) fn expand(library: &FunctionLibrary, call: &Call<'_>) -> Result<Body> {
    if matches!(call.function, "PartitionedCall" | "StatefulPartitionedCall")
        && let Some(Value::Func(inner)) = call.attrs.get("f").and_then(|attr| attr.value.as_ref())
    {
        return expand(library, &Call { function: &inner.name, attrs: &inner.attr, ..*call });
    }
    if let Some(function) = library.get(call.function) {
        let types = validate::slot_types(&function.op, &Attrs::from_proto(call.attrs))?;
        return Backwards::new(library, call, &types.0, &types.1)?.build();
    }
    let (mut nodes, results) = recipe::nodes(call.function, call.attrs, call.args, call.prefix)?;
    for node in &mut nodes {
        call.settle(node);
    }
    Ok(Body { nodes, results, effects: Vec::new() })
}

/// A node of the forward body.
struct Forward {
    def: NodeDef,
    inputs: Vec<String>,
    input_types: Vec<SlotType>,
    output_types: Vec<SlotType>,
}

struct Backwards<'a> {
    call: &'a Call<'a>,
    args: Vec<String>,
    arg_types: &'a [SlotType],
    forward: Vec<Forward>,
    results: Vec<String>,
    /// For each output of a forward node or argument, the gradients that have arrived.
    arrived: HashMap<String, Vec<String>>,
    types: HashMap<String, DType>,
    nodes: Vec<NodeDef>,
}

/// The full name of an input: `a:0` for `a`.
fn full(input: &str) -> String {
    if input.contains(':') { input.to_owned() } else { format!("{input}:0") }
}

impl<'a> Backwards<'a> {
    fn new(
        library: &FunctionLibrary,
        call: &'a Call<'a>,
        arg_types: &'a [SlotType],
        result_types: &[SlotType],
    ) -> Result<Backwards<'a>> {
        let name = call.function;
        let Some((x, dy)) =
            call.args.split_at_checked(arg_types.len()).filter(|(_, dy)| dy.len() == result_types.len())
        else {
            return Err(invalid_argument!(
                "SymbolicGradient of {name} takes {} inputs, got {}",
                arg_types.len() + result_types.len(),
                call.args.len()
            ));
        };
        let mut nodes = Vec::new();
        let mut types = HashMap::new();
        let mut args = Vec::new();
        // Two arguments may come from one output; their gradients must not mix.
        for (i, (source, slot)) in x.iter().zip(arg_types).enumerate() {
            let mut node = NodeDef {
                name: format!("{}x_{i}", call.prefix),
                op: "Identity".to_owned(),
                input: vec![source.clone()],
                ..Default::default()
            };
            node.attr.insert("T".to_owned(), AttrValue { value: Some(Value::Type(slot.dtype.number())) });
            let output = format!("{}:0", node.name);
            types.insert(output.clone(), slot.dtype);
            args.push(output);
            nodes.push(node);
        }
        let prefix = format!("{}f/", call.prefix);
        let body = inline(library, &Call { prefix: &prefix, args: &args, ..*call })?;
        let mut forward = Vec::with_capacity(body.nodes.len());
        for def in body.nodes {
            let op = library.op_def(&def.op).ok_or_else(|| crate::import::unknown_op(&def.op))?;
            let mut attrs = Attrs::from_proto(&def.attr);
            for attr in &op.attrs {
                if let Some(default) = attr.default.as_ref().and_then(|default| default.value.as_ref())
                    && !attrs.has(&attr.name)
                {
                    attrs.set(&attr.name, default.clone());
                }
            }
            let (input_types, output_types) = validate::slot_types(op, &attrs)?;
            for (slot, ty) in output_types.iter().enumerate() {
                types.insert(format!("{}:{slot}", def.name), ty.dtype);
            }
            let inputs: Vec<String> = def.input.iter().filter(|i| !i.starts_with('^')).map(|i| full(i)).collect();
            if inputs.len() != input_types.len() {
                return Err(invalid_argument!("Node {} of function {name} has a wrong number of inputs", def.name));
            }
            let (input_types, output_types) = (input_types.to_vec(), output_types.to_vec());
            forward.push(Forward { def, inputs, input_types, output_types });
        }
        let results: Vec<String> = body.results.iter().map(|result| full(result)).collect();
        let mut arrived: HashMap<String, Vec<String>> = HashMap::new();
        for (result, gradient) in results.iter().zip(dy) {
            arrived.entry(result.clone()).or_default().push(gradient.clone());
        }
        Ok(Backwards { call, args, arg_types, forward, results, arrived, types, nodes })
    }

    /// The forward nodes that the results need, each behind those that it takes inputs from.
    fn order(&self) -> Vec<usize> {
        let index: HashMap<&str, usize> =
            self.forward.iter().enumerate().map(|(at, node)| (node.def.name.as_str(), at)).collect();
        let source = |input: &str| index.get(input.rsplit_once(':').map_or(input, |(node, _)| node)).copied();
        let mut done = vec![false; self.forward.len()];
        let mut open = vec![false; self.forward.len()];
        let mut order = Vec::with_capacity(self.forward.len());
        for root in self.results.iter().filter_map(|result| source(result)) {
            let mut stack = vec![(root, 0)];
            while let Some((at, next)) = stack.last_mut() {
                let at = *at;
                open[at] = true;
                match self.forward[at].inputs.get(*next) {
                    Some(input) => {
                        *next += 1;
                        // A node that is open already closes a loop, through which gradients do not go.
                        if let Some(source) = source(input).filter(|&source| !done[source] && !open[source]) {
                            stack.push((source, 0));
                        }
                    }
                    None => {
                        if !std::mem::replace(&mut done[at], true) {
                            order.push(at);
                        }
                        stack.pop();
                    }
                }
            }
        }
        order
    }

    fn add(&mut self, what: &str, op: &str, input: Vec<String>, attrs: Vec<(&str, Value)>) -> String {
        let name = format!("{}{what}_{}", self.call.prefix, self.nodes.len());
        let attr = attrs.into_iter().map(|(key, value)| (key.to_owned(), AttrValue { value: Some(value) })).collect();
        self.nodes.push(NodeDef { name: name.clone(), op: op.to_owned(), input, attr, ..Default::default() });
        name
    }

    /// The sum of the gradients that have arrived at an output; zeros if there are none.
    fn total(&mut self, output: &str) -> Result<String> {
        let dtype = self.types.get(output).copied();
        let dtype = dtype.ok_or_else(|| internal!("the gradient of {output} has no type"))?;
        let ty = Value::Type(dtype.number());
        let arrived = self.arrived.get(output).cloned().unwrap_or_default();
        match arrived.as_slice() {
            _ if dtype == DType::Bool => Ok(self.add("zeros", "ZerosLike", vec![output.to_owned()], vec![("T", ty)])),
            [] if dtype == DType::Resource => {
                let float = || Value::Type(DType::Float.number());
                let read = self.add("read", "ReadVariableOp", vec![output.to_owned()], vec![("dtype", float())]);
                Ok(self.add("zeros", "ZerosLike", vec![read], vec![("T", float())]))
            }
            [] => Ok(self.add("zeros", "ZerosLike", vec![output.to_owned()], vec![("T", ty)])),
            [only] => Ok(only.clone()),
            _ => {
                let n = Value::I(arrived.len() as i64);
                Ok(self.add("sum", "AddN", arrived, vec![("T", ty), ("N", n)]))
            }
        }
    }

    fn build(mut self) -> Result<Body> {
        for at in self.order().into_iter().rev() {
            let (name, op) = (self.forward[at].def.name.clone(), self.forward[at].def.op.clone());
            let outputs: Vec<String> =
                (0..self.forward[at].output_types.len()).map(|slot| format!("{name}:{slot}")).collect();
            let reached = outputs.iter().any(|output| self.arrived.contains_key(output));
            if !reached || self.forward[at].inputs.is_empty() || recipe::is_without_gradient(&op) {
                continue;
            }
            let dy = outputs.iter().map(|output| self.total(output)).collect::<Result<Vec<_>>>()?;
            let node = &self.forward[at];
            let numbers = |types: &[SlotType], resource: DType| {
                let number =
                    |slot: &SlotType| if slot.dtype == DType::Resource { resource } else { slot.dtype }.number();
                types.iter().map(number).collect::<Vec<i32>>()
            };
            let list = |r#type| Value::List(Box::new(ListValue { r#type, ..Default::default() }));
            let mut tin = numbers(&node.input_types, DType::Resource);
            tin.extend(numbers(&node.output_types, DType::Resource));
            let tout = numbers(&node.input_types, DType::Float);
            let f = NameAttrList { name: op, attr: node.def.attr.clone() };
            let sources = node.inputs.clone();
            let input = sources.iter().cloned().chain(dy).collect();
            let attrs = vec![("f", Value::Func(f)), ("Tin", list(tin)), ("Tout", list(tout))];
            let gradient = self.add("gradient", OP, input, attrs);
            for (slot, source) in sources.into_iter().enumerate() {
                self.arrived.entry(source).or_default().push(format!("{gradient}:{slot}"));
            }
        }
        let args = self.args.clone();
        let results = args.iter().map(|arg| self.total(arg)).collect::<Result<Vec<_>>>()?;
        debug_assert_eq!(results.len(), self.arg_types.len());
        let forward = self.forward.into_iter().map(|node| node.def);
        let mut nodes: Vec<NodeDef> = forward.chain(self.nodes).collect();
        keep_needed(&mut nodes, &results);
        for node in &mut nodes {
            self.call.settle(node);
        }
        Ok(Body { nodes, results, effects: Vec::new() })
    }
}

/// Drops the nodes that no result needs.
fn keep_needed(nodes: &mut Vec<NodeDef>, results: &[String]) {
    let index: HashMap<&str, usize> = nodes.iter().enumerate().map(|(at, node)| (node.name.as_str(), at)).collect();
    let node_of = |input: &str| {
        let input = input.strip_prefix('^').unwrap_or(input);
        index.get(input.rsplit_once(':').map_or(input, |(node, _)| node)).copied()
    };
    let mut needed = HashSet::new();
    let mut open: Vec<usize> = results.iter().filter_map(|result| node_of(result)).collect();
    while let Some(at) = open.pop() {
        if needed.insert(at) {
            open.extend(nodes[at].input.iter().filter_map(|input| node_of(input)));
        }
    }
    let mut at = 0;
    nodes.retain(|_| {
        at += 1;
        needed.contains(&(at - 1))
    });
}
