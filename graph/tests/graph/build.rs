//! Short forms for graphs.

use graphmill_graph::Graph;
use graphmill_tensor::{Code, Result};
use graphmill_wire::tensorflow::attr_value::{ListValue, Value};
use graphmill_wire::tensorflow::op_def::ArgDef;
use graphmill_wire::tensorflow::{
    AttrValue, FunctionDef, FunctionDefLibrary, GraphDef, NameAttrList, NodeDef, OpDef, TensorProto, VersionDef,
};

pub const FLOAT: i32 = 1;
pub const INT32: i32 = 3;
pub const STRING: i32 = 7;

pub fn ty(number: i32) -> Value {
    Value::Type(number)
}

pub fn int(value: i64) -> Value {
    Value::I(value)
}

pub fn text(value: &str) -> Value {
    Value::S(value.to_owned().into())
}

pub fn ints(values: &[i64]) -> Value {
    Value::List(Box::new(ListValue { i: values.to_vec(), ..Default::default() }))
}

pub fn types(values: &[i32]) -> Value {
    Value::List(Box::new(ListValue { r#type: values.to_vec(), ..Default::default() }))
}

pub fn func(name: &str) -> Value {
    Value::Func(NameAttrList { name: name.to_owned(), ..Default::default() })
}

pub fn node<const N: usize>(name: &str, op: &str, inputs: &[&str], attrs: [(&str, Value); N]) -> NodeDef {
    NodeDef {
        name: name.to_owned(),
        op: op.to_owned(),
        input: inputs.iter().map(|&input| input.to_owned()).collect(),
        attr: attrs.into_iter().map(|(name, value)| (name.to_owned(), AttrValue { value: Some(value) })).collect(),
        ..Default::default()
    }
}

pub fn constant(name: &str) -> NodeDef {
    let value = TensorProto { dtype: FLOAT, float_val: vec![1.0], ..Default::default() };
    node(name, "Const", &[], [("dtype", ty(FLOAT)), ("value", Value::Tensor(Box::new(value)))])
}

pub fn identity(name: &str, inputs: &[&str]) -> NodeDef {
    node(name, "Identity", inputs, [("T", ty(FLOAT))])
}

pub fn enter(name: &str, input: &str, frame: &str) -> NodeDef {
    node(name, "Enter", &[input], [("T", ty(FLOAT)), ("frame_name", text(frame))])
}

pub fn graph(nodes: Vec<NodeDef>) -> GraphDef {
    let versions = Some(VersionDef { producer: 2474, ..Default::default() });
    GraphDef { node: nodes, versions, ..Default::default() }
}

pub fn with_functions(nodes: Vec<NodeDef>, functions: Vec<FunctionDef>) -> GraphDef {
    let library = Some(FunctionDefLibrary { function: functions, ..Default::default() });
    GraphDef { library, ..graph(nodes) }
}

/// A function from a float to a float, with this body.
pub fn function(name: &str, body: Vec<NodeDef>) -> FunctionDef {
    let arg = |name: &str| ArgDef { name: name.to_owned(), r#type: FLOAT, ..Default::default() };
    let signature =
        OpDef { name: name.to_owned(), input_arg: vec![arg("x")], output_arg: vec![arg("y")], ..Default::default() };
    FunctionDef {
        signature: Some(signature),
        node_def: body,
        ret: [("y".to_owned(), "r:y:0".to_owned())].into(),
        ..Default::default()
    }
}

pub fn import(nodes: Vec<NodeDef>) -> Result<Graph> {
    Graph::from_def(&graph(nodes))
}

#[track_caller]
pub fn fails<T>(result: Result<T>, code: Code, text: &str) {
    match result {
        Ok(_) => panic!("no error, where this was expected: {text}"),
        Err(error) => assert_eq!((error.code(), error.message()), (code, text)),
    }
}
