//! The threads on which steps run.

use crate::denormals::FlushDenormals;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

type Job = Box<dyn FnOnce() + Send>;

/// Threads that take jobs in the order in which they came. Jobs never wait for anything but the processor.
pub(crate) struct Threads {
    queue: Arc<Queue>,
    handles: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    idle: usize,
    stop: bool,
}

impl Threads {
    /// `threads` threads; 0 means as many as the machine has.
    pub fn new(threads: usize) -> Threads {
        let count = if threads == 0 { thread::available_parallelism().map_or(1, usize::from) } else { threads };
        let queue = Arc::new(Queue::default());
        let handles = (0..count)
            .filter_map(|index| {
                let queue = queue.clone();
                thread::Builder::new().name(format!("inter-op-{index}")).spawn(move || work(&queue)).ok()
            })
            .collect();
        Threads { queue, handles }
    }

    /// Hands a job over.
    pub fn spawn(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.queue.state.lock();
        state.jobs.push_back(Box::new(job));
        if state.idle > 0 {
            self.queue.wake.notify_one();
        }
    }

    /// Whether a thread has nothing to do.
    pub fn has_idle(&self) -> bool {
        let state = self.queue.state.lock();
        state.idle > state.jobs.len()
    }

    /// Whether jobs wait for a thread.
    pub fn has_waiting(&self) -> bool {
        !self.queue.state.lock().jobs.is_empty()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.queue.state.lock().stop = true;
        self.queue.wake.notify_all();
        for handle in self.handles.drain(..) {
            // The last step may end on one of these threads and drop the executor there.
            if handle.thread().id() != thread::current().id() {
                let _ = handle.join();
            }
        }
    }
}

fn work(queue: &Queue) {
    let _flush = FlushDenormals::on();
    let mut state = queue.state.lock();
    loop {
        if let Some(job) = state.jobs.pop_front() {
            drop(state);
            job();
            state = queue.state.lock();
        } else if state.stop {
            return;
        } else {
            state.idle += 1;
            queue.wake.wait(&mut state);
            state.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn jobs_run_and_the_threads_end() {
        let threads = Threads::new(2);
        let (sender, receiver) = mpsc::channel();
        for i in 0..100 {
            let sender = sender.clone();
            threads.spawn(move || {
                let _ = sender.send(i);
            });
        }
        drop(sender);
        drop(threads);
        let mut seen: Vec<i32> = receiver.iter().collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..100).collect::<Vec<_>>());
    }
}
