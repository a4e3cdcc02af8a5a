use crate::build::*;
use graphmill_graph::{Endpoint, Graph, ImportOptions, Node, NodeId, op_def, topological_order};
use graphmill_tensor::{Code, DType, SlotType};
use graphmill_wire::tensorflow::attr_value::Value;
use graphmill_wire::tensorflow::{AttrValue, GraphDef, NodeDef, VersionDef};

const INVALID: Code = Code::InvalidArgument;

#[test]
fn a_graph_comes_in_and_goes_out() {
    let mut nodes = vec![
        constant("a"),
        node("s", "Split", &["d", "a"], [("T", ty(FLOAT)), ("num_split", int(2))]),
        node(
            "d",
            "Const",
            &[],
            [
                ("dtype", ty(INT32)),
                (
                    "value",
                    Value::Tensor(Box::new(graphmill_wire::tensorflow::TensorProto {
                        dtype: INT32,
                        ..Default::default()
                    })),
                ),
            ],
        ),
        node("sum", "AddV2", &["s:1", "a", "^d", "^s"], [("T", ty(FLOAT)), ("_note", text("x"))]),
    ];
    nodes[3].device = "/job:ps".into();
    let graph = import(nodes.clone()).unwrap();
    let sum = graph.node(graph.find("sum").unwrap());
    assert_eq!(sum.inputs.as_slice(), [Endpoint { node: NodeId(1), slot: 1 }, Endpoint { node: NodeId(0), slot: 0 }]);
    assert_eq!(sum.control_inputs.as_slice(), [NodeId(2), NodeId(1)]);
    assert_eq!((&*sum.device, &*sum.assigned_device), ("/job:ps", ""));
    assert_eq!(sum.attrs.str("_note").unwrap(), "x");
    assert_eq!(graph.node(NodeId(1)).output_types.as_slice(), [SlotType::value(DType::Float); 2]);
    assert_eq!(graph.nodes().map(|(_, node)| &*node.name).collect::<Vec<_>>(), ["a", "s", "d", "sum"]);
    assert_eq!(graph.endpoint_name(sum.inputs[0]), "s:1");
    assert_eq!(graph.consumers()[0].as_slice(), [NodeId(1), NodeId(3)]);

    let def = graph.to_def();
    assert_eq!(def.node, nodes);
    assert_eq!(Graph::from_def(&def).unwrap().to_def(), def);
}

#[test]
fn defaults_are_filled_in() {
    let graph = import(vec![constant("a"), node("m", "MatMul", &["a", "a"], [("T", ty(FLOAT))])]).unwrap();
    let matmul = graph.node(graph.find("m").unwrap());
    assert!(!matmul.attrs.bool("transpose_a").unwrap());
    assert!(!matmul.attrs.bool("transpose_b").unwrap());
}

#[test]
fn control_edges_are_there_once() {
    let graph = import(vec![constant("a"), identity("q", &["a", "^a", "^a"])]).unwrap();
    assert_eq!(graph.node(NodeId(1)).control_inputs.as_slice(), [NodeId(0)]);
}

#[test]
fn names_and_inputs_are_spelled_right() {
    for (nodes, text) in [
        (vec![node("_q", "NoOp", &[], [])], "Illegal op name '_q'\n\t [[{{node _q}}]]"),
        (vec![node("", "NoOp", &[], [])], "Illegal op name ''\n\t [[{{node }}]]"),
        (vec![constant("a"), identity("q", &["a:-1"])], "Illegal op input name 'a:-1'\n\t [[{{node q}}]]"),
        (vec![constant("a"), identity("q", &[""])], "Illegal op input name ''\n\t [[{{node q}}]]"),
        (vec![constant("a"), identity("q", &["a", "^"])], "Illegal op input name '^'\n\t [[{{node q}}]]"),
        (
            vec![constant("a"), identity("q", &["^a", "a"])],
            "All control inputs must follow all data inputs\n\t [[{{node q}}]]",
        ),
    ] {
        fails(import(nodes), INVALID, text);
    }
}

#[test]
fn edges_join_what_exists() {
    for (nodes, text) in [
        (vec![identity("q", &["nope"])], "Node 'q': Unknown input node 'nope'"),
        (vec![constant("a"), identity("q", &["a", "^missing"])], "Node 'q': Unknown input node '^missing'"),
        (
            vec![constant("a"), identity("q", &["a:1"])],
            "Node 'q': Connecting to invalid output 1 of source node a which has 1 outputs.",
        ),
        (
            vec![constant("a"), identity("q", &["a:4294967296"])],
            "Node 'q': Connecting to invalid output 4294967296 of source node a which has 1 outputs.",
        ),
        (
            vec![node("n", "NoOp", &[], []), identity("q", &["n"])],
            "Node 'q': Connecting to invalid output 0 of source node n which has 0 outputs.",
        ),
        (
            vec![constant("a"), node("q", "Identity", &["a"], [("T", ty(INT32))])],
            "Input 0 of node q was passed float from a:0 incompatible with expected int32.",
        ),
        (
            vec![constant("a"), node("q", "Assign", &["a", "a"], [("T", ty(FLOAT))])],
            "Input 0 of node q was passed float from a:0 incompatible with expected float_ref.",
        ),
        (vec![constant("a"), constant("a")], "Node 'a' is not unique"),
    ] {
        fails(import(nodes), INVALID, text);
    }
}

#[test]
fn a_reference_goes_where_a_value_is_taken() {
    let variable = node("v", "VariableV2", &[], [("dtype", ty(FLOAT)), ("shape", Value::Shape(Default::default()))]);
    let graph = import(vec![
        variable,
        constant("a"),
        node("set", "Assign", &["v", "a"], [("T", ty(FLOAT))]),
        identity("read", &["set"]),
    ])
    .unwrap();
    assert_eq!(graph.node(NodeId(2)).input_types[0], SlotType::reference(DType::Float));
    assert_eq!(graph.node(NodeId(2)).output_types[0], SlotType::reference(DType::Float));
    assert_eq!(graph.node(NodeId(3)).input_types[0], SlotType::value(DType::Float));
}

#[test]
fn cycles_are_loops() {
    let next = |name: &str, input: &str| node(name, "NextIteration", &[input], [("T", ty(FLOAT))]);
    let merge = |inputs: &[&str], n: i64| node("m", "Merge", inputs, [("T", ty(FLOAT)), ("N", int(n))]);
    for (nodes, text) in [
        (vec![identity("x", &["y"]), identity("y", &["x"]), identity("z", &["x"])], "3 nodes in a cycle"),
        (vec![identity("x", &["x"])], "1 nodes in a cycle"),
        (vec![constant("a"), identity("x", &["a", "^y"]), identity("y", &["x"])], "2 nodes in a cycle"),
        (vec![merge(&["n"], 1), next("n", "m")], "2 nodes in a cycle"),
        (vec![next("n", "m"), merge(&["n"], 1)], "2 nodes in a cycle"),
        (vec![constant("a"), merge(&["a", "^n"], 1), next("n", "m")], "2 nodes in a cycle"),
    ] {
        fails(import(nodes), INVALID, text);
    }
    for nodes in [
        vec![constant("a"), merge(&["a", "n"], 2), next("n", "m")],
        vec![next("n", "m"), merge(&["a", "n"], 2), constant("a")],
        vec![identity("late", &["a"]), constant("a")],
    ] {
        let graph = import(nodes).unwrap();
        let order = topological_order(&graph).unwrap();
        assert_eq!(order.len(), graph.len());
        assert_eq!(&*graph.node(order[0]).name, "a");
    }
}

#[test]
fn attributes_fit_the_schema() {
    let pool = |padding: &str, ksize: &[i64]| {
        node(
            "q",
            "MaxPool",
            &["a"],
            [("T", ty(FLOAT)), ("ksize", ints(ksize)), ("strides", ints(&[1; 4])), ("padding", text(padding))],
        )
    };
    let identity_of = |value| node("q", "Identity", &["a"], [("T", value)]);
    let identity_op = "Op<name=Identity; signature=input:T -> output:T; attr=T:type>";
    let cast_op = "Op<name=Cast; signature=x:SrcT -> y:DstT; attr=SrcT:type; attr=DstT:type; \
                   attr=Truncate:bool,default=false>";
    for (bad, text) in [
        (
            node("q", "Identity", &["a"], []),
            format!("NodeDef missing attr 'T' from {identity_op}; NodeDef: {{{{node q}}}}"),
        ),
        (
            node("q", "Cast", &["a"], []),
            format!("NodeDef missing attrs 'DstT', 'SrcT' from {cast_op}; NodeDef: {{{{node q}}}}"),
        ),
        (
            identity_of(int(3)),
            format!(
                "AttrValue had value with type 'int' when 'type' expected\n\t for attr 'T'\n\t; NodeDef: {{{{node q}}}}; \
                 {identity_op}"
            ),
        ),
        (
            identity_of(ty(99)),
            format!(
                "AttrValue has invalid DataType enum: 99\n\t for attr 'T'\n\t; NodeDef: {{{{node q}}}}; {identity_op}"
            ),
        ),
        (
            identity_of(ty(0)),
            format!("AttrValue has invalid DataType\n\t for attr 'T'\n\t; NodeDef: {{{{node q}}}}; {identity_op}"),
        ),
        (
            identity_of(ty(101)),
            format!(
                "AttrValue must not have reference type value of float_ref\n\t for attr 'T'\n\t; NodeDef: {{{{node q}}}}; \
                 {identity_op}"
            ),
        ),
    ] {
        fails(import(vec![constant("a"), bad]), INVALID, &text);
    }
    for (bad, start) in [
        (
            node("q", "MatMul", &["a", "a"], [("T", ty(STRING))]),
            "Value for attr 'T' of string is not in the list of allowed values: bfloat16, half, float, double, int32, int64, \
             uint8, uint16, uint32, uint64, complex64, complex128\n\t; NodeDef: {{node q}}; Op<name=MatMul; ",
        ),
        (
            pool("FOO", &[1; 4]),
            "Value for attr 'padding' of \"FOO\" is not in the list of allowed values: \"SAME\", \"VALID\", \"EXPLICIT\"\n\t; \
             NodeDef: {{node q}}; Op<name=MaxPool; ",
        ),
        (
            pool("SAME", &[1]),
            "Length for attr 'ksize' of 1 must be at least minimum 4\n\t; NodeDef: {{node q}}; Op<name=MaxPool; ",
        ),
        (
            node("q", "AddN", &[], [("T", ty(FLOAT)), ("N", int(0))]),
            "Value for attr 'N' of 0 must be at least minimum 1\n\t; NodeDef: {{node q}}; Op<name=AddN; ",
        ),
        (
            node("q", "IdentityN", &["a"], [("T", types(&[0]))]),
            "AttrValue contains invalid DataType\n\t for attr 'T'\n\t; NodeDef: {{node q}}; Op<name=IdentityN; ",
        ),
        (
            node("q", "AddV2", &["a"], [("T", ty(FLOAT))]),
            "NodeDef expected inputs 'float, float' do not match 1 inputs specified; Op<name=AddV2; ",
        ),
        (
            node("q", "AddN", &["a"], [("T", ty(FLOAT)), ("N", int(1 << 32))]),
            "Number of outputs is too big: 4294967296",
        ),
        (
            node("q", "Identity", &["a"], [("T", Value::Placeholder("p".into()))]),
            "AttrValue had value with unexpected type 'placeholder'",
        ),
    ] {
        let error = import(vec![constant("a"), bad]).unwrap_err();
        assert_eq!(error.code(), INVALID);
        assert!(error.message().starts_with(start), "{}", error.message());
    }
    // As newer producers write them.
    assert!(import(vec![constant("a"), node("q", "Identity", &["a"], [("T", ty(FLOAT)), ("new", int(1))])]).is_ok());
}

#[test]
fn nodes_cannot_ask_for_endless_outputs() {
    let split = |name: &str, n: i64| node(name, "Split", &["d", "a"], [("T", ty(FLOAT)), ("num_split", int(n))]);
    let value = graphmill_wire::tensorflow::TensorProto { dtype: INT32, ..Default::default() };
    let axis = node("d", "Const", &[], [("dtype", ty(INT32)), ("value", Value::Tensor(Box::new(value)))]);
    let mut nodes = vec![axis, constant("a")];
    nodes.extend((0..20).map(|at| split(&format!("s{at}"), 1 << 20)));
    let error = import(nodes).unwrap_err();
    assert!(error.code() == INVALID && error.message().starts_with("Number of outputs is too big"), "{error}");
}

#[test]
fn ops_are_known() {
    for name in ["NoSuchOp", ""] {
        let error = import(vec![node("q", name, &[], [])]).unwrap_err();
        assert_eq!(error.code(), Code::NotFound);
        assert!(error.message().starts_with(&format!("Op type not registered '{name}' in binary running on ")));
        assert!(
            error
                .message()
                .contains(". Make sure the Op and Kernel are registered in the binary running in this process.")
        );
    }
    let removed = || vec![constant("a"), node("q", "BatchMatrixDiag", &["a"], [("T", ty(FLOAT))])];
    fails(
        import(removed()),
        Code::Unimplemented,
        "Op BatchMatrixDiag is not available in GraphDef version 2474. It has been removed in version 14. Use MatrixDiag.",
    );
    let old = GraphDef { versions: Some(VersionDef { producer: 13, ..Default::default() }), ..graph(removed()) };
    assert!(Graph::from_def(&old).is_ok());
}

#[test]
fn versions_fit() {
    for (versions, text) in [
        (
            VersionDef { producer: 2474, min_consumer: 99999, bad_consumers: vec![] },
            "GraphDef min consumer version 99999 above current version 2474 for TensorFlow 2.21.0.  Please upgrade TensorFlow.",
        ),
        (
            VersionDef { producer: 2474, min_consumer: 0, bad_consumers: vec![2474] },
            "GraphDef disallows consumer version 2474.  Please upgrade TensorFlow: this version is likely buggy.",
        ),
        (
            VersionDef { producer: -1, min_consumer: 0, bad_consumers: vec![] },
            "GraphDef producer version -1 below min producer 0 supported by TensorFlow 2.21.0.  Please regenerate your graph.",
        ),
    ] {
        fails(Graph::from_def(&GraphDef { versions: Some(versions), ..graph(vec![]) }), INVALID, text);
    }
}

#[test]
fn extensions_are_all_or_nothing() {
    let mut session = import(vec![constant("a")]).unwrap();
    let before = session.to_def();
    for bad in [
        vec![constant("b"), constant("b")],
        vec![constant("b"), identity("q", &["nope"])],
        vec![constant("b"), identity("x", &["y"]), identity("y", &["x"])],
        vec![constant("b"), node("q", "NoSuchOp", &[], [])],
    ] {
        let def = GraphDef { library: with_functions(vec![], vec![function("f", vec![])]).library, ..graph(bad) };
        assert!(session.extend(&def).is_err());
        assert_eq!(session.to_def(), before);
        assert!(session.find("b").is_none());
    }
    fails(
        session.extend(&graph(vec![constant("b"), constant("a")])),
        INVALID,
        "GraphDef argument to Extend includes node 'a', which was created by a previous call to Create or Extend in this session.",
    );
    let copy = session.clone();
    session.extend(&graph(vec![identity("b", &["a", "^a"])])).unwrap();
    assert_eq!(session.node(NodeId(1)).inputs[0].node, NodeId(0));
    assert_eq!((copy.len(), session.len(), session.find("b")), (1, 2, Some(NodeId(1))));
    assert!(copy.find("b").is_none());
    let older =
        GraphDef { versions: Some(VersionDef { producer: 27, ..Default::default() }), ..graph(vec![constant("c")]) };
    session.extend(&older).unwrap();
    assert_eq!(session.versions().producer, 2474);
}

#[test]
fn a_masters_graph_has_internal_names_and_devices() {
    let options = ImportOptions { allow_internal_names: true, expect_device: true };
    let placed = |mut node: NodeDef| {
        node.device = "/job:worker/replica:0/task:0/device:CPU:0".into();
        node
    };
    let def = |nodes| graph(nodes);
    let graph =
        Graph::from_def_with(def(vec![placed(constant("_a")), placed(identity("_b", &["_a"]))]), options).unwrap();
    assert_eq!(&*graph.node(NodeId(1)).assigned_device, "/job:worker/replica:0/task:0/device:CPU:0");
    for (nodes, text) in [
        (vec![constant("_a")], "Node '_a' is missing a device specification"),
        (vec![placed(constant("a b"))], "Node 'a b': Node name contains invalid characters"),
        (
            vec![placed(constant("_a")), placed(identity("b", &["^_a", "_a"]))],
            "Node 'b': Control dependencies must come after regular dependencies",
        ),
    ] {
        fails(Graph::from_def_with(def(nodes), options), INVALID, text);
    }
}

#[test]
fn nodes_are_added_and_removed() {
    let mut graph = import(vec![constant("a"), identity("b", &["a"]), identity("c", &["a", "^b"])]).unwrap();
    let op = op_def("Identity").unwrap();
    let new = |name: &str, inputs: &[Endpoint]| {
        let attrs = [("T".to_owned(), AttrValue { value: Some(ty(FLOAT)) })].into();
        let mut node = Node::new(name, op, graphmill_graph::Attrs::from_proto(&attrs)).unwrap();
        node.inputs.extend_from_slice(inputs);
        node
    };
    let end = |node, slot| Endpoint { node: NodeId(node), slot };
    assert_eq!(graph.add_node(new("d", &[end(2, 0)])).unwrap(), NodeId(3));
    assert_eq!(graph.find("d"), Some(NodeId(3)));
    assert_eq!(graph.add_node(new("d", &[end(2, 0)])).unwrap_err().code(), Code::AlreadyExists);
    assert!(graph.add_node(new("e", &[])).is_err());
    assert!(graph.add_node(new("e", &[end(9, 0)])).is_err());
    assert!(graph.add_node(new("e", &[end(2, 1)])).is_err());
    assert!(Node::new("e", op, Default::default()).is_err());
    assert_eq!(graph.unique_name("a"), "a_1");
    assert_eq!(graph.unique_name("e"), "e");

    let kept = graph.retain(&[true, false, true, true]).unwrap();
    assert_eq!(kept.nodes().map(|(_, node)| &*node.name).collect::<Vec<_>>(), ["a", "c", "d"]);
    assert_eq!(kept.node(NodeId(2)).inputs[0].node, kept.find("c").unwrap());
    assert!(kept.node(NodeId(1)).control_inputs.is_empty());
    assert_eq!(graph.retain(&[false, true, true, true]).unwrap_err().code(), Code::Internal);
}
