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
    steps: HashMap<u64, Arc<Step>>,
    next: u64,
    /// Set when the session has ended.
    end: Option<Status>,
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
    /// `FAILED_PRECONDITION` if the session has ended.
    pub fn begin(self: &Arc<Self>, step: &Arc<Step>) -> Result<Running> {
        let mut state = self.state.lock();
        if state.end.is_some() {
            return Err(failed_precondition!("Session is closed."));
        }
        let number = state.next;
        state.next += 1;
        state.steps.insert(number, step.clone());
        Ok(Running { steps: self.clone(), number })
    }

    /// Cancels all steps and lets no new ones begin. The first reason stays.
    pub fn end(&self, reason: Status) {
        let steps: Vec<Arc<Step>> = {
            let mut state = self.state.lock();
            state.end.get_or_insert_with(|| reason.clone());
            state.steps.values().cloned().collect()
        };
        for step in steps {
            step.cancellation().cancel(reason.clone());
        }
    }

    /// Waits until all steps have ended, but not for longer than until `deadline`.
    pub async fn wait(&self, deadline: Instant) {
        let ended = async {
            loop {
                let empty = self.empty.notified();
                if self.state.lock().steps.is_empty() {
                    return;
                }
                empty.await;
            }
        };
        if timeout_at(deadline, ended).await.is_err() {
            tracing::warn!("steps go on after the end of their session");
        }
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
        if state.steps.is_empty() && state.end.is_some() {
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

    #[tokio::test(start_paused = true)]
    async fn the_wait_is_bounded() {
        let steps = Arc::new(RunningSteps::default());
        let _running = steps.begin(&Arc::new(Step::new(1))).unwrap();
        steps.end(cancelled!("over"));
        steps.wait(patience()).await;
    }
}
