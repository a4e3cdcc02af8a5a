//! The functions that nodes of a graph may call.

use crate::{Node, OpDef, op_def};
use graphmill_tensor::{Result, invalid_argument};
use graphmill_wire::tensorflow::attr_value::Value;
use graphmill_wire::tensorflow::{
    AttrValue, FunctionDef, FunctionDefLibrary, GradientDef, NodeDef, RegisteredGradient,
};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Most functions that the text about a cycle names.
const MAX_NAMED: usize = 10;

/// A function: its message, and its signature as an op.
#[derive(Debug)]
pub struct Function {
    /// The body and what belongs to it.
    pub def: FunctionDef,
    /// What a node that calls it takes and gives.
    pub op: Arc<OpDef>,
}

/// Functions and gradients by name. Cheap to clone as far as bodies go: clones share them.
#[derive(Clone, Default, Debug)]
pub struct FunctionLibrary {
    functions: BTreeMap<Arc<str>, Arc<Function>>,
    gradients: BTreeMap<String, String>,
    registered_gradients: BTreeMap<String, String>,
}

impl FunctionLibrary {
    /// A library off the wire.
    ///
    /// # Errors
    /// As [`FunctionLibrary::extended`].
    pub fn from_proto(proto: &FunctionDefLibrary) -> Result<FunctionLibrary> {
        let empty = FunctionLibrary::default();
        Ok(empty.extended(proto)?.unwrap_or(empty))
    }

    /// This library for the wire.
    pub fn to_proto(&self) -> FunctionDefLibrary {
        let gradient = |(function, gradient): (&String, &String)| GradientDef {
            function_name: function.clone(),
            gradient_func: gradient.clone(),
        };
        let registered = |(op, gradient): (&String, &String)| RegisteredGradient {
            registered_op_type: op.clone(),
            gradient_func: gradient.clone(),
        };
        FunctionDefLibrary {
            function: self.functions.values().map(|f| f.def.clone()).collect(),
            gradient: self.gradients.iter().map(gradient).collect(),
            registered_gradients: self.registered_gradients.iter().map(registered).collect(),
        }
    }

    /// The function of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Function>> {
        self.functions.get(name)
    }

    /// All functions, sorted by name.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Arc<Function>)> {
        self.functions.iter().map(|(name, function)| (&**name, function))
    }

    /// The number of functions.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Whether there are no functions.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// The function that computes the gradient of a function.
    pub fn gradient(&self, function: &str) -> Option<&str> {
        self.gradients.get(function).map(String::as_str)
    }

    /// The function that computes the gradient of an op, as registered by name.
    pub fn registered_gradient(&self, op: &str) -> Option<&str> {
        self.registered_gradients.get(op).map(String::as_str)
    }

    /// The schema of an op, or the signature of a function of this library.
    pub fn op_def(&self, name: &str) -> Option<&Arc<OpDef>> {
        op_def(name).or_else(|| self.get(name).map(|function| &function.op))
    }

    /// The functions that nodes call or name in attributes, those that these call, and their gradients.
    pub fn reachable<'n>(&self, nodes: impl Iterator<Item = &'n Node>) -> FunctionLibrary {
        let mut names = Vec::new();
        for node in nodes {
            names.push(&*node.op.name);
            node.attrs.iter().for_each(|(_, value)| named_functions(value, &mut names));
        }
        self.closed_over(names)
    }

    fn closed_over<'n>(&'n self, mut names: Vec<&'n str>) -> FunctionLibrary {
        let mut seen = BTreeSet::new();
        let mut library = FunctionLibrary::default();
        while let Some(name) = names.pop() {
            let Some((key, function)) = self.functions.get_key_value(name) else { continue };
            if !seen.insert(name) {
                continue;
            }
            library.functions.insert(key.clone(), function.clone());
            for def in &function.def.node_def {
                names.push(&def.op);
                def.attr.values().for_each(|value| named_functions(value, &mut names));
            }
            if let Some(gradient) = self.gradients.get(name) {
                library.gradients.insert(name.to_owned(), gradient.clone());
                names.push(gradient);
            }
        }
        let registered = self.registered_gradients.iter().filter(|(_, gradient)| seen.contains(gradient.as_str()));
        library.registered_gradients = registered.map(|(op, gradient)| (op.clone(), gradient.clone())).collect();
        library
    }

    /// This library with more in it; `None` if everything is here already.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a function or gradient that is here already and is another one, a function with the name of an op,
    /// a malformed signature, and functions that call themselves outside of branches and loops, directly or through others.
    pub fn extended(&self, proto: &FunctionDefLibrary) -> Result<Option<FunctionLibrary>> {
        let mut library = self.clone();
        let mut changed = false;
        for def in &proto.function {
            changed |= library.add_function(def)?;
        }
        for gradient in &proto.gradient {
            changed |= library.add_gradient(gradient)?;
        }
        for gradient in &proto.registered_gradients {
            let op = gradient.registered_op_type.clone();
            changed |= library.registered_gradients.insert(op, gradient.gradient_func.clone()).is_none();
        }
        if !changed {
            return Ok(None);
        }
        library.check_calls()?;
        Ok(Some(library))
    }

    fn add_function(&mut self, def: &FunctionDef) -> Result<bool> {
        let signature = def.signature.as_ref().ok_or_else(|| invalid_argument!("A function has no signature"))?;
        let name = signature.name.as_str();
        if let Some(existing) = self.functions.get(name) {
            // Bytes settle what comparing cannot: a NaN differs from itself.
            if existing.def == *def || existing.def.encode_to_vec() == def.encode_to_vec() {
                return Ok(false);
            }
            return Err(invalid_argument!(
                "Cannot add function '{name}' because a different function with the same name already exists."
            ));
        }
        if op_def(name).is_some() {
            return Err(invalid_argument!(
                "Cannot add function '{name}' because an op with the same name already exists."
            ));
        }
        let op = Arc::new(OpDef::from_proto(signature)?);
        self.functions.insert(op.name.clone(), Arc::new(Function { def: def.clone(), op }));
        Ok(true)
    }

    fn add_gradient(&mut self, proto: &GradientDef) -> Result<bool> {
        let (function, gradient) = (&proto.function_name, &proto.gradient_func);
        if function == gradient {
            return Err(invalid_argument!("Function '{function}' cannot be its own gradient function"));
        }
        match self.gradients.get(function) {
            None => {
                self.gradients.insert(function.clone(), gradient.clone());
                Ok(true)
            }
            Some(existing) if existing == gradient => Ok(false),
            Some(existing) => Err(invalid_argument!(
                "Cannot assign gradient function '{gradient}' to '{function}' because it already has gradient function '{existing}'"
            )),
        }
    }

    /// Checks that no function calls itself unconditionally, which would never end. Depth-first with a stack of its own: chains
    /// of calls may be long.
    fn check_calls(&self) -> Result<()> {
        let names: Vec<&str> = self.functions.keys().map(|name| &**name).collect();
        let index: HashMap<&str, usize> = names.iter().enumerate().map(|(at, &name)| (name, at)).collect();
        let calls: Vec<Vec<usize>> = self
            .functions
            .values()
            .map(|function| {
                let called = function.def.node_def.iter().flat_map(direct_calls);
                called.filter_map(|name| index.get(name).copied()).collect()
            })
            .collect();

        #[derive(Clone, Copy, PartialEq)]
        enum State {
            New,
            Open,
            Done,
        }
        let mut states = vec![State::New; names.len()];
        for root in 0..names.len() {
            if states[root] != State::New {
                continue;
            }
            // Functions on the way here, each with the number of its calls that are dealt with.
            let mut path = vec![(root, 0)];
            states[root] = State::Open;
            while let Some((function, dealt)) = path.last_mut() {
                let function = *function;
                let Some(&called) = calls[function].get(*dealt) else {
                    states[function] = State::Done;
                    path.pop();
                    continue;
                };
                *dealt += 1;
                match states[called] {
                    State::Done => {}
                    State::New => {
                        states[called] = State::Open;
                        path.push((called, 0));
                    }
                    State::Open => {
                        let start = path.iter().position(|&(f, _)| f == called).unwrap_or(0);
                        let cycle: Vec<&str> = path[start..].iter().map(|&(f, _)| names[f]).collect();
                        return Err(endless(&cycle));
                    }
                }
            }
        }
        Ok(())
    }
}

/// The functions that a node of a body calls whenever it runs. Branches and loop bodies are not among them: recursion through
/// those may end.
fn direct_calls(node: &NodeDef) -> impl Iterator<Item = &str> {
    let by_attr = match node.op.as_str() {
        "PartitionedCall" | "StatefulPartitionedCall" | "RemoteCall" | "SymbolicGradient" => node.attr.get("f"),
        _ => None,
    };
    let called = by_attr.and_then(|attr| match &attr.value {
        Some(Value::Func(func)) => Some(func.name.as_str()),
        _ => None,
    });
    std::iter::once(node.op.as_str()).chain(called)
}

/// The functions that an attribute names, at any depth.
fn named_functions<'a>(value: &'a AttrValue, names: &mut Vec<&'a str>) {
    let functions = match &value.value {
        Some(Value::Func(function)) => std::slice::from_ref(function),
        Some(Value::List(list)) => list.func.as_slice(),
        _ => return,
    };
    for function in functions {
        names.push(&function.name);
        function.attr.values().for_each(|value| named_functions(value, names));
    }
}

fn endless(cycle: &[&str]) -> graphmill_tensor::Status {
    let first = cycle.first().copied().unwrap_or_default();
    let mut path = cycle.iter().take(MAX_NAMED).copied().collect::<Vec<_>>().join(" -> ");
    if cycle.len() > MAX_NAMED {
        path.push_str(" -> ...");
    }
    invalid_argument!("Function '{first}' calls itself without end: {path} -> {first}")
}
