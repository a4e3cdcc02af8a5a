//! The steps of a session that have not ended.

use graphmill_runtime::Step;
use graphmill_tensor::{Code, Result, Status, failed_precondition};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// How long the end of sessions waits for their steps. A kernel that computes for longer ends behind the client's back.
const PATIENCE: Duration = Duration::from_secs(10);

/// When the end of sessions that begins now stops waiting for their steps.
pub(crate) fn patience() -> Instant {
    Instant::now() + PATIENCE
}

/// The running steps of a session.
#[derive(Default)]
pub(crate) struct RunningSteps {
    state: Mutex<State>,
    empty: Notify,
}

#[derive(Default)]
struct State {
    /// By the order of their beginnings, as a step may have several parts here.
    steps: HashMap<u64, (Arc<Step>, Instant)>,
    next: u64,
    /// Set when the session has ended.
    end: Option<Status>,
    /// Why no steps begin any more, while those that run go on.
    refused: Option<Status>,
}

/// Counts a step as running until it is dropped.
pub(crate) struct Running {
    steps: Arc<RunningSteps>,
    number: u64,
}

impl RunningSteps {
    /// Notes a step that begins.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if the session has ended, the reason of [`RunningSteps::refuse`] after that.
    pub fn begin(self: &Arc<Self>, step: &Arc<Step>) -> Result<Running> {
        let mut state = self.state.lock();
        if state.end.is_some() {
            return Err(failed_precondition!("Session is closed."));
        }
        if let Some(reason) = &state.refused {
            return Err(reason.clone());
        }
        let number = state.next;
        state.next += 1;
        state.steps.insert(number, (step.clone(), Instant::now()));
        Ok(Running { steps: self.clone(), number })
    }

    /// Cancels all steps and lets no new ones begin. The first reason stays.
    pub fn end(&self, reason: Status) {
        let steps: Vec<Arc<Step>> = {
            let mut state = self.state.lock();
            state.end.get_or_insert_with(|| reason.clone());
            state.steps.values().map(|(step, _)| step.clone()).collect()
        };
        for step in steps {
            step.cancellation().cancel(reason.clone());
        }
    }

    /// Lets no new steps begin. Those that run go on.
    pub fn refuse(&self, reason: Status) {
        self.state.lock().refused.get_or_insert(reason);
    }

    /// The steps that run, and for how long they have.
    pub fn list(&self) -> Vec<(Arc<Step>, Duration)> {
        self.state.lock().steps.values().map(|(step, begun)| (step.clone(), begun.elapsed())).collect()
    }

    /// Waits until all steps have ended, but not for longer than until `deadline`.
    pub async fn wait(&self, deadline: Instant) {
        if !self.is_over_by(deadline).await {
            tracing::warn!("steps go on after the end of their session");
        }
    }

    /// Waits until all steps have ended, but not for longer than until `deadline`; whether they have.
    pub async fn is_over_by(&self, deadline: Instant) -> bool {
        let ended = async {
            loop {
                let empty = self.empty.notified();
                if self.state.lock().steps.is_empty() {
                    return;
                }
                empty.await;
            }
        };
        timeout_at(deadline, ended).await.is_ok()
    }

    /// What a step that failed with `error` reports: steps that the session's end has cancelled give the reason of that.
    pub fn outcome(&self, error: &Status) -> Option<Status> {
        let state = self.state.lock();
        state.end.as_ref().filter(|end| error.code() == Code::Cancelled || error == *end).cloned()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut state = self.steps.state.lock();
        let step = state.steps.remove(&self.number);
        if state.steps.is_empty() && (state.end.is_some() || state.refused.is_some()) {
            self.steps.empty.notify_waiters();
        }
        drop(state);
        // What the step holds is freed outside the lock.
        drop(step);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::{cancelled, internal};

    #[tokio::test]
    async fn the_end_cancels_and_waits() {
        let steps = Arc::new(RunningSteps::default());
        let step = Arc::new(Step::new(1));
        let running = steps.begin(&step).unwrap();
        steps.end(cancelled!("over"));
        steps.end(cancelled!("later"));
        assert_eq!(step.cancellation().reason().unwrap().message(), "over");
        assert_eq!(steps.begin(&step).err().unwrap().message(), "Session is closed.");
        let waiter = {
            let steps = steps.clone();
            tokio::spawn(async move { steps.wait(patience()).await })
        };
        tokio::task::yield_now().await;
        assert!(!waiter.is_finished());
        drop(running);
        waiter.await.unwrap();
        assert_eq!(steps.outcome(&cancelled!("Dequeue operation was cancelled")).unwrap().message(), "over");
        assert_eq!(steps.outcome(&internal!("own fault")), None);
    }

    #[tokio::test]
    async fn steps_that_run_may_end_by_themselves() {
        let steps = Arc::new(RunningSteps::default());
        let step = Arc::new(Step::new(7));
        let running = steps.begin(&step).unwrap();
        steps.refuse(cancelled!("enough"));
        assert_eq!(steps.begin(&step).err().unwrap().message(), "enough");
        assert!(!step.cancellation().is_cancelled());
        assert_eq!(steps.list()[0].0.id(), 7);
        let waiter = {
            let steps = steps.clone();
            tokio::spawn(async move { steps.is_over_by(patience()).await })
        };
        tokio::task::yield_now().await;
        drop(running);
        assert!(waiter.await.unwrap());
        assert!(steps.list().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_is_bounded() {
        let steps = Arc::new(RunningSteps::default());
        let _running = steps.begin(&Arc::new(Step::new(1))).unwrap();
        steps.end(cancelled!("over"));
        steps.wait(patience()).await;
    }
}
