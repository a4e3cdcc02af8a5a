//! Where nodes go.

use crate::build::{constant, fails, graph, identity, node, text, ty, types};
use graphmill_graph::{Graph, Node, PlacementDevice, PlacementOptions, place};
use graphmill_tensor::{Code, Result};
use graphmill_wire::tensorflow::NodeDef;
use graphmill_wire::tensorflow::attr_value::{ListValue, Value};

const MASTER: &str = "/job:worker/replica:0/task:0/device:CPU:0";
const PS: &str = "/job:ps/replica:0/task:0/device:CPU:0";
const PS_1: &str = "/job:ps/replica:0/task:1/device:CPU:0";
const GPU: &str = "/job:worker/replica:0/task:0/device:GPU:0";
const STRICT: PlacementOptions = PlacementOptions { soft: false, log: false };
const SOFT: PlacementOptions = PlacementOptions { soft: true, log: false };

fn devices(names: &[&str]) -> Vec<PlacementDevice> {
    let device = |name: &&str| PlacementDevice {
        name: (*name).to_owned(),
        device_type: if name.contains("GPU") { "GPU" } else { "CPU" }.to_owned(),
        local: name.starts_with("/job:worker"),
    };
    names.iter().map(device).collect()
}

fn on(device: &str, node: NodeDef) -> NodeDef {
    NodeDef { device: device.to_owned(), ..node }
}

fn with(class: &str, mut node: NodeDef) -> NodeDef {
    let list = ListValue { s: vec![format!("loc:@{class}").into()], ..Default::default() };
    node.attr
        .insert("_class".into(), graphmill_wire::tensorflow::AttrValue { value: Some(Value::List(Box::new(list))) });
    node
}

fn variable(name: &str) -> NodeDef {
    node(name, "VariableV2", &[], [("dtype", ty(1)), ("shape", Value::Shape(Default::default()))])
}

fn handle(name: &str) -> NodeDef {
    node(
        name,
        "VarHandleOp",
        &[],
        [("dtype", ty(1)), ("shape", Value::Shape(Default::default())), ("shared_name", text(name))],
    )
}

fn assign(name: &str, target: &str, value: &str) -> NodeDef {
    node(name, "Assign", &[target, value], [("T", ty(1))])
}

fn read(name: &str, handle: &str) -> NodeDef {
    node(name, "ReadVariableOp", &[handle], [("dtype", ty(1))])
}

/// Kernels for CPUs; for GPUs those of float math alone.
fn has_kernel(node: &Node, device_type: &str) -> bool {
    match device_type {
        "GPU" => matches!(node.op_name(), "Identity" | "Add" | "MatMul"),
        _ => node.op_name() != "NotAKernel",
    }
}

fn placed(nodes: Vec<NodeDef>, names: &[&str], options: PlacementOptions) -> Result<Vec<(String, String)>> {
    let mut graph = Graph::from_def(&graph(nodes)).unwrap();
    place(&mut graph, &devices(names), &has_kernel, &options)?;
    Ok(graph.nodes().map(|(_, node)| (node.name.to_string(), node.assigned_device.to_string())).collect())
}

#[track_caller]
fn goes(nodes: Vec<NodeDef>, options: PlacementOptions, wanted: &[(&str, &str)]) {
    let placed = placed(nodes, &[PS_1, PS, MASTER], options).unwrap();
    for (name, device) in wanted {
        let found = placed.iter().find(|(node, _)| node == name).unwrap();
        assert_eq!(found.1, *device, "{name}");
    }
}

#[test]
fn requests_are_obeyed_in_all_spellings() {
    for (request, device) in [
        ("", MASTER),
        ("/", MASTER),
        ("/cpu:0", MASTER),
        ("/device:CPU:*", MASTER),
        ("/job:ps", PS),
        ("/job:ps/task:1", PS_1),
        ("/task:1/job:ps/cpu:0", PS_1),
        ("/job:ps/replica:0/task:0/device:cpu:0", PS),
        ("/job:worker/task:0", MASTER),
    ] {
        goes(
            vec![on(request, constant("a")), on(request, identity("b", &["a"]))],
            STRICT,
            &[("a", device), ("b", device)],
        );
    }
}

#[test]
fn groups_are_together() {
    let nodes =
        || vec![on("/job:ps/task:1", variable("v")), constant("c"), assign("w", "v", "c"), identity("r", &["v"])];
    goes(nodes(), STRICT, &[("v", PS_1), ("w", PS_1), ("r", MASTER)]);
    // A maker of values goes to its only consumer.
    goes(nodes(), STRICT, &[("c", PS_1)]);
    let resources = vec![on("/job:ps", handle("v")), on("/job:worker", read("r", "v")), identity("i", &["r"])];
    goes(resources, STRICT, &[("v", PS), ("r", PS), ("i", MASTER)]);
    let classes = vec![
        with("b", constant("a")),
        on("/job:ps/task:1", constant("b")),
        with("nobody", constant("c")),
        with("nobody", on("/job:ps", identity("d", &["c"]))),
    ];
    goes(classes, STRICT, &[("a", PS_1), ("b", PS_1), ("c", PS), ("d", PS)]);
}

#[test]
fn makers_and_shapes_follow_what_they_belong_to() {
    let shape = |name: &str, input: &str| node(name, "Shape", &[input], [("T", ty(1))]);
    let nodes = vec![
        constant("shared"),
        constant("alone"),
        on("/job:ps", identity("p", &["shared"])),
        on("/job:worker", identity("w", &["shared"])),
        on("/job:ps/task:1", identity("q", &["alone"])),
        shape("s", "q"),
        on("/job:ps", shape("u", "q")),
        on("/job:ps/task:0", shape("t", "q")),
        constant("unused"),
    ];
    let wanted = [("shared", MASTER), ("alone", PS_1), ("s", PS_1), ("u", PS_1), ("t", PS), ("unused", MASTER)];
    goes(nodes, STRICT, &wanted);
}

#[test]
fn resources_out_of_calls_are_where_the_body_makes_them() {
    use graphmill_wire::tensorflow::op_def::ArgDef;
    use graphmill_wire::tensorflow::{FunctionDef, OpDef};
    const RESOURCE: i32 = 20;
    let function = |name: &str, body: Vec<NodeDef>, result: &str| {
        let arg = |name: &str| ArgDef { name: name.to_owned(), r#type: RESOURCE, ..Default::default() };
        let signature = OpDef {
            name: name.to_owned(),
            input_arg: vec![arg("x")],
            output_arg: vec![arg("y")],
            ..Default::default()
        };
        let ret = [("y".to_owned(), result.to_owned())].into();
        FunctionDef { signature: Some(signature), node_def: body, ret, ..Default::default() }
    };
    let through = vec![node("i", "Identity", &["x"], [("T", ty(RESOURCE))])];
    let functions =
        vec![function("f", through, "i:output:0"), function("g", vec![on("/job:ps", handle("h"))], "h:resource:0")];
    let call = |name: &str, f: &str, input: &str| {
        let attrs = [("Tin", types(&[RESOURCE])), ("Tout", types(&[RESOURCE])), ("f", crate::build::func(f))];
        node(name, "StatefulPartitionedCall", &[input], attrs)
    };
    let nodes = vec![
        on("/job:ps/task:1", handle("v")),
        call("passes", "f", "v"),
        read("r", "passes"),
        on("/task:1", call("makes", "g", "v")),
        read("s", "makes"),
    ];
    let mut graph = Graph::from_def(&crate::build::with_functions(nodes, functions)).unwrap();
    place(&mut graph, &devices(&[PS, PS_1, MASTER]), &has_kernel, &STRICT).unwrap();
    let mut graph = graphmill_graph::lower(graph).unwrap();
    place(&mut graph, &devices(&[PS, PS_1, MASTER]), &has_kernel, &STRICT).unwrap();
    for name in ["v", "r", "passes/i", "makes/h", "s"] {
        assert_eq!(&*graph.node(graph.find(name).unwrap()).assigned_device, PS_1, "{name}");
    }
}

#[test]
fn what_is_assigned_stays() {
    let mut graph =
        Graph::from_def(&graph(vec![variable("v"), constant("c"), assign("w", "v", "c"), identity("i", &["c"])]))
            .unwrap();
    graph.node_mut(graph.find("v").unwrap()).assigned_device = PS_1.into();
    place(&mut graph, &devices(&[PS, PS_1, MASTER]), &has_kernel, &STRICT).unwrap();
    let device = |name: &str| graph.node(graph.find(name).unwrap()).assigned_device.to_string();
    assert_eq!((device("v"), device("w"), device("i")), (PS_1.to_owned(), PS_1.to_owned(), MASTER.to_owned()));
    // Once more changes nothing.
    let before = graph.to_def();
    place(&mut graph, &devices(&[PS, PS_1, MASTER]), &has_kernel, &STRICT).unwrap();
    assert_eq!(graph.to_def(), before);
}

#[test]
fn soft_placement() {
    goes(vec![on("/gpu:0", constant("a"))], SOFT, &[("a", MASTER)]);
    goes(vec![on("/job:ps/task:1/gpu:3", constant("a"))], SOFT, &[("a", PS_1)]);
    goes(vec![on("/job:ps/cpu:7", constant("a"))], SOFT, &[("a", PS)]);
    assert!(placed(vec![on("/job:nobody/gpu:0", constant("a"))], &[PS, MASTER], SOFT).is_err());
    // A class that cannot be obeyed is let go.
    let classes = vec![on("/job:ps", constant("a")), with("a", on("/job:worker", constant("b")))];
    goes(classes, SOFT, &[("a", PS), ("b", MASTER)]);
}

#[test]
fn devices_of_the_preferred_type_come_first() {
    let nodes = vec![
        constant("c"),
        identity("i", &["c"]),
        on("/cpu:0", identity("j", &["i"])),
        node("s", "Shape", &["i"], [("T", ty(1))]),
    ];
    let placed = placed(nodes, &[PS, MASTER, GPU], STRICT).unwrap();
    let devices: Vec<&str> = placed.iter().map(|(_, device)| &**device).collect();
    assert_eq!(devices, [MASTER, GPU, MASTER, MASTER]);
}

#[test]
fn devices_that_do_not_exist() {
    for options in [STRICT, SOFT] {
        fails(
            placed(vec![on("/job:nobody", constant("a"))], &[PS, MASTER], options),
            Code::InvalidArgument,
            "Cannot assign a device for operation a: {{node a}} was explicitly assigned to /job:nobody but available devices are [ \
             /job:ps/replica:0/task:0/device:CPU:0, /job:worker/replica:0/task:0/device:CPU:0 ]. Make sure the device specification \
             refers to a valid device.\n\t [[a]]",
        );
    }
    fails(
        placed(vec![on("/device:GPU:0", constant("n1"))], &[MASTER], STRICT),
        Code::InvalidArgument,
        "Cannot assign a device for operation n1: {{node n1}} was explicitly assigned to /device:GPU:0 but available devices are [ \
         /job:worker/replica:0/task:0/device:CPU:0 ]. Make sure the device specification refers to a valid device. The requested \
         device appears to be a GPU, but CUDA is not enabled.\n\t [[n1]]",
    );
    fails(
        placed(vec![on("nonsense", node("a", "NoOp", &[], []))], &[MASTER], STRICT),
        Code::InvalidArgument,
        "Malformed device specification 'nonsense' in node: {name:'a' id:2 op device:{requested: 'nonsense', assigned: ''} \
         def:{{{node a}} = NoOp[_device=\"nonsense\"]()}}\n\t [[a]]",
    );
    fails(placed(vec![constant("a")], &[], STRICT), Code::FailedPrecondition, "No devices are registered");
}

#[test]
fn classes_that_contradict_each_other() {
    let nodes = vec![on("/job:ps", constant("a")), with("a", on("/job:worker", constant("b")))];
    fails(
        placed(nodes, &[PS, MASTER], STRICT),
        Code::InvalidArgument,
        "Cannot colocate nodes {{colocation_node b}} and {{colocation_node a}}: Cannot merge devices with incompatible jobs: \
         '/job:worker' and '/job:ps'\nNode 'b' asks for '/job:worker' and node 'a' asks for '/job:ps', and they must be on one device:\
         \n  'b' has the class 'loc:@a'\n\t [[{{node b}}]]",
    );
}

#[test]
fn groups_are_merged_in_the_order_of_tensorflow() {
    let nodes = vec![
        with("c", constant("a")),
        with("a", on("/cpu:2", constant("b"))),
        on("/cpu:1", constant("c")),
        identity("s", &["a"]),
    ];
    let three = ["/job:worker/replica:0/task:0/device:CPU:1", "/job:worker/replica:0/task:0/device:CPU:2", MASTER];
    let error = placed(nodes.clone(), &three, STRICT).unwrap_err();
    let start = "Cannot colocate nodes {{colocation_node c}} and {{colocation_node a}}: Cannot merge devices with incompatible ids: \
                 '/device:CPU:2' and '/device:CPU:1'\n";
    assert!(error.message().starts_with(start), "{}", error.message());
    assert!(error.message().ends_with("\n\t [[{{node c}}]]"));
    // The number that they do not agree upon is left open.
    let placed = placed(nodes, &three, SOFT).unwrap();
    assert!(placed.iter().all(|(_, device)| device == MASTER), "{placed:?}");
}

#[test]
fn conflicts_are_explained_by_the_whole_chain() {
    // The variable asks for one job; a node that is only joined to a writer of it by a class asks for another.
    let nodes = vec![
        on("/job:ps", variable("v")),
        constant("c"),
        assign("w", "v", "c"),
        with("w", identity("x", &["c"])),
        with("x", on("/job:worker", identity("y", &["c"]))),
    ];
    let error = placed(nodes, &[PS, MASTER], STRICT).unwrap_err();
    let text = error.message();
    assert!(text.starts_with("Cannot colocate nodes {{colocation_node y}} and {{colocation_node x}}: Cannot merge devices with incompatible jobs: '/job:"), "{text}");
    let chain = "\nNode 'y' asks for '/job:worker' and node 'v' asks for '/job:ps', and they must be on one device:\n  'y' has the class \
                 'loc:@x'\n  'x' has the class 'loc:@w'\n  'w' takes a reference from 'v'\n\t [[{{node y}}]]";
    assert!(text.ends_with(chain), "{text}");

    // Two resources that one op takes.
    let nodes = vec![
        on("/job:ps", handle("v")),
        on("/job:worker", handle("u")),
        node("b", "IdentityN", &["v", "u"], [("T", types(&[20, 20]))]),
        node("i", "Identity", &["v"], [("T", ty(20))]),
        node("s", "Select", &["p", "i", "u"], [("T", ty(20))]),
        node("p", "Placeholder", &[], [("dtype", ty(10))]),
    ];
    let error = placed(nodes, &[PS, MASTER], STRICT).unwrap_err();
    assert_eq!(
        error.message(),
        "Cannot place the graph because a reference or resource edge connects colocation groups with incompatible resource devices: \
         /job:worker vs /job:ps. The edge src node is u , and the dst node is s\nNode 'u' asks for '/job:worker' and node 'v' asks for \
         '/job:ps', and they must be on one device:\n  's' takes a resource from 'u'\n  's' takes a resource from 'i'\n  'i' takes a \
         resource from 'v'"
    );
}

#[test]
fn ops_without_a_kernel() {
    let none = |_: &Node, _: &str| false;
    let mut lonely = Graph::from_def(&graph(vec![node("n", "NoOp", &[], [])])).unwrap();
    fails(
        place(&mut lonely, &devices(&[MASTER]), &none, &STRICT),
        Code::InvalidArgument,
        "No OpKernel was registered to support Op 'NoOp' used by {{node n}} with these attrs: []\nRegistered devices: [CPU]\nRegistered \
         kernels:\n  <no registered kernels>\n\n\t [[n]]",
    );
    assert!(lonely.nodes().all(|(_, node)| node.assigned_device.is_empty()));
    // Another task may know the op.
    let mut remote = Graph::from_def(&graph(vec![on("/job:ps", node("n", "NoOp", &[], []))])).unwrap();
    place(&mut remote, &devices(&[MASTER, PS]), &none, &STRICT).unwrap();
    assert_eq!(&*remote.nodes().next().unwrap().1.assigned_device, PS);
}

#[test]
fn placements_are_told_on_request() {
    let nodes = vec![on("/job:ps", handle("v")), on("/job:worker", read("r", "v"))];
    let mut graph = Graph::from_def(&graph(nodes)).unwrap();
    let log = PlacementOptions { soft: false, log: true };
    let lines = place(&mut graph, &devices(&[PS, MASTER]), &has_kernel, &log).unwrap();
    assert!(
        lines[0].starts_with("Ignoring device specification /job:worker for node 'r' because the input edge from 'v'"),
        "{lines:?}"
    );
    assert_eq!(lines[1..], [format!("r: (ReadVariableOp): {PS}"), format!("v: (VarHandleOp): {PS}")]);
}
