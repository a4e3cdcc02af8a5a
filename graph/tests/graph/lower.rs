//! Functions and functional control flow become nodes of the graph.

use graphmill_graph::{Graph, lower};
use graphmill_tensor::{Code, Result};
use graphmill_wire::tensorflow::attr_value::{ListValue, Value};
use graphmill_wire::tensorflow::op_def::ArgDef;
use graphmill_wire::tensorflow::{
    AttrValue, FunctionDef, FunctionDefLibrary, GraphDef, NameAttrList, NodeDef, OpDef, VersionDef,
};

const INT32: i32 = 3;
const BOOL: i32 = 10;

fn node(name: &str, op: &str, inputs: &[&str], attrs: &[(&str, Value)]) -> NodeDef {
    NodeDef {
        name: name.into(),
        op: op.into(),
        input: inputs.iter().map(|s| (*s).to_owned()).collect(),
        attr: attrs.iter().map(|(k, v)| ((*k).to_owned(), AttrValue { value: Some(v.clone()) })).collect(),
        ..Default::default()
    }
}

/// What clients mark functional control flow with that is to become nodes.
const LOWER: (&str, Value) = ("_lower_using_switch_merge", Value::B(true));

fn call(name: &str) -> Value {
    Value::Func(NameAttrList { name: name.into(), ..Default::default() })
}

fn types(list: &[i32]) -> Value {
    Value::List(Box::new(ListValue { r#type: list.to_vec(), ..Default::default() }))
}

/// A function from an int32 `x` to `y`.
fn function(name: &str, out: i32, nodes: Vec<NodeDef>, result: &str) -> FunctionDef {
    let arg = |name: &str, dtype| ArgDef { name: name.into(), r#type: dtype, ..Default::default() };
    FunctionDef {
        signature: Some(OpDef {
            name: name.into(),
            input_arg: vec![arg("x", INT32)],
            output_arg: vec![arg("y", out)],
            ..Default::default()
        }),
        node_def: nodes,
        ret: [("y".to_owned(), result.to_owned())].into(),
        ..Default::default()
    }
}

fn lowered(nodes: Vec<NodeDef>, functions: Vec<FunctionDef>) -> Result<Graph> {
    let def = GraphDef {
        node: nodes,
        library: Some(FunctionDefLibrary { function: functions, ..Default::default() }),
        versions: Some(VersionDef { producer: 1800, ..Default::default() }),
        ..Default::default()
    };
    lower(Graph::from_def(&def)?)
}

fn placeholder() -> NodeDef {
    node("p", "Placeholder", &[], &[("dtype", Value::Type(INT32))])
}

fn add(name: &str, inputs: &[&str]) -> NodeDef {
    node(name, "AddV2", inputs, &[("T", Value::Type(INT32))])
}

fn partitioned(name: &str, input: &str, function: &str) -> NodeDef {
    let one = types(&[INT32]);
    node(name, "PartitionedCall", &[input], &[("Tin", one.clone()), ("Tout", one), ("f", call(function))])
}

fn inputs(graph: &Graph, name: &str) -> Vec<String> {
    let node = graph.node(graph.find(name).unwrap_or_else(|| panic!("no node {name}")));
    node.inputs.iter().map(|&e| graph.endpoint_name(e)).collect()
}

#[test]
fn a_graph_without_functions_stays_as_it_is() {
    let graph = lowered(vec![placeholder(), add("a", &["p", "p"])], vec![]).unwrap();
    assert_eq!(graph.len(), 2);
}

#[test]
fn a_call_becomes_the_body() {
    let double = function("double", INT32, vec![add("sum", &["x", "x"]), add("unused", &["x", "x"])], "sum:z:0");
    let nodes = vec![placeholder(), partitioned("c", "p", "double"), add("a", &["c", "c:0"])];
    let graph = lowered(nodes, vec![double]).unwrap();
    assert_eq!(inputs(&graph, "a"), ["c/sum:0", "c/sum:0"]);
    assert_eq!(inputs(&graph, "c/sum"), ["p:0", "p:0"]);
    assert!(graph.find("c").is_none() && graph.find("c/unused").is_none());
}

#[test]
fn a_loop_becomes_a_frame() {
    let one =
        AttrValue { value: Some(Value::Tensor(Box::new(graphmill_tensor::Tensor::scalar(1i32).unwrap().to_proto()))) };
    let mut constant = node("one", "Const", &[], &[("dtype", Value::Type(INT32))]);
    constant.attr.insert("value".into(), one);
    let less = node("less", "Less", &["x", "one:output:0"], &[("T", Value::Type(INT32))]);
    let cond = function("cond", BOOL, vec![constant.clone(), less], "less:z:0");
    let body = function("body", INT32, vec![constant, add("next", &["x", "one:output:0"])], "next:z:0");
    let attrs = [("T", types(&[INT32])), ("cond", call("cond")), ("body", call("body")), LOWER];
    let nodes = vec![placeholder(), node("w", "While", &["p"], &attrs), add("a", &["w", "w"])];
    let unmarked = vec![placeholder(), node("w", "While", &["p"], &attrs[..3])];
    assert!(lowered(unmarked, vec![cond.clone(), body.clone()]).unwrap().find("w").is_some());
    let graph = lowered(nodes, vec![cond, body]).unwrap();
    assert_eq!(inputs(&graph, "a"), ["w/_exit_0:0", "w/_exit_0:0"]);
    assert_eq!(inputs(&graph, "w/_next_0"), ["w/body/_1/next:0"]);
    let frames = graphmill_graph::frames(&graph).unwrap();
    for name in ["w/cond/_0/one", "w/body/_1/one", "w/body/_1/next", "w/_next_0"] {
        assert_ne!(frames.of(graph.find(name).unwrap()).index(), 0, "{name}");
    }
}

#[test]
fn missing_functions_and_wrong_signatures_are_refused() {
    let two = function("two", INT32, vec![], "x");
    let mut with_two_inputs = partitioned("c", "p", "two");
    with_two_inputs.input.push("p".into());
    with_two_inputs.attr.insert("Tin".into(), AttrValue { value: Some(types(&[INT32, INT32])) });
    let error = lowered(vec![placeholder(), with_two_inputs], vec![two]).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    let broken = function("broken", INT32, vec![add("sum", &["x", "nowhere:z:0"])], "sum:z:0");
    let error = lowered(vec![placeholder(), partitioned("c", "p", "broken")], vec![broken]).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument, "{error}");
    let no_result = function("no_result", INT32, vec![add("sum", &["x", "x"])], "sum:z:7");
    assert!(
        lowered(vec![placeholder(), partitioned("c", "p", "no_result"), add("a", &["c", "c"])], vec![no_result])
            .is_err()
    );
}

#[test]
fn a_long_chain_of_calls_ends_with_an_error() {
    let mut functions = vec![function("f0", INT32, vec![], "x")];
    for i in 1..10_000 {
        let name = format!("f{i}");
        let inner = partitioned("call", "x", &format!("f{}", i - 1));
        functions.push(function(&name, INT32, vec![inner], "call:output:0"));
    }
    let error = lowered(vec![placeholder(), partitioned("c", "p", "f9999")], functions.clone()).unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument);
    assert!(error.message().contains("deep"), "{error}");
    let graph = lowered(vec![placeholder(), partitioned("c", "p", "f50"), add("a", &["c", "c"])], functions).unwrap();
    assert_eq!(inputs(&graph, "a"), ["p:0", "p:0"]);
}

#[test]
fn recursion_under_a_condition_stays_a_call() {
    let less = node("less", "Less", &["x", "x"], &[("T", Value::Type(INT32))]);
    let one = types(&[INT32]);
    let attrs = [
        ("Tcond", Value::Type(BOOL)),
        ("Tin", one.clone()),
        ("Tout", one),
        ("then_branch", call("again")),
        ("else_branch", call("again")),
        LOWER,
    ];
    let branch = node("branch", "If", &["less:z:0", "x"], &attrs);
    let again = function("again", INT32, vec![less, branch], "branch:output:0");
    let graph = lowered(vec![placeholder(), partitioned("c", "p", "again")], vec![again]).unwrap();
    assert!(graph.find("c/branch").is_some());
}

#[test]
fn the_gradient_of_a_function_becomes_that_of_its_nodes() {
    let square = function("square", INT32, vec![node("sq", "Square", &["x"], &[("T", Value::Type(INT32))])], "sq:y:0");
    let one = types(&[INT32]);
    let attrs = |f: &str| [("Tin", types(&[INT32, INT32])), ("Tout", one.clone()), ("f", call(f))];
    let nodes =
        |f: &str| vec![placeholder(), node("g", "SymbolicGradient", &["p", "p"], &attrs(f)), add("a", &["g", "g"])];
    let graph = lowered(nodes("square"), vec![square.clone()]).unwrap();
    let ops: Vec<&str> = graph.nodes().map(|(_, node)| &*node.op.name).filter(|op| *op == "Mul").collect();
    assert_eq!(ops.len(), 2, "the gradient of a square is two products");
    assert!(graph.nodes().all(|(_, node)| &*node.op.name != "SymbolicGradient" && &*node.op.name != "Square"));
    let unknown =
        function("unknown", INT32, vec![node("inv", "Invert", &["x"], &[("T", Value::Type(INT32))])], "inv:y:0");
    let error = lowered(nodes("unknown"), vec![unknown]).unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    assert!(error.message().starts_with("No gradient defined for op: Invert"), "{error}");
}

#[test]
fn a_body_may_have_nodes_of_any_name() {
    let body = vec![
        node("start", "Identity", &["x"], &[("T", Value::Type(INT32))]),
        node("done", "AddV2", &["start:output:0", "x"], &[("T", Value::Type(INT32))]),
    ];
    let function = function("f", INT32, body, "done:z:0");
    let graph = lowered(vec![placeholder(), partitioned("c", "p", "f")], vec![function]).unwrap();
    assert!(graph.find("c/start").is_some() && graph.find("c/done").is_some());
}

fn on(device: &str, node: NodeDef) -> NodeDef {
    NodeDef { device: device.into(), ..node }
}

fn request(graph: &Graph, name: &str) -> String {
    graph.node(graph.find(name).unwrap_or_else(|| panic!("no node {name}"))).device.to_string()
}

fn identity(name: &str, input: &str) -> NodeDef {
    node(name, "Identity", &[input], &[("T", Value::Type(INT32))])
}

#[test]
fn nodes_of_bodies_ask_for_devices_as_in_tensorflow() {
    let class =
        Value::List(Box::new(ListValue { s: vec!["loc:@inner".into(), "loc:@x".into()], ..Default::default() }));
    let body = || {
        let mut result = on("/job:ps/cpu:1", identity("result", "inner:output:0"));
        result.attr.insert("_class".into(), AttrValue { value: Some(class.clone()) });
        vec![identity("inner", "x"), result]
    };
    let f = function("f", INT32, body(), "result:output:0");
    let source = on("/job:source", node("a", "Placeholder", &[], &[("dtype", Value::Type(INT32))]));
    let tin = [("Tin", types(&[INT32])), ("Tout", types(&[INT32])), ("f", call("f"))];
    let nodes = vec![
        source.clone(),
        on("/job:worker/task:1", node("multi", "PartitionedCall", &["a"], &tin)),
        node("open", "PartitionedCall", &["a"], &tin),
        on("/job:worker/task:2", node("single", "f", &["a"], &[])),
    ];
    let graph = lowered(nodes, vec![f.clone()]).unwrap();
    for (name, device) in [
        ("multi/inner", "/job:worker/task:1"),
        ("multi/result", "/job:ps/task:1/device:CPU:1"),
        ("open/inner", ""),
        ("open/result", "/job:ps/cpu:1"),
        ("single/inner", "/job:worker/task:2"),
        ("single/result", "/job:worker/task:2"),
    ] {
        assert_eq!(request(&graph, name), device, "{name}");
    }
    let result = graph.node(graph.find("multi/result").unwrap());
    assert_eq!(result.attrs.string_list("_class").unwrap(), ["loc:@multi/inner", "loc:@a"]);

    let less = node("less", "Less", &["x", "x"], &[("T", Value::Type(INT32))]);
    let cond = function("c", BOOL, vec![less], "less:z:0");
    let attrs = [("T", types(&[INT32])), ("cond", call("c")), ("body", call("f")), LOWER];
    let nodes = vec![source.clone(), on("/job:worker", node("loop", "While", &["a"], &attrs))];
    let graph = lowered(nodes, vec![f.clone(), cond]).unwrap();
    for part in ["enter", "merge", "switch", "exit", "next"] {
        assert_eq!(request(&graph, &format!("loop/_{part}_0")), "/job:source", "{part}");
    }
    for name in ["loop/_loop_cond", "loop/_cond_pivot", "loop/_body_pivot", "loop/cond/_0/less", "loop/body/_1/inner"] {
        assert_eq!(request(&graph, name), "/job:worker", "{name}");
    }
    assert_eq!(request(&graph, "loop/body/_1/result"), "/job:ps/device:CPU:1");

    let branches = [("then_branch", call("f")), ("else_branch", call("f"))];
    let attrs = [("Tin", types(&[INT32])), ("Tout", types(&[INT32])), ("Tcond", Value::Type(BOOL)), LOWER];
    let attrs: Vec<(&str, Value)> = attrs.into_iter().chain(branches).collect();
    let pred = node("p", "Placeholder", &[], &[("dtype", Value::Type(BOOL))]);
    let graph = lowered(vec![source, pred, on("/job:worker", node("if", "If", &["p", "a"], &attrs))], vec![f]).unwrap();
    assert_eq!(request(&graph, "if/_switch_0"), "/job:source");
    for name in ["if/_pivot", "if/_merge_0", "if/_executed", "if/branch/_0/inner"] {
        assert_eq!(request(&graph, name), "/job:worker", "{name}");
    }
}

#[test]
fn what_stays_keeps_its_assigned_device() {
    let f = function("f", INT32, vec![identity("r", "x")], "r:output:0");
    let attrs = [("Tin", types(&[INT32])), ("Tout", types(&[INT32])), ("f", call("f"))];
    let def = GraphDef {
        node: vec![
            node("a", "Placeholder", &[], &[("dtype", Value::Type(INT32))]),
            on("/job:x", node("call", "PartitionedCall", &["a"], &attrs)),
        ],
        library: Some(FunctionDefLibrary { function: vec![f], ..Default::default() }),
        ..Default::default()
    };
    let mut graph = Graph::from_def(&def).unwrap();
    for name in ["a", "call"] {
        let id = graph.find(name).unwrap();
        graph.node_mut(id).assigned_device = "/job:y/replica:0/task:0/device:CPU:0".into();
    }
    let graph = lower(graph).unwrap();
    let a = graph.node(graph.find("a").unwrap());
    assert_eq!((&*a.device, &*a.assigned_device), ("", "/job:y/replica:0/task:0/device:CPU:0"));
    let inner = graph.node(graph.find("call/r").unwrap());
    assert_eq!((&*inner.device, &*inner.assigned_device), ("/job:x", ""));
}

#[test]
fn loops_in_bodies_that_are_called_twice_are_two_loops() {
    let frame = ("frame_name", Value::S("loop".into()));
    let body = vec![
        node("enter", "Enter", &["x"], &[("T", Value::Type(INT32)), frame]),
        node("exit", "Exit", &["enter:output:0"], &[("T", Value::Type(INT32))]),
    ];
    let f = function("f", INT32, body, "exit:output:0");
    let a = node("a", "Placeholder", &[], &[("dtype", Value::Type(INT32))]);
    let graph =
        lowered(vec![a, node("first", "f", &["a"], &[]), node("second", "f", &["first"], &[])], vec![f]).unwrap();
    let frame = |name: &str| graph.node(graph.find(name).unwrap()).attrs.str("frame_name").unwrap().to_owned();
    assert_eq!((frame("first/enter"), frame("second/enter")), ("first/loop".to_owned(), "second/loop".to_owned()));
}
