//! Running programs.
//!
//! A run is driven by one thread at a time, so that counters and values need no locks: the driver takes ready nodes from a
//! stack, runs their kernels and passes the outputs on. A kernel whose measured cost is worth a hand-over goes to another thread
//! while other nodes are ready; an asynchronous kernel completes whenever it does. Both put their outputs into the run's inbox,
//! and where no driver is at work then, one of the executor's threads takes the run up again. A run thus holds no thread while it waits.

mod exchange;
mod frame;
mod kernel_cache;
mod partial;
mod program;
mod propagate;
mod run;
mod threads;

pub use kernel_cache::KernelCache;
pub use partial::PartialRun;
pub use program::{Port, Program};

use crate::Step;
use graphmill_tensor::{Result, Status, Tensor, internal};
use run::Run;
use std::sync::Arc;
use std::time::Duration;
use threads::Threads;

/// The threads on which steps run. Cloning shares them.
#[derive(Clone)]
pub struct Executor(Arc<Threads>);

impl Executor {
    /// An executor with this many threads; 0 means as many as the machine has.
    pub fn new(threads: usize) -> Executor {
        Executor(Arc::new(Threads::new(threads)))
    }

    /// Runs a program once. `feeds` are in the order of [`Program::feeds`]; `done` gets the tensors in the order of
    /// [`Program::fetches`], exactly once, from any thread, possibly before this returns.
    ///
    /// A program that is known to be short runs on the calling thread, as a hand-over would take longer than the work.
    pub fn run(
        &self,
        program: &Arc<Program>,
        step: Arc<Step>,
        feeds: Vec<Tensor>,
        done: impl FnOnce(Result<Vec<Tensor>>) + Send + 'static,
    ) {
        if let Err(error) = check_feeds(program, &feeds) {
            return done(Err(error));
        }
        let slice = (!program.is_long()).then_some(run::BORROWED_SLICE);
        self.run_on(program, step, feeds, Box::new(done), slice);
    }

    /// Runs a job on one of the threads. It must not wait for anything but the processor.
    pub(crate) fn spawn(&self, job: impl FnOnce() + Send + 'static) {
        self.0.spawn(job);
    }

    /// Runs a program with feeds that fit, on the calling thread for up to `slice`, or without one on the executor's threads.
    pub(crate) fn run_on(
        &self,
        program: &Arc<Program>,
        step: Arc<Step>,
        feeds: Vec<Tensor>,
        done: run::Done,
        slice: Option<Duration>,
    ) {
        Run::start(&self.0, program, step, feeds, done, slice);
    }

    /// Runs a program once, with feeds that come later. `fetched` gets each fetched tensor, with its number in
    /// [`Program::fetches`], as soon as it is there; `done` is called once, when everything has run or something has failed.
    pub fn run_partially(
        &self,
        program: &Arc<Program>,
        step: Arc<Step>,
        fetched: impl Fn(usize, Tensor) + Send + Sync + 'static,
        done: impl FnOnce(Result<()>) + Send + 'static,
    ) -> PartialRun {
        let partial = PartialRun::new(program, &step, Box::new(fetched));
        Run::start_partial(&self.0, program, step, partial.clone(), Box::new(|outcome| done(outcome.map(drop))));
        partial
    }
}

fn check_feeds(program: &Program, feeds: &[Tensor]) -> Result<(), Status> {
    if feeds.len() != program.feeds().len() {
        return Err(internal!("the program takes {} feeds, got {}", program.feeds().len(), feeds.len()));
    }
    feeds.iter().enumerate().try_for_each(|(index, feed)| check_feed(program, index, feed))
}

fn check_feed(program: &Program, index: usize, feed: &Tensor) -> Result<(), Status> {
    let Some(port) = program.feeds().get(index) else {
        return Err(internal!("the program has no feed {index}"));
    };
    if feed.dtype() == port.dtype {
        return Ok(());
    }
    let error = internal!("Output 0 of type {} does not match declared output type {}", feed.dtype(), port.dtype);
    Err(match program.feed_node(index) {
        Some(node) => {
            let text = format!("{} for node {{{{node {}}}}}", error.message(), node.info.name);
            error.with_message(text)
        }
        None => error,
    })
}
