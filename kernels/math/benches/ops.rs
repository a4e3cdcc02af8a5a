//! Times of common ops, on one and on two threads.
#![allow(clippy::expect_used)]

use graphmill_graph::Graph;
use graphmill_runtime::{AnyKernel, Construction, Context, Device, IntraOpPool, NodeInfo, Registry, Step, Value};
use graphmill_tensor::{DType, Shape, Tensor};
use graphmill_wire::tensorflow::{AttrValue, GraphDef, NodeDef, VersionDef, attr_value};
use std::sync::Arc;

fn main() {
    divan::main();
}

fn floats(dims: &[usize]) -> Tensor {
    let shape = Shape::from_dims(dims).expect("a shape");
    let values: Vec<f32> = (0..shape.num_elements()).map(|v| (v * 7 % 13) as f32 / 13.0 - 0.4).collect();
    Tensor::from_slice(shape, &values).expect("a tensor")
}

fn axes(axes: &[i32]) -> Tensor {
    Tensor::vector(axes).expect("a vector")
}

fn node(name: String, op: &str, input: Vec<String>, attrs: &[(&str, attr_value::Value)]) -> NodeDef {
    let attr = attrs.iter().map(|(n, v)| ((*n).to_owned(), AttrValue { value: Some(v.clone()) })).collect();
    NodeDef { name, op: op.to_owned(), input, attr, ..Default::default() }
}

/// Makes the kernel once and times its runs on shared inputs.
fn run(bencher: divan::Bencher<'_, '_>, threads: usize, op: &str, flags: &[&str], inputs: Vec<Tensor>) {
    let mut registry = Registry::new();
    graphmill_kernels_math::register(&mut registry);
    let dtype = |t: &Tensor| attr_value::Value::Type(t.dtype().number());
    let mut attrs = vec![("T", attr_value::Value::Type(DType::Float.number()))];
    attrs.extend(flags.iter().map(|&flag| (flag, attr_value::Value::B(true))));
    if op == "AddN" {
        attrs.push(("N", attr_value::Value::I(inputs.len() as i64)));
    }
    let mut nodes: Vec<NodeDef> = Vec::new();
    for (i, input) in inputs.iter().enumerate() {
        nodes.push(node(format!("in{i}"), "Placeholder", Vec::new(), &[("dtype", dtype(input))]));
    }
    nodes.push(node("op".to_owned(), op, (0..inputs.len()).map(|i| format!("in{i}")).collect(), &attrs));
    let versions = Some(VersionDef { producer: 2474, ..Default::default() });
    let graph = Graph::from_def(&GraphDef { node: nodes, versions, ..Default::default() }).expect("a graph");
    let made = graph.node(graph.find("op").expect("the op"));
    let device = Arc::new(Device::cpu("/job:a/replica:0/task:0", "a", 0, 1, IntraOpPool::new(threads)));
    let kernel = match registry.build(&Construction::new(made, &device)).expect("a kernel") {
        AnyKernel::Sync(kernel) => kernel,
        AnyKernel::Async(_) => unreachable!("ops of mathematics do not wait"),
    };
    let info = NodeInfo {
        name: made.name.clone(),
        op: Arc::from(op),
        input_types: made.input_types.as_slice().into(),
        output_types: made.output_types.as_slice().into(),
    };
    let step = Arc::new(Step::new(1));
    bencher.bench_local(|| {
        let mut values: Vec<Value> = inputs.iter().cloned().map(Value::Tensor).collect();
        let mut outputs = [Value::None];
        kernel.compute(&mut Context::new(&info, &step, &device, &mut values, &mut outputs)).expect("a result");
        outputs
    });
}

#[divan::bench(args = [1, 2])]
fn add_scalars(b: divan::Bencher<'_, '_>, threads: usize) {
    run(b, threads, "AddV2", &[], vec![floats(&[]), floats(&[])]);
}

#[divan::bench(args = [1, 2])]
fn add_million(b: divan::Bencher<'_, '_>, threads: usize) {
    run(b, threads, "AddV2", &[], vec![floats(&[1000, 1000]), floats(&[1000, 1000])]);
}

#[divan::bench(args = [1, 2])]
fn add_bias(b: divan::Bencher<'_, '_>, threads: usize) {
    run(b, threads, "AddV2", &[], vec![floats(&[10_000, 100]), floats(&[100])]);
}

#[divan::bench(args = [1, 2])]
fn exp_million(b: divan::Bencher<'_, '_>, threads: usize) {
    run(b, threads, "Exp", &[], vec![floats(&[1000, 1000])]);
}

#[divan::bench(args = [1, 2])]
fn tanh_million(b: divan::Bencher<'_, '_>, threads: usize) {
    run(b, threads, "Tanh", &[], vec![floats(&[1000, 1000])]);
}

#[divan::bench(args = [1, 2])]
fn add_four(b: divan::Bencher<'_, '_>, threads: usize) {
    run(b, threads, "AddN", &[], vec![floats(&[1000, 1000]); 4]);
}

#[divan::bench(args = [1, 2])]
fn sum_all(b: divan::Bencher<'_, '_>, threads: usize) {
    run(b, threads, "Sum", &[], vec![floats(&[1000, 1000]), axes(&[0, 1])]);
}

#[divan::bench(args = [1, 2])]
fn sum_rows(b: divan::Bencher<'_, '_>, threads: usize) {
    run(b, threads, "Sum", &[], vec![floats(&[1000, 1000]), axes(&[1])]);
}

#[divan::bench(args = [1, 2])]
fn sum_columns(b: divan::Bencher<'_, '_>, threads: usize) {
    run(b, threads, "Sum", &[], vec![floats(&[1000, 1000]), axes(&[0])]);
}

#[divan::bench(args = [1, 2])]
fn max_rows_of_ten(b: divan::Bencher<'_, '_>, threads: usize) {
    run(b, threads, "Max", &[], vec![floats(&[100_000, 10]), axes(&[1])]);
}

/// Rows and columns of the result, length of the sums.
const PRODUCTS: [(usize, usize, usize); 9] = [
    (64, 64, 64),
    (128, 128, 128),
    (256, 256, 256),
    (1024, 1024, 1024),
    (64, 128, 784),
    (64, 10, 128),
    (1, 1024, 1024),
    (8, 1024, 1024),
    (32, 1000, 2048),
];

#[divan::bench(args = PRODUCTS)]
fn product(b: divan::Bencher<'_, '_>, (m, n, k): (usize, usize, usize)) {
    run(
        b.counter(divan::counter::ItemsCount::new(2 * m * n * k)),
        1,
        "MatMul",
        &[],
        vec![floats(&[m, k]), floats(&[k, n])],
    );
}

#[divan::bench(args = PRODUCTS)]
fn product_on_two(b: divan::Bencher<'_, '_>, (m, n, k): (usize, usize, usize)) {
    run(
        b.counter(divan::counter::ItemsCount::new(2 * m * n * k)),
        2,
        "MatMul",
        &[],
        vec![floats(&[m, k]), floats(&[k, n])],
    );
}

#[divan::bench(args = PRODUCTS)]
fn product_of_transposes(b: divan::Bencher<'_, '_>, (m, n, k): (usize, usize, usize)) {
    let flags = ["transpose_a", "transpose_b"];
    run(
        b.counter(divan::counter::ItemsCount::new(2 * m * n * k)),
        1,
        "MatMul",
        &flags,
        vec![floats(&[k, m]), floats(&[n, k])],
    );
}
