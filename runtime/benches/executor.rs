//! The executor's cost per node: chains and wide graphs of scalar additions.

// A benchmark that cannot be set up has nothing to measure.
#![allow(clippy::expect_used)]

use divan::counter::ItemsCount;
use graphmill_graph::{ClientDevice, Graph, Signature, prune};
use graphmill_runtime::{
    Construction, Context, Device, Executor, FunctionRuntime, IntraOpPool, Kernel, KernelCache, Program, Registry, Step,
};
use graphmill_tensor::{DType, Result, Tensor};
use graphmill_wire::tensorflow::op_def::ArgDef;
use graphmill_wire::tensorflow::{
    AttrValue, FunctionDef, FunctionDefLibrary, GraphDef, NameAttrList, NodeDef, OpDef, VersionDef, attr_value,
};
use std::sync::{Arc, mpsc};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Add;

impl Kernel for Add {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let sum = ctx.input(0)?.scalar_value::<f32>()? + ctx.input(1)?.scalar_value::<f32>()?;
        let shape = ctx.input(0)?.shape().clone();
        let (mut out, _) = ctx.reuse_or_alloc(&[0, 1], 0, &shape)?;
        out.as_mut_slice::<f32>()?.fill(sum);
        ctx.set_output(0, out)
    }
}

fn node(name: String, op: &str, inputs: &[String], attr: &str) -> NodeDef {
    let float = AttrValue { value: Some(attr_value::Value::Type(DType::Float.number())) };
    NodeDef {
        name,
        op: op.to_owned(),
        input: inputs.to_vec(),
        attr: [(attr.to_owned(), float)].into(),
        ..Default::default()
    }
}

/// `width` chains of `length` additions, joined at the end.
fn program(width: usize, length: usize) -> Arc<Program> {
    let mut nodes = vec![node("x".into(), "Placeholder", &[], "dtype")];
    for w in 0..width {
        let mut last = "x".to_owned();
        for i in 0..length {
            let name = format!("n{w}_{i}");
            nodes.push(node(name.clone(), "AddV2", &[last, "x".to_owned()], "T"));
            last = name;
        }
        let before = if w == 0 { "x".to_owned() } else { format!("join{}", w - 1) };
        nodes.push(node(format!("join{w}"), "AddV2", &[before, last], "T"));
    }
    let versions = Some(VersionDef { producer: 1800, ..Default::default() });
    let graph = Graph::from_def(&GraphDef { node: nodes, versions, ..Default::default() }).expect("a valid graph");
    let client = ClientDevice { name: "/job:localhost/replica:0/task:0/device:CPU:0".into(), incarnation: 1 };
    let signature = Signature::new(vec!["x:0".into()], vec![format!("join{}:0", width - 1)], vec![]);
    let graph = prune(&graph, &signature, &client).expect("a valid signature");
    let mut registry = Registry::new();
    registry.op("AddV2").kernel(|_| Ok(Add));
    let device = Arc::new(Device::cpu("/job:localhost/replica:0/task:0", "localhost", 0, 1, IntraOpPool::new(1)));
    Arc::new(Program::build(&graph, &registry, &device, &KernelCache::new()).expect("a program"))
}

fn run(executor: &Executor, program: &Arc<Program>) {
    let (sender, receiver) = mpsc::channel();
    let feed = vec![Tensor::scalar(1f32).expect("a scalar")];
    executor.run(program, Arc::new(Step::new(1)), feed, move |outcome| drop(sender.send(outcome)));
    receiver.recv().expect("an outcome").expect("a run");
}

#[divan::bench(args = [(1, 1), (1, 1000), (1, 10_000), (10, 1000)])]
fn additions(bencher: divan::Bencher<'_, '_>, (width, length): (usize, usize)) {
    let program = program(width, length);
    let executor = Executor::new(2);
    bencher.counter(ItemsCount::new(width * length)).bench(|| run(&executor, &program));
}

/// A function of two additions, called as a dataset calls one for each element.
#[divan::bench]
fn call(bencher: divan::Bencher<'_, '_>) {
    let arg = |name: &str| ArgDef { name: name.into(), r#type: DType::Float.number(), ..Default::default() };
    let input = |name: &str| name.to_owned();
    let function = FunctionDef {
        signature: Some(OpDef {
            name: "f".into(),
            input_arg: vec![arg("x")],
            output_arg: vec![arg("y")],
            ..Default::default()
        }),
        node_def: vec![
            node("a".into(), "AddV2", &[input("x"), input("x")], "T"),
            node("b".into(), "AddV2", &[input("a:z:0"), input("x")], "T"),
        ],
        ret: [("y".to_owned(), "b:z:0".to_owned())].into(),
        ..Default::default()
    };
    let library = Some(FunctionDefLibrary { function: vec![function], ..Default::default() });
    let versions = Some(VersionDef { producer: 1800, ..Default::default() });
    let def = GraphDef { node: vec![node("n".into(), "NoOp", &[], "T")], library, versions, ..Default::default() };
    let graph = Graph::from_def(&def).expect("a valid graph");
    let mut registry = Registry::new();
    registry.op("AddV2").kernel(|_| Ok(Add));
    let device = Arc::new(Device::cpu("/job:localhost/replica:0/task:0", "localhost", 0, 1, IntraOpPool::new(1)));
    let runtime = FunctionRuntime::new(&graph, Arc::new(registry), device, Executor::new(1));
    let caller = graph.nodes().next().expect("a node").1;
    let name = NameAttrList { name: "f".into(), ..Default::default() };
    let device = runtime.devices().first();
    let function = Construction::with_functions(caller, device, &runtime).handle(name).bind().expect("a function");
    let step = Arc::new(Step::new(1));
    let x = Tensor::scalar(1f32).expect("a scalar");
    bencher.bench(|| function.call_blocking(&step, vec![x.clone()]));
}

fn main() {
    divan::main();
}
