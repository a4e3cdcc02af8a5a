//! The executor with real control-flow kernels: loops, conditionals, waiting kernels, failures and cancellation.

// The helpers run inside tests alone, where a panic is a failed test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use graphmill_graph::{ClientDevice, Graph, Signature, prune};
use graphmill_runtime::{
    AsyncContext, AsyncKernel, Context, Device, Executor, IntraOpPool, Kernel, KernelCache, Program, Registry, Step,
};
use graphmill_tensor::{Code, DType, Result, Tensor, invalid_argument};
use graphmill_wire::tensorflow::{AttrValue, GraphDef, NodeDef, VersionDef, attr_value};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Applies a function to int32 scalars.
struct Ints(fn(&[i32]) -> Result<Out>);

enum Out {
    Int(i32),
    Bool(bool),
}

impl Kernel for Ints {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        let inputs = (0..ctx.num_inputs()).map(|i| ctx.input(i)?.scalar_value()).collect::<Result<Vec<i32>>>()?;
        match (self.0)(&inputs)? {
            Out::Int(value) => ctx.set_scalar(0, value),
            Out::Bool(value) => ctx.set_scalar(0, value),
        }
    }
}

struct Constant(Tensor);

impl Kernel for Constant {
    fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
        ctx.set_output(0, self.0.clone())
    }
}

/// Passes its input on a little later, from another thread; ends early when the step is cancelled.
struct Later;

impl AsyncKernel for Later {
    fn start(&self, mut ctx: AsyncContext) {
        std::thread::spawn(move || {
            let step = ctx.step().clone();
            let (wake, woken) = mpsc::channel();
            let registered = step.cancellation().register(move || {
                let _ = wake.send(());
            });
            let cancelled = registered.is_none() || woken.recv_timeout(Duration::from_millis(20)).is_ok();
            let outcome = ctx.with_context(|ctx| {
                let value = ctx.take_value(0)?;
                ctx.set_value(0, value)
            });
            match outcome {
                Ok(_) if cancelled => ctx.complete(Err(graphmill_tensor::cancelled!("Later was cancelled"))),
                Ok((_, outputs)) => ctx.complete(Ok(outputs)),
                Err(error) => ctx.complete(Err(error)),
            }
        });
    }
}

/// Waits until the step is cancelled; the limit only keeps a broken wake-up from hanging the test.
struct UntilCancelled;

impl AsyncKernel for UntilCancelled {
    fn start(&self, ctx: AsyncContext) {
        let (wake, woken) = mpsc::channel::<()>();
        let registered = ctx.step().cancellation().register(move || drop(wake));
        std::thread::spawn(move || {
            if registered.is_some() {
                let _ = woken.recv_timeout(Duration::from_secs(120));
            }
            ctx.complete(Err(graphmill_tensor::cancelled!("woken")));
        });
    }
}

fn registry() -> Registry {
    let mut registry = Registry::new();
    graphmill_kernels_control::register(&mut registry);
    registry.op("Const").kernel(|c| Ok(Constant(c.attrs().tensor("value")?)));
    registry.op("AddV2").kernel(|_| Ok(Ints(|v| Ok(Out::Int(v[0].wrapping_add(v[1]))))));
    registry.op("Mul").kernel(|_| Ok(Ints(|v| Ok(Out::Int(v[0].wrapping_mul(v[1]))))));
    registry.op("Less").kernel(|_| Ok(Ints(|v| Ok(Out::Bool(v[0] < v[1])))));
    registry.op("Identity").kernel(|_| Ok(Ints(|v| Ok(Out::Int(v[0])))));
    registry.op("StopGradient").async_kernel(|_| Ok(Later));
    registry.op("Invert").async_kernel(|_| Ok(UntilCancelled));
    registry.op("Abs").kernel(|_| Ok(Ints(|v| Err(invalid_argument!("no absolute value of {}", v[0])))));
    registry.op("Neg").kernel(|_| Ok(Ints(|_| panic!("on purpose"))));
    registry.op("Square").kernel(|_| {
        Ok(Ints(|v| {
            std::thread::sleep(Duration::from_millis(1));
            Ok(Out::Int(v[0] * v[0]))
        }))
    });
    registry
}

#[derive(Default)]
struct Builder(Vec<NodeDef>);

impl Builder {
    fn node(&mut self, name: &str, op: &str, inputs: &[&str], attrs: &[(&str, attr_value::Value)]) -> &mut NodeDef {
        self.0.push(NodeDef {
            name: name.into(),
            op: op.into(),
            input: inputs.iter().map(|s| (*s).to_owned()).collect(),
            attr: attrs.iter().map(|(k, v)| ((*k).to_owned(), AttrValue { value: Some(v.clone()) })).collect(),
            ..Default::default()
        });
        self.0.last_mut().unwrap()
    }

    fn int(&mut self, name: &str, op: &str, inputs: &[&str]) {
        self.node(name, op, inputs, &[("T", attr_value::Value::Type(DType::Int32.number()))]);
    }

    fn constant(&mut self, name: &str, value: i32, control: &[&str]) {
        let tensor = Tensor::scalar(value).unwrap().to_proto();
        let value = attr_value::Value::Tensor(Box::new(tensor));
        self.node(name, "Const", control, &[("dtype", attr_value::Value::Type(3)), ("value", value)]);
    }

    fn placeholder(&mut self, name: &str, dtype: DType) {
        self.node(name, "Placeholder", &[], &[("dtype", attr_value::Value::Type(dtype.number()))]);
    }

    fn enter(&mut self, name: &str, input: &str, frame: &str, parallel: i64, constant: bool) {
        let attrs = [
            ("T", attr_value::Value::Type(3)),
            ("frame_name", attr_value::Value::S(frame.to_owned().into())),
            ("parallel_iterations", attr_value::Value::I(parallel)),
            ("is_constant", attr_value::Value::B(constant)),
        ];
        self.node(name, "Enter", &[input], &attrs);
    }

    fn merge(&mut self, name: &str, inputs: &[&str]) {
        let n = attr_value::Value::I(inputs.len() as i64);
        self.node(name, "Merge", inputs, &[("T", attr_value::Value::Type(3)), ("N", n)]);
    }

    /// `while (i < limit) { i += 1; x = body(x) }` with names under `p/`; gives `p/exit_x`. `body` adds nodes in the frame that
    /// map `p/switch_x:1` (with the pivot `p/switch_i:1` for control) to the name that it returns.
    fn while_loop(
        &mut self,
        p: &str,
        init: (&str, &str),
        limit: &str,
        parallel: i64,
        body: impl FnOnce(&mut Builder) -> String,
    ) {
        let n = |s: &str| format!("{p}/{s}");
        self.enter(&n("enter_i"), init.0, p, parallel, false);
        self.enter(&n("enter_x"), init.1, p, parallel, false);
        self.enter(&n("enter_limit"), limit, p, parallel, true);
        self.merge(&n("merge_i"), &[&n("enter_i"), &n("next_i")]);
        self.merge(&n("merge_x"), &[&n("enter_x"), &n("next_x")]);
        self.int(&n("less"), "Less", &[&n("merge_i"), &n("enter_limit")]);
        self.node(&n("cond"), "LoopCond", &[&n("less")], &[]);
        self.int(&n("switch_i"), "Switch", &[&n("merge_i"), &n("cond")]);
        self.int(&n("switch_x"), "Switch", &[&n("merge_x"), &n("cond")]);
        self.int(&n("body_i"), "Identity", &[&n("switch_i:1")]);
        self.constant(&n("one"), 1, &[&format!("^{}", n("body_i"))]);
        self.int(&n("add_i"), "AddV2", &[&n("body_i"), &n("one")]);
        let result = body(self);
        self.int(&n("next_i"), "NextIteration", &[&n("add_i")]);
        self.int(&n("next_x"), "NextIteration", &[&result]);
        self.int(&n("exit_x"), "Exit", &[&n("switch_x")]);
        self.int(&n("exit_i"), "Exit", &[&n("switch_i")]);
    }

    fn program(&self, feeds: &[&str], fetches: &[&str]) -> Result<Arc<Program>> {
        let versions = Some(VersionDef { producer: 1800, ..Default::default() });
        let graph = Graph::from_def(&GraphDef { node: self.0.clone(), versions, ..Default::default() })?;
        let own = |names: &[&str]| names.iter().map(|s| (*s).to_owned()).collect();
        let client = ClientDevice { name: "/job:localhost/replica:0/task:0/device:CPU:0".into(), incarnation: 1 };
        let graph = prune(&graph, &Signature::new(own(feeds), own(fetches), Vec::new()), &client)?;
        let device = Device::cpu("/job:localhost/replica:0/task:0", "localhost", 0, 1, IntraOpPool::new(2));
        Ok(Arc::new(Program::build(&graph, &registry(), &Arc::new(device), &KernelCache::new())?))
    }
}

fn run_step(program: &Arc<Program>, executor: &Executor, step: &Arc<Step>, feeds: Vec<Tensor>) -> Result<Vec<Tensor>> {
    let (sender, receiver) = mpsc::channel();
    executor.run(program, step.clone(), feeds, move |outcome| drop(sender.send(outcome)));
    receiver.recv_timeout(Duration::from_secs(60)).expect("the run ends")
}

fn run(program: &Arc<Program>, executor: &Executor, feeds: Vec<Tensor>) -> Result<Vec<i32>> {
    let tensors = run_step(program, executor, &Arc::new(Step::new(1)), feeds)?;
    tensors.iter().map(|t| t.scalar_value()).collect()
}

fn ints(values: &[i32]) -> Vec<Tensor> {
    values.iter().map(|&v| Tensor::scalar(v).unwrap()).collect()
}

#[test]
fn a_loop_runs_as_often_as_it_should() {
    for parallel in [1, 2, 10] {
        let mut b = Builder::default();
        b.placeholder("n", DType::Int32);
        b.constant("zero", 0, &[]);
        b.constant("start", 3, &[]);
        b.while_loop("w", ("zero", "start"), "n", parallel, |b| {
            b.int("w/double", "AddV2", &["w/switch_x:1", "w/switch_x:1"]);
            "w/double".into()
        });
        let program = b.program(&["n:0"], &["w/exit_x:0", "w/exit_i:0"]).unwrap();
        let executor = Executor::new(2);
        let order: Vec<&str> = program.fetches().iter().map(|p| p.name.as_str()).collect();
        let at = |name: &str| order.iter().position(|n| *n == name).unwrap();
        for (n, x) in [(0, 3), (1, 6), (10, 3072), (-5, 3), (1000, 0)] {
            let result = run(&program, &executor, ints(&[n])).unwrap();
            assert_eq!((result[at("w/exit_i:0")], result[at("w/exit_x:0")]), (n.max(0), x), "{parallel} {n}");
        }
    }
}

#[test]
fn nested_loops_count_every_inner_iteration() {
    for (outer, inner) in [(1, 1), (10, 10), (1, 10), (10, 1)] {
        let mut b = Builder::default();
        b.placeholder("n", DType::Int32);
        b.constant("zero", 0, &[]);
        b.constant("three", 3, &[]);
        b.while_loop("o", ("zero", "zero"), "n", outer, |b| {
            b.enter("o/three", "three", "o", outer, true);
            b.constant("o/zero", 0, &["^o/body_i"]);
            b.while_loop("in", ("o/zero", "o/switch_x:1"), "o/three", inner, |b| {
                b.constant("in/step", 1, &["^in/body_i"]);
                b.int("in/add", "AddV2", &["in/switch_x:1", "in/step"]);
                "in/add".into()
            });
            "in/exit_x".into()
        });
        let program = b.program(&["n:0"], &["o/exit_x:0"]).unwrap();
        let executor = Executor::new(2);
        for round in 0..200 {
            assert_eq!(run(&program, &executor, ints(&[5])).unwrap(), [15], "{outer} {inner} {round}");
        }
        assert_eq!(run(&program, &executor, ints(&[0])).unwrap(), [0]);
    }
}

#[test]
fn the_branch_not_taken_does_not_run() {
    let mut b = Builder::default();
    b.placeholder("p", DType::Bool);
    b.placeholder("x", DType::Int32);
    b.int("switch", "Switch", &["x", "p"]);
    b.int("fails", "Abs", &["switch:0"]);
    b.int("more", "AddV2", &["fails", "fails"]);
    b.int("fine", "AddV2", &["switch:1", "switch:1"]);
    b.merge("merge", &["more", "fine"]);
    let program = b.program(&["p:0", "x:0"], &["merge:0", "merge:1"]).unwrap();
    let executor = Executor::new(2);
    let feeds = |p: bool| vec![Tensor::scalar(p).unwrap(), Tensor::scalar(21).unwrap()];
    assert_eq!(run(&program, &executor, feeds(true)).unwrap(), [42, 1]);
    let error = run(&program, &executor, feeds(false)).unwrap_err();
    assert_eq!(error.message(), "no absolute value of 21\n\t [[{{node fails}}]]");
}

#[test]
fn a_loop_in_a_branch_not_taken_ends_dead() {
    let mut b = Builder::default();
    b.placeholder("p", DType::Bool);
    b.placeholder("x", DType::Int32);
    b.int("switch", "Switch", &["x", "p"]);
    b.int("no", "AddV2", &["switch:0", "switch:0"]);
    b.int("yes", "Identity", &["switch:1"]);
    b.constant("zero", 0, &["^yes"]);
    b.constant("limit", 4, &["^yes"]);
    b.while_loop("w", ("zero", "yes"), "limit", 10, |b| {
        b.int("w/double", "AddV2", &["w/switch_x:1", "w/switch_x:1"]);
        "w/double".into()
    });
    b.merge("merge", &["no", "w/exit_x"]);
    let program = b.program(&["p:0", "x:0"], &["merge:0"]).unwrap();
    let executor = Executor::new(2);
    for round in 0..50 {
        let taken = round % 2 == 0;
        let feeds = vec![Tensor::scalar(taken).unwrap(), Tensor::scalar(1).unwrap()];
        assert_eq!(run(&program, &executor, feeds).unwrap(), [if taken { 16 } else { 2 }]);
    }
}

#[test]
fn a_dead_fetch_is_an_error() {
    let mut b = Builder::default();
    b.placeholder("p", DType::Bool);
    b.placeholder("x", DType::Int32);
    b.int("switch", "Switch", &["x", "p"]);
    let program = b.program(&["p:0", "x:0"], &["switch:1"]).unwrap();
    let executor = Executor::new(1);
    let feeds = |p: bool| vec![Tensor::scalar(p).unwrap(), Tensor::scalar(1).unwrap()];
    assert_eq!(run(&program, &executor, feeds(true)).unwrap(), [1]);
    let error = run(&program, &executor, feeds(false)).unwrap_err();
    assert_eq!(error.code(), Code::Internal);
    assert!(error.message().contains("CPU:0;switch:1;0:0 was not valid."), "{error}");
}

#[test]
fn waiting_kernels_hold_no_thread() {
    let mut b = Builder::default();
    b.placeholder("x", DType::Int32);
    for i in 0..20 {
        b.int(&format!("later{i}"), "StopGradient", &["x"]);
    }
    b.int("sum0", "Identity", &["later0"]);
    for i in 1..20 {
        b.int(&format!("sum{i}"), "AddV2", &[&format!("sum{}", i - 1), &format!("later{i}")]);
    }
    let program = b.program(&["x:0"], &["sum19:0"]).unwrap();
    let executor = Executor::new(1);
    let outcomes: Vec<_> = (0..8)
        .map(|i| {
            let (sender, receiver) = mpsc::channel();
            executor.run(&program, Arc::new(Step::new(i)), ints(&[i as i32]), move |o| drop(sender.send(o)));
            receiver
        })
        .collect();
    for (i, receiver) in outcomes.into_iter().enumerate() {
        let tensors = receiver.recv_timeout(Duration::from_secs(30)).unwrap().unwrap();
        assert_eq!(tensors[0].scalar_value::<i32>().unwrap(), 20 * i as i32);
    }
}

#[test]
fn costly_nodes_run_beside_each_other_and_give_the_same() {
    let mut b = Builder::default();
    b.placeholder("x", DType::Int32);
    for i in 0..8 {
        b.int(&format!("square{i}"), "Square", &["x"]);
    }
    b.int("sum0", "Identity", &["square0"]);
    for i in 1..8 {
        b.int(&format!("sum{i}"), "AddV2", &[&format!("sum{}", i - 1), &format!("square{i}")]);
    }
    let program = b.program(&["x:0"], &["sum7:0"]).unwrap();
    let executor = Executor::new(4);
    for _ in 0..10 {
        assert_eq!(run(&program, &executor, ints(&[3])).unwrap(), [72]);
    }
}

#[test]
fn a_panicking_kernel_fails_its_step_alone() {
    let mut b = Builder::default();
    b.placeholder("x", DType::Int32);
    b.int("boom", "Neg", &["x"]);
    b.int("fine", "Identity", &["x"]);
    let executor = Executor::new(1);
    let bad = b.program(&["x:0"], &["boom:0"]).unwrap();
    for _ in 0..5 {
        let error = run(&bad, &executor, ints(&[1])).unwrap_err();
        assert_eq!(error.code(), Code::Internal);
        assert!(error.message().contains("on purpose") && error.message().contains("{{node boom}}"), "{error}");
    }
    let good = b.program(&["x:0"], &["fine:0"]).unwrap();
    assert_eq!(run(&good, &executor, ints(&[1])).unwrap(), [1]);
}

fn endless() -> Arc<Program> {
    let mut b = Builder::default();
    b.placeholder("n", DType::Int32);
    b.constant("zero", 0, &[]);
    b.while_loop("w", ("zero", "zero"), "n", 10, |b| {
        b.int("w/back", "Mul", &["w/switch_x:1", "w/switch_x:1"]);
        "w/back".into()
    });
    // The counter never grows: its step is fed by the product, which stays zero.
    for node in &mut b.0 {
        if node.name == "w/add_i" {
            node.input[1] = "w/back".into();
        }
    }
    b.program(&["n:0"], &["w/exit_x:0"]).unwrap()
}

#[test]
fn cancelling_ends_an_endless_loop_with_its_reason() {
    let program = endless();
    let executor = Executor::new(1);
    let step = Arc::new(Step::new(1));
    let (sender, receiver) = mpsc::channel();
    executor.run(&program, step.clone(), ints(&[1]), move |o| drop(sender.send(o)));
    assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err());
    step.cancellation().cancel(graphmill_tensor::deadline_exceeded!("out of time"));
    let error = receiver.recv_timeout(Duration::from_secs(10)).unwrap().unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::DeadlineExceeded, "out of time"));
}

#[test]
fn endless_loops_do_not_starve_other_steps() {
    let program = endless();
    let executor = Executor::new(1);
    let steps: Vec<_> = (0..3).map(|i| Arc::new(Step::new(i))).collect();
    for step in &steps {
        executor.run(&program, step.clone(), ints(&[1]), |_| {});
    }
    let mut b = Builder::default();
    b.placeholder("x", DType::Int32);
    b.int("y", "Identity", &["x"]);
    let short = b.program(&["x:0"], &["y:0"]).unwrap();
    for i in 0..5 {
        assert_eq!(run(&short, &executor, ints(&[i])).unwrap(), [i]);
    }
    for step in &steps {
        step.cancellation().cancel(graphmill_tensor::cancelled!("over"));
    }
}

#[test]
fn cancelling_wakes_a_waiting_kernel() {
    let mut b = Builder::default();
    b.placeholder("x", DType::Int32);
    b.int("waits", "Invert", &["x"]);
    let program = b.program(&["x:0"], &["waits:0"]).unwrap();
    let executor = Executor::new(1);
    let step = Arc::new(Step::new(1));
    let (sender, receiver) = mpsc::channel();
    executor.run(&program, step.clone(), ints(&[1]), move |o| drop(sender.send(o)));
    assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err());
    step.cancellation().cancel(graphmill_tensor::aborted!("stopped"));
    let error = receiver.recv_timeout(Duration::from_secs(30)).unwrap().unwrap_err();
    assert_eq!(error.message(), "stopped");
}

#[test]
fn feeds_of_the_wrong_type_name_the_receiving_node() {
    let mut b = Builder::default();
    b.placeholder("x", DType::Int32);
    b.int("y", "Identity", &["x"]);
    let program = b.program(&["x:0"], &["y:0"]).unwrap();
    let executor = Executor::new(1);
    let error =
        run_step(&program, &executor, &Arc::new(Step::new(1)), vec![Tensor::scalar(1f32).unwrap()]).unwrap_err();
    assert_eq!(error.code(), Code::Internal);
    assert_eq!(
        error.message(),
        "Output 0 of type float does not match declared output type int32 for node {{node _recv_x_0}}"
    );
}

#[test]
fn an_op_without_a_kernel_is_named() {
    let mut b = Builder::default();
    b.placeholder("x", DType::Int32);
    b.int("s", "Sign", &["x"]);
    let error = b.program(&["x:0"], &["s:0"]).err().unwrap();
    assert_eq!(error.code(), Code::Unimplemented);
    assert!(error.message().contains("Sign"), "{error}");
}

#[test]
fn values_are_dropped_after_their_last_use() {
    struct Unique;
    impl Kernel for Unique {
        fn compute(&self, ctx: &mut Context<'_>) -> Result<()> {
            let tensor = ctx.take_input(0)?;
            let unique = i32::from(tensor.is_unique());
            ctx.set_scalar(0, unique)
        }
    }
    let mut registry = registry();
    registry.op("Sign").kernel(|_| Ok(Unique));
    let mut b = Builder::default();
    b.placeholder("x", DType::Int32);
    b.int("a", "AddV2", &["x", "x"]);
    b.int("s", "Sign", &["a"]);
    let versions = Some(VersionDef { producer: 1800, ..Default::default() });
    let graph = Graph::from_def(&GraphDef { node: b.0.clone(), versions, ..Default::default() }).unwrap();
    let client = ClientDevice { name: "/job:localhost/replica:0/task:0/device:CPU:0".into(), incarnation: 1 };
    let graph = prune(&graph, &Signature::new(vec!["x:0".into()], vec!["s:0".into()], vec![]), &client).unwrap();
    let device = Arc::new(Device::cpu("/job:localhost/replica:0/task:0", "localhost", 0, 1, IntraOpPool::new(1)));
    let program = Arc::new(Program::build(&graph, &registry, &device, &KernelCache::new()).unwrap());
    assert_eq!(run(&program, &Executor::new(1), ints(&[4])).unwrap(), [1]);
}
