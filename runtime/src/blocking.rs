//! Threads for kernels that wait for the system, such as for files, so that the executor's threads need not.

use crate::kernel::{AsyncContext, AsyncKernel, Kernel};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Threads at most. Work beyond that queues up; none of it waits for other work.
const MOST: usize = 64;
/// How long a thread without work stays.
const LINGER: Duration = Duration::from_secs(5);

type Work = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    queue: VecDeque<Work>,
    idle: usize,
    threads: usize,
}

static STATE: Mutex<State> = Mutex::new(State { queue: VecDeque::new(), idle: 0, threads: 0 });
static WAKE: Condvar = Condvar::new();

/// Runs `work` on a thread that may wait for the system. It must not wait for other work that is run this way.
pub fn run_blocking(work: impl FnOnce() + Send + 'static) {
    let mut state = STATE.lock();
    state.queue.push_back(Box::new(work));
    if state.idle >= state.queue.len() {
        WAKE.notify_one();
        return;
    }
    if state.threads < MOST && thread::Builder::new().name("blocking".to_owned()).spawn(serve).is_ok() {
        state.threads += 1;
    } else if state.threads == 0 {
        // Not one thread to be had: better late than never.
        let work = state.queue.pop_back();
        drop(state);
        work.into_iter().for_each(|work| work());
    }
}

fn serve() {
    let mut state = STATE.lock();
    loop {
        if let Some(work) = state.queue.pop_front() {
            drop(state);
            // A panic has dropped what the work owned, which tells whoever waits for it.
            let _ = catch_unwind(AssertUnwindSafe(work));
            state = STATE.lock();
            continue;
        }
        state.idle += 1;
        let late = WAKE.wait_for(&mut state, LINGER).timed_out();
        state.idle -= 1;
        if late && state.queue.is_empty() {
            state.threads -= 1;
            return;
        }
    }
}

/// A kernel whose computation waits for the system: it runs on a thread made for that.
pub(crate) struct OnBlockingThread<K>(Arc<K>);

impl<K> OnBlockingThread<K> {
    pub(crate) fn new(kernel: K) -> OnBlockingThread<K> {
        OnBlockingThread(Arc::new(kernel))
    }
}

impl<K: Kernel + 'static> AsyncKernel for OnBlockingThread<K> {
    fn start(&self, mut ctx: AsyncContext) {
        let kernel = self.0.clone();
        run_blocking(move || {
            let outcome = ctx.with_context(|ctx| kernel.compute(ctx));
            ctx.complete(outcome.map(|((), outputs)| outputs));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn more_work_than_threads_is_all_done() {
        let (sender, receiver) = mpsc::channel();
        for i in 0..200 {
            let sender = sender.clone();
            run_blocking(move || {
                if i == 7 {
                    panic!("work that fails takes no other work with it");
                }
                let _ = sender.send(i);
            });
        }
        drop(sender);
        assert_eq!(receiver.iter().count(), 199);
    }
}
