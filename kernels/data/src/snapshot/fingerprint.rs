//! A number by which a dataset is known again when a program runs the next time: of its ops, attributes, constants and functions.
//! Names that differ from one graph to the next do not count. TensorFlow has other numbers.

use crate::recipe::{Recipe, recipe_of};
use graphmill_graph::FunctionLibrary;
use graphmill_runtime::{hash64, hash64_combine};
use graphmill_tensor::{DType, Tensor};
use graphmill_wire::tensorflow::attr_value::Value as AttrKind;
use graphmill_wire::tensorflow::{AttrValue, NameAttrList};
use prost::Message;
use std::collections::BTreeMap;

/// How deep functions are followed that call each other.
const DEPTH: u32 = 100;

/// The number of a dataset.
pub(super) fn fingerprint(recipe: &Recipe) -> u64 {
    let functions = recipe.functions();
    let library = functions.as_ref().map(|functions| &**functions.graph().library());
    let own = hash64_combine(hash64(recipe.op().as_bytes()), of_attrs(&recipe.attrs().to_proto(), library, 0));
    recipe.inputs().iter().fold(own, |hash, input| hash64_combine(hash, of_tensor(input)))
}

fn of_tensor(tensor: &Tensor) -> u64 {
    if let Some(recipe) = recipe_of(tensor) {
        return fingerprint(recipe);
    }
    match tensor.dtype() {
        // The names of resources are made up anew in every session.
        DType::Resource | DType::Variant => hash64(tensor.dtype().name().as_bytes()),
        _ => hash64(&tensor.to_proto().encode_to_vec()),
    }
}

fn of_attrs(attrs: &BTreeMap<String, AttrValue>, library: Option<&FunctionLibrary>, depth: u32) -> u64 {
    let counted = attrs.iter().filter(|(name, _)| !name.starts_with('_') && *name != "metadata");
    counted.fold(0, |hash, (name, attr)| {
        let value = match &attr.value {
            Some(AttrKind::Func(function)) => of_function(function, library, depth),
            Some(AttrKind::List(list)) if !list.func.is_empty() => {
                list.func.iter().fold(0, |hash, f| hash64_combine(hash, of_function(f, library, depth)))
            }
            _ => hash64(&attr.encode_to_vec()),
        };
        hash64_combine(hash, hash64_combine(hash64(name.as_bytes()), value))
    })
}

fn of_function(function: &NameAttrList, library: Option<&FunctionLibrary>, depth: u32) -> u64 {
    let attrs = of_attrs(&function.attr, library, depth);
    hash64_combine(attrs, of_body(&function.name, library, depth))
}

fn of_body(name: &str, library: Option<&FunctionLibrary>, depth: u32) -> u64 {
    let found = library.filter(|_| depth < DEPTH).and_then(|library| library.get(name));
    let Some(function) = found else { return hash64(name.as_bytes()) };
    let mut hash = 0;
    for node in &function.def.node_def {
        let op = of_body(&node.op, library, depth + 1);
        let inputs = node
            .input
            .iter()
            .fold(hash64(node.name.as_bytes()), |hash, input| hash64_combine(hash, hash64(input.as_bytes())));
        let own = hash64_combine(op, hash64_combine(inputs, of_attrs(&node.attr, library, depth + 1)));
        hash = hash64_combine(hash, own);
    }
    let results: BTreeMap<&String, &String> = function.def.ret.iter().collect();
    results.into_iter().fold(hash, |hash, (_, value)| hash64_combine(hash, hash64(value.as_bytes())))
}
