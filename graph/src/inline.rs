//! Function bodies as nodes of the graph that calls them.

use crate::{ArgType, FunctionLibrary, OpDef};
use graphmill_tensor::{Result, invalid_argument, not_found};
use graphmill_wire::tensorflow::attr_value::Value;
use graphmill_wire::tensorflow::{AttrValue, FunctionDef, NodeDef};
use std::collections::{BTreeMap, HashMap, HashSet};

/// How a function is called.
pub(crate) struct Call<'a> {
    /// The function.
    pub function: &'a str,
    /// The types and numbers that the body leaves open.
    pub attrs: &'a BTreeMap<String, AttrValue>,
    /// What the names of the body's nodes begin with.
    pub prefix: &'a str,
    /// Where the arguments come from.
    pub args: &'a [String],
    /// A control input, `^name`, for nodes of the body that have no input at all.
    pub pivot: Option<&'a str>,
    /// The device of nodes that name none.
    pub device: &'a str,
}

/// A body as nodes of its caller's graph.
pub(crate) struct Body {
    pub nodes: Vec<NodeDef>,
    /// Where the results come from.
    pub results: Vec<String>,
    /// Control inputs, `^name`, for what must wait for the body's side effects.
    pub effects: Vec<String>,
}

/// The nodes of a function's body that its results or side effects need.
///
/// # Errors
/// `NOT_FOUND` if there is no such function, `INVALID_ARGUMENT` for a wrong number of arguments and edges that lead nowhere.
pub(crate) fn inline(library: &FunctionLibrary, call: &Call<'_>) -> Result<Body> {
    let name = call.function;
    let function = library.get(name).ok_or_else(|| not_found!("Function {name} is not defined."))?;
    let signature = &function.op;
    if signature.inputs.len() != call.args.len() {
        return Err(invalid_argument!(
            "Function {name} takes {} arguments, got {}",
            signature.inputs.len(),
            call.args.len()
        ));
    }
    let args = signature.inputs.iter().zip(call.args).map(|(arg, from)| (&*arg.name, from.as_str())).collect();
    let defs: HashMap<&str, &NodeDef> = function.def.node_def.iter().map(|node| (node.name.as_str(), node)).collect();
    let names = Names { library, defs, args, prefix: call.prefix, function: name };

    let needed = needed(&function.def, &names);
    let mut nodes = Vec::with_capacity(needed.len());
    for def in function.def.node_def.iter().filter(|def| needed.contains(def.name.as_str())) {
        let mut node = def.clone();
        node.name = format!("{}{}", call.prefix, def.name);
        for value in node.attr.values_mut() {
            bind(value, call.attrs, name)?;
        }
        node.input = def.input.iter().map(|input| names.input(input)).collect::<Result<_>>()?;
        if let (Some(pivot), true) = (call.pivot, node.input.is_empty()) {
            node.input.push(pivot.to_owned());
        }
        if node.device.is_empty() {
            node.device = call.device.to_owned();
        }
        nodes.push(node);
    }
    let results = signature.outputs.iter().map(|output| {
        let source = function.def.ret.get(&*output.name);
        names.input(source.ok_or_else(|| invalid_argument!("Function {name} does not return {}", output.name))?)
    });
    let effects = function.def.control_ret.values().filter(|node| names.defs.contains_key(node.as_str()));
    Ok(Body {
        nodes,
        results: results.collect::<Result<_>>()?,
        effects: effects.map(|node| format!("^{}{node}", call.prefix)).collect(),
    })
}

/// The names within a body, and what they become.
struct Names<'a> {
    library: &'a FunctionLibrary,
    defs: HashMap<&'a str, &'a NodeDef>,
    args: HashMap<&'a str, &'a str>,
    prefix: &'a str,
    function: &'a str,
}

impl Names<'_> {
    /// An input of a body's node, `arg`, `node:output:index` or `^node`, as an input in the caller's graph.
    fn input(&self, input: &str) -> Result<String> {
        if let Some(node) = input.strip_prefix('^') {
            return Ok(match self.args.get(node) {
                Some(source) => format!("^{}", source.split(':').next().unwrap_or(source)),
                None => format!("^{}{node}", self.prefix),
            });
        }
        let mut parts = input.split(':');
        let node = parts.next().unwrap_or_default();
        if let Some(source) = self.args.get(node) {
            return Ok((*source).to_owned());
        }
        let bad = || invalid_argument!("Function {} has an input '{input}' that leads nowhere", self.function);
        let def = self.defs.get(node).ok_or_else(bad)?;
        let output = parts.next().unwrap_or_default();
        let index: usize = parts.next().unwrap_or("0").parse().map_err(|_| bad())?;
        let op = self.library.op_def(&def.op).ok_or_else(|| crate::import::unknown_op(&def.op))?;
        let first = first_slot(op, def, output).ok_or_else(bad)?;
        Ok(format!("{}{node}:{}", self.prefix, first.checked_add(index).ok_or_else(bad)?))
    }
}

/// The first slot of an output argument.
fn first_slot(op: &OpDef, node: &NodeDef, output: &str) -> Option<usize> {
    let value = |attr: &str| {
        let own = node.attr.get(attr).and_then(|a| a.value.as_ref());
        own.or_else(|| op.attr(attr).and_then(|a| a.default.as_ref()).and_then(|a| a.value.as_ref()))
    };
    let mut slot = 0usize;
    for arg in &op.outputs {
        if &*arg.name == output {
            return Some(slot);
        }
        let count = match (&arg.ty, &arg.number_attr) {
            (ArgType::TypeListAttr(attr), _) => match value(attr)? {
                Value::List(list) => list.r#type.len(),
                _ => return None,
            },
            (_, Some(attr)) => match value(attr)? {
                Value::I(n) => usize::try_from(*n).ok()?,
                _ => return None,
            },
            _ => 1,
        };
        slot = slot.checked_add(count)?;
    }
    None
}

/// Puts the caller's value in the place of a placeholder.
fn bind(attr: &mut AttrValue, given: &BTreeMap<String, AttrValue>, function: &str) -> Result<()> {
    if let Some(Value::Placeholder(name)) = &attr.value {
        let value = given.get(name);
        *attr = value.ok_or_else(|| invalid_argument!("Function {function} needs a value for attr '{name}'"))?.clone();
    }
    Ok(())
}

/// Names of the nodes that results and side effects need.
fn needed<'a>(function: &'a FunctionDef, names: &Names<'a>) -> HashSet<&'a str> {
    let node_of = |input: &'a str| {
        let input = input.strip_prefix('^').unwrap_or(input);
        input.split(':').next().unwrap_or(input)
    };
    let stateful =
        function.node_def.iter().filter(|def| names.library.op_def(&def.op).is_some_and(|op| op.is_stateful));
    let mut queue: Vec<&str> = function.ret.values().map(|source| node_of(source)).collect();
    queue.extend(function.control_ret.values().map(String::as_str));
    queue.extend(stateful.map(|def| def.name.as_str()));
    let mut needed = HashSet::new();
    while let Some(name) = queue.pop() {
        if let Some(def) = names.defs.get(name)
            && needed.insert(name)
        {
            queue.extend(def.input.iter().map(|input| node_of(input)));
        }
    }
    needed
}
