use crate::build::*;
use graphmill_graph::{Flow, FunctionLibrary, Graph, NodeId, remote_body};
use graphmill_tensor::{Code, DType, SlotType};
use graphmill_wire::tensorflow::{FunctionDef, FunctionDefLibrary, GradientDef, GraphDef, NameAttrList, NodeDef};

const INVALID: Code = Code::InvalidArgument;

fn calling(name: &str, callee: &str) -> FunctionDef {
    function(name, vec![node("r", callee, &["x"], [])])
}

fn gradient(function: &str, gradient: &str) -> GradientDef {
    GradientDef { function_name: function.to_owned(), gradient_func: gradient.to_owned() }
}

fn library(functions: Vec<FunctionDef>, gradients: Vec<GradientDef>) -> FunctionDefLibrary {
    FunctionDefLibrary { function: functions, gradient: gradients, ..Default::default() }
}

#[test]
fn a_function_is_an_op() {
    let f = function("f", vec![identity("r", &["x"])]);
    let graph = Graph::from_def(&with_functions(vec![constant("a"), node("q", "f", &["a"], [])], vec![f])).unwrap();
    let call = graph.node(NodeId(1));
    assert_eq!(call.output_types.as_slice(), [SlotType::value(DType::Float)]);
    assert_eq!(graph.library().get("f").unwrap().op.name, call.op.name);
    assert_eq!(graph.versions().min_consumer, 12);
    assert_eq!(graph.to_def().library.unwrap().function.len(), 1);
}

#[test]
fn calls_of_functions_are_checked() {
    let error = import(vec![constant("a"), node("q", "f", &["a"], [])]).unwrap_err();
    assert_eq!(error.code(), Code::NotFound);
    let f = || function("f", vec![]);
    let error = Graph::from_def(&with_functions(vec![node("q", "f", &[], [])], vec![f()])).unwrap_err();
    assert!(
        error.message().starts_with("NodeDef expected inputs 'float' do not match 0 inputs specified; Op<name=f; ")
    );
    let call = |callee: &str| {
        let attrs = [("Tin", types(&[FLOAT])), ("Tout", types(&[FLOAT])), ("f", func(callee))];
        vec![constant("a"), node("q", "PartitionedCall", &["a"], attrs)]
    };
    fails(import(call("zz")), INVALID, "Failed to find function \"zz\" in function library\n\t [[{{node q}}]]");
    assert!(Graph::from_def(&with_functions(call("f"), vec![f()])).is_ok());
}

#[test]
fn a_name_stands_for_one_thing() {
    let f = function("f", vec![identity("r", &["x"])]);
    let other = function("f", vec![node("r", "Relu", &["x"], [("T", ty(FLOAT))])]);
    let one = FunctionLibrary::from_proto(&library(vec![f.clone(), f.clone()], vec![gradient("f", "g")])).unwrap();
    assert_eq!((one.len(), one.gradient("f")), (1, Some("g")));
    assert!(one.extended(&library(vec![f.clone()], vec![gradient("f", "g")])).unwrap().is_none());
    assert!(one.extended(&library(vec![calling("h", "f")], vec![])).unwrap().is_some());
    for (more, text) in [
        (
            library(vec![other], vec![]),
            "Cannot add function 'f' because a different function with the same name already exists.",
        ),
        (
            library(vec![function("Identity", vec![])], vec![]),
            "Cannot add function 'Identity' because an op with the same name already exists.",
        ),
        (
            library(vec![], vec![gradient("f", "h")]),
            "Cannot assign gradient function 'h' to 'f' because it already has gradient function 'g'",
        ),
        (library(vec![FunctionDef::default()], vec![]), "A function has no signature"),
    ] {
        fails(one.extended(&more), INVALID, text);
    }
}

#[test]
fn a_function_with_a_nan_equals_itself() {
    let value = graphmill_wire::tensorflow::attr_value::Value::F(f32::NAN);
    let f = function("f", vec![node("r", "Identity", &["x"], [("_x", value)])]);
    let one = FunctionLibrary::from_proto(&library(vec![f.clone()], vec![])).unwrap();
    assert!(one.extended(&library(vec![f], vec![])).unwrap().is_none());
}

#[test]
fn endless_calls_are_refused() {
    let by_attr =
        |name: &str, op: &str, callee: &str| function(name, vec![node("r", op, &["x"], [("f", func(callee))])]);
    for (functions, gradients, text) in [
        (vec![calling("f", "f")], vec![], "Function 'f' calls itself without end: f -> f"),
        (vec![calling("f", "g"), calling("g", "f")], vec![], "Function 'f' calls itself without end: f -> g -> f"),
        (vec![by_attr("f", "PartitionedCall", "f")], vec![], "Function 'f' calls itself without end: f -> f"),
        (
            vec![by_attr("f", "StatefulPartitionedCall", "g"), calling("g", "f")],
            vec![],
            "Function 'f' calls itself without end: f -> g -> f",
        ),
        (vec![calling("f", "Identity")], vec![gradient("f", "f")], "Function 'f' cannot be its own gradient function"),
    ] {
        let def = GraphDef { library: Some(library(functions, gradients)), ..graph(vec![]) };
        fails(Graph::from_def(&def), INVALID, text);
    }
    // Two functions that are harmless alone.
    let mut session = Graph::from_def(&with_functions(vec![], vec![calling("f", "g")])).unwrap();
    assert!(session.extend(&with_functions(vec![], vec![calling("g", "f")])).is_err());
    assert_eq!(session.library().len(), 1);
}

#[test]
fn recursion_under_a_condition_is_allowed() {
    let branch = ("then_branch", func("f"));
    let f = function("f", vec![node("r", "If", &["c", "x"], [branch, ("else_branch", func("f"))])]);
    assert!(Graph::from_def(&with_functions(vec![], vec![f])).is_ok());
}

#[test]
fn long_chains_of_calls_are_no_recursion() {
    let chain: Vec<FunctionDef> = (0..10_000).map(|at| calling(&format!("f{at}"), &format!("f{}", at + 1))).collect();
    let one = FunctionLibrary::from_proto(&library(chain.clone(), vec![])).unwrap();
    let closed = one.extended(&library(vec![calling("f10000", "f0")], vec![])).unwrap_err();
    assert_eq!(closed.code(), INVALID);
    assert!(closed.message().ends_with(" -> ... -> f0"), "{closed}");
}

#[test]
fn bodies_for_other_tasks_take_and_give_their_values_by_name() {
    let abs = || node("r", "Abs", &["x"], [("T", ty(FLOAT))]);
    let f = function("f", vec![NodeDef { device: "/job:a/cpu:0".to_owned(), ..abs() }]);
    let graph = Graph::from_def(&with_functions(vec![], vec![f, function("unused", vec![abs()])])).unwrap();
    let device = "/job:b/replica:0/task:0/device:CPU:1";
    let made = remote_body(&graph, &NameAttrList { name: "f".into(), ..Default::default() }, device).unwrap();
    assert_eq!((made.args.as_slice(), made.results.as_slice()), (&["x".to_owned()][..], &["y_RetVal".to_owned()][..]));
    assert!(made.graph.nodes().all(|(_, node)| &*node.assigned_device == device));
    let port = |name: &str| {
        let node = made.graph.node(made.graph.find(name).unwrap());
        let attrs = &node.attrs;
        assert_eq!((attrs.str("send_device").unwrap(), attrs.str("recv_device").unwrap()), (device, device));
        assert_eq!(
            (attrs.int("send_device_incarnation").unwrap(), attrs.bool("client_terminated").unwrap()),
            (1, true)
        );
        assert_eq!(attrs.str("tensor_name").unwrap(), name);
        node.op.flow
    };
    assert!(port("x") == Flow::Recv && port("y_RetVal") == Flow::Send);
    assert_eq!(made.graph.len(), 3);
    assert!(made.graph.library().is_empty());
    let missing = NameAttrList { name: "zz".into(), ..Default::default() };
    fails(remote_body(&graph, &missing, device), Code::NotFound, "Function zz is not defined.");
}
