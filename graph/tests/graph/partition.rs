//! Graphs in parts, and put together again.

use crate::build::{constant, enter, fails, graph, identity, import, int, node, text, ty, types};
use graphmill_graph::{
    Flow, FrameId, Graph, ImportOptions, NodeId, Partition, PartitionOptions, check_partition_devices,
    colocate_control_flow, frames, partition,
};
use graphmill_tensor::{Code, Result};
use graphmill_wire::tensorflow::NodeDef;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

pub const WORKER: &str = "/job:worker/replica:0/task:0/device:CPU:0";
pub const PS: &str = "/job:ps/replica:0/task:0/device:CPU:0";
const PS_1: &str = "/job:ps/replica:0/task:0/device:CPU:1";

fn task(device: &str) -> String {
    device.split("/device:").next().unwrap_or_default().to_owned()
}

pub fn cut(graph: &Graph, location: &dyn Fn(&str) -> String) -> Result<Vec<Partition>> {
    let incarnation = |device: &str| match device {
        WORKER => Some(918_794_783_083_180_313),
        PS => Some((-6_981_923_801_274_311_600i64).cast_unsigned()),
        PS_1 => Some(3),
        _ => None,
    };
    let next_name = AtomicU64::new(0);
    let options =
        PartitionOptions { incarnation: &incarnation, next_name: &next_name, bfloat16_sendrecv: false, location };
    partition(graph, &options)
}

pub fn by_task(graph: &Graph) -> Vec<Partition> {
    cut(graph, &task).unwrap()
}

fn on(device: &str, node: NodeDef) -> NodeDef {
    NodeDef { device: device.to_owned(), ..node }
}

/// A graph whose nodes are assigned to the devices that they ask for.
fn assigned(nodes: Vec<NodeDef>) -> Graph {
    let options = ImportOptions { allow_internal_names: true, expect_device: true };
    Graph::from_def_with(graph(nodes), options).unwrap()
}

fn part<'a>(parts: &'a [Partition], location: &str) -> &'a Graph {
    &parts.iter().find(|part| part.location == location).unwrap().graph
}

fn of_op<'a>(graph: &'a Graph, op: &str) -> Vec<(NodeId, &'a str)> {
    graph.nodes().filter(|(_, node)| node.op_name() == op).map(|(id, node)| (id, &*node.name)).collect()
}

/// The edges of the graph that the parts were cut from: `(source, slot, target, slot)`, with slots of -1 for control edges.
fn glued(parts: &[Partition]) -> BTreeSet<(String, i64, String, i64)> {
    let mut sent = HashMap::new();
    for part in parts {
        for (_, node) in part.graph.nodes().filter(|(_, node)| node.op.flow == Flow::Send) {
            let input = node.inputs[0];
            let mut source = part.graph.node(input.node);
            let mut slot = i64::from(input.slot);
            if source.name.contains("/ctrl_S") {
                source = part.graph.node(source.control_inputs[0]);
                slot = -1;
            }
            let key = node.attrs.str("tensor_name").unwrap().to_owned();
            assert!(sent.insert(key, (source.name.to_string(), slot)).is_none());
        }
    }
    let mut edges = BTreeSet::new();
    for part in parts {
        let is_made = |name: &str| name.contains("_S");
        let source = |id: NodeId, slot: i64| {
            let node = part.graph.node(id);
            let node = if node.op_name() == "Identity" && is_made(&node.name) {
                part.graph.node(node.inputs[0].node)
            } else {
                node
            };
            if node.op.flow == Flow::Recv {
                sent[node.attrs.str("tensor_name").unwrap()].clone()
            } else {
                (node.name.to_string(), slot)
            }
        };
        for (_, node) in part.graph.nodes().filter(|(_, node)| !is_made(&node.name)) {
            for (at, input) in node.inputs.iter().enumerate() {
                let (name, slot) = source(input.node, i64::from(input.slot));
                edges.insert((name, slot, node.name.to_string(), at as i64));
            }
            for &control in &node.control_inputs {
                let (name, slot) = source(control, -1);
                edges.insert((name, slot, node.name.to_string(), -1));
            }
        }
    }
    edges
}

fn edges(graph: &Graph) -> BTreeSet<(String, i64, String, i64)> {
    glued(&[Partition { location: String::new(), graph: graph.clone() }])
}

#[test]
fn parts_of_random_graphs_have_the_edges_of_the_whole() {
    let mut state = 7u64;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    for _ in 0..30 {
        let mut nodes = Vec::new();
        for at in 0..2 + random(60) {
            let mut inputs: Vec<String> = Vec::new();
            let data = if at == 0 { 0 } else { random(4) };
            for _ in 0..data {
                inputs.push(format!("n{}:{}", random(at), random(2)));
            }
            if at > 0 {
                for _ in 0..random(3) {
                    inputs.push(format!("^n{}", random(at)));
                }
            }
            inputs.extend((0..2 - data.min(2)).map(|_| "one".to_owned()));
            inputs.sort_by_key(|input| input.starts_with('^'));
            let inputs: Vec<&str> = inputs.iter().map(String::as_str).collect();
            let outputs = data.max(2);
            let def = node(&format!("n{at}"), "IdentityN", &inputs, [("T", types(&vec![1; outputs]))]);
            nodes.push(on([WORKER, PS, PS_1][random(3)], def));
        }
        nodes.push(on(PS, constant("one")));
        let whole = assigned(nodes);
        for location in [&task as &dyn Fn(&str) -> String, &|device: &str| device.to_owned()] {
            let parts = cut(&whole, location).unwrap();
            assert_eq!(glued(&parts), edges(&whole));
            let mut crossings = BTreeSet::new();
            for (id, node) in whole.nodes() {
                let to = location(&node.assigned_device);
                let sources = node.inputs.iter().map(|input| (input.node, i64::from(input.slot)));
                for (source, slot) in sources.chain(node.control_inputs.iter().map(|&source| (source, -1))) {
                    if location(&whole.node(source).assigned_device) != to {
                        crossings.insert((source, slot, to.clone()));
                    }
                }
                assert!(parts.iter().any(|part| part.graph.find(&whole.node(id).name).is_some()));
            }
            let count = |flow| {
                parts.iter().flat_map(|part| part.graph.nodes()).filter(|(_, node)| node.op.flow == flow).count()
            };
            assert_eq!((count(Flow::Send), count(Flow::Recv)), (crossings.len(), crossings.len()));
            for part in &parts {
                check_partition_devices(&part.graph, &|device| location(device) == part.location).unwrap();
                let options = ImportOptions { allow_internal_names: true, expect_device: true };
                Graph::from_def_with(part.graph.to_stripped_def(), options).unwrap();
            }
        }
    }
}

#[test]
fn a_graph_on_one_device_stays_as_it_is() {
    let whole = assigned(vec![on(PS, constant("a")), on(PS, identity("b", &["a"]))]);
    let parts = by_task(&whole);
    assert_eq!((parts.len(), &*parts[0].location), (1, "/job:ps/replica:0/task:0"));
    for (id, node) in whole.nodes() {
        assert!(Arc::ptr_eq(node, parts[0].graph.node(id)));
    }
    assert!(by_task(&Graph::new()).is_empty());
    let two = assigned(vec![on(PS, constant("a")), on(PS_1, identity("b", &["a"]))]);
    assert_eq!(by_task(&two)[0].graph.to_def(), two.to_def());
}

#[test]
fn values_cross_as_tensorflow_sends_them() {
    let string = |name: &str, input: &str| node(name, "Identity", &[input], [("T", ty(7))]);
    let whole = assigned(vec![
        on(PS, constant("a")),
        on(WORKER, identity("b", &["a"])),
        on(WORKER, identity("c", &["a", "^a"])),
        on(PS, node("s", "Placeholder", &[], [("dtype", ty(7))])),
        on(WORKER, string("t", "s")),
    ]);
    let parts = by_task(&whole);
    let (ps, worker) = (part(&parts, "/job:ps/replica:0/task:0"), part(&parts, "/job:worker/replica:0/task:0"));
    assert_eq!(of_op(worker, "_Recv").len(), 2);
    assert_eq!((of_op(worker, "_HostRecv").len(), of_op(ps, "_HostSend").len()), (1, 1));
    let def = ps.to_stripped_def();
    let send = def.node.iter().find(|node| node.name == "a_S0").unwrap();
    assert_eq!((&*send.op, &*send.device, send.input.as_slice()), ("_Send", PS, ["a".to_owned()].as_slice()));
    let attrs: Vec<&str> = send.attr.keys().map(String::as_str).collect();
    assert_eq!(attrs, ["T", "_dst", "_src", "recv_device", "send_device", "send_device_incarnation", "tensor_name"]);
    let send = ps.node(ps.find("a_S0").unwrap());
    assert_eq!(send.attrs.str("tensor_name").unwrap(), "edge_0_a");
    assert_eq!((send.attrs.str("_src").unwrap(), send.attrs.str("_dst").unwrap()), ("a", "b"));
    assert_eq!(send.attrs.str("send_device").unwrap(), PS);
    assert_eq!(send.attrs.str("recv_device").unwrap(), WORKER);
    assert_eq!(send.attrs.int("send_device_incarnation").unwrap(), -6_981_923_801_274_311_600);
    assert!(!send.attrs.bool("client_terminated").unwrap());
    let (_, constant) = ps.nodes().find(|(_, node)| node.name.starts_with("a/ctrl_S")).unwrap();
    assert_eq!((constant.op_name(), constant.attrs.tensor("value").unwrap().shape().dims()), ("Const", [0].as_slice()));
    assert_eq!(ps.versions(), whole.versions());
}

#[test]
fn references_are_received_after_everything_else() {
    let shape = graphmill_wire::tensorflow::attr_value::Value::Shape(Default::default());
    let whole = assigned(vec![
        on(PS, node("v", "VariableV2", &[], [("dtype", ty(1)), ("shape", shape)])),
        on(WORKER, constant("a")),
        on(PS, constant("b")),
        on(WORKER, node("add", "AddN", &["v", "a", "v", "b", "^a"], [("T", ty(1)), ("N", int(4))])),
    ]);
    let parts = by_task(&whole);
    assert_eq!(glued(&parts), edges(&whole));
    let worker = part(&parts, "/job:worker/replica:0/task:0");
    let recvs = of_op(worker, "_Recv");
    assert_eq!(recvs.len(), 3, "a pair for each reference edge");
    let other: Vec<NodeId> =
        recvs.iter().map(|recv| recv.0).filter(|&id| worker.node(id).name.starts_with('b')).collect();
    for (id, _) in recvs.iter().filter(|(_, name)| name.starts_with("v_S")) {
        let waits = &worker.node(*id).control_inputs;
        assert_eq!(waits.as_slice(), [worker.find("a").unwrap(), other[0]]);
    }
}

#[test]
fn floats_cross_as_bfloat16_on_request() {
    let whole = assigned(vec![on(PS, constant("a")), on(WORKER, identity("b", &["a", "^a"]))]);
    let next_name = AtomicU64::new(5);
    let options =
        PartitionOptions { incarnation: &|_| Some(1), next_name: &next_name, bfloat16_sendrecv: true, location: &task };
    let parts = partition(&whole, &options).unwrap();
    let cast = |location| {
        let graph = part(&parts, location);
        let [(id, _)] = of_op(graph, "Cast")[..] else { panic!("one cast") };
        let attrs = &graph.node(id).attrs;
        (attrs.dtype("SrcT").unwrap().number(), attrs.dtype("DstT").unwrap().number(), attrs.bool("Truncate").unwrap())
    };
    assert_eq!(cast("/job:ps/replica:0/task:0"), (1, 14, true));
    assert_eq!(cast("/job:worker/replica:0/task:0"), (14, 1, false));
}

#[test]
fn parts_have_the_functions_that_they_need() {
    use crate::build::{func, function, with_functions};
    let call = |name: &str, f: &str| {
        node(name, "PartitionedCall", &["a"], [("Tin", types(&[1])), ("Tout", types(&[1])), ("f", func(f))])
    };
    let inner = vec![identity("r", &["x"])];
    let calls_g = vec![node("r", "g", &["x"], [])];
    let functions = vec![function("f", calls_g), function("g", inner.clone()), function("h", inner)];
    let nodes = vec![on(PS, constant("a")), on(WORKER, call("b", "f")), on(PS, call("c", "h"))];
    let options = ImportOptions { allow_internal_names: true, expect_device: true };
    let whole = Graph::from_def_with(with_functions(nodes, functions), options).unwrap();
    let parts = by_task(&whole);
    let names = |location| part(&parts, location).library().iter().map(|(name, _)| name.to_owned()).collect::<Vec<_>>();
    assert_eq!(names("/job:worker/replica:0/task:0"), ["f", "g"]);
    assert_eq!(names("/job:ps/replica:0/task:0"), ["h"]);
}

/// A loop within a loop; the bodies of both do something on the parameter server.
fn nested_loops(inner_pivot: bool) -> Vec<NodeDef> {
    let float = |name: &str, op: &str, inputs: &[&str]| node(name, op, inputs, [("T", ty(1))]);
    let merge = |name: &str, inputs: &[&str]| node(name, "Merge", inputs, [("T", ty(1)), ("N", int(2))]);
    let mut nodes = vec![
        constant("start"),
        constant("limit"),
        enter("outer/enter", "start", "outer"),
        node(
            "outer/limit",
            "Enter",
            &["limit"],
            [
                ("T", ty(1)),
                ("frame_name", text("outer")),
                ("is_constant", graphmill_wire::tensorflow::attr_value::Value::B(true)),
            ],
        ),
        merge("outer/merge", &["outer/enter", "outer/next"]),
        float("outer/less", "Less", &["outer/merge", "outer/limit"]),
        node("outer/cond", "LoopCond", &["outer/less"], []),
        float("outer/switch", "Switch", &["outer/merge", "outer/cond"]),
        enter("inner/enter", "outer/switch:1", "inner"),
        enter("inner/limit", "outer/limit", "inner"),
        merge("inner/merge", &["inner/enter", "inner/next"]),
        float("inner/less", "Less", &["inner/merge", "inner/limit"]),
        float("inner/switch", "Switch", &["inner/merge", if inner_pivot { "inner/cond" } else { "inner/less" }]),
        float("inner/next", "NextIteration", &["inner/back"]),
        float("inner/exit", "Exit", &["inner/switch"]),
        float("outer/next", "NextIteration", &["outer/after"]),
        float("outer/exit", "Exit", &["outer/switch"]),
        identity("inner/back", &["inner/remote"]),
        identity("outer/after", &["inner/exit"]),
    ];
    if inner_pivot {
        nodes.push(node("inner/cond", "LoopCond", &["inner/less"], []));
    }
    let mut nodes: Vec<NodeDef> = nodes.into_iter().map(|node| on(WORKER, node)).collect();
    nodes.push(on(PS, identity("inner/remote", &["inner/switch:1"])));
    nodes
}

#[test]
fn loops_within_loops_get_control_loops_within_control_loops() {
    let whole = assigned(nested_loops(true));
    let parts = by_task(&whole);
    let ps = part(&parts, "/job:ps/replica:0/task:0");
    let map = frames(ps).unwrap();
    let merges: BTreeMap<&str, NodeId> =
        of_op(ps, "Merge").into_iter().map(|(id, _)| (&*map.frame(map.of(id)).name, id)).collect();
    assert_eq!(merges.keys().copied().collect::<Vec<_>>(), ["inner", "outer"]);
    for (id, _) in of_op(ps, "Enter") {
        let node = ps.node(id);
        let source = node.inputs[0].node;
        match node.attrs.str("frame_name").unwrap() {
            "inner" => assert_eq!(source, merges["outer"]),
            _ => assert_eq!(ps.node(source).op_name(), "Const"),
        }
        assert!(node.name.starts_with("_cloop"));
    }
    let mut received = Vec::new();
    for (id, node) in ps.nodes().filter(|(_, node)| node.op.flow == Flow::Recv) {
        let frame = &*map.frame(map.of(id)).name;
        assert_eq!(node.control_inputs.as_slice(), [merges[frame]]);
        received.push((node.attrs.str("_src").unwrap(), frame));
    }
    received.sort_unstable();
    assert_eq!(received, [("inner/cond", "inner"), ("inner/switch", "inner"), ("outer/cond", "outer")]);
    let remote = ps.node(ps.find("inner/remote").unwrap());
    assert!(remote.control_inputs.is_empty());

    // What the parameter server sends back arrives in a loop of its own on the worker.
    let worker = part(&parts, "/job:worker/replica:0/task:0");
    let map = frames(worker).unwrap();
    for (id, node) in worker.nodes().filter(|(_, node)| node.op.flow == Flow::Recv) {
        let [merge] = node.control_inputs.as_slice() else { panic!("one control input") };
        assert!(worker.node(*merge).name.starts_with("_cloop") && map.of(*merge) == map.of(id));
        assert_ne!(map.of(id), FrameId::ROOT);
    }
}

#[test]
fn a_worker_splits_by_device_what_has_control_loops_already() {
    let mut nodes = nested_loops(true);
    nodes.last_mut().unwrap().name = "inner/first".to_owned();
    nodes.push(on(PS_1, identity("inner/remote", &["inner/first"])));
    let parts = by_task(&assigned(nodes));
    let ps = part(&parts, "/job:ps/replica:0/task:0");
    assert_eq!(of_op(ps, "Enter").len(), 4);
    let parts = cut(ps, &str::to_owned).unwrap();
    assert_eq!(parts.len(), 2);
    for part in &parts {
        let map = frames(&part.graph).unwrap();
        assert_eq!(of_op(&part.graph, "Enter").len(), 2);
        for (id, node) in part.graph.nodes().filter(|(_, node)| node.op.flow == Flow::Recv) {
            let [merge] = node.control_inputs.as_slice() else { panic!("one control input") };
            assert_eq!(map.of(*merge), map.of(id));
        }
    }
}

#[test]
fn graphs_that_cannot_be_cut() {
    fails(
        cut(&assigned(nested_loops(false)), &task),
        Code::InvalidArgument,
        "A cross-device loop must have a pivot predicate: inner",
    );
    let unknown = vec![on("/job:x/replica:0/task:0/device:CPU:0", constant("a")), on(PS, identity("b", &["a"]))];
    let text = "/job:x/replica:0/task:0/device:CPU:0 unknown device.";
    fails(cut(&assigned(unknown), &task), Code::InvalidArgument, text);
    let text = "Malformed assigned device '' of node {{node a}}";
    fails(cut(&import(vec![constant("a")]).unwrap(), &task), Code::Internal, text);
}

#[test]
fn control_flow_goes_where_its_data_is() {
    let mut whole = assigned(
        nested_loops(true)
            .into_iter()
            .map(|node| match &*node.name {
                "outer/switch" | "outer/exit" | "inner/enter" | "inner/next" | "outer/merge" => on(PS, node),
                _ => node,
            })
            .collect(),
    );
    colocate_control_flow(&mut whole).unwrap();
    let device = |name: &str| whole.node(whole.find(name).unwrap()).assigned_device.clone();
    assert_eq!(&*device("outer/switch"), PS);
    assert_eq!(&*device("outer/exit"), PS);
    assert_eq!(&*device("outer/enter"), PS);
    assert_eq!(&*device("outer/next"), PS);
    assert_eq!(&*device("inner/enter"), WORKER);
    assert_eq!(&*device("inner/next"), WORKER);
}

#[test]
fn devices_of_registered_parts() {
    let known = |device: &str| device == PS;
    let device = |device: &str| Graph::from_def(&graph(vec![on(device, constant("q"))])).unwrap();
    check_partition_devices(&device(PS), &known).unwrap();
    let missing = "Node 'q' is missing a device specification";
    fails(check_partition_devices(&device(""), &known), Code::InvalidArgument, missing);
    fails(check_partition_devices(&device("/cpu:0"), &known), Code::InvalidArgument, "/cpu:0 unknown device.");
    let options = ImportOptions { allow_internal_names: true, expect_device: true };
    fails(Graph::from_def_with(graph(vec![constant("q")]), options), Code::InvalidArgument, missing);
}
