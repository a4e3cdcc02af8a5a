use crate::build::*;
use graphmill_graph::{ClientDevice, Endpoint, Graph, NodeId, Signature, prune};
use graphmill_tensor::{Code, DType, Result};
use graphmill_wire::tensorflow::NodeDef;

const CLIENT: &str = "/job:worker/replica:0/task:0/device:CPU:0";

fn placeholder(name: &str) -> NodeDef {
    node(name, "Placeholder", &[], [("dtype", ty(FLOAT))])
}

fn model() -> Graph {
    import(vec![
        placeholder("x"),
        constant("a"),
        identity("b", &["x"]),
        node("sum", "AddV2", &["b", "a"], [("T", ty(FLOAT))]),
        identity("other", &["a", "^x"]),
        node("run", "NoOp", &["^other", "^sum"], []),
        node("two", "IdentityN", &["x", "a"], [("T", types(&[FLOAT, FLOAT]))]),
        node("use", "AddV2", &["two", "two:1"], [("T", ty(FLOAT))]),
    ])
    .unwrap()
}

fn ask(graph: &Graph, feeds: &[&str], fetches: &[&str], targets: &[&str]) -> Result<Graph> {
    let owned = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
    let client = ClientDevice { name: CLIENT.to_owned(), incarnation: u64::MAX };
    prune(graph, &Signature::new(owned(feeds), owned(fetches), owned(targets)), &client)
}

fn names(graph: &Graph) -> Vec<&str> {
    graph.nodes().map(|(_, node)| &*node.name).collect()
}

#[test]
fn what_is_not_needed_goes() {
    let graph = ask(&model(), &[], &["sum:0"], &[]).unwrap();
    assert_eq!(names(&graph), ["x", "a", "b", "sum", "_send_sum_0"]);
    let send = graph.node(NodeId(4));
    assert_eq!(send.inputs.as_slice(), [Endpoint { node: NodeId(3), slot: 0 }]);
    assert_eq!(send.attrs.dtype("T").unwrap(), DType::Float);
    assert_eq!(send.attrs.str("tensor_name").unwrap(), "sum:0");
    assert_eq!(send.attrs.str("send_device").unwrap(), CLIENT);
    assert_eq!(send.attrs.str("recv_device").unwrap(), CLIENT);
    assert_eq!(send.attrs.int("send_device_incarnation").unwrap(), -1);
    assert!(send.attrs.bool("client_terminated").unwrap());
    assert_eq!((&*send.op.name, &*send.assigned_device), ("_Send", CLIENT));
    assert_eq!(names(&ask(&model(), &[], &[], &["run"]).unwrap()), ["x", "a", "b", "sum", "other", "run"]);
}

#[test]
fn feeds_cut_what_they_replace() {
    let graph = ask(&model(), &["x:0"], &["sum:0"], &["other"]).unwrap();
    assert_eq!(names(&graph), ["a", "b", "sum", "other", "_recv_x_0", "_send_sum_0"]);
    let receive = graph.find("_recv_x_0").unwrap();
    assert_eq!(graph.node(graph.find("b").unwrap()).inputs[0], Endpoint { node: receive, slot: 0 });
    assert_eq!(graph.node(graph.find("other").unwrap()).control_inputs.as_slice(), [receive]);
    let receive = graph.node(receive);
    assert_eq!((&*receive.op.name, &*receive.assigned_device), ("_Recv", CLIENT));
    assert_eq!(receive.attrs.dtype("tensor_type").unwrap(), DType::Float);
    assert_eq!(receive.attrs.str("tensor_name").unwrap(), "x:0");
    // Control edges of what is not a placeholder stay.
    let graph = ask(&model(), &["b:0"], &[], &["run"]).unwrap();
    assert_eq!(names(&graph), ["x", "a", "sum", "other", "run", "_recv_b_0"]);
    // Other slots of a fed node still need it.
    let graph = ask(&model(), &["two:1"], &["use:0"], &[]).unwrap();
    assert_eq!(names(&graph), ["x", "a", "two", "use", "_recv_two_1", "_send_use_0"]);
    let user = graph.node(graph.find("use").unwrap());
    assert_eq!(user.inputs[0].node, graph.find("two").unwrap());
    assert_eq!(user.inputs[1], Endpoint { node: graph.find("_recv_two_1").unwrap(), slot: 0 });
    // A feed that nothing needs is left out, and a fed target still runs.
    assert_eq!(names(&ask(&model(), &["a:0"], &["b:0"], &[]).unwrap()), ["x", "b", "_send_b_0"]);
    assert_eq!(names(&ask(&model(), &["x:0"], &[], &["x"]).unwrap()), ["x"]);
}

#[test]
fn spellings() {
    let graph = ask(&model(), &["x"], &["sum", "sum:0", "sum:0"], &["use:7", "^b"]).unwrap();
    assert!(graph.find("_recv_x_0").is_some() && graph.find("use").is_some());
    assert_eq!(names(&graph).iter().filter(|name| name.starts_with("_send")).count(), 1);
    let signature = |feeds: [&str; 2]| Signature::new(feeds.map(str::to_owned).to_vec(), vec![], vec![]);
    assert_eq!(signature(["b", "a:0"]), signature(["a:0", "b"]));
    assert_eq!(signature(["b", "a"]).feeds, ["a", "b"]);
    assert_eq!(Signature::tensor_name("a"), "a:0");
}

#[test]
fn a_reference_is_sent_by_value() {
    let variable = node(
        "v",
        "VariableV2",
        &[],
        [("dtype", ty(FLOAT)), ("shape", graphmill_wire::tensorflow::attr_value::Value::Shape(Default::default()))],
    );
    let graph = ask(&import(vec![variable]).unwrap(), &[], &["v:0"], &[]).unwrap();
    assert!(!graph.node(NodeId(1)).input_types[0].is_ref);
}

#[test]
fn what_is_asked_must_exist() {
    let model = model();
    for (feeds, fetches, targets, code, text) in [
        (&[][..], &[][..], &[][..], Code::InvalidArgument, "Must specify at least one target to fetch or execute."),
        (&["x:0"], &[], &[], Code::InvalidArgument, "Must specify at least one target to fetch or execute."),
        (&[], &["nope:0"], &[], Code::NotFound, "FetchOutputs node nope:0: not found"),
        (&[], &["a:-1"], &[], Code::NotFound, "FetchOutputs node a:-1: not found"),
        (&[], &[""], &[], Code::NotFound, "FetchOutputs node : not found"),
        (&[], &["b:3"], &[], Code::InvalidArgument, "FetchOutputs b:3: output index too large, must be < 1"),
        (&[], &["^b"], &[], Code::InvalidArgument, "FetchOutputs ^b: output index too large, must be < 1"),
        (
            &[],
            &["b:4294967296"],
            &[],
            Code::InvalidArgument,
            "FetchOutputs b:4294967296: output index too large, must be < 1",
        ),
        (
            &[],
            &["run:0"],
            &[],
            Code::InvalidArgument,
            "Tried to fetch data for 'run:0', which produces no output.  To run to a node but not fetch any data, pass 'run:0' as an \
             argument to the 'target_node_names' argument of the Session::Run API.",
        ),
        (&[], &[], &["zz:1", "nope"], Code::NotFound, "PruneForTargets: Some target nodes not found: nope zz:1 "),
        (&["zz:0"], &["b:0"], &[], Code::NotFound, "FeedInputs: unable to find feed output zz:0"),
        (&["a:2"], &["b:0"], &[], Code::InvalidArgument, "FeedInputs: a:2 should have output index < 1"),
        (&["^a"], &["b:0"], &[], Code::InvalidArgument, "FeedInputs: ^a should have output index < 1"),
        (&["run:0"], &["b:0"], &[], Code::InvalidArgument, "FeedInputs: run:0 should have output index < 0"),
        (&["a:0", "a:0"], &["b:0"], &[], Code::InvalidArgument, "Endpoint \"a:0\" fed more than once."),
        (&["a", "a:0"], &["b:0"], &[], Code::InvalidArgument, "Endpoint \"a:0\" fed more than once."),
        (&["a:0"], &["a:0"], &[], Code::InvalidArgument, "a:0 is both fed and fetched."),
        (&["a:0"], &["a"], &[], Code::InvalidArgument, "a is both fed and fetched."),
    ] {
        fails(ask(&model, feeds, fetches, targets), code, text);
    }
}
