//! Times of the kernels that training a small convolutional network on MNIST takes, on one and on two threads.
#![allow(clippy::expect_used)]

use graphmill_runtime::{AnyKernel, Construction, Context, Device, IntraOpPool, NodeInfo, Registry, Step, Value};
use graphmill_tensor::{DType, Shape, Tensor};
use graphmill_wire::tensorflow::{AttrValue, GraphDef, NodeDef, VersionDef, attr_value};
use std::sync::Arc;

fn main() {
    divan::main();
}

const BATCH: usize = 64;

fn image(dims: &[usize]) -> Tensor {
    let shape = Shape::from_dims(dims).expect("a shape");
    let values: Vec<f32> = (0..shape.num_elements()).map(|v| (v * 7 % 13) as f32 / 13.0 - 0.5).collect();
    Tensor::from_slice(shape, &values).expect("a tensor")
}

fn sizes(dims: &[usize]) -> Tensor {
    Tensor::vector(&dims.iter().map(|&d| d as i32).collect::<Vec<_>>()).expect("a vector")
}

/// An op of a network: name, attributes, inputs.
type Op = (&'static str, Vec<(&'static str, attr_value::Value)>, Vec<Tensor>);

fn ints(values: &[i64]) -> attr_value::Value {
    attr_value::Value::List(attr_value::ListValue { i: values.to_vec(), ..Default::default() }.into())
}

fn conv(name: &'static str, inputs: Vec<Tensor>) -> Op {
    let padding = attr_value::Value::S(b"SAME".to_vec().into());
    (name, vec![("strides", ints(&[1, 1, 1, 1])), ("padding", padding)], inputs)
}

fn pool(name: &'static str, inputs: Vec<Tensor>) -> Op {
    let padding = attr_value::Value::S(b"SAME".to_vec().into());
    (name, vec![("ksize", ints(&[1, 2, 2, 1])), ("strides", ints(&[1, 2, 2, 1])), ("padding", padding)], inputs)
}

fn run(bencher: divan::Bencher<'_, '_>, threads: usize, (name, attrs, inputs): Op) {
    let mut registry = Registry::new();
    graphmill_kernels_nn::register(&mut registry);
    let node = |name: String, op: &str, inputs: Vec<String>, attrs: &[(&str, attr_value::Value)]| NodeDef {
        name,
        op: op.to_owned(),
        input: inputs,
        attr: attrs.iter().map(|(n, v)| ((*n).to_owned(), AttrValue { value: Some(v.clone()) })).collect(),
        ..Default::default()
    };
    let mut nodes: Vec<NodeDef> = inputs
        .iter()
        .enumerate()
        .map(|(i, t)| {
            let dtype = attr_value::Value::Type(t.dtype().number());
            node(format!("in{i}"), "Placeholder", Vec::new(), &[("dtype", dtype)])
        })
        .collect();
    let mut attrs = attrs;
    attrs.push(("T", attr_value::Value::Type(DType::Float.number())));
    nodes.push(node("op".to_owned(), name, (0..inputs.len()).map(|i| format!("in{i}")).collect(), &attrs));
    let versions = Some(VersionDef { producer: 2474, ..Default::default() });
    let def = GraphDef { node: nodes, versions, ..Default::default() };
    let graph = graphmill_graph::Graph::from_def(&def).expect("a graph");
    let node = graph.node(graph.find("op").expect("the op"));
    let pool = IntraOpPool::new(threads);
    let device = Arc::new(Device::cpu("/job:localhost/replica:0/task:0", "localhost", 0, 1, pool));
    let AnyKernel::Sync(kernel) = registry.build(&Construction::new(node, &device)).expect("a kernel") else {
        return;
    };
    let info = NodeInfo {
        name: node.name.clone(),
        op: Arc::from(&*node.op.name),
        input_types: node.input_types.as_slice().into(),
        output_types: node.output_types.as_slice().into(),
    };
    let step = Arc::new(Step::new(1));
    bencher.bench_local(|| {
        let mut values: Vec<Value> = inputs.iter().cloned().map(Value::Tensor).collect();
        let mut outputs = vec![Value::None; info.output_types.len()];
        kernel.compute(&mut Context::new(&info, &step, &device, &mut values, &mut outputs)).expect("a result");
        outputs
    });
}

macro_rules! benches {
    ($($name:ident => $op:expr;)*) => {$(
        #[divan::bench(args = [1, 2])]
        fn $name(bencher: divan::Bencher<'_, '_>, threads: usize) {
            run(bencher, threads, $op);
        }
    )*};
}

benches! {
    conv1 => conv("Conv2D", vec![image(&[BATCH, 28, 28, 1]), image(&[5, 5, 1, 32])]);
    conv1_filter => conv(
        "Conv2DBackpropFilter",
        vec![image(&[BATCH, 28, 28, 1]), sizes(&[5, 5, 1, 32]), image(&[BATCH, 28, 28, 32])],
    );
    conv2 => conv("Conv2D", vec![image(&[BATCH, 14, 14, 32]), image(&[5, 5, 32, 64])]);
    conv2_input => conv(
        "Conv2DBackpropInput",
        vec![sizes(&[BATCH, 14, 14, 32]), image(&[5, 5, 32, 64]), image(&[BATCH, 14, 14, 64])],
    );
    conv2_filter => conv(
        "Conv2DBackpropFilter",
        vec![image(&[BATCH, 14, 14, 32]), sizes(&[5, 5, 32, 64]), image(&[BATCH, 14, 14, 64])],
    );
    bias1 => ("BiasAdd", vec![], vec![image(&[BATCH, 28, 28, 32]), image(&[32])]);
    bias1_gradient => ("BiasAddGrad", vec![], vec![image(&[BATCH, 28, 28, 32])]);
    relu1 => ("Relu", vec![], vec![image(&[BATCH, 28, 28, 32])]);
    relu1_gradient => ("ReluGrad", vec![], vec![image(&[BATCH, 28, 28, 32]), image(&[BATCH, 28, 28, 32])]);
    pool1 => pool("MaxPool", vec![image(&[BATCH, 28, 28, 32])]);
    pool1_gradient => pool(
        "MaxPoolGrad",
        vec![image(&[BATCH, 28, 28, 32]), image(&[BATCH, 14, 14, 32]), image(&[BATCH, 14, 14, 32])],
    );
    softmax => ("Softmax", vec![], vec![image(&[1000, 1000])]);
    conv_56x64 => conv("Conv2D", vec![image(&[8, 56, 56, 64]), image(&[3, 3, 64, 64])]);
    conv_7x512 => conv("Conv2D", vec![image(&[8, 7, 7, 512]), image(&[3, 3, 512, 512])]);
}
