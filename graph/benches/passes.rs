//! Cost of the passes over a graph of 50,000 nodes.

use divan::Bencher;
use divan::counter::ItemsCount;
use graphmill_graph::{
    ClientDevice, Graph, ImportOptions, PartitionOptions, PlacementDevice, PlacementOptions, Signature, frames,
    partition, place, prune, topological_order,
};
use graphmill_wire::tensorflow::attr_value::Value;
use graphmill_wire::tensorflow::{AttrValue, GraphDef, NodeDef};
use std::sync::atomic::AtomicU64;

// As in the server.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NODES: usize = 50_000;

fn main() {
    divan::main();
}

/// Chains of additions from one placeholder, each node with a colocation attribute as clients write them.
fn chains() -> GraphDef {
    let attr = |name: &str, value| (name.to_owned(), AttrValue { value: Some(value) });
    let mut node = vec![NodeDef {
        name: "x".into(),
        op: "Placeholder".into(),
        attr: [attr("dtype", Value::Type(1))].into(),
        ..Default::default()
    }];
    for at in 1..NODES {
        let source = if at < 10 { "x".to_owned() } else { format!("layer_{}/add", at - 9) };
        node.push(NodeDef {
            name: format!("layer_{at}/add"),
            op: "AddV2".into(),
            input: vec![source, "x".into(), "^x".into()],
            device: "/job:worker/task:0".into(),
            attr: [attr("T", Value::Type(1)), attr("_class", Value::List(Box::default()))].into(),
            ..Default::default()
        });
    }
    GraphDef { node, ..Default::default() }
}

fn graph() -> Graph {
    Graph::from_def_with(chains(), ImportOptions::default()).unwrap_or_default()
}

#[divan::bench]
fn import(bencher: Bencher) {
    let def = chains();
    bencher
        .counter(ItemsCount::new(NODES))
        .with_inputs(|| def.clone())
        .bench_values(|def| Graph::from_def_with(def, ImportOptions::default()));
}

#[divan::bench]
fn import_from_reference(bencher: Bencher) {
    let def = chains();
    bencher.counter(ItemsCount::new(NODES)).bench(|| Graph::from_def(&def));
}

#[divan::bench(args = ["layer_9/add", "layer_49999/add"])]
fn prune_to(bencher: Bencher, fetch: &str) {
    let graph = graph();
    let signature = Signature::new(vec!["x:0".into()], vec![format!("{fetch}:0")], vec![]);
    let client = ClientDevice { name: "/job:worker/replica:0/task:0/device:CPU:0".into(), incarnation: 1 };
    bencher.bench(|| prune(&graph, &signature, &client));
}

#[divan::bench]
fn prune_to_everything(bencher: Bencher) {
    let graph = graph();
    let targets = (NODES - 9..NODES).map(|at| format!("layer_{at}/add")).collect();
    let signature = Signature::new(vec!["x:0".into()], vec![], targets);
    let client = ClientDevice { name: "/job:worker/replica:0/task:0/device:CPU:0".into(), incarnation: 1 };
    bencher.counter(ItemsCount::new(NODES)).bench(|| prune(&graph, &signature, &client));
}

fn devices(tasks: usize) -> Vec<PlacementDevice> {
    let device = |task: usize| PlacementDevice {
        name: format!("/job:worker/replica:0/task:{task}/device:CPU:0"),
        device_type: "CPU".into(),
        local: task == 0,
    };
    (0..tasks).map(device).collect()
}

/// Every node asks for one of so many tasks.
fn spread(tasks: usize) -> Graph {
    let mut def = chains();
    for (at, node) in def.node.iter_mut().enumerate() {
        node.device = format!("/job:worker/task:{}", at % tasks);
    }
    Graph::from_def_with(def, ImportOptions::default()).unwrap_or_default()
}

#[divan::bench(args = [1, 2, 8])]
fn placed(bencher: Bencher, tasks: usize) {
    let devices = devices(tasks);
    let options = PlacementOptions::default();
    bencher
        .counter(ItemsCount::new(NODES))
        .with_inputs(|| spread(tasks))
        .bench_values(|mut graph| place(&mut graph, &devices, &|_, _| true, &options).map(|_| graph));
}

#[divan::bench(args = [1, 2, 8])]
fn parts(bencher: Bencher, tasks: usize) {
    let mut graph = spread(tasks);
    let placed = place(&mut graph, &devices(tasks), &|_, _| true, &PlacementOptions::default());
    assert!(placed.is_ok());
    bencher.counter(ItemsCount::new(NODES)).bench(|| {
        let options = PartitionOptions {
            incarnation: &|_| Some(1),
            next_name: &AtomicU64::new(0),
            bfloat16_sendrecv: false,
            location: &|device: &str| device.to_owned(),
        };
        partition(&graph, &options)
    });
}

#[divan::bench]
fn order(bencher: Bencher) {
    let graph = graph();
    bencher.bench(|| topological_order(&graph));
}

#[divan::bench]
fn find_frames(bencher: Bencher) {
    let graph = graph();
    bencher.bench(|| frames(&graph));
}

#[divan::bench]
fn clone(bencher: Bencher) {
    let graph = graph();
    bencher.bench(|| graph.clone());
}
