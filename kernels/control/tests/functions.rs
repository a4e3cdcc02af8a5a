//! Functions of a library: calls, recursion, loops, failures.

// The helpers run inside tests alone, where a panic is a failed test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use graphmill_graph::Graph;
use graphmill_runtime::{
    AsyncContext, AsyncKernel, Construction, Context, Device, Executor, FunctionHandle, FunctionRuntime, IntraOpPool,
    Kernel, Registry, Step,
};
use graphmill_tensor::{Code, DType, Result, Status, Tensor, cancelled, invalid_argument};
use graphmill_wire::tensorflow::attr_value::{ListValue, Value};
use graphmill_wire::tensorflow::op_def::ArgDef;
use graphmill_wire::tensorflow::{
    AttrValue, FunctionDef, FunctionDefLibrary, GraphDef, NameAttrList, NodeDef, OpDef, VersionDef,
};
use std::sync::{Arc, mpsc};
use std::time::Duration;

struct Ints(fn(&[i32]) -> Result<i32>);

impl Kernel for Ints {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let inputs = (0..ctx.num_inputs()).map(|i| ctx.input(i)?.scalar_value()).collect::<Result<Vec<i32>>>()?;
        ctx.set_scalar(0, (self.0)(&inputs)?)
    }
}

struct Constant(Tensor);

impl Kernel for Constant {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        ctx.set_output(0, self.0.clone())
    }
}

struct Pass;

impl Kernel for Pass {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let value = ctx.take_value(0)?;
        ctx.set_value(0, value)
    }
}

/// Ends with an error when the step is cancelled, and only then.
struct UntilCancelled;

impl AsyncKernel for UntilCancelled {
    fn start(&self, ctx: AsyncContext) {
        let step = ctx.step().clone();
        let slot = Arc::new(parking_lot::Mutex::new(Some(ctx)));
        let waiting = slot.clone();
        let wake = move || {
            if let Some(ctx) = waiting.lock().take() {
                ctx.complete(Err(cancelled!("woken")));
            }
        };
        if step.cancellation().register(wake).is_none()
            && let Some(ctx) = slot.lock().take()
        {
            ctx.complete(Err(cancelled!("late")));
        }
    }
}

/// Passes its input on from another thread.
struct Later;

impl AsyncKernel for Later {
    fn start(&self, mut ctx: AsyncContext) {
        std::thread::spawn(move || {
            let outcome = ctx.with_context(|ctx| {
                let value = ctx.take_value(0)?;
                ctx.set_value(0, value)
            });
            ctx.complete(outcome.map(|(_, outputs)| outputs));
        });
    }
}

fn registry() -> Registry {
    let mut registry = Registry::new();
    graphmill_kernels_control::register(&mut registry);
    registry.op("Const").kernel(|c| Ok(Constant(c.attrs().tensor("value")?)));
    registry.op("AddV2").kernel(|_| Ok(Ints(|v| Ok(v[0].wrapping_add(v[1])))));
    registry.op("Identity").kernel(|_| Ok(Pass));
    registry.op("Sub").kernel(|_| Ok(Ints(|v| Ok(v[0].wrapping_sub(v[1])))));
    registry.op("Abs").kernel(|_| Ok(Ints(|v| Err(invalid_argument!("no absolute value of {}", v[0])))));
    registry.op("StopGradient").async_kernel(|_| Ok(Later));
    registry.op("Invert").async_kernel(|_| Ok(UntilCancelled));
    registry
}

fn node(name: &str, op: &str, inputs: &[&str], attrs: &[(&str, Value)]) -> NodeDef {
    NodeDef {
        name: name.into(),
        op: op.into(),
        input: inputs.iter().map(|s| (*s).to_owned()).collect(),
        attr: attrs.iter().map(|(k, v)| ((*k).to_owned(), AttrValue { value: Some(v.clone()) })).collect(),
        ..Default::default()
    }
}

fn int(name: &str, op: &str, inputs: &[&str]) -> NodeDef {
    node(name, op, inputs, &[("T", Value::Type(DType::Int32.number()))])
}

fn constant(name: &str, value: i32) -> NodeDef {
    let tensor = Value::Tensor(Box::new(Tensor::scalar(value).unwrap().to_proto()));
    node(name, "Const", &[], &[("dtype", Value::Type(DType::Int32.number())), ("value", tensor)])
}

fn ints(count: usize) -> Value {
    Value::List(Box::new(ListValue { r#type: vec![DType::Int32.number(); count], ..Default::default() }))
}

fn func(name: &str) -> Value {
    Value::Func(NameAttrList { name: name.into(), ..Default::default() })
}

/// Calls `f` with the inputs, as a node that is not expanded: by a condition that is a number.
fn choose(name: &str, inputs: &[&str], then: &str, otherwise: &str) -> NodeDef {
    let types = ints(inputs.len() - 1);
    let attrs = [
        ("Tcond", Value::Type(DType::Int32.number())),
        ("Tin", types),
        ("Tout", ints(1)),
        ("then_branch", func(then)),
        ("else_branch", func(otherwise)),
    ];
    node(name, "StatelessIf", inputs, &attrs)
}

/// A function of int32 scalars.
fn function(name: &str, args: &[&str], nodes: Vec<NodeDef>, results: &[&str]) -> FunctionDef {
    let arg = |name: String| ArgDef { name, r#type: DType::Int32.number(), ..Default::default() };
    FunctionDef {
        signature: Some(OpDef {
            name: name.into(),
            input_arg: args.iter().map(|name| arg((*name).to_owned())).collect(),
            output_arg: (0..results.len()).map(|i| arg(format!("y{i}"))).collect(),
            ..Default::default()
        }),
        node_def: nodes,
        ret: results.iter().enumerate().map(|(i, r)| (format!("y{i}"), (*r).to_owned())).collect(),
        ..Default::default()
    }
}

struct Library(Arc<FunctionRuntime>);

impl Library {
    fn new(functions: Vec<FunctionDef>) -> Library {
        let def = GraphDef {
            library: Some(FunctionDefLibrary { function: functions, ..Default::default() }),
            versions: Some(VersionDef { producer: 1800, ..Default::default() }),
            ..Default::default()
        };
        let graph = Graph::from_def(&def).unwrap();
        let device = Device::cpu("/job:localhost/replica:0/task:0", "localhost", 0, 1, IntraOpPool::new(1));
        Library(FunctionRuntime::new(&graph, Arc::new(registry()), Arc::new(device), Executor::new(2)))
    }

    fn handle(&self, name: &str) -> FunctionHandle {
        let op = graphmill_graph::op_def("NoOp").unwrap();
        let node = graphmill_graph::Node::new("caller", op, Default::default()).unwrap();
        Construction::with_functions(&node, self.0.devices().first(), &self.0)
            .handle(NameAttrList { name: name.into(), ..Default::default() })
    }

    fn call(&self, name: &str, args: &[i32]) -> Result<Vec<i32>> {
        let args = args.iter().map(|&arg| Tensor::scalar(arg).unwrap()).collect();
        let results = self.handle(name).bind()?.call_blocking(&Arc::new(Step::new(1)), args)?;
        results.iter().map(|result| result.scalar_value()).collect()
    }
}

/// `sum(n) = n + sum(n - 1)`, 0 for 0; `forever(n) = forever(n)`.
fn recursive() -> Vec<FunctionDef> {
    vec![
        function("sum", &["n"], vec![choose("if", &["n", "n"], "more", "zero")], &["if:output:0"]),
        function("zero", &["n"], vec![], &["n"]),
        function(
            "more",
            &["n"],
            vec![
                constant("one", 1),
                int("less", "Sub", &["n", "one:output:0"]),
                choose("rest", &["less:z:0", "less:z:0"], "sum", "zero"),
                int("all", "AddV2", &["n", "rest:output:0"]),
            ],
            &["all:z:0"],
        ),
        function("forever", &["n"], vec![choose("if", &["n", "n"], "forever", "forever")], &["if:output:0"]),
        function(
            "countdown",
            &["n"],
            vec![
                constant("one", 1),
                int("less", "Sub", &["n", "one:output:0"]),
                int("later", "StopGradient", &["less:z:0"]),
                choose("if", &["later:output:0", "later:output:0"], "countdown", "zero"),
            ],
            &["if:output:0"],
        ),
    ]
}

#[test]
fn functions_are_called_and_called_again() {
    let double = function("double", &["x"], vec![int("a", "AddV2", &["x", "x"])], &["a:z:0"]);
    let swap = function("swap", &["x", "y"], vec![], &["y", "x"]);
    let library = Library::new(vec![double, swap]);
    let bound = library.handle("double").bind().unwrap();
    assert_eq!(bound.input_types().len(), 1);
    assert_eq!(bound.output_types()[0].dtype, DType::Int32);
    assert_eq!(library.call("double", &[4]).unwrap(), [8]);
    assert_eq!(library.call("swap", &[1, 2]).unwrap(), [2, 1]);
    let error = library.call("double", &[]).unwrap_err();
    assert_eq!(error.message(), "Expects 1 arguments, but 0 is provided");
    // What is bound outlives the library's owner; a handle does not keep the library.
    let handle = library.handle("double");
    drop(library);
    let results = bound.call_blocking(&Arc::new(Step::new(1)), vec![Tensor::scalar(5).unwrap()]).unwrap();
    assert_eq!(results[0].scalar_value::<i32>().unwrap(), 10);
    drop(bound);
    assert_eq!(handle.bind().err().unwrap().code(), Code::Internal);
}

#[test]
fn recursion_goes_deep() {
    let library = Library::new(recursive());
    assert_eq!(library.call("sum", &[4]).unwrap(), [10]);
    assert_eq!(library.call("sum", &[1500]).unwrap(), [1500 * 1501 / 2]);
    assert_eq!(library.call("countdown", &[300]).unwrap(), [0]);
}

#[test]
fn recursion_without_end_fails() {
    let error = Library::new(recursive()).call("forever", &[1]).unwrap_err();
    assert_eq!(error.code(), Code::ResourceExhausted);
    assert!(error.message().starts_with("Functions call each other more than"), "{}", &error.message()[..200]);
}

#[test]
fn what_is_missing_or_fails_is_named() {
    let inner = function("inner", &["x"], vec![int("bad", "Abs", &["x"])], &["bad:y:0"]);
    let outer = function("outer", &["x"], vec![choose("if", &["x", "x"], "inner", "lost")], &["if:output:0"]);
    let library = Library::new(vec![inner, outer]);
    let error = library.call("inner", &[3]).unwrap_err();
    assert_eq!(error.message(), "no absolute value of 3\n\t [[{{function_node inner}}{{node bad}}]]");
    let error = library.call("nothing", &[3]).unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::NotFound, "Function nothing is not defined."));
}

#[test]
fn a_failed_call_ends_its_waiting_kernels_and_not_the_step() {
    let nodes = vec![int("waits", "Invert", &["x"]), int("bad", "Abs", &["x"])];
    let library = Library::new(vec![function("f", &["x"], nodes, &["waits:y:0", "bad:y:0"])]);
    let step = Arc::new(Step::new(1));
    let bound = library.handle("f").bind().unwrap();
    for _ in 0..3 {
        let error = bound.call_blocking(&step, vec![Tensor::scalar(1).unwrap()]).unwrap_err();
        assert!(error.message().starts_with("no absolute value of 1"), "{error}");
        assert!(!step.cancellation().is_cancelled());
    }
}

#[test]
fn cancelling_the_step_ends_calls() {
    let waits = function("waits", &["x"], vec![int("w", "Invert", &["x"])], &["w:y:0"]);
    let mut functions = recursive();
    functions.push(waits);
    let library = Library::new(functions);
    let step = Arc::new(Step::new(1));
    let (sender, receiver) = mpsc::channel();
    let bound = library.handle("waits").bind().unwrap();
    bound.call(&step, vec![Tensor::scalar(1).unwrap()], move |outcome| drop(sender.send(outcome)));
    assert!(receiver.recv_timeout(Duration::from_millis(20)).is_err());
    let reason: Status = cancelled!("enough");
    step.cancellation().cancel(reason.clone());
    assert_eq!(receiver.recv_timeout(Duration::from_secs(30)).unwrap().unwrap_err(), reason);
}
