//! One run of a program.

use crate::denormals::FlushDenormals;
use crate::executor::exchange::Exchange;
use crate::executor::frame::{FrameInstance, Iteration};
use crate::executor::partial::PartialRun;
use crate::executor::program::{Action, Program, ProgramNode};
use crate::executor::threads::Threads;
use crate::{AnyKernel, AsyncContext, Context, Device, Kernel, Outputs, Parcel, Step, Value};
use graphmill_tensor::{Result, Status, Tensor, failed_precondition, internal};
use parking_lot::Mutex;
use smallvec::{SmallVec, smallvec};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How long a run may keep the thread that asked for it, when it takes longer than was thought.
pub(crate) const BORROWED_SLICE: Duration = Duration::from_millis(1);
/// How long a run keeps an executor's thread while other work waits for one.
const SLICE: Duration = Duration::from_millis(10);
/// A node that costs more than this, in nanoseconds, is worth a hand-over.
const WORTH_HANDING_OVER: u32 = 20_000;
/// Nodes between looks at the clock.
const NODES_PER_LOOK: u32 = 256;

pub(crate) type Done = Box<dyn FnOnce(Result<Vec<Tensor>>) + Send>;

/// A run that is under way.
pub(crate) struct Run {
    program: Arc<Program>,
    step: Arc<Step>,
    threads: Arc<Threads>,
    state: Mutex<State>,
    inbox: Mutex<Inbox>,
    /// Where feeds come from and fetches go, if not all at once.
    partial: Option<PartialRun>,
}

/// A node that is ready in an iteration of a frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    pub node: u32,
    /// The iteration, which lives at least as long as the task.
    pub slab: u32,
    /// 1 if the node is dead. A byte here would be read as part of a word right after it was written, for which processors wait.
    dead: u32,
}

impl Task {
    pub fn new(node: u32, slab: u32, dead: bool) -> Task {
        Task { node, slab, dead: u32::from(dead) }
    }

    pub fn is_dead(self) -> bool {
        self.dead != 0
    }
}

struct Inbox {
    completions: Vec<(Task, Result<Outputs>)>,
    /// Whether a thread drives the run and will look into the inbox.
    driven: bool,
}

/// What the driver works on.
pub(crate) struct State {
    pub ready: Vec<Task>,
    pub frames: Vec<Option<FrameInstance>>,
    /// Iterations of all frames; that of the root is the first.
    pub slabs: Vec<Iteration>,
    /// Places in `slabs` of iterations that have ended.
    pub free_slabs: Vec<u32>,
    /// Kernels that are out: handed over, or asynchronous.
    in_flight: usize,
    feeds: Vec<Value>,
    fetches: Vec<Value>,
    error: Option<Status>,
    done: Option<Done>,
    measure: bool,
    busy: Duration,
}

impl Run {
    pub fn start(
        threads: &Arc<Threads>,
        program: &Arc<Program>,
        step: Arc<Step>,
        feeds: Vec<Tensor>,
        done: Done,
        slice: Option<Duration>,
    ) {
        let feeds = feeds.into_iter().map(Value::Tensor).collect();
        Run::begin(threads, program, step, feeds, None, done, slice);
    }

    /// As [`Run::start`] on the executor's threads, where `partial` has the feeds.
    pub fn start_partial(
        threads: &Arc<Threads>,
        program: &Arc<Program>,
        step: Arc<Step>,
        partial: PartialRun,
        done: Done,
    ) {
        Run::begin(threads, program, step, Vec::new(), Some(partial), done, None);
    }

    fn begin(
        threads: &Arc<Threads>,
        program: &Arc<Program>,
        step: Arc<Step>,
        feeds: Vec<Value>,
        partial: Option<PartialRun>,
        done: Done,
        slice: Option<Duration>,
    ) {
        let mut state = State {
            ready: Vec::with_capacity(program.roots.len() + 16),
            frames: vec![Some(FrameInstance::new(0, 0, 0, 0))],
            slabs: Vec::with_capacity(1),
            free_slabs: Vec::new(),
            in_flight: 0,
            feeds,
            fetches: vec![Value::None; program.fetches().len()],
            error: None,
            done: Some(done),
            measure: program.should_measure() || step.trace().is_some(),
            busy: Duration::ZERO,
        };
        state.add_iteration(program, 0);
        for &node in &program.roots {
            state.make_ready(Task::new(node, 0, false));
        }
        let run = Arc::new(Run {
            program: program.clone(),
            step,
            threads: threads.clone(),
            state: Mutex::new(state),
            inbox: Mutex::new(Inbox { completions: Vec::new(), driven: true }),
            partial,
        });
        match slice {
            Some(slice) => {
                let _flush = FlushDenormals::on();
                run.drive(slice);
            }
            None => threads.spawn(move || run.drive(SLICE)),
        }
    }

    /// Works until the run ends, waits, or has used its slice of the thread.
    fn drive(self: Arc<Self>, slice: Duration) {
        let mut state = self.state.lock();
        let started = Instant::now();
        let mut nodes = 0u32;
        loop {
            while let Some(task) = state.ready.pop() {
                if self.step.cancellation().is_cancelled() && state.error.is_none() {
                    self.fail(&mut state, self.cancel_reason());
                    break;
                }
                self.process(&mut state, task);
                nodes += 1;
                if nodes.is_multiple_of(NODES_PER_LOOK) {
                    if state.in_flight > 0 {
                        self.take_completions(&mut state);
                    }
                    let elapsed = started.elapsed();
                    if elapsed > slice && (slice < SLICE || self.threads.has_waiting()) {
                        state.busy += elapsed;
                        drop(state);
                        let run = self.clone();
                        return self.threads.spawn(move || run.drive(SLICE));
                    }
                }
            }
            let mut inbox = self.inbox.lock();
            if inbox.completions.is_empty() {
                if state.in_flight > 0 {
                    inbox.driven = false;
                    state.busy += started.elapsed();
                    return;
                }
                drop(inbox);
                state.busy += started.elapsed();
                let outcome = self.finish(&mut state);
                let done = state.done.take();
                drop(state);
                if let Some(done) = done {
                    done(outcome);
                }
                return;
            }
            let completions = std::mem::take(&mut inbox.completions);
            drop(inbox);
            self.accept(&mut state, completions);
        }
    }

    fn take_completions(&self, state: &mut State) {
        let completions = std::mem::take(&mut self.inbox.lock().completions);
        self.accept(state, completions);
    }

    fn accept(&self, state: &mut State, completions: Vec<(Task, Result<Outputs>)>) {
        for (task, outcome) in completions {
            state.in_flight -= 1;
            self.settle(state, task, outcome);
        }
    }

    /// Called by whoever ran a kernel elsewhere.
    fn complete(self: Arc<Self>, task: Task, outcome: Result<Outputs>) {
        let mut inbox = self.inbox.lock();
        inbox.completions.push((task, outcome));
        let drive = !std::mem::replace(&mut inbox.driven, true);
        drop(inbox);
        if drive {
            // The completing thread may belong to anybody, a queue or a socket, so the run goes on on a thread of its own kind.
            let run = self.clone();
            self.threads.spawn(move || run.drive(SLICE));
        }
    }

    fn cancel_reason(&self) -> Status {
        let reason = self.step.cancellation().reason();
        reason.unwrap_or_else(|| graphmill_tensor::cancelled!("Step was cancelled").derived())
    }

    /// Fails the run, and with it the parts of the step that wait for what it would have sent.
    fn fail(&self, state: &mut State, error: Status) {
        if self.program.exchanges()
            && state.error.is_none()
            && let Ok(rendezvous) = self.step.rendezvous()
        {
            rendezvous.abort(error.clone());
        }
        state.fail(error);
    }

    /// An error with the tag of the node that it comes from. One that came from another part of the step has been tagged there.
    fn at_node(&self, error: Status, node: &ProgramNode) -> Status {
        match node.action {
            Action::Send(_) | Action::Receive(_) => error,
            _ => self.program.at_node(error, node),
        }
    }

    fn process(self: &Arc<Self>, state: &mut State, task: Task) {
        if state.error.is_some() {
            return;
        }
        let program = &self.program;
        let node = &program.nodes[task.node as usize];
        if task.is_dead() && !matches!(node.action, Action::Send(_) | Action::Receive(_)) {
            if let Action::Fetch(index) = node.action {
                return self.fail(state, self.dead_fetch(index));
            }
            return state.propagate(program, task, node, &mut []);
        }
        match &node.action {
            Action::Feed(index) => {
                if let Some(partial) = &self.partial {
                    state.in_flight += 1;
                    let run = self.clone();
                    return partial.when_fed(*index, Box::new(move |outcome| run.complete(task, outcome)));
                }
                let mut outputs: Outputs = smallvec![std::mem::take(&mut state.feeds[*index])];
                state.propagate(program, task, node, &mut outputs);
            }
            Action::Fetch(index) => {
                match state.inputs(task, node).and_then(|inputs| {
                    dereference(node, inputs)?;
                    Ok(inputs.first_mut().map(std::mem::take).unwrap_or_default())
                }) {
                    Ok(value) => {
                        if let (Some(partial), Value::Tensor(tensor)) = (&self.partial, &value) {
                            partial.fetched(*index, tensor.clone());
                        }
                        state.fetches[*index] = value;
                    }
                    Err(error) => return self.fail(state, program.at_node(error, node)),
                }
                state.propagate(program, task, node, &mut []);
            }
            Action::Send(exchange) => self.send(state, task, node, exchange),
            Action::Receive(exchange) => self.receive(state, task, node, exchange),
            Action::Kernel(kernel) => match kernel.as_ref() {
                AnyKernel::Sync(sync) => {
                    let costly = node.cost.load(Relaxed) > WORTH_HANDING_OVER;
                    if costly && !state.ready.is_empty() && self.threads.has_idle() {
                        self.hand_over(state, task, node);
                    } else {
                        self.compute(state, task, node, sync.as_ref());
                    }
                }
                AnyKernel::Async(kernel) => self.start_async(state, task, node, kernel.as_ref()),
            },
        }
    }

    /// What TensorFlow says of a fetch that is dead, rendezvous key included.
    fn dead_fetch(&self, index: usize) -> Status {
        if self.program.function().is_some() {
            return internal!("Retval[{index}] does not have value");
        }
        let name = &self.program.fetches()[index].name;
        let device = self.program.devices().first();
        internal!(
            "Failed to fetch outputs for step {}. (Original error message: The tensor returned for \
             {device};{:016x};{device};{name};0:0 was not valid.)",
            self.step.id(),
            device.incarnation(),
            device = device.name()
        )
    }

    /// Sends the input, or that it is dead.
    fn send(&self, state: &mut State, task: Task, node: &ProgramNode, exchange: &Exchange) {
        let value = if task.is_dead() {
            Ok(None)
        } else {
            state.inputs(task, node).and_then(|inputs| {
                dereference(node, inputs)?;
                match inputs.first_mut().map(std::mem::take) {
                    Some(Value::Tensor(tensor)) => Ok(Some(tensor)),
                    _ => Err(internal!("there is nothing to send")),
                }
            })
        };
        let (frame, iteration) = state.frame_and_iteration(task);
        let sent = value.and_then(|value| self.step.rendezvous()?.send(&exchange.key(frame, iteration), value));
        match sent {
            Ok(()) => state.propagate(&self.program, task, node, &mut []),
            Err(error) => self.settle(state, task, Err(error)),
        }
    }

    /// Receives a value, which may be dead. Where the node itself is dead the value is taken all the same, as it was sent.
    fn receive(self: &Arc<Self>, state: &mut State, task: Task, node: &ProgramNode, exchange: &Exchange) {
        let rendezvous = match self.step.rendezvous() {
            Ok(rendezvous) => rendezvous,
            Err(error) => return self.settle(state, task, Err(error)),
        };
        let (frame, iteration) = state.frame_and_iteration(task);
        let (run, dtype, info) = (self.clone(), exchange.dtype, node.info.clone());
        let traced = self.step.trace().map(|trace| (trace.clone(), node.device.clone(), Instant::now()));
        state.in_flight += 1;
        let receiver = move |outcome: Result<Parcel>| {
            let outcome: Result<Outputs> = outcome.and_then(|value| match value {
                None => Ok(smallvec![Value::None]),
                Some(tensor) if tensor.dtype() == dtype => Ok(smallvec![Value::Tensor(tensor)]),
                Some(tensor) => {
                    Err(internal!("received a tensor of type {} where {dtype} was expected", tensor.dtype()))
                }
            });
            if let (Some((trace, device, started)), Ok(outputs)) = (traced, &outcome) {
                trace.record((&info, &device), started, outputs);
            }
            run.complete(task, outcome);
        };
        rendezvous.receive(&exchange.key(frame, iteration), Box::new(receiver));
    }

    fn compute(&self, state: &mut State, task: Task, node: &ProgramNode, kernel: &dyn Kernel) {
        if node.outputs == 1 {
            self.compute_into(state, task, node, kernel, &mut [Value::None]);
        } else {
            let mut outputs: Outputs = smallvec![Value::None; node.outputs as usize];
            self.compute_into(state, task, node, kernel, &mut outputs);
        }
    }

    fn compute_into(
        &self,
        state: &mut State,
        task: Task,
        node: &ProgramNode,
        kernel: &dyn Kernel,
        outputs: &mut [Value],
    ) {
        let measure = state.measure;
        let outcome = state.inputs(task, node).and_then(|inputs| {
            let outcome = self.call(node, kernel, inputs, outputs, measure);
            inputs.iter_mut().for_each(|value| *value = Value::None);
            outcome
        });
        match outcome {
            Ok(()) => state.propagate(&self.program, task, node, outputs),
            Err(error) => self.settle(state, task, Err(error)),
        }
    }

    /// Calls a kernel on inputs that references have been taken out of; a panic becomes an error.
    fn call(
        &self,
        node: &ProgramNode,
        kernel: &dyn Kernel,
        inputs: &mut [Value],
        outputs: &mut [Value],
        measure: bool,
    ) -> Result<()> {
        if node.has_references {
            dereference(node, inputs)?;
        }
        let started = measure.then(Instant::now);
        let device = self.device_of(node, inputs);
        let mut ctx = Context::new(&node.info, &self.step, device, inputs, outputs);
        let outcome = catch_unwind(AssertUnwindSafe(|| kernel.compute(&mut ctx)));
        if let Some(started) = started {
            let cost = u32::try_from(started.elapsed().as_nanos()).unwrap_or(u32::MAX);
            let before = node.cost.load(Relaxed);
            node.cost.store(if before == 0 { cost } else { before / 2 + cost / 2 }, Relaxed);
            if let Some(trace) = self.step.trace() {
                trace.record((&node.info, device), started, outputs);
            }
        }
        outcome.unwrap_or_else(|panic| Err(panicked(panic.as_ref())))
    }

    /// Where a node runs.
    fn device_of<'a>(&'a self, node: &'a ProgramNode, inputs: &[Value]) -> &'a Arc<Device> {
        if !node.follows_resource {
            return &node.device;
        }
        let handles = inputs.iter().filter_map(|value| match value {
            Value::Tensor(tensor) => tensor.handles().ok()?.first(),
            _ => None,
        });
        handles.filter_map(|handle| self.program.devices().find(&handle.device)).next().unwrap_or(&node.device)
    }

    fn hand_over(self: &Arc<Self>, state: &mut State, task: Task, node: &ProgramNode) {
        let mut inputs = match state.take_inputs(task, node) {
            Ok(inputs) => inputs,
            Err(error) => return self.settle(state, task, Err(error)),
        };
        state.in_flight += 1;
        let run = self.clone();
        let measure = state.measure;
        self.threads.spawn(move || {
            let program = run.program.clone();
            let node = &program.nodes[task.node as usize];
            let mut outputs: Outputs = smallvec![Value::None; node.outputs as usize];
            let outcome = match &node.action {
                Action::Kernel(kernel) => match kernel.as_ref() {
                    AnyKernel::Sync(kernel) => run.call(node, kernel.as_ref(), &mut inputs, &mut outputs, measure),
                    AnyKernel::Async(_) => Err(internal!("an asynchronous kernel was handed over")),
                },
                _ => Err(internal!("a node without a kernel was handed over")),
            };
            drop(inputs);
            run.complete(task, outcome.map(|()| outputs));
        });
    }

    fn start_async(
        self: &Arc<Self>,
        state: &mut State,
        task: Task,
        node: &ProgramNode,
        kernel: &dyn crate::AsyncKernel,
    ) {
        let inputs = state.take_inputs(task, node).and_then(|mut inputs| {
            if node.has_references {
                dereference(node, &mut inputs)?;
            }
            Ok(inputs)
        });
        let inputs = match inputs {
            Ok(inputs) => inputs,
            Err(error) => return self.settle(state, task, Err(error)),
        };
        state.in_flight += 1;
        let run = self.clone();
        let (frame, iteration) = state.frame_and_iteration(task);
        let device = self.device_of(node, &inputs).clone();
        let traced = self.step.trace().map(|trace| (trace.clone(), device.clone(), Instant::now()));
        let ctx = AsyncContext::new(node.info.clone(), self.step.clone(), device, inputs, move |outcome| {
            if let (Some((trace, device, started)), Ok(outputs)) = (traced, &outcome) {
                let info = &run.program.nodes[task.node as usize].info;
                trace.record((info, &device), started, outputs);
            }
            run.complete(task, outcome);
        })
        .in_frame(frame, iteration);
        // A panic drops the context, which completes it with an error.
        let _ = catch_unwind(AssertUnwindSafe(|| kernel.start(ctx)));
    }

    /// Takes up the outcome of a node: passes outputs on, or fails the run.
    fn settle(&self, state: &mut State, task: Task, outcome: Result<Outputs>) {
        let node = &self.program.nodes[task.node as usize];
        match outcome {
            Ok(mut outputs) if state.error.is_none() => {
                outputs.resize(node.outputs as usize, Value::None);
                state.propagate(&self.program, task, node, &mut outputs);
            }
            Ok(_) => {}
            Err(error) => {
                if state.error.is_none() {
                    let reason = self.step.cancellation().reason();
                    // What fails in a cancelled step fails because of that.
                    self.fail(state, reason.unwrap_or_else(|| self.at_node(error, node)));
                }
                if self.program.may_wait() || self.partial.is_some() {
                    let cause = state.error.as_ref().map(Status::message).unwrap_or_default();
                    let derived = graphmill_tensor::cancelled!("The step failed: {cause}").derived();
                    self.step.cancellation().cancel(derived);
                }
            }
        }
    }

    fn finish(&self, state: &mut State) -> Result<Vec<Tensor>> {
        for frame in state.frames.drain(..).flatten() {
            let info = &self.program.frames[frame.info as usize];
            for slab in frame.iterations {
                info.give_back(std::mem::take(&mut state.slabs[slab as usize]));
            }
        }
        if let Some(error) = state.error.take() {
            return Err(error);
        }
        self.program.note_cost(u64::try_from(state.busy.as_nanos()).unwrap_or(u64::MAX));
        let ports = self.program.fetches();
        let values = std::mem::take(&mut state.fetches);
        values
            .into_iter()
            .zip(ports)
            .map(|(value, port)| match value {
                Value::Tensor(tensor) => Ok(tensor),
                _ => Err(internal!("The fetched value {} was never computed", port.name)),
            })
            .collect()
    }
}

impl State {
    /// Records the first error and forgets all work that has not begun.
    pub fn fail(&mut self, error: Status) {
        self.error.get_or_insert(error);
        self.ready.clear();
    }

    fn inputs(&mut self, task: Task, node: &ProgramNode) -> Result<&mut [Value]> {
        let range = node.inputs.start as usize..node.inputs.end as usize;
        self.slabs
            .get_mut(task.slab as usize)
            .and_then(|iteration| iteration.values.get_mut(range))
            .ok_or_else(|| internal!("a node runs in an iteration that has ended"))
    }

    fn take_inputs(&mut self, task: Task, node: &ProgramNode) -> Result<SmallVec<[Value; 4]>> {
        Ok(self.inputs(task, node)?.iter_mut().map(std::mem::take).collect())
    }
}

/// Replaces references by what their variables hold, where the op does not ask for a reference.
fn dereference(node: &ProgramNode, inputs: &mut [Value]) -> Result<()> {
    for (i, input) in inputs.iter_mut().enumerate() {
        let Value::Ref(variable) = input else { continue };
        let wants_reference = node.info.input_types.get(i).is_some_and(|t| t.is_ref);
        if wants_reference && node.allows_uninitialized {
            continue;
        }
        let Some(tensor) = variable.read() else {
            let name = node.input_names.get(i).map_or("", String::as_str);
            return Err(failed_precondition!("Attempting to use uninitialized value {name}"));
        };
        if !wants_reference {
            *input = Value::Tensor(tensor);
        }
    }
    Ok(())
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Status {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no reason given");
    tracing::error!(reason = text, "a kernel panicked");
    internal!("The kernel panicked: {text}")
}
