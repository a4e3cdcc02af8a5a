//! The end of a collective operation: when all that it began is done, or when something fails.

use graphmill_runtime::{AsyncContext, CollectiveInstance, Collectives, Outputs, Taken, Value, run_blocking};
use graphmill_tensor::{DType, Result, Shape, Status, Tensor, internal};
use parking_lot::Mutex;
use std::sync::Arc;

/// From this many bytes on, work on a buffer is not done where the buffer came in.
const WORTH_A_THREAD: usize = 128 << 10;

/// One device's part of an operation that is under way.
pub(crate) struct Progress {
    pub collectives: Arc<dyn Collectives>,
    pub instance: CollectiveInstance,
    /// What the keys of all buffers begin with.
    pub key: String,
    pub dtype: DType,
    state: Mutex<State>,
}

struct State {
    ctx: Option<AsyncContext>,
    output: Option<Tensor>,
    shape: Shape,
    /// Things that are not done.
    left: usize,
}

impl Progress {
    /// For an operation whose result has a shape. One thing is not done until [`Progress::done`] says so.
    pub fn new(
        ctx: AsyncContext,
        collectives: Arc<dyn Collectives>,
        instance: CollectiveInstance,
        dtype: DType,
        shape: Shape,
    ) -> Arc<Progress> {
        let (frame, iteration) = ctx.frame_and_iteration();
        let key = format!("{}:{}:{frame}:{iteration}", instance.group_key, instance.instance_key);
        let state = Mutex::new(State { ctx: Some(ctx), output: None, shape, left: 1 });
        Arc::new(Progress { collectives, instance, key, dtype, state })
    }

    /// The number of devices.
    pub fn size(&self) -> usize {
        self.instance.members.len()
    }

    /// Counts more things that have to be done.
    pub fn expect(&self, things: usize) {
        self.state.lock().left += things;
    }

    /// Counts a thing that is done. After the last one the operation ends.
    pub fn done(&self) {
        let mut state = self.state.lock();
        state.left = state.left.saturating_sub(1);
        if state.left > 0 {
            return;
        }
        let (ctx, output, shape) = (state.ctx.take(), state.output.take(), state.shape.clone());
        drop(state);
        let Some(ctx) = ctx else { return };
        let output = match output {
            Some(output) => output.into_shape(shape),
            None => Tensor::alloc(self.dtype, shape),
        };
        ctx.complete(output.map(|output| Outputs::from_iter([Value::Tensor(output)])));
    }

    /// Ends the operation with an error, if it has not ended.
    pub fn fail(&self, error: Status) {
        let ctx = self.state.lock().ctx.take();
        if let Some(ctx) = ctx {
            ctx.complete(Err(error));
        }
    }

    /// Copies a part into the result.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if there is not that much memory, `INTERNAL` for a part that does not fit.
    pub fn place(&self, at: usize, part: &Tensor) -> Result<()> {
        let mut state = self.state.lock();
        let length = state.shape.num_elements();
        if at == 0 && part.num_elements() == length {
            state.output = Some(part.clone());
            return Ok(());
        }
        if state.output.is_none() {
            state.output = Some(Tensor::alloc(self.dtype, Shape::vector(length))?);
        }
        match &mut state.output {
            Some(output) => output.copy_elements(at, part, 0..part.num_elements()),
            None => Err(internal!("There is no result to copy into")),
        }
    }

    /// Offers a buffer to the device of a rank. It is not done until that device has taken it.
    pub fn post(self: &Arc<Self>, to: usize, key: String, buffer: Tensor) {
        self.expect(1);
        let progress = self.clone();
        let taken: Taken = Box::new(move |outcome| match outcome {
            Ok(()) => progress.done(),
            Err(error) => progress.fail(error),
        });
        self.collectives.post(&self.instance, to, key, buffer, taken);
    }

    /// Takes a buffer from the device of a rank, and goes on with it.
    pub fn fetch(
        self: &Arc<Self>,
        from: usize,
        key: String,
        elements: usize,
        then: impl FnOnce(Tensor) -> Result<()> + Send + 'static,
    ) {
        let progress = self.clone();
        let heavy = elements.saturating_mul(self.dtype.size()) >= WORTH_A_THREAD;
        let fetched = move |outcome: Result<Tensor>| match outcome {
            Err(error) => progress.fail(error),
            Ok(buffer) if heavy => run_blocking(move || progress.go_on(buffer, then)),
            Ok(buffer) => progress.go_on(buffer, then),
        };
        self.collectives.fetch(&self.instance, from, key, (self.dtype, elements), Box::new(fetched));
    }

    fn go_on(&self, buffer: Tensor, then: impl FnOnce(Tensor) -> Result<()>) {
        if let Err(error) = then(buffer) {
            self.fail(error);
        }
    }
}
