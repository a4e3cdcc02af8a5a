//! State on whose change kernels wait without holding a thread.

use graphmill_runtime::{AsyncContext, CallbackId, Outputs, Step, Value};
use graphmill_tensor::{Result, Tensor, cancelled};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// Tried whenever the state has changed; yields the outputs once they can be made.
type Attempt<S> = Box<dyn FnMut(&mut S) -> Option<Result<Vec<Tensor>>> + Send>;

struct Waiter<S> {
    id: u64,
    attempt: Attempt<S>,
    ctx: AsyncContext,
    registered: Option<(Arc<Step>, CallbackId)>,
}

struct Inner<S> {
    state: S,
    next_id: u64,
    waiters: VecDeque<Waiter<S>>,
}

/// A state and those who wait for it to become what they need.
pub(crate) struct Monitor<S> {
    inner: Mutex<Inner<S>>,
    /// Whether nobody passes one who came earlier.
    in_line: bool,
    /// What is said to one whose step is cancelled.
    cancelled: &'static str,
}

impl<S: Send + 'static> Monitor<S> {
    pub fn new(state: S, in_line: bool, cancelled: &'static str) -> Monitor<S> {
        let inner = Mutex::new(Inner { state, next_id: 0, waiters: VecDeque::new() });
        Monitor { inner, in_line, cancelled }
    }

    /// Reads or changes the state, and serves those who waited for that.
    pub fn with<T>(&self, body: impl FnOnce(&mut S) -> T) -> T {
        let result = body(&mut self.inner.lock().state);
        self.serve();
        result
    }

    /// Completes `ctx` with what `attempt` yields, now or after a later change. `what` says in words what it waits for then.
    pub fn wait(
        self: &Arc<Self>,
        ctx: AsyncContext,
        what: impl Fn(&S) -> String + Send + Sync + 'static,
        attempt: impl FnMut(&mut S) -> Option<Result<Vec<Tensor>>> + Send + 'static,
    ) {
        {
            let step = ctx.step().clone();
            let mut inner = self.inner.lock();
            let id = inner.next_id;
            inner.next_id += 1;
            let (monitor, waiting, node) = (self.clone(), self.clone(), ctx.node().name.clone());
            let waits = move || vec![format!("{} (node {node})", what(&waiting.inner.lock().state))];
            match step.cancellation().register_waiting(move || monitor.cancel(id), waits) {
                Some(callback) => {
                    let registered = Some((step, callback));
                    inner.waiters.push_back(Waiter { id, attempt: Box::new(attempt), ctx, registered });
                }
                None => {
                    drop(inner);
                    ctx.complete(Err(cancelled!("{}", self.cancelled)));
                    return;
                }
            }
        }
        self.serve();
    }

    fn cancel(self: &Arc<Self>, id: u64) {
        let waiter = {
            let mut inner = self.inner.lock();
            match inner.waiters.iter().position(|waiter| waiter.id == id) {
                Some(at) => inner.waiters.remove(at),
                None => None,
            }
        };
        if let Some(waiter) = waiter {
            waiter.ctx.complete(Err(cancelled!("{}", self.cancelled)));
            self.serve();
        }
    }

    fn serve(&self) {
        let mut served = Vec::new();
        {
            let mut inner = self.inner.lock();
            let inner = &mut *inner;
            let mut at = 0;
            while at < inner.waiters.len() {
                let outcome = inner.waiters.get_mut(at).and_then(|waiter| (waiter.attempt)(&mut inner.state));
                match outcome {
                    Some(outcome) => {
                        if let Some(waiter) = inner.waiters.remove(at) {
                            served.push((waiter, outcome));
                        }
                        // What this one did to the state may serve one who was passed before.
                        at = 0;
                    }
                    None if self.in_line => break,
                    None => at += 1,
                }
            }
        }
        for (waiter, outcome) in served {
            if let Some((step, callback)) = &waiter.registered {
                step.cancellation().deregister(*callback);
            }
            waiter.ctx.complete(outcome.map(|tensors| tensors.into_iter().map(Value::Tensor).collect::<Outputs>()));
        }
    }
}
