//! The executor's cost per node with kernels of scalars: chains of minimums and maximums, as tiny steps of real graphs have them.

// A benchmark that cannot be set up has nothing to measure.
#![allow(clippy::expect_used)]

use divan::counter::ItemsCount;
use graphmill_graph::{ClientDevice, Graph, Signature, prune};
use graphmill_runtime::{Device, Executor, IntraOpPool, KernelCache, Program, Registry, Step};
use graphmill_tensor::{DType, Tensor};
use graphmill_wire::tensorflow::{AttrValue, GraphDef, NodeDef, VersionDef, attr_value};
use std::sync::{Arc, mpsc};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn node(name: &str, op: &str, inputs: &[&str], attr: &str) -> NodeDef {
    let float = AttrValue { value: Some(attr_value::Value::Type(DType::Float.number())) };
    NodeDef {
        name: name.to_owned(),
        op: op.to_owned(),
        input: inputs.iter().map(|&input| input.to_owned()).collect(),
        attr: [(attr.to_owned(), float)].into(),
        ..Default::default()
    }
}

/// `width` chains of `length` nodes, joined at the end. The second operand comes from a node of its own every 50 nodes.
fn graph(width: usize, length: usize) -> GraphDef {
    let mut nodes = vec![node("x", "Placeholder", &[], "dtype"), node("a", "Placeholder", &[], "dtype")];
    let mut join = "x".to_owned();
    for w in 0..width {
        let (mut last, mut relay) = ("x".to_owned(), String::new());
        for i in 0..length {
            if i % 50 == 0 {
                relay = format!("relay{w}_{i}");
                nodes.push(node(&relay, "AddV2", &["a", "x"], "T"));
            }
            let name = format!("n{w}_{i}");
            let op = if i % 2 == 0 { "Minimum" } else { "Maximum" };
            nodes.push(node(&name, op, &[&last, &relay], "T"));
            last = name;
        }
        let name = format!("join{w}");
        nodes.push(node(&name, "AddV2", &[&join, &last], "T"));
        join = name;
    }
    let versions = Some(VersionDef { producer: 1800, ..Default::default() });
    GraphDef { node: nodes, versions, ..Default::default() }
}

fn program(width: usize, length: usize) -> Arc<Program> {
    let graph = Graph::from_def(&graph(width, length)).expect("a valid graph");
    let client = ClientDevice { name: "/job:localhost/replica:0/task:0/device:CPU:0".into(), incarnation: 1 };
    let feeds = vec!["x:0".into(), "a:0".into()];
    let signature = Signature::new(feeds, vec![format!("join{}:0", width - 1)], vec![]);
    let graph = prune(&graph, &signature, &client).expect("a valid signature");
    let mut registry = Registry::new();
    graphmill_kernels_math::register(&mut registry);
    let device = Arc::new(Device::cpu("/job:localhost/replica:0/task:0", "localhost", 0, 1, IntraOpPool::new(1)));
    Arc::new(Program::build(&graph, &registry, &device, &KernelCache::new()).expect("a program"))
}

fn run(executor: &Executor, program: &Arc<Program>) {
    let (sender, receiver) = mpsc::channel();
    let feeds = vec![Tensor::scalar(1f32).expect("a scalar"), Tensor::scalar(2f32).expect("a scalar")];
    executor.run(program, Arc::new(Step::new(1)), feeds, move |outcome| drop(sender.send(outcome)));
    receiver.recv().expect("an outcome").expect("a run");
}

#[divan::bench(args = [(1, 1000), (1, 10_000), (10, 1000)])]
fn chain(bencher: divan::Bencher<'_, '_>, (width, length): (usize, usize)) {
    let program = program(width, length);
    let executor = Executor::new(2);
    bencher.counter(ItemsCount::new(width * length)).bench(|| run(&executor, &program));
}

fn main() {
    divan::main();
}
