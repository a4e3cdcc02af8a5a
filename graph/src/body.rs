//! A function's body as a graph of its own.

use crate::inline::{Call, inline};
use crate::lower::lower_within;
use crate::{Attrs, Graph, ImportOptions, OpDef, SlotTypes, gradient, validate};
use graphmill_tensor::{Result, invalid_argument, not_found};
use graphmill_wire::tensorflow::attr_value::{ListValue, Value};
use graphmill_wire::tensorflow::{AttrValue, GraphDef, NameAttrList, NodeDef};
use std::collections::{BTreeMap, HashSet};

/// The body of a function under given attributes.
#[derive(Debug)]
pub struct FunctionBody {
    /// The nodes that results and side effects need, with an `_Arg` for each argument and a `_Retval` for each result, whose
    /// `index` says which one. Functional control flow is lowered.
    pub graph: Graph,
    /// The types of the arguments, lists expanded.
    pub args: SlotTypes,
    /// The types of the results, lists expanded.
    pub results: SlotTypes,
}

/// Makes the body of a function of `graph`'s library, with the types and numbers that the function's signature leaves open from
/// the attributes of `function`.
///
/// # Errors
/// `NOT_FOUND` if there is no such function, `INVALID_ARGUMENT` for attributes that are missing or do not fit and for malformed
/// bodies, and what [`crate::lower`] returns.
pub fn instantiate(graph: &Graph, function: &NameAttrList) -> Result<FunctionBody> {
    let library = graph.library();
    let name = function.name.as_str();
    if let (gradient::OP, Some(Value::Func(inner))) = (name, function.attr.get("f").and_then(|f| f.value.as_ref())) {
        return gradient_body(graph, inner);
    }
    let definition = library.get(name).ok_or_else(|| not_found!("Function {name} is not defined."))?;
    let mut attrs = Attrs::from_proto(&function.attr);
    for attr in &definition.op.attrs {
        if let Some(default) = attr.default.as_ref().and_then(|default| default.value.as_ref())
            && !attrs.has(&attr.name)
        {
            attrs.set(&attr.name, default.clone());
        }
    }
    let (args, results) = validate::slot_types(&definition.op, &attrs).map_err(|error| {
        invalid_argument!("Function {name} is not instantiated with all it needs: {}", error.message())
    })?;

    let taken: HashSet<&str> = definition.def.node_def.iter().map(|node| node.name.as_str()).collect();
    let free = |name: String| {
        let numbered = (1usize..).map(|n| format!("{name}_{n}"));
        std::iter::once(name.clone()).chain(numbered).find(|name| !taken.contains(name.as_str())).unwrap_or(name)
    };
    let mut nodes = Vec::with_capacity(args.len() + results.len() + definition.def.node_def.len());
    let arg_names: Vec<String> = names(&definition.op.inputs, args.len(), &attrs).into_iter().map(free).collect();
    for (index, (name, slot)) in arg_names.iter().zip(&args).enumerate() {
        nodes.push(port("_Arg", name, slot.dtype.number(), index, Vec::new()));
    }
    let call = Call {
        function: name,
        attrs: &attrs.to_proto(),
        prefix: "",
        args: &arg_names,
        pivot: None,
        device: "",
        single_device: false,
    };
    let body = inline(library, &call)?;
    nodes.extend(body.nodes);
    let result_names = names(&definition.op.outputs, results.len(), &attrs);
    for (index, (source, slot)) in body.results.into_iter().zip(&results).enumerate() {
        let name = result_names.get(index).map_or("", String::as_str);
        nodes.push(port("_Retval", &free(format!("{name}_RetVal")), slot.dtype.number(), index, vec![source]));
    }
    let def = GraphDef { node: nodes, versions: Some(graph.versions().clone()), ..Default::default() };
    let mut body = Graph::like(graph);
    body.extend_with(def, ImportOptions { allow_internal_names: true, ..Default::default() })?;
    Ok(FunctionBody { graph: lower_within(body, Some(name))?, args, results })
}

/// The gradient of a function as a function: of its arguments and the gradients of its results.
fn gradient_body(graph: &Graph, function: &NameAttrList) -> Result<FunctionBody> {
    let name = function.name.as_str();
    let op = graph.library().op_def(name).ok_or_else(|| not_found!("Function {name} is not defined."))?;
    let (args, results) = signature(op, &with_defaults(op, function))?;
    let inputs: SlotTypes = args.iter().chain(&results).copied().collect();
    let types = |slots: &SlotTypes| {
        let r#type = slots.iter().map(|slot| slot.dtype.number()).collect();
        AttrValue { value: Some(Value::List(Box::new(ListValue { r#type, ..Default::default() }))) }
    };
    let mut nodes = Vec::with_capacity(inputs.len() + args.len() + 1);
    for (index, slot) in inputs.iter().enumerate() {
        nodes.push(port("_Arg", &format!("x_{index}"), slot.dtype.number(), index, Vec::new()));
    }
    nodes.push(NodeDef {
        name: "gradient".to_owned(),
        op: gradient::OP.to_owned(),
        input: (0..inputs.len()).map(|index| format!("x_{index}")).collect(),
        attr: BTreeMap::from([
            ("f".to_owned(), AttrValue { value: Some(Value::Func(function.clone())) }),
            ("Tin".to_owned(), types(&inputs)),
            ("Tout".to_owned(), types(&args)),
        ]),
        ..Default::default()
    });
    for (index, slot) in args.iter().enumerate() {
        let source = vec![format!("gradient:{index}")];
        nodes.push(port("_Retval", &format!("dx_{index}"), slot.dtype.number(), index, source));
    }
    let def = GraphDef { node: nodes, versions: Some(graph.versions().clone()), ..Default::default() };
    let mut body = Graph::like(graph);
    body.extend_with(def, ImportOptions { allow_internal_names: true, ..Default::default() })?;
    Ok(FunctionBody { graph: lower_within(body, None)?, args: inputs, results: args })
}

/// The attributes that a function is called with, and the defaults of others.
fn with_defaults(op: &OpDef, function: &NameAttrList) -> Attrs {
    let mut attrs = Attrs::from_proto(&function.attr);
    for attr in &op.attrs {
        if let Some(default) = attr.default.as_ref().and_then(|default| default.value.as_ref())
            && !attrs.has(&attr.name)
        {
            attrs.set(&attr.name, default.clone());
        }
    }
    attrs
}

fn signature(op: &OpDef, attrs: &Attrs) -> Result<(SlotTypes, SlotTypes)> {
    validate::slot_types(op, attrs).map_err(|error| {
        invalid_argument!("Function {} is not instantiated with all it needs: {}", op.name, error.message())
    })
}

/// A name for each slot of some arguments: that of the argument, with a number where it has more slots than one.
fn names(args: &[crate::ArgDef], slots: usize, attrs: &Attrs) -> Vec<String> {
    let mut names = Vec::with_capacity(slots);
    for arg in args {
        match (&arg.ty, &arg.number_attr) {
            (crate::ArgType::TypeListAttr(attr), _) => {
                let count = attrs.dtype_list(attr).map_or(0, |list| list.len());
                names.extend((0..count).map(|i| format!("{}_{i}", arg.name)));
            }
            (_, Some(attr)) => {
                let count = attrs.int(attr).unwrap_or(0);
                names.extend((0..count).map(|i| format!("{}_{i}", arg.name)));
            }
            _ => names.push(arg.name.to_string()),
        }
    }
    names
}

fn port(op: &str, name: &str, dtype: i32, index: usize, input: Vec<String>) -> NodeDef {
    let value = |value| AttrValue { value: Some(value) };
    let attr = BTreeMap::from([
        ("T".to_owned(), value(Value::Type(dtype))),
        ("index".to_owned(), value(Value::I(index as i64))),
    ]);
    NodeDef { name: name.to_owned(), op: op.to_owned(), input, attr, ..Default::default() }
}
