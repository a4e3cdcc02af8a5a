//! Functional control flow and calls, as the control flow of version 1.
//!
//! `While` becomes a frame of `Enter`, `Merge`, `Switch`, `NextIteration` and `Exit`; `If` and `Case` become switches and merges around
//! their branches; calls become the nodes of the function's body.

use crate::call_def::{control_of, declared, split_inputs, type_list};
use crate::inline::{Body, Call, inline};
use crate::{FunctionLibrary, Graph, ImportOptions, Node, gradient};
use graphmill_tensor::{DType, Result, invalid_argument, resource_exhausted};
use graphmill_wire::tensorflow::attr_value::Value;
use graphmill_wire::tensorflow::{AttrValue, GraphDef, NameAttrList, NodeDef};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Functions within functions that are followed.
const MAX_DEPTH: usize = 500;
/// Nodes that a graph may grow to.
const MAX_NODES: usize = 4 << 20;
/// Iterations in progress where a loop does not say.
const PARALLEL_ITERATIONS: i64 = 10;

/// The graph without functional control flow and calls. A function that is being expanded already (recursion under a condition)
/// stays a call. Nodes that stay keep the devices that they are assigned to; new ones ask for the device that TensorFlow has them
/// ask for: what takes a value into a loop or branch asks for that of the value's source, the rest for that of the node expanded.
///
/// # Errors
/// `NOT_FOUND` for a function that is not in the library, `INVALID_ARGUMENT` for a malformed one or too deep nesting, and
/// `RESOURCE_EXHAUSTED` if the graph becomes too large.
pub fn lower(graph: Graph) -> Result<Graph> {
    lower_within(graph, None)
}

/// As [`lower`]; `function` is the one whose body the graph is.
pub(crate) fn lower_within(graph: Graph, function: Option<&str>) -> Result<Graph> {
    let calls = |node: &Node| Kind::of(node.op_name(), |name| graph.library().get(name).is_some()).is_some();
    if !graph.nodes().any(|(_, node)| calls(node)) {
        return Ok(graph);
    }
    let with_device = graph.nodes().filter(|(_, node)| !node.device.is_empty());
    let mut lowering = Lowering {
        graph: &graph,
        nodes: Vec::new(),
        work: Vec::new(),
        renamed: HashMap::new(),
        devices: with_device.map(|(_, node)| (node.name.to_string(), node.device.to_string())).collect(),
    };
    let within = function.map(|function| Rc::new(Within { function: function.to_owned(), depth: 1, around: None }));
    // What the new nodes ask for follows from what the old ones asked for, wherever these were placed.
    let requested = |node: &Node| NodeDef { device: node.device.to_string(), ..graph.node_to_def(node) };
    let nodes = graph.nodes().map(|(_, node)| requested(node));
    lowering.work = nodes.map(|def| Item { def, within: within.clone() }).collect();
    while let Some(item) = lowering.work.pop() {
        if lowering.nodes.len() + lowering.work.len() > MAX_NODES {
            return Err(resource_exhausted!(
                "The graph has more than {MAX_NODES} nodes once its functions are expanded"
            ));
        }
        let name = item.def.name.clone();
        lowering.expand(item).map_err(|error| error.at_node(&name))?;
    }
    let node = lowering.finish();
    let def = GraphDef { node, versions: Some(graph.versions().clone()), ..Default::default() };
    let mut lowered = Graph::like(&graph);
    lowered.extend_with(def, ImportOptions { allow_internal_names: true, ..Default::default() })?;
    for (_, node) in graph.nodes().filter(|(_, node)| !node.assigned_device.is_empty()) {
        if let Some(id) = lowered.find(&node.name) {
            lowered.node_mut(id).assigned_device = node.assigned_device.clone();
        }
    }
    Ok(lowered)
}

/// What is expanded.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    While,
    If,
    Case,
    Call,
    Gradient,
}

impl Kind {
    fn of(op: &str, is_function: impl Fn(&str) -> bool) -> Option<Kind> {
        match op {
            "While" | "StatelessWhile" => Some(Kind::While),
            "If" | "StatelessIf" => Some(Kind::If),
            "Case" | "StatelessCase" => Some(Kind::Case),
            "PartitionedCall" | "StatefulPartitionedCall" => Some(Kind::Call),
            gradient::OP => Some(Kind::Gradient),
            _ => is_function(op).then_some(Kind::Call),
        }
    }
}

/// The functions within which a node stands, innermost first.
struct Within {
    function: String,
    depth: usize,
    around: Option<Rc<Within>>,
}

struct Item {
    def: NodeDef,
    within: Option<Rc<Within>>,
}

impl Item {
    fn is_within(&self, function: &str) -> bool {
        let mut within = self.within.as_ref();
        while let Some(this) = within {
            if this.function == function {
                return true;
            }
            within = this.around.as_ref();
        }
        false
    }
}

struct Lowering<'a> {
    graph: &'a Graph,
    nodes: Vec<NodeDef>,
    work: Vec<Item>,
    /// Outputs and control outputs of nodes that are gone: `name:slot` or `^name`, and what stands for them.
    renamed: HashMap<String, String>,
    /// What nodes ask for that ask for a device.
    devices: HashMap<String, String>,
}

impl Lowering<'_> {
    fn expand(&mut self, item: Item) -> Result<()> {
        let library = self.graph.library();
        let Some(kind) = Kind::of(&item.def.op, |name| library.get(name).is_some()) else {
            self.nodes.push(item.def);
            return Ok(());
        };
        if !is_to_be_expanded(&item.def, kind) {
            self.nodes.push(item.def);
            return Ok(());
        }
        let functions = functions(&item.def, kind)?;
        if functions.iter().any(|f| item.is_within(&f.name)) {
            self.nodes.push(item.def);
            return Ok(());
        }
        match (kind, functions.as_slice()) {
            (Kind::While, [cond, body]) => self.expand_while(&item, cond, body),
            (Kind::Call, [function]) => self.expand_call(&item, function, false),
            (Kind::Gradient, [function]) => match gradient::called(library, function) {
                Some(gradient) => self.expand_call(&item, &gradient, false),
                None => self.expand_call(&item, function, true),
            },
            (Kind::If, [then, other]) => self.expand_branches(&item, "cond", &[other, then], false),
            (Kind::Case, branches) => {
                self.expand_branches(&item, "branch_index", &branches.iter().collect::<Vec<_>>(), true)
            }
            _ => Err(invalid_argument!("Op {} has a wrong number of functions", item.def.op)),
        }
    }

    /// Adds a function's body; its nodes are looked at in their turn.
    fn add_body(&mut self, item: &Item, call: &Call<'_>) -> Result<Body> {
        self.add_nodes(item, call, inline)
    }

    fn add_nodes(
        &mut self,
        item: &Item,
        call: &Call<'_>,
        make: impl FnOnce(&FunctionLibrary, &Call<'_>) -> Result<Body>,
    ) -> Result<Body> {
        let depth = item.within.as_ref().map_or(1, |w| w.depth + 1);
        if depth > MAX_DEPTH {
            return Err(invalid_argument!("Functions call each other more than {MAX_DEPTH} deep"));
        }
        let mut body = make(self.graph.library(), call)?;
        let within = Rc::new(Within { function: call.function.to_owned(), depth, around: item.within.clone() });
        let nodes = std::mem::take(&mut body.nodes);
        for node in nodes.iter().filter(|node| !node.device.is_empty()) {
            self.devices.insert(node.name.clone(), node.device.clone());
        }
        self.work.extend(nodes.into_iter().map(|def| Item { def, within: Some(within.clone()) }));
        Ok(body)
    }

    /// A call, or with `gradient` the gradient of the function.
    fn expand_call(&mut self, item: &Item, function: &NameAttrList, gradient: bool) -> Result<()> {
        let def = &item.def;
        let (data, control) = split_inputs(def);
        let start = format!("{}/_start", def.name);
        // Bodies may have nodes without inputs; these run where, and only if, the call does.
        if let Some(first) = data.first() {
            let inputs = std::iter::once(first.clone()).chain(control).collect();
            let dtype = match def.op.as_str() {
                gradient::OP => type_list(def, "Tin")?.first().copied().unwrap_or_default(),
                _ => self.argument_type(function, 0)?,
            };
            let device = self.device_of(first);
            self.add_on(device, &start, "Identity", inputs, &[("T", Value::Type(dtype))]);
        } else {
            self.add(def, &start, "NoOp", control, &[]);
        }
        let prefix = format!("{}/", def.name);
        let call = Call {
            function: &function.name,
            attrs: &function.attr,
            prefix: &prefix,
            args: &data,
            pivot: Some(&format!("^{start}")),
            device: &def.device,
            single_device: !gradient && &*function.name == def.op.as_str(),
        };
        let body = match gradient {
            true => self.add_nodes(item, &call, gradient::expand)?,
            false => self.add_body(item, &call)?,
        };
        let mut waits: Vec<String> = body.results.iter().map(|r| control_of(r)).collect();
        waits.extend(body.effects);
        waits.push(format!("^{start}"));
        self.finish_node(def, body.results, waits);
        Ok(())
    }

    fn expand_while(&mut self, item: &Item, cond: &NameAttrList, body: &NameAttrList) -> Result<()> {
        let def = &item.def;
        let name = &def.name;
        let (data, control) = split_inputs(def);
        let types = type_list(def, "T")?;
        if data.is_empty() || types.len() != data.len() {
            return Err(invalid_argument!("A loop needs a type for each of its variables, and at least one"));
        }
        let parallel = match def.attr.get("parallel_iterations").and_then(|a| a.value.as_ref()) {
            Some(Value::I(n)) => *n,
            _ => PARALLEL_ITERATIONS,
        };
        let part = |what: &str, i: usize| format!("{name}/_{what}_{i}");
        for (i, (source, &dtype)) in data.iter().zip(&types).enumerate() {
            let inputs = std::iter::once(source.clone()).chain(control.iter().cloned()).collect();
            let frame = Value::S(name.clone().into_bytes().into());
            let attrs = [("T", Value::Type(dtype)), ("frame_name", frame), ("parallel_iterations", Value::I(parallel))];
            let device = self.device_of(source);
            self.add_on(device.clone(), &part("enter", i), "Enter", inputs, &attrs);
            let ends = vec![part("enter", i), part("next", i)];
            let attrs = [("T", Value::Type(dtype)), ("N", Value::I(2))];
            self.add_on(device, &part("merge", i), "Merge", ends, &attrs);
        }
        let cond_pivot = format!("{name}/_cond_pivot");
        self.add(def, &cond_pivot, "NoOp", vec![format!("^{}", part("merge", 0))], &[]);
        let args: Vec<String> = (0..data.len()).map(|i| part("merge", i)).collect();
        let prefix = format!("{name}/cond/_0/");
        let pivot = format!("^{cond_pivot}");
        let call = Call {
            function: &cond.name,
            attrs: &cond.attr,
            prefix: &prefix,
            args: &args,
            pivot: Some(&pivot),
            device: &def.device,
            single_device: false,
        };
        let condition = self.add_body(item, &call)?;
        let holds =
            condition.results.first().ok_or_else(|| invalid_argument!("The condition of a loop gives nothing"))?;
        let holds = self.truth(def, &cond.name, holds.clone())?;
        let loop_cond = format!("{name}/_loop_cond");
        let inputs = std::iter::once(holds).chain(condition.effects).collect();
        self.add(def, &loop_cond, "LoopCond", inputs, &[]);
        for (i, &dtype) in types.iter().enumerate() {
            let inputs = vec![part("merge", i), loop_cond.clone()];
            let attrs = [("T", Value::Type(dtype))];
            let device = self.device_of(&part("enter", i));
            self.add_on(device.clone(), &part("switch", i), "Switch", inputs, &attrs);
            self.add_on(device, &part("exit", i), "Exit", vec![part("switch", i)], &attrs);
        }
        let body_pivot = format!("{name}/_body_pivot");
        let first = vec![format!("{}:1", part("switch", 0))];
        self.add(def, &body_pivot, "Identity", first, &[("T", Value::Type(types[0]))]);
        let args: Vec<String> = (0..data.len()).map(|i| format!("{}:1", part("switch", i))).collect();
        let prefix = format!("{name}/body/_1/");
        let pivot = format!("^{body_pivot}");
        let call =
            Call { function: &body.name, attrs: &body.attr, prefix: &prefix, args: &args, pivot: Some(&pivot), ..call };
        let round = self.add_body(item, &call)?;
        if round.results.len() != types.len() {
            return Err(invalid_argument!("The body of a loop must give a value for each of the loop's variables"));
        }
        for (i, (result, &dtype)) in round.results.into_iter().zip(&types).enumerate() {
            // The next iteration begins behind the side effects of this one.
            let inputs = std::iter::once(result).chain(round.effects.iter().cloned()).collect();
            let device = self.device_of(&part("enter", i));
            self.add_on(device, &part("next", i), "NextIteration", inputs, &[("T", Value::Type(dtype))]);
        }
        let exits: Vec<String> = (0..types.len()).map(|i| part("exit", i)).collect();
        let waits = exits.iter().map(|exit| format!("^{exit}")).collect();
        self.finish_node(def, exits, waits);
        Ok(())
    }

    /// `If` and `Case`: the branch with the number that `selector` gives; for `If`, 0 is the branch not taken when it holds.
    fn expand_branches(
        &mut self,
        item: &Item,
        selector: &str,
        branches: &[&NameAttrList],
        by_index: bool,
    ) -> Result<()> {
        let def = &item.def;
        let name = &def.name;
        let (mut data, control) = split_inputs(def);
        let types = type_list(def, "Tin")?;
        let out_types = type_list(def, "Tout")?;
        if data.len() != types.len() + 1 || branches.is_empty() {
            return Err(invalid_argument!("Op {} needs {selector} and a type for each other input", def.op));
        }
        let mut selector = data.remove(0);
        if !by_index && let Some(Value::Type(dtype)) = def.attr.get("Tcond").and_then(|a| a.value.as_ref()) {
            selector = self.as_bool(def, *dtype, selector);
        }
        let switch = |lowering: &mut Self, what: String, source: String, dtype: i32, device: String| {
            let inputs = [source, selector.clone()].into_iter().chain(control.iter().cloned()).collect();
            let mut attrs = vec![("T", Value::Type(dtype))];
            let op = if by_index { "_SwitchN" } else { "Switch" };
            if by_index {
                attrs.push(("num_outs", Value::I(branches.len() as i64)));
            }
            lowering.add_on(device, &what, op, inputs, &attrs);
        };
        let selector_type = if by_index { DType::Int32 } else { DType::Bool }.number();
        let pivot = format!("{name}/_pivot");
        switch(self, pivot.clone(), selector.clone(), selector_type, def.device.clone());
        for (i, (source, &dtype)) in data.iter().zip(&types).enumerate() {
            let device = self.device_of(source);
            switch(self, format!("{name}/_switch_{i}"), source.clone(), dtype, device);
        }
        let mut results = Vec::new();
        let mut ends = Vec::new();
        for (k, branch) in branches.iter().enumerate() {
            let own_pivot = format!("{name}/_pivot_{k}");
            let selector_attr = [("T", Value::Type(selector_type))];
            self.add(def, &own_pivot, "Identity", vec![format!("{pivot}:{k}")], &selector_attr);
            let args: Vec<String> = (0..data.len()).map(|i| format!("{name}/_switch_{i}:{k}")).collect();
            let call = Call {
                function: &branch.name,
                attrs: &branch.attr,
                prefix: &format!("{name}/branch/_{k}/"),
                args: &args,
                pivot: Some(&format!("^{own_pivot}")),
                device: &def.device,
                single_device: false,
            };
            let body = self.add_body(item, &call)?;
            if body.results.len() != out_types.len() {
                return Err(invalid_argument!("A branch of {} gives a wrong number of values", def.op));
            }
            let end = format!("{name}/_end_{k}");
            let inputs = std::iter::once(own_pivot).chain(body.effects).collect();
            self.add(def, &end, "Identity", inputs, &selector_attr);
            ends.push(end);
            results.push(body.results);
        }
        let n = Value::I(branches.len() as i64);
        let mut outputs = Vec::new();
        for (i, &dtype) in out_types.iter().enumerate() {
            let merge = format!("{name}/_merge_{i}");
            let inputs = results.iter().map(|branch| branch[i].clone()).collect();
            self.add(def, &merge, "Merge", inputs, &[("T", Value::Type(dtype)), ("N", n.clone())]);
            outputs.push(merge);
        }
        let executed = format!("{name}/_executed");
        self.add(def, &executed, "Merge", ends, &[("T", Value::Type(selector_type)), ("N", n)]);
        let mut waits: Vec<String> = outputs.iter().map(|output| format!("^{output}")).collect();
        waits.push(format!("^{executed}"));
        self.finish_node(def, outputs, waits);
        Ok(())
    }

    /// Stands the results of an expansion in for the outputs of the node, and a `NoOp` for its control output.
    fn finish_node(&mut self, def: &NodeDef, results: Vec<String>, waits: Vec<String>) {
        let done = format!("{}/_done", def.name);
        self.add(def, &done, "NoOp", waits, &[]);
        for (slot, result) in results.into_iter().enumerate() {
            self.renamed.insert(format!("{}:{slot}", def.name), result);
        }
        self.renamed.insert(format!("^{}", def.name), format!("^{done}"));
    }

    /// The type that a function declares for an argument.
    fn argument_type(&self, function: &NameAttrList, at: usize) -> Result<i32> {
        let signature = self.graph.library().get(&function.name).and_then(|f| f.def.signature.as_ref());
        let arg = signature.and_then(|s| s.input_arg.get(at));
        declared(arg, &function.attr)
            .ok_or_else(|| invalid_argument!("Function {} has no type for argument {at}", function.name))
    }

    /// The condition of a loop as a truth value.
    fn truth(&mut self, def: &NodeDef, function: &str, value: String) -> Result<String> {
        let signature = self.graph.library().get(function).and_then(|f| f.def.signature.as_ref());
        let dtype = declared(signature.and_then(|s| s.output_arg.first()), &BTreeMap::new());
        Ok(self.as_bool(def, dtype.unwrap_or(DType::Bool.number()), value))
    }

    fn as_bool(&mut self, def: &NodeDef, dtype: i32, value: String) -> String {
        if dtype == DType::Bool.number() {
            return value;
        }
        let name = format!("{}/_to_bool", def.name);
        self.add(def, &name, "ToBool", vec![value], &[("T", Value::Type(dtype))]);
        name
    }

    /// What the source of an input asks for.
    fn device_of(&self, input: &str) -> String {
        let name = input.split(':').next().unwrap_or(input);
        self.devices.get(name).cloned().unwrap_or_default()
    }

    /// Adds a node that asks for the same device as another one.
    fn add(&mut self, like: &NodeDef, name: &str, op: &str, input: Vec<String>, attrs: &[(&str, Value)]) {
        self.add_on(like.device.clone(), name, op, input, attrs);
    }

    fn add_on(&mut self, device: String, name: &str, op: &str, input: Vec<String>, attrs: &[(&str, Value)]) {
        if !device.is_empty() {
            self.devices.insert(name.to_owned(), device.clone());
        }
        let attr = attrs.iter().map(|(k, v)| ((*k).to_owned(), AttrValue { value: Some(v.clone()) })).collect();
        self.nodes.push(NodeDef {
            name: name.to_owned(),
            op: op.to_owned(),
            input,
            device,
            attr,
            ..Default::default()
        });
    }

    /// All nodes, with inputs that lead to what stands for the nodes that are gone.
    fn finish(self) -> Vec<NodeDef> {
        let mut nodes = self.nodes;
        for node in &mut nodes {
            for input in &mut node.input {
                // A replacement may be the output of another node that is gone; each step leads deeper into functions.
                for _ in 0..=MAX_DEPTH {
                    let plain = !input.starts_with('^') && !input.contains(':');
                    let key = if plain { format!("{input}:0") } else { input.clone() };
                    match self.renamed.get(&key) {
                        Some(replacement) => *input = replacement.clone(),
                        None => break,
                    }
                }
            }
        }
        nodes
    }
}

/// Whether a node is one of those that become others. TensorFlow's clients mark functional control flow which is to; what they do not
/// mark stays, and so does a call that wants an executor of its own.
fn is_to_be_expanded(def: &NodeDef, kind: Kind) -> bool {
    let attr = |name: &str| def.attr.get(name).and_then(|attr| attr.value.as_ref());
    match kind {
        Kind::While | Kind::If | Kind::Case => matches!(attr("_lower_using_switch_merge"), Some(Value::B(true))),
        Kind::Call => !matches!(attr("executor_type"), Some(Value::S(executor)) if !executor.is_empty()),
        Kind::Gradient => true,
    }
}

/// The functions that a node calls, in the order of its attributes' meaning.
fn functions(def: &NodeDef, kind: Kind) -> Result<Vec<NameAttrList>> {
    let one = |attr: &str| match def.attr.get(attr).and_then(|a| a.value.as_ref()) {
        Some(Value::Func(function)) => Ok(function.clone()),
        _ => Err(invalid_argument!("Op {} has no function '{attr}'", def.op)),
    };
    match kind {
        Kind::While => Ok(vec![one("cond")?, one("body")?]),
        Kind::If => Ok(vec![one("then_branch")?, one("else_branch")?]),
        Kind::Case => match def.attr.get("branches").and_then(|a| a.value.as_ref()) {
            Some(Value::List(list)) => Ok(list.func.clone()),
            _ => Err(invalid_argument!("Op {} has no branches", def.op)),
        },
        Kind::Call if def.op.ends_with("PartitionedCall") => Ok(vec![one("f")?]),
        Kind::Gradient => Ok(vec![one("f")?]),
        Kind::Call => Ok(vec![NameAttrList { name: def.op.clone(), attr: def.attr.clone() }]),
    }
}
