//! Those who want to read, one at a time. Nobody in the line holds a thread.

use super::resource::{Gathered, Progress, Reader};
use graphmill_runtime::{AsyncContext, CallbackId, Queue, Step, run_blocking};
use graphmill_tensor::{Result, Shape, Tensor, cancelled};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// A read that has not ended.
pub(super) struct Request {
    pub ctx: AsyncContext,
    pub queue: Arc<Queue>,
    /// How many records; none for one record as scalars.
    pub wanted: Option<usize>,
    pub gathered: Gathered,
}

impl Request {
    fn fail(self, error: graphmill_tensor::Status) {
        self.ctx.complete(Err(error));
    }

    fn complete(mut self) {
        let (keys, values) = (self.gathered.keys, self.gathered.values);
        let shape = if self.wanted.is_some() { Shape::vector(keys.len()) } else { Shape::scalar() };
        let outcome = self.ctx.with_context(|ctx| {
            ctx.set_output(0, Tensor::from_strings(shape.clone(), keys)?)?;
            ctx.set_output(1, Tensor::from_strings(shape, values)?)
        });
        self.ctx.complete(outcome.map(|((), outputs)| outputs));
    }
}

/// A request that waits; whoever takes it out ends it or goes on with it.
type Waiting = Arc<Mutex<Option<Request>>>;

#[derive(Default)]
struct State {
    busy: bool,
    waiting: VecDeque<(Waiting, Option<Watch>)>,
}

/// The step that a request belongs to, and what ends the request when that is cancelled.
type Watch = (Arc<Step>, CallbackId);

/// The line before a reader.
#[derive(Default)]
pub(super) struct Line(Mutex<State>);

impl Reader {
    /// Reads as soon as those before have ended.
    pub(super) fn submit(self: &Arc<Self>, request: Request) {
        let step = request.ctx.step().clone();
        let waiting: Waiting = Arc::new(Mutex::new(Some(request)));
        let withdrawn = waiting.clone();
        let cancel = move || {
            if let Some(request) = withdrawn.lock().take() {
                request.fail(cancelled!("Read operation was cancelled"));
            }
        };
        let waits = || vec!["a reader that others read from".to_owned()];
        let callback = step.cancellation().register_waiting(cancel, waits);
        let Some(callback) = callback else {
            if let Some(request) = waiting.lock().take() {
                request.fail(cancelled!("Read operation was cancelled"));
            }
            return;
        };
        let start = {
            let mut line = self.line.0.lock();
            line.waiting.push_back((waiting, Some((step, callback))));
            !std::mem::replace(&mut line.busy, true)
        };
        if start {
            let reader = self.clone();
            run_blocking(move || reader.serve());
        }
    }

    /// Goes on with the next in the line, until one needs work from its queue or the line is empty.
    fn serve(self: &Arc<Self>) {
        loop {
            let next = {
                let mut line = self.line.0.lock();
                let next = line.waiting.pop_front();
                line.busy = next.is_some();
                next
            };
            let Some((waiting, registered)) = next else { return };
            if let Some((step, callback)) = registered {
                step.cancellation().deregister(callback);
            }
            let Some(request) = waiting.lock().take() else { continue };
            if !self.go_on(request) {
                return;
            }
        }
    }

    /// Reads for a request. False if it waits for its queue, which then goes on with the line.
    fn go_on(self: &Arc<Self>, mut request: Request) -> bool {
        match self.read(request.wanted.unwrap_or(1), &mut request.gathered) {
            Ok(Progress::Complete) => {
                request.complete();
                true
            }
            Err(error) => {
                request.fail(error);
                true
            }
            Ok(Progress::NeedsWork) => {
                let (reader, step, queue) = (self.clone(), request.ctx.step().clone(), request.queue.clone());
                let done = move |work: Result<Vec<Tensor>>| {
                    // Not on the thread that put the work in: opening a file may wait.
                    run_blocking(move || {
                        let started = work.and_then(|work| reader.start_work(&work));
                        let go_on = match started {
                            Ok(()) => reader.go_on(request),
                            Err(error) => {
                                request.fail(error);
                                true
                            }
                        };
                        if go_on {
                            reader.serve();
                        }
                    });
                };
                queue.dequeue(&step, Box::new(done));
                false
            }
        }
    }
}
