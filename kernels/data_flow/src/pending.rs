//! Runs of kernels that others end.

use graphmill_runtime::{AsyncContext, CallbackId, Step, outputs};
use graphmill_tensor::{Result, Tensor, cancelled};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};

/// A run that waits until somebody ends it: another run, a clock, or the cancellation of its step, whichever comes first.
pub(crate) struct Pending {
    step: Arc<Step>,
    ctx: Mutex<Option<AsyncContext>>,
    callback: OnceLock<CallbackId>,
}

impl Pending {
    /// Has the run wait. If its step is cancelled, now or later, the run ends and `forget` is called.
    pub fn new(ctx: AsyncContext, forget: impl FnOnce() + Send + 'static) -> Arc<Pending> {
        let step = ctx.step().clone();
        let pending = Arc::new(Pending { step, ctx: Mutex::new(Some(ctx)), callback: OnceLock::new() });
        let weak = Arc::downgrade(&pending);
        let end = move || {
            if let Some(pending) = weak.upgrade() {
                pending.end_cancelled();
            }
            forget();
        };
        match pending.step.cancellation().register(end) {
            Some(callback) => {
                let _ = pending.callback.set(callback);
            }
            None => pending.end_cancelled(),
        }
        pending
    }

    /// The step of the run.
    pub fn step(&self) -> &Arc<Step> {
        &self.step
    }

    /// Whether the run has ended.
    pub fn is_over(&self) -> bool {
        self.ctx.lock().is_none()
    }

    /// Ends the run, unless that has happened.
    pub fn complete(&self, outcome: Result<Vec<Tensor>>) {
        let ctx = self.ctx.lock().take();
        if let Some(ctx) = ctx {
            if let Some(&callback) = self.callback.get() {
                self.step.cancellation().deregister(callback);
            }
            ctx.complete(outcome.map(outputs));
        }
    }

    fn end_cancelled(&self) {
        let reason = self.step.cancellation().reason();
        self.complete(Err(reason.unwrap_or_else(|| cancelled!("Step was cancelled"))));
    }
}
