//! Runs that are fed, and give their fetches, one after another.

use crate::executor::{Program, check_feed};
use crate::{Outputs, Step, Value};
use graphmill_tensor::{Result, Status, Tensor, already_exists, cancelled};
use parking_lot::Mutex;
use smallvec::smallvec;
use std::sync::Arc;

/// Takes a feed that has come, or why none will.
type Waiter = Box<dyn FnOnce(Result<Outputs>) + Send>;
type Fetched = Box<dyn Fn(usize, Tensor) + Send + Sync>;

/// A run that waits for its feeds; see [`crate::Executor::run_partially`]. When its step is cancelled, it waits no longer.
#[derive(Clone)]
pub struct PartialRun(Arc<Inner>);

struct Inner {
    program: Arc<Program>,
    feeds: Mutex<Vec<Feed>>,
    fetched: Fetched,
}

/// How far a feed is.
enum Feed {
    Missing,
    Given(Tensor),
    Awaited(Waiter),
    /// Passed on, or no longer wanted.
    Taken,
}

impl PartialRun {
    pub(crate) fn new(program: &Arc<Program>, step: &Arc<Step>, fetched: Fetched) -> PartialRun {
        let feeds = program.feeds().iter().map(|_| Feed::Missing).collect();
        let partial = PartialRun(Arc::new(Inner { program: program.clone(), feeds: Mutex::new(feeds), fetched }));
        let weak = Arc::downgrade(&partial.0);
        // A step that is cancelled already does not come to wait.
        let _ = step.cancellation().register(move || {
            if let Some(inner) = weak.upgrade() {
                inner.give_up();
            }
        });
        partial
    }

    /// Gives a feed, by its number in [`Program::feeds`].
    ///
    /// # Errors
    /// `INTERNAL` if the program has no such feed or it is of another type, `ALREADY_EXISTS` if it was given before.
    pub fn feed(&self, index: usize, tensor: Tensor) -> Result<()> {
        check_feed(&self.0.program, index, &tensor)?;
        let waiter = {
            let mut feeds = self.0.feeds.lock();
            let Some(feed) = feeds.get_mut(index) else { return Ok(()) };
            match std::mem::replace(feed, Feed::Taken) {
                Feed::Missing => {
                    *feed = Feed::Given(tensor);
                    return Ok(());
                }
                Feed::Awaited(waiter) => waiter,
                before => {
                    *feed = before;
                    return Err(already_exists!("feed {index} was given before"));
                }
            }
        };
        waiter(Ok(smallvec![Value::Tensor(tensor)]));
        Ok(())
    }

    /// Has `waiter` called with a feed, now or when it comes.
    pub(crate) fn when_fed(&self, index: usize, waiter: Waiter) {
        let outcome = {
            let mut feeds = self.0.feeds.lock();
            match feeds.get_mut(index) {
                Some(feed) => match std::mem::replace(feed, Feed::Taken) {
                    Feed::Given(tensor) => Ok(smallvec![Value::Tensor(tensor)]),
                    Feed::Missing => {
                        *feed = Feed::Awaited(waiter);
                        return;
                    }
                    _ => Err(ended()),
                },
                None => Err(ended()),
            }
        };
        waiter(outcome);
    }

    pub(crate) fn fetched(&self, index: usize, tensor: Tensor) {
        (self.0.fetched)(index, tensor);
    }
}

impl Inner {
    fn give_up(&self) {
        let waiters: Vec<Waiter> = {
            let mut feeds = self.feeds.lock();
            let taken = feeds.iter_mut().map(|feed| std::mem::replace(feed, Feed::Taken));
            taken.filter_map(|feed| if let Feed::Awaited(waiter) = feed { Some(waiter) } else { None }).collect()
        };
        for waiter in waiters {
            waiter(Err(ended()));
        }
    }
}

fn ended() -> Status {
    cancelled!("The step ended before its feeds came").derived()
}
