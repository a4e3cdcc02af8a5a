//! Calling functions of a graph's library.

use crate::{
    AsyncContext, AsyncKernel, Construction, Device, Devices, Executor, Outputs, Program, Registry, RemoteFunction,
    RemoteTasks, Step, Value,
};
use graphmill_graph::{Graph, SlotTypes, instantiate, remote_body};
use graphmill_tensor::{Result, Tensor, internal, invalid_argument};
use graphmill_wire::tensorflow::NameAttrList;
use parking_lot::{Condvar, Mutex};
use std::collections::HashMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// Calls that may run within each other on one thread's stack.
const CALLS_ON_A_STACK: u32 = 16;
/// How long a call may keep the thread of its caller.
const BORROWED_SLICE: Duration = Duration::from_millis(1);

/// What the functions that a graph's nodes call need: the library, kernels, devices and threads. It keeps the functions that
/// have been called, each prepared once for the attributes it is called with and the device it is called on.
pub struct FunctionRuntime {
    /// A graph without nodes, for its library and versions.
    graph: Graph,
    registry: Arc<Registry>,
    devices: Devices,
    executor: Executor,
    remote: Option<Arc<dyn RemoteTasks>>,
    instances: Mutex<HashMap<Key, Cell>>,
}

/// A function's name, the bytes of its attributes, and the name of the device.
type Key = (String, Vec<u8>, String);

/// A function that is being prepared by the first who asks, while others wait.
type Cell = Arc<OnceLock<Result<Arc<Instance>>>>;

/// A function that is ready to run.
struct Instance {
    program: Arc<Program>,
    args: SlotTypes,
    results: SlotTypes,
}

impl FunctionRuntime {
    /// For functions of a graph's library that run on these devices alone.
    pub fn new(
        graph: &Graph,
        registry: Arc<Registry>,
        devices: impl Into<Devices>,
        executor: Executor,
    ) -> Arc<FunctionRuntime> {
        FunctionRuntime::in_cluster(graph, registry, devices.into(), executor, None)
    }

    /// For functions of a graph's library that may run on other tasks as well.
    pub fn in_cluster(
        graph: &Graph,
        registry: Arc<Registry>,
        devices: Devices,
        executor: Executor,
        remote: Option<Arc<dyn RemoteTasks>>,
    ) -> Arc<FunctionRuntime> {
        let graph = Graph::like(graph);
        Arc::new(FunctionRuntime { graph, registry, devices, executor, remote, instances: Mutex::default() })
    }

    /// The kernels.
    pub fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// Where functions may run.
    pub fn devices(&self) -> &Devices {
        &self.devices
    }

    /// For functions of another graph's library, with the same kernels, devices and threads.
    pub fn for_graph(&self, graph: &Graph) -> Arc<FunctionRuntime> {
        let (registry, devices, executor) = (self.registry.clone(), self.devices.clone(), self.executor.clone());
        FunctionRuntime::in_cluster(graph, registry, devices, executor, self.remote.clone())
    }

    /// The graph, without nodes, whose library has the functions.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The function, prepared if this is the first call.
    fn instance(self: &Arc<Self>, function: &NameAttrList, device: &Arc<Device>) -> Result<Arc<Instance>> {
        let attrs = NameAttrList { name: String::new(), ..function.clone() };
        let key = (function.name.clone(), prost::Message::encode_to_vec(&attrs), device.name().to_owned());
        let cell = self.instances.lock().entry(key).or_default().clone();
        cell.get_or_init(|| self.instantiate(function, device).map(Arc::new)).clone()
    }

    fn instantiate(self: &Arc<Self>, function: &NameAttrList, device: &Arc<Device>) -> Result<Instance> {
        let body = instantiate(&self.graph, function)?;
        let program = Program::build_function(&body.graph, self, device, &function.name)?;
        if program.feeds().len() != body.args.len() || program.fetches().len() != body.results.len() {
            return Err(internal!("The body of function {} does not fit its signature", function.name));
        }
        Ok(Instance { program: Arc::new(program), args: body.args, results: body.results })
    }
}

/// A function as a node's attribute names it. The function is looked for when it is first called, so that functions may call
/// themselves. It does not keep the library alive.
pub struct FunctionHandle {
    function: NameAttrList,
    runtime: Weak<FunctionRuntime>,
    /// Where the function runs, as a whole.
    device: Arc<Device>,
    bound: OnceLock<Weak<Instance>>,
}

impl FunctionHandle {
    pub(crate) fn new(function: NameAttrList, runtime: Weak<FunctionRuntime>, device: Arc<Device>) -> FunctionHandle {
        FunctionHandle { function, runtime, device, bound: OnceLock::new() }
    }

    /// The same function on another device.
    pub fn on(&self, device: &Arc<Device>) -> FunctionHandle {
        FunctionHandle::new(self.function.clone(), self.runtime.clone(), device.clone())
    }

    /// The function's name.
    pub fn name(&self) -> &str {
        &self.function.name
    }

    /// The function's name and attributes.
    pub fn function(&self) -> &NameAttrList {
        &self.function
    }

    /// The function, ready to be called; prepared by the first who asks.
    ///
    /// # Errors
    /// `NOT_FOUND` if the library has no such function, and what is wrong with its body.
    pub fn bind(&self) -> Result<Function> {
        let runtime = self.runtime.upgrade();
        let runtime = runtime.ok_or_else(|| internal!("There is no library of functions for {}", self.name()))?;
        if let Some(instance) = self.bound.get().and_then(Weak::upgrade) {
            return Ok(Function { runtime, instance });
        }
        let instance = runtime.instance(&self.function, &self.device)?;
        // Another thread may have been first, with the same instance.
        let _ = self.bound.set(Arc::downgrade(&instance));
        Ok(Function { runtime, instance })
    }

    /// The same function on a device of another task, by the device's full name.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if no such task is known, `NOT_FOUND` if the library has no such function, and what is wrong with its body.
    pub fn on_other_task(&self, device: &str) -> Result<Arc<dyn RemoteFunction>> {
        let runtime = self.runtime.upgrade();
        let runtime = runtime.ok_or_else(|| internal!("There is no library of functions for {}", self.name()))?;
        let Some(remote) = &runtime.remote else {
            let names: Vec<&str> = runtime.devices.iter().map(|device| device.name()).collect();
            return Err(invalid_argument!("{device} unknown device. There are [ {} ]", names.join(", ")));
        };
        remote.function(device, remote_body(&runtime.graph, &self.function, device)?)
    }

    /// What the function's library, kernels and devices are; `None` once the graph is gone.
    pub fn runtime(&self) -> Option<Arc<FunctionRuntime>> {
        self.runtime.upgrade()
    }
}

/// A function that is ready to be called. It keeps what it needs alive, also beyond the session that it came from.
#[derive(Clone)]
pub struct Function {
    runtime: Arc<FunctionRuntime>,
    instance: Arc<Instance>,
}

impl Function {
    /// The types of the arguments.
    pub fn input_types(&self) -> &SlotTypes {
        &self.instance.args
    }

    /// The types of the results.
    pub fn output_types(&self) -> &SlotTypes {
        &self.instance.results
    }

    /// Calls the function as part of a step: with the step's resources, ended by the step's cancellation. `done` gets the results
    /// exactly once, from any thread, possibly before this returns.
    pub fn call(&self, step: &Arc<Step>, args: Vec<Tensor>, done: impl FnOnce(Result<Vec<Tensor>>) + Send + 'static) {
        let step = match self.enter(step, &args) {
            Ok(step) => Arc::new(step),
            Err(error) => return done(Err(error)),
        };
        let program = &self.instance.program;
        // A long call leaves the caller's thread to what is beside it, and a deep one needs a fresh stack.
        let here = !program.is_long() && !step.depth().is_multiple_of(CALLS_ON_A_STACK);
        let slice = here.then_some(BORROWED_SLICE);
        // The program's kernels call on the library, which must be there until the end.
        let runtime = self.runtime.clone();
        let done = move |outcome| {
            done(outcome);
            drop(runtime);
        };
        self.runtime.executor.run_on(program, step, args, Box::new(done), slice);
    }

    /// Calls the function on this thread and waits for what its kernels wait for, so that it is only for threads that may wait:
    /// never for those of kernels. The call is a step of its own within `step`: with resources that end with the call, and
    /// ended by the cancellation of `step`; its failure does not cancel `step`.
    ///
    /// # Errors
    /// What the function's kernels fail with, and `INVALID_ARGUMENT` for arguments that do not fit the signature.
    pub fn call_blocking(&self, step: &Arc<Step>, args: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let step = Arc::new(self.enter(step, &args)?.with_own_resources());
        let outcome = Arc::new((Mutex::new(None), Condvar::new()));
        let sender = outcome.clone();
        let done = move |result| {
            *sender.0.lock() = Some(result);
            sender.1.notify_one();
        };
        let program = &self.instance.program;
        self.runtime.executor.run_on(program, step, args, Box::new(done), Some(Duration::MAX));
        let (slot, filled) = &*outcome;
        let mut slot = slot.lock();
        loop {
            match slot.take() {
                Some(result) => return result,
                None => filled.wait(&mut slot),
            }
        }
    }

    /// Whether a call may wait for anything but the processor.
    pub fn may_wait(&self) -> bool {
        self.instance.program.may_wait()
    }

    /// Runs a job on one of the threads on which functions run.
    pub fn spawn(&self, job: impl FnOnce() + Send + 'static) {
        self.runtime.executor.spawn(job);
    }

    /// The step in which the function runs when called within `step`.
    fn enter(&self, step: &Arc<Step>, args: &[Tensor]) -> Result<Step> {
        let types = &self.instance.args;
        if args.len() != types.len() {
            return Err(invalid_argument!("Expects {} arguments, but {} is provided", types.len(), args.len()));
        }
        for (i, (arg, slot)) in args.iter().zip(types).enumerate() {
            if arg.dtype() != slot.dtype {
                let (expected, given) = (slot.dtype, arg.dtype());
                return Err(invalid_argument!("Expects arg[{i}] to be {expected} but {given} is provided"));
            }
        }
        let step = step.deeper()?;
        // Only kernels that wait need to be told that the call has failed.
        Ok(if self.instance.program.may_wait() { step.with_own_cancellation() } else { step })
    }
}

/// A node that calls a function with its inputs and gives the function's results.
pub struct Call(FunctionHandle);

impl Call {
    /// Calls this function.
    pub fn new(function: FunctionHandle) -> Call {
        Call(function)
    }

    /// Calls the function whose name is the node's op.
    pub(crate) fn by_op(c: &Construction<'_>) -> Call {
        let name = c.node().op.name.to_string();
        Call(c.handle(NameAttrList { name, attr: c.attrs().to_proto() }))
    }
}

impl AsyncKernel for Call {
    fn start(&self, mut ctx: AsyncContext) {
        let args = 0..ctx.num_inputs();
        match self.0.bind().and_then(|function| Ok((function, ctx.take_tensors(args)?))) {
            Ok((function, args)) => {
                let step = ctx.step().clone();
                function.call(&step, args, move |outcome| ctx.complete(outcome.map(outputs)));
            }
            Err(error) => ctx.complete(Err(error)),
        }
    }
}

/// Results of a function as the outputs of a node.
pub fn outputs(results: Vec<Tensor>) -> Outputs {
    results.into_iter().map(Value::Tensor).collect()
}
