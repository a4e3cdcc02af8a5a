//! Threads that may wait. They are started as needed, and end when they have had nothing to do for a while.

use graphmill_tensor::{Result, resource_exhausted};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

type Job = Box<dyn FnOnce() + Send>;

/// How long an idle thread waits for work.
const PATIENCE: Duration = Duration::from_secs(5);

struct Pool {
    state: Mutex<State>,
    wake: Condvar,
}

struct State {
    jobs: VecDeque<Job>,
    idle: usize,
}

static POOL: Pool = Pool { state: Mutex::new(State { jobs: VecDeque::new(), idle: 0 }), wake: Condvar::new() };

/// Runs a job on a thread of its own, as it may wait for other jobs.
///
/// # Errors
/// `RESOURCE_EXHAUSTED` if no thread can be started.
pub(crate) fn spawn(job: impl FnOnce() + Send + 'static) -> Result<()> {
    let mut state = POOL.state.lock();
    state.jobs.push_back(Box::new(job));
    if state.idle >= state.jobs.len() {
        POOL.wake.notify_one();
        return Ok(());
    }
    drop(state);
    match thread::Builder::new().name("data".to_owned()).spawn(work) {
        Ok(_) => Ok(()),
        Err(error) => {
            // Another thread may have taken the job by now, which is as good.
            match POOL.state.lock().jobs.pop_back() {
                Some(_) => Err(resource_exhausted!("Cannot start a thread for a dataset: {error}")),
                None => Ok(()),
            }
        }
    }
}

fn work() {
    let mut state = POOL.state.lock();
    loop {
        if let Some(job) = state.jobs.pop_front() {
            drop(state);
            // Who waits for the job notices that it dropped what it held.
            let _ = catch_unwind(AssertUnwindSafe(job));
            state = POOL.state.lock();
            continue;
        }
        state.idle += 1;
        let timed_out = POOL.wake.wait_for(&mut state, PATIENCE).timed_out();
        state.idle -= 1;
        if timed_out && state.jobs.is_empty() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn jobs_may_wait_for_each_other() {
        let (first, later) = mpsc::channel();
        let (done, end) = mpsc::channel();
        spawn(move || {
            let value: i32 = later.recv().unwrap();
            done.send(value + 1).unwrap();
        })
        .unwrap();
        spawn(move || first.send(1).unwrap()).unwrap();
        assert_eq!(end.recv(), Ok(2));
    }
}
