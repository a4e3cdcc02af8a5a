//! Function bodies as nodes of the graph that calls them.

use crate::{ArgDef, ArgType, DeviceSpec, FunctionLibrary, OpDef};
use graphmill_tensor::{Result, invalid_argument, not_found};
use graphmill_wire::tensorflow::attr_value::Value;
use graphmill_wire::tensorflow::{AttrValue, FunctionDef, NodeDef};
use std::collections::{BTreeMap, HashMap, HashSet};

/// How a function is called.
#[derive(Clone, Copy)]
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
    /// The device that the call asks for, which nodes of the body get as far as they leave theirs open.
    pub device: &'a str,
    /// Whether nodes of the body are on the call's device whatever they ask for, as in functions that are called by their own name.
    pub single_device: bool,
}

impl Call<'_> {
    /// Makes a node run where the call does, and only if it does.
    pub(crate) fn settle(&self, node: &mut NodeDef) {
        if let (Some(pivot), true) = (self.pivot, node.input.is_empty()) {
            node.input.push(pivot.to_owned());
        }
        if self.single_device || node.device.is_empty() {
            self.device.clone_into(&mut node.device);
        } else if !self.device.is_empty()
            && let (Some(own), Some(around)) = (DeviceSpec::parse(&node.device), DeviceSpec::parse(self.device))
        {
            node.device = own.or(&around).to_string();
        }
    }
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
    let size = |arg: &ArgDef| {
        slots(signature, call.attrs, arg)
            .ok_or_else(|| invalid_argument!("Function {name} needs to know how many values '{}' stands for", arg.name))
    };
    let mut args = HashMap::with_capacity(signature.inputs.len());
    let mut first = 0usize;
    for arg in &signature.inputs {
        let end = first.saturating_add(size(arg)?);
        args.insert(&*arg.name, call.args.get(first..end).unwrap_or_default());
        first = end;
    }
    if first != call.args.len() {
        return Err(invalid_argument!("Function {name} takes {first} arguments, got {}", call.args.len()));
    }
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
        names.rename_attrs(&mut node);
        node.input = def.input.iter().map(|input| names.input(input)).collect::<Result<_>>()?;
        call.settle(&mut node);
        nodes.push(node);
    }
    let mut results = Vec::with_capacity(signature.outputs.len());
    for output in &signature.outputs {
        let source = function.def.ret.get(&*output.name);
        let source = source.ok_or_else(|| invalid_argument!("Function {name} does not return {}", output.name))?;
        for at in 0..size(output)? {
            results.push(names.slot(source, at)?);
        }
    }
    let effects = function.def.control_ret.values().filter(|node| names.defs.contains_key(node.as_str()));
    Ok(Body { nodes, results, effects: effects.map(|node| format!("^{}{node}", call.prefix)).collect() })
}

/// The names within a body, and what they become.
struct Names<'a> {
    library: &'a FunctionLibrary,
    defs: HashMap<&'a str, &'a NodeDef>,
    args: HashMap<&'a str, &'a [String]>,
    prefix: &'a str,
    function: &'a str,
}

impl Names<'_> {
    /// An input of a body's node, `arg`, `arg:index`, `node:output:index` or `^node`, as an input in the caller's graph.
    fn input(&self, input: &str) -> Result<String> {
        if let Some(node) = input.strip_prefix('^') {
            return Ok(match self.args.get(node) {
                Some(sources) => {
                    let source = sources.first().map_or("", String::as_str);
                    format!("^{}", source.split(':').next().unwrap_or(source))
                }
                None => format!("^{}{node}", self.prefix),
            });
        }
        self.slot(input, 0)
    }

    /// Makes frames of different calls different ones, and classes lead to the nodes that they named in the body.
    fn rename_attrs(&self, node: &mut NodeDef) {
        if matches!(node.op.as_str(), "Enter" | "RefEnter")
            && let Some(Value::S(frame)) = node.attr.get_mut("frame_name").and_then(|attr| attr.value.as_mut())
        {
            *frame = [self.prefix.as_bytes(), frame].concat().into();
        }
        let Some(Value::List(list)) = node.attr.get_mut("_class").and_then(|attr| attr.value.as_mut()) else {
            return;
        };
        for class in &mut list.s {
            let named = std::str::from_utf8(class).ok().and_then(|class| class.strip_prefix("loc:@"));
            let renamed = match named {
                Some(name) if self.defs.contains_key(name) => format!("loc:@{}{name}", self.prefix),
                Some(name) => match self.args.get(name).and_then(|sources| sources.first()) {
                    Some(source) => format!("loc:@{}", source.split(':').next().unwrap_or(source)),
                    None => continue,
                },
                None => continue,
            };
            *class = renamed.into();
        }
    }

    /// The slot `further` behind the one that a data input of the body names.
    fn slot(&self, input: &str, further: usize) -> Result<String> {
        let mut parts = input.split(':');
        let node = parts.next().unwrap_or_default();
        let bad = || invalid_argument!("Function {} has an input '{input}' that leads nowhere", self.function);
        let number = |text: Option<&str>| match text.unwrap_or("0").parse::<usize>() {
            Ok(number) => number.checked_add(further).ok_or_else(bad),
            Err(_) => Err(bad()),
        };
        if let Some(sources) = self.args.get(node) {
            return sources.get(number(parts.next())?).cloned().ok_or_else(bad);
        }
        let def = self.defs.get(node).ok_or_else(bad)?;
        let output = parts.next().unwrap_or_default();
        let index = number(parts.next())?;
        let op = self.library.op_def(&def.op).ok_or_else(|| crate::import::unknown_op(&def.op))?;
        let first = first_slot(op, def, output).ok_or_else(bad)?;
        Ok(format!("{}{node}:{}", self.prefix, first.checked_add(index).ok_or_else(bad)?))
    }
}

/// The first slot of an output argument.
fn first_slot(op: &OpDef, node: &NodeDef, output: &str) -> Option<usize> {
    let mut slot = 0usize;
    for arg in &op.outputs {
        if &*arg.name == output {
            return Some(slot);
        }
        slot = slot.checked_add(slots(op, &node.attr, arg)?)?;
    }
    None
}

/// The number of slots that an argument stands for.
fn slots(op: &OpDef, attrs: &BTreeMap<String, AttrValue>, arg: &ArgDef) -> Option<usize> {
    let value = |attr: &str| {
        let own = attrs.get(attr).and_then(|a| a.value.as_ref());
        own.or_else(|| op.attr(attr).and_then(|a| a.default.as_ref()).and_then(|a| a.value.as_ref()))
    };
    match (&arg.ty, &arg.number_attr) {
        (ArgType::TypeListAttr(attr), _) => match value(attr)? {
            Value::List(list) => Some(list.r#type.len()),
            _ => None,
        },
        (_, Some(attr)) => match value(attr)? {
            Value::I(n) => usize::try_from(*n).ok(),
            _ => None,
        },
        _ => Some(1),
    }
}

/// Puts the caller's value in the place of a placeholder, also in the attributes of functions that the value names.
fn bind(attr: &mut AttrValue, given: &BTreeMap<String, AttrValue>, function: &str) -> Result<()> {
    match &mut attr.value {
        Some(Value::Placeholder(name)) => {
            let value = given.get(name);
            let value =
                value.ok_or_else(|| invalid_argument!("Function {function} needs a value for attr '{name}'"))?;
            *attr = value.clone();
            Ok(())
        }
        Some(Value::Func(func)) => func.attr.values_mut().try_for_each(|value| bind(value, given, function)),
        Some(Value::List(list)) => list
            .func
            .iter_mut()
            .flat_map(|func| func.attr.values_mut())
            .try_for_each(|value| bind(value, given, function)),
        _ => Ok(()),
    }
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
