//! Programs over several devices of a task, and functions that are called on others.

// The helpers run inside tests alone, where a panic is a failed test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use graphmill_graph::{Graph, ImportOptions, RemoteBody};
use graphmill_runtime::{
    Context, Devices, Executor, FunctionRuntime, IntraOpPool, Kernel, KernelCache, Program, Registry, RemoteFunction,
    RemoteTasks, Step,
};
use graphmill_tensor::{Result, Shape, Tensor, invalid_argument};
use graphmill_wire::tensorflow::attr_value::{ListValue, Value};
use graphmill_wire::tensorflow::op_def::ArgDef;
use graphmill_wire::tensorflow::{
    AttrValue, FunctionDef, FunctionDefLibrary, GraphDef, NameAttrList, NodeDef, OpDef, VersionDef,
};
use std::sync::{Arc, mpsc};

const TASK: &str = "/job:a/replica:0/task:0";
const INT32: i32 = 3;

/// Writes the number of its device behind the digits of its input, counted from 1.
struct Visit;

impl Kernel for Visit {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let number = i32::from(ctx.device().name().as_bytes()[TASK.len() + "/device:CPU:".len()] - b'0');
        let before: i32 = ctx.input(0)?.scalar_value()?;
        ctx.set_scalar(0, before * 10 + number + 1)
    }
}

struct Constant(Tensor);

impl Kernel for Constant {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        ctx.set_output(0, self.0.clone())
    }
}

/// Another task, whose functions take the digit 9.
struct Elsewhere;

struct Nine;

impl RemoteTasks for Elsewhere {
    fn function(&self, device: &str, body: RemoteBody) -> Result<Arc<dyn RemoteFunction>> {
        if device != "/job:b/replica:0/task:0/device:CPU:3" {
            return Err(invalid_argument!("Could not find worker with target: {device}"));
        }
        assert_eq!(
            (body.args.as_slice(), body.results.as_slice()),
            (&["x".to_owned()][..], &["y_RetVal".to_owned()][..])
        );
        assert!(body.graph.nodes().all(|(_, node)| &*node.assigned_device == device));
        Ok(Arc::new(Nine))
    }
}

impl RemoteFunction for Nine {
    fn call(self: Arc<Self>, _: &Arc<Step>, args: Vec<Tensor>, done: Box<dyn FnOnce(Result<Vec<Tensor>>) + Send>) {
        done(args[0].scalar_value::<i32>().and_then(|before| Ok(vec![Tensor::scalar(before * 10 + 9)?])));
    }
}

fn node(name: &str, op: &str, cpu: usize, inputs: &[&str], attrs: &[(&str, Value)]) -> NodeDef {
    NodeDef {
        name: name.into(),
        op: op.into(),
        device: format!("{TASK}/device:CPU:{cpu}"),
        input: inputs.iter().map(|s| (*s).to_owned()).collect(),
        attr: attrs.iter().map(|(k, v)| ((*k).to_owned(), AttrValue { value: Some(v.clone()) })).collect(),
        ..Default::default()
    }
}

fn constant(name: &str, value: &Tensor) -> NodeDef {
    let attrs = [("dtype", Value::Type(value.dtype().number())), ("value", Value::Tensor(Box::new(value.to_proto())))];
    node(name, "Const", 0, &[], &attrs)
}

fn visit(name: &str, cpu: usize, input: &str) -> NodeDef {
    node(name, "Abs", cpu, &[input], &[("T", Value::Type(INT32))])
}

/// `f`, called by the node of this op with these inputs.
fn call(name: &str, op: &str, cpu: usize, inputs: &[&str]) -> NodeDef {
    let types = || Value::List(Box::new(ListValue { r#type: vec![INT32], ..Default::default() }));
    let f = Value::Func(NameAttrList { name: "f".into(), ..Default::default() });
    node(name, op, cpu, inputs, &[("Tin", types()), ("Tout", types()), ("f", f)])
}

/// What the last node of a graph gives, with a function `f` whose body asks for the first device.
fn run(mut nodes: Vec<NodeDef>) -> Result<i32> {
    let last = nodes.last().unwrap().name.clone();
    let result = [("T", Value::Type(INT32)), ("index", Value::I(0))];
    nodes.push(node("result", "_Retval", 0, &[&last], &result));
    let arg = |name: &str| ArgDef { name: name.into(), r#type: INT32, ..Default::default() };
    let f = FunctionDef {
        signature: Some(OpDef {
            name: "f".into(),
            input_arg: vec![arg("x")],
            output_arg: vec![arg("y")],
            ..Default::default()
        }),
        node_def: vec![visit("a", 0, "x")],
        ret: [("y".to_owned(), "a:y:0".to_owned())].into(),
        ..Default::default()
    };
    let def = GraphDef {
        node: nodes,
        library: Some(FunctionDefLibrary { function: vec![f], ..Default::default() }),
        versions: Some(VersionDef { producer: 1800, ..Default::default() }),
        ..Default::default()
    };
    let graph = Graph::from_def_with(def, ImportOptions { allow_internal_names: true, expect_device: true })?;
    let mut registry = Registry::new();
    graphmill_kernels_control::register(&mut registry);
    registry.op("Abs").kernel(|_| Ok(Visit));
    registry.op("Const").kernel(|c| Ok(Constant(c.attrs().tensor("value")?)));
    let devices = Devices::cpus(TASK, "a", 2, || 1, &IntraOpPool::new(1));
    let executor = Executor::new(1);
    let remote: Option<Arc<dyn RemoteTasks>> = Some(Arc::new(Elsewhere));
    let functions = FunctionRuntime::in_cluster(&graph, Arc::new(registry), devices, executor.clone(), remote);
    let program = Arc::new(Program::build_with(&graph, &functions, &KernelCache::new())?);
    let (sender, receiver) = mpsc::channel();
    executor.run(&program, Arc::new(Step::new(1)), Vec::new(), move |outcome| sender.send(outcome).unwrap());
    receiver.recv().unwrap()?[0].scalar_value()
}

fn zero() -> NodeDef {
    constant("zero", &Tensor::scalar(0).unwrap())
}

fn target(name: &str) -> NodeDef {
    constant("target", &Tensor::from_strings(Shape::scalar(), vec![name.to_owned().into()]).unwrap())
}

#[test]
fn nodes_run_on_their_devices_and_functions_on_that_of_their_call() {
    assert_eq!(run(vec![zero(), visit("a", 0, "zero"), visit("b", 1, "a"), visit("c", 0, "b")]).unwrap(), 121);
    assert_eq!(run(vec![zero(), call("f0", "PartitionedCall", 0, &["zero"])]).unwrap(), 1);
    assert_eq!(
        run(vec![
            zero(),
            call("f1", "PartitionedCall", 1, &["zero"]),
            call("f0", "PartitionedCall", 0, &["f1"]),
            call("again", "PartitionedCall", 1, &["f0"])
        ])
        .unwrap(),
        212
    );
}

#[test]
fn remote_calls_run_where_they_are_told_to() {
    let on = |name: &str| run(vec![zero(), target(name), call("r", "RemoteCall", 1, &["target", "zero"])]);
    for (name, expected) in [("/cpu:0", 1), ("/device:CPU:1", 2), ("/job:a", 2), (TASK, 2), ("/job:b/task:0/cpu:3", 9)]
    {
        assert_eq!(on(name).unwrap(), expected, "{name}");
    }
    for (name, text) in [
        ("/cpu:2", "/cpu:2 unknown device."),
        ("/job:b/task:1/cpu:3", "Could not find worker with target: /job:b/replica:0/task:1/device:CPU:3"),
        ("nowhere", "Could not parse nowhere into a device specification."),
    ] {
        assert!(on(name).unwrap_err().message().starts_with(text), "{name}");
    }
}
