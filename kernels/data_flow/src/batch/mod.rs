//! `Batch` and `BatchFunction`: inputs of steps that run at the same time are put together, to be worked on at once.

mod options;
mod process;
mod queue;
pub(crate) mod rows;
mod task;

use crate::pending::Pending;
use graphmill_runtime::{
    AsyncContext, AsyncKernel, Construction, Function, FunctionHandle, Registry, hash64, hash64_combine, outputs,
    unique_number,
};
use graphmill_tensor::{DType, Result, Shape, Tensor, internal, invalid_argument};
use options::Options;
use prost::Message;
use queue::{Batcher, Shared};
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;
use std::sync::Arc;
use task::{Run, Task};

pub(crate) fn register(registry: &mut Registry) {
    registry.op("Batch").async_kernel(BatchKernel::gathering);
    registry.op("BatchFunction").async_kernel(BatchKernel::calling);
}

/// The container and name of the resource that the runs of a node, and of others that share it, meet in.
pub(crate) struct Meeting {
    pub container: String,
    pub name: String,
}

impl Meeting {
    pub fn new(c: &Construction<'_>) -> Result<Meeting> {
        let (container, shared) = (c.attrs().str("container")?, c.attrs().str("shared_name")?);
        let name = if shared.is_empty() { c.name() } else { shared };
        Ok(Meeting { container: container.to_owned(), name: name.to_owned() })
    }
}

/// A number that functions of different names, attributes or bodies do not share.
fn identity(function: &FunctionHandle) -> u64 {
    let own = hash64(&function.function().encode_to_vec());
    let runtime = function.runtime();
    let body = runtime.as_ref().and_then(|runtime| runtime.graph().library().get(function.name()));
    body.map_or(own, |body| hash64_combine(own, hash64(&body.def.encode_to_vec())))
}

/// Adds the rows of its inputs to a batch, and waits for what comes of the batch.
struct BatchKernel {
    meeting: Meeting,
    queue: String,
    options: Options,
    function: Option<FunctionHandle>,
    batched: Range<usize>,
    captured: Range<usize>,
    names: Vec<String>,
    results: Vec<DType>,
}

impl BatchKernel {
    fn gathering(c: &Construction<'_>) -> Result<BatchKernel> {
        let batched = c.input_range("in_tensors")?;
        BatchKernel::new(c, Options::of_batch(c)?, None, batched, 0..0)
    }

    fn calling(c: &Construction<'_>) -> Result<BatchKernel> {
        let (batched, captured) = (c.input_range("in_tensors")?, c.input_range("captured_tensors")?);
        BatchKernel::new(c, Options::of_function(c)?, Some(c.function("f")?), batched, captured)
    }

    fn new(
        c: &Construction<'_>,
        options: Options,
        function: Option<FunctionHandle>,
        batched: Range<usize>,
        captured: Range<usize>,
    ) -> Result<BatchKernel> {
        let mut meeting = Meeting::new(c)?;
        // TensorFlow has later sessions use the options, and even the function, of the first node of this name.
        meeting.name = format!("{} {options:?} {:x}", meeting.name, function.as_ref().map_or(0, identity));
        let queue = c.attrs().str("batching_queue")?.to_owned();
        let names = batched.clone().map(|i| c.input_name(i)).collect();
        let results = c.output_types().iter().map(|slot| slot.dtype).collect();
        Ok(BatchKernel { meeting, queue, options, function, batched, captured, names, results })
    }

    /// The function, once it is known to take what it is given.
    fn bind(&self, ctx: &AsyncContext) -> Result<Option<Function>> {
        let Some(handle) = &self.function else { return Ok(None) };
        let types = &ctx.node().input_types;
        let function = handle.bind()?;
        if let Some(i) = types.iter().take(self.batched.end).position(|slot| slot.dtype == DType::Resource) {
            return Err(invalid_argument!("BatchFunction cannot take resource inputs but input {i} is a resource."));
        }
        let (takes, given) = (function.input_types().len(), types.len());
        if takes != given {
            return Err(invalid_argument!("Function takes {takes} argument(s) but {given} argument(s) were passed"));
        }
        if function.output_types().len() != self.results.len() {
            return Err(internal!("Wrong number of batched output tensors"));
        }
        Ok(Some(function))
    }

    /// The number of rows of the inputs.
    fn rows(&self, inputs: &[Tensor]) -> Result<usize> {
        let shapes = || {
            let line = |(name, input): (&String, &Tensor)| format!("\n - {name} has shape {}", input.shape());
            let lines: String = self.names.iter().zip(inputs).map(line).collect();
            format!("Below are the input tensors: {lines}")
        };
        if inputs.iter().any(|input| input.shape().is_scalar()) {
            return Err(invalid_argument!("Batching input tensors must have at least one dimension.\n{}", shapes()));
        }
        let rows = inputs.first().map_or(0, |input| input.shape().dim(0));
        if inputs.iter().any(|input| input.shape().dim(0) != rows) {
            return Err(invalid_argument!(
                "Batching input tensors supplied in a given op invocation must have equal 0th-dimension size.\n{}",
                shapes()
            ));
        }
        Ok(rows)
    }

    /// The task that the inputs make, with the batcher to hand it to; or what the run ends with at once.
    fn prepare(&self, ctx: &mut AsyncContext) -> Result<Prepared> {
        let function = self.bind(ctx)?;
        let inputs = ctx.take_tensors(self.batched.clone())?;
        let captured = ctx.take_tensors(self.captured.clone())?;
        let rows = self.rows(&inputs)?;
        if rows == 0 {
            let empty = |&dtype: &DType| Tensor::alloc(dtype, Shape::vector(0));
            return Ok(Prepared::Done(self.results.iter().map(empty).collect::<Result<_>>()?));
        }
        let create = || Ok(Shared(Batcher::new(self.options.clone())));
        let shared = ctx.device().resources().lookup_or_create(&self.meeting.container, &self.meeting.name, create)?;
        Ok(Prepared::Task { function, inputs, captured, rows, batcher: shared.0.clone() })
    }
}

/// What a run has to do.
enum Prepared {
    Done(Vec<Tensor>),
    Task { function: Option<Function>, inputs: Vec<Tensor>, captured: Vec<Tensor>, rows: usize, batcher: Arc<Batcher> },
}

impl AsyncKernel for BatchKernel {
    fn start(&self, mut ctx: AsyncContext) {
        match self.prepare(&mut ctx) {
            Err(error) => ctx.complete(Err(error)),
            Ok(Prepared::Done(results)) => ctx.complete(Ok(outputs(results))),
            Ok(Prepared::Task { function, inputs, captured, rows, batcher }) => {
                // Keys are random, as batches of several tasks may meet in one `Unbatch`.
                let key = RandomState::new().hash_one(unique_number()).cast_signed();
                let run = Arc::new(Run::new(Pending::new(ctx, || ()), key, function, captured));
                let pending = run.pending.clone();
                if let Err(error) = batcher.schedule(&self.queue, Task::new(run, inputs, rows)) {
                    pending.complete(Err(error));
                }
            }
        }
    }
}
