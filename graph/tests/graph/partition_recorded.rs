//! Parts as a real TensorFlow master cut them.

use crate::build::{graph, node, ty, types};
use crate::partition::{PS, WORKER, by_task};
use crate::recorded::calls;
use graphmill_graph::{ClientDevice, Graph, ImportOptions, PlacementDevice, PlacementOptions, Signature, place, prune};
use graphmill_wire::tensorflow::attr_value::Value;
use graphmill_wire::tensorflow::{AttrValue, CreateSessionRequest, GraphDef, NodeDef, RegisterGraphRequest};
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};

/// The graphs that the master registered with the parameter server.
fn registered(case: &str) -> Vec<GraphDef> {
    let calls = calls();
    let calls = calls.iter().filter(|call| call.case == case && call.method == "RegisterGraph");
    calls
        .map(|call| RegisterGraphRequest::decode(call.request.as_slice()).unwrap().graph_def.unwrap_or_default())
        .collect()
}

/// A name without the number that the master counts, and with the op where it was made by the master.
fn canonical(name: &str, op: &str) -> String {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match name.rsplit_once("_S") {
        Some((_, number)) if name.starts_with("_cloop") && is_number(number) => format!("_cloop#{op}"),
        Some((_, number)) if op == "Const" && is_number(number) => "#Const".to_owned(),
        Some((base, number)) if is_number(number) => format!("{base}#{op}"),
        _ => name.to_owned(),
    }
}

/// Control inputs, data inputs, attributes and device of a node.
type Described = (BTreeSet<String>, Vec<String>, BTreeMap<String, AttrValue>, String);

/// Nodes by canonical name. Which edge named a pair, and what this master's optimiser left behind, does not count.
fn nodes(def: &GraphDef) -> BTreeMap<String, Described> {
    let ops: BTreeMap<&str, &str> = def.node.iter().map(|node| (node.name.as_str(), node.op.as_str())).collect();
    let input = |text: &str| {
        let plain = text.trim_start_matches('^');
        let (name, slot) = plain.split_once(':').unwrap_or((plain, ""));
        format!("{}{}{slot}", if text.starts_with('^') { "^" } else { "" }, canonical(name, ops[name]))
    };
    let mut found = BTreeMap::new();
    for node in &def.node {
        let control = node.input.iter().filter(|text| text.starts_with('^')).map(|text| input(text)).collect();
        let data = node.input.iter().filter(|text| !text.starts_with('^')).map(|text| input(text)).collect();
        let mut attrs = node.attr.clone();
        attrs.retain(|name, _| name != "_dst" && name != "_XlaHasReferenceVars" && !name.starts_with("_grappler"));
        if let Some(AttrValue { value: Some(Value::S(name)) }) = attrs.get_mut("tensor_name") {
            let text = String::from_utf8(name.to_vec()).unwrap();
            *name = text.splitn(3, '_').last().unwrap().to_owned().into();
        }
        let key = canonical(&node.name, &node.op);
        assert!(found.insert(key, (control, data, attrs, node.device.clone())).is_none(), "{}", node.name);
    }
    found
}

fn check(whole: &Graph, recorded: &GraphDef) {
    let parts = by_task(whole);
    let ps = parts.iter().find(|part| part.location == "/job:ps/replica:0/task:0").unwrap();
    let (own, theirs) = (nodes(&ps.graph.to_stripped_def()), nodes(recorded));
    assert_eq!(own.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>());
    for (name, node) in &own {
        assert_eq!(node, &theirs[name], "{name}");
    }
    assert_eq!(Some(ps.graph.versions()), recorded.versions.as_ref());
}

fn devices() -> [PlacementDevice; 2] {
    [(PS, false), (WORKER, true)].map(|(name, local)| PlacementDevice {
        name: name.to_owned(),
        device_type: "CPU".to_owned(),
        local,
    })
}

/// The client's graph of the cases `loop` and `cond`, with the inputs that the master's optimiser rewired.
fn client_graph(rewired: &[(&str, &[&str])], feed: &str, fetches: &[&str]) -> Graph {
    let calls = calls();
    let create = calls.iter().find(|call| call.case == "loop" && call.method == "CreateSession").unwrap();
    let mut def = CreateSessionRequest::decode(create.request.as_slice()).unwrap().graph_def.unwrap();
    for (name, inputs) in rewired {
        let node = def.node.iter_mut().find(|node| node.name == *name).unwrap();
        node.input = inputs.iter().map(|&input| input.to_owned()).collect();
    }
    // The first of two consumers makes the pair that both share; the optimiser put them in another order.
    let position = |name: &str| def.node.iter().position(|node| node.name == name).unwrap();
    let (mul, add) = (position("while/mul/y"), position("while/add/y"));
    def.node.swap(mul, add);
    let mut whole = Graph::from_def(&def).unwrap();
    place(&mut whole, &devices(), &|_, _| true, &PlacementOptions::default()).unwrap();
    let client = ClientDevice { name: WORKER.to_owned(), incarnation: 918_794_783_083_180_313 };
    let fetches = fetches.iter().map(|&fetch| fetch.to_owned()).collect();
    prune(&whole, &Signature::new(vec![feed.to_owned()], fetches, Vec::new()), &client).unwrap()
}

#[test]
fn the_part_of_a_loop() {
    let rewired: [(&str, &[&str]); 2] =
        [("while/mul", &["while/Switch_1:1", "while/mul/y"]), ("while/add", &["while/add/y", "while/mul"])];
    let whole = client_graph(&rewired, "n:0", &["while/Exit:0", "while/Exit_1:0"]);
    check(&whole, &registered("loop")[0]);
}

#[test]
fn the_part_of_a_conditional() {
    let rewired: [(&str, &[&str]); 1] = [("cond/mul", &["cond/mul/y", "cond/sub/Switch:1"])];
    let whole = client_graph(&rewired, "pl:0", &["cond/Merge:0"]);
    check(&whole, &registered("cond")[0]);
}

/// The whole that a part comes from, as far as the part shows it: nodes that make what it receives and take what it sends.
fn around(recorded: &GraphDef) -> Graph {
    let of = |node: &NodeDef, attr: &str| match node.attr.get(attr).and_then(|attr| attr.value.clone()) {
        Some(Value::S(text)) => String::from_utf8(text.to_vec()).unwrap(),
        _ => panic!("{attr} of {}", node.name),
    };
    let dtype = |node: &NodeDef, attr: &str| match node.attr[attr].value {
        Some(Value::Type(number)) => number,
        _ => panic!("{attr} of {}", node.name),
    };
    let mut defs = Vec::new();
    let mut sources: BTreeMap<&str, String> = BTreeMap::new();
    let mut taken: BTreeMap<String, Vec<(String, i32)>> = BTreeMap::new();
    for def in &recorded.node {
        let is_client = def.attr.contains_key("client_terminated");
        match &*def.op {
            _ if is_client => panic!("the client is on the worker"),
            "_Recv" | "_HostRecv" => {
                let source = of(def, "_src");
                sources.insert(&def.name, source.clone());
                let made = node(&source, "Placeholder", &[], [("dtype", ty(dtype(def, "tensor_type")))]);
                defs.push(NodeDef { device: WORKER.to_owned(), ..made });
            }
            "_Send" | "_HostSend" => {
                taken.entry(of(def, "_dst")).or_default().push((def.input[0].clone(), dtype(def, "T")));
            }
            _ => defs.push(def.clone()),
        }
    }
    for (name, inputs) in taken {
        let list: Vec<i32> = inputs.iter().map(|input| input.1).collect();
        let inputs: Vec<&str> = inputs.iter().map(|input| &*input.0).collect();
        let device = WORKER.to_owned();
        defs.push(NodeDef { device, ..node(&name, "IdentityN", &inputs, [("T", types(&list))]) });
    }
    for input in defs.iter_mut().flat_map(|def| &mut def.input) {
        if let Some(source) = sources.get(input.as_str()) {
            *input = source.clone();
        }
    }
    let options = ImportOptions { allow_internal_names: true, expect_device: true };
    let versions = recorded.versions.clone();
    Graph::from_def_with(GraphDef { versions, ..graph(defs) }, options).unwrap()
}

#[test]
fn the_parts_of_a_training_step() {
    let parts = registered("mlp");
    assert_eq!(parts.len(), 2);
    for recorded in &parts {
        if recorded.node.iter().any(|node| node.op == "_Send") {
            check(&around(recorded), recorded);
        }
    }
}
