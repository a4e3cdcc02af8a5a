//! `PrefetchDataset`: elements made ahead of need, on a thread of their own.

use crate::context::{IteratorContext, stopped};
use crate::dataset::{Dataset, DatasetIterator, Spec, Tuple, dataset_ops, input_dataset, scalar};
use crate::pool;
use crate::state::{Reader, Writer};
use graphmill_runtime::{CallbackId, Context, Registry};
use graphmill_tensor::{Result, internal, invalid_argument};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) fn register(registry: &mut Registry) {
    dataset_ops(registry, &["PrefetchDataset"], |c| {
        let minimum = if c.attrs().has("buffer_size_min") { c.attrs().int("buffer_size_min")? } else { 0 };
        Ok(move |ctx: &Context<'_>| {
            let size: i64 = scalar(ctx, 1, "buffer_size")?;
            if size < AUTOTUNE {
                return Err(invalid_argument!("buffer_size must be >= 0 or set buffer_size to be -1 for auto-tuning"));
            }
            let size = if size == AUTOTUNE { minimum.max(TUNED_SIZE) } else { size };
            Ok(Prefetch { input: input_dataset(ctx, 0)?, size: usize::try_from(size).unwrap_or(0) })
        })
    });
}

/// Stands for a number that the implementation chooses.
pub(crate) const AUTOTUNE: i64 = -1;
/// The chosen size of a buffer.
const TUNED_SIZE: i64 = 4;

/// The elements of the input, up to `size` of them ahead.
struct Prefetch {
    input: Arc<dyn Dataset>,
    size: usize,
}

impl Dataset for Prefetch {
    fn spec(&self) -> &Arc<Spec> {
        self.input.spec()
    }

    fn cardinality(&self) -> i64 {
        self.input.cardinality()
    }

    fn name(&self) -> &'static str {
        "Prefetch"
    }

    fn make(&self, ctx: &IteratorContext) -> Result<Box<dyn DatasetIterator>> {
        if self.size == 0 {
            return self.input.iterator(ctx);
        }
        // The maker may be inside a function when nobody wants its elements any more.
        let own = ctx.child();
        let input = self.input.iterator(&own)?;
        Ok(Box::new(Ahead::new(own, input, self.size, None)))
    }
}

/// Tells who waits for any of several iterators that one of them has something new.
#[derive(Default)]
pub(crate) struct Bell {
    rung: Mutex<u64>,
    changed: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock() += 1;
        self.changed.notify_all();
    }

    /// How often it has rung.
    pub fn count(&self) -> u64 {
        *self.rung.lock()
    }

    /// Waits until it has rung more often than `count` times.
    pub fn wait(&self, count: u64) {
        let mut rung = self.rung.lock();
        while *rung <= count {
            self.changed.wait(&mut rung);
        }
    }
}

/// An iterator whose elements are made ahead.
pub(crate) struct Ahead {
    ctx: IteratorContext,
    callback: Option<CallbackId>,
    shared: Arc<Shared>,
}

struct Shared {
    size: usize,
    bell: Option<Arc<Bell>>,
    input_never_waits: bool,
    input: Mutex<Box<dyn DatasetIterator>>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    made: VecDeque<Result<Tuple>>,
    /// Whether a job is making elements.
    making: bool,
    /// Whether the input has ended.
    ended: bool,
    cancelled: bool,
    /// Whether the consumer waits.
    waiting: bool,
}

impl Ahead {
    /// Of an input that lives in a context of its own.
    pub fn new(ctx: IteratorContext, input: Box<dyn DatasetIterator>, size: usize, bell: Option<Arc<Bell>>) -> Ahead {
        let shared = Arc::new(Shared {
            size,
            bell,
            input_never_waits: input.never_waits(),
            input: Mutex::new(input),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let weak = Arc::downgrade(&shared);
        let callback = ctx.cancellation().register(move || {
            if let Some(shared) = weak.upgrade() {
                shared.cancel();
            }
        });
        if callback.is_none() {
            shared.cancel();
        }
        Ahead { ctx, callback, shared }
    }
}

impl Ahead {
    fn spawn(&self) -> Result<()> {
        let maker = self.shared.clone();
        pool::spawn(move || maker.make()).inspect_err(|_| self.shared.state.lock().making = false)
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if let Some(callback) = self.callback.take() {
            self.ctx.cancellation().deregister(callback);
        }
        self.shared.cancel();
        self.ctx.cancel(stopped());
    }
}

impl Shared {
    fn cancel(&self) {
        self.state.lock().cancelled = true;
        self.changed.notify_all();
        self.ring();
    }

    fn ring(&self) {
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }

    /// Makes elements until the buffer is full.
    fn make(&self) {
        let mut guard = Making { shared: self, ended_well: false };
        loop {
            let mut input = self.input.lock();
            {
                let mut state = self.state.lock();
                if state.cancelled || state.ended || state.made.len() >= self.size {
                    state.making = false;
                    guard.ended_well = true;
                    return;
                }
            }
            let next = input.next().transpose();
            // The input stays locked until the element is in its place, so that nobody saves the state in between.
            let mut state = self.state.lock();
            match next {
                Some(outcome) => state.made.push_back(outcome),
                None => state.ended = true,
            }
            if state.waiting {
                self.changed.notify_one();
            }
            drop(state);
            self.ring();
        }
    }
}

/// Leaves word if making an element panics.
struct Making<'a> {
    shared: &'a Shared,
    ended_well: bool,
}

impl Drop for Making<'_> {
    fn drop(&mut self) {
        if !self.ended_well {
            let mut state = self.shared.state.lock();
            state.making = false;
            state.ended = true;
            state.made.push_back(Err(internal!("making an element of a dataset failed")));
            self.shared.changed.notify_all();
            drop(state);
            self.shared.ring();
        }
    }
}

impl DatasetIterator for Ahead {
    fn next(&mut self) -> Result<Option<Tuple>> {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        loop {
            if state.cancelled {
                return Err(stopped());
            }
            let next = state.made.pop_front();
            if !state.making && !state.ended && state.made.len() < shared.size {
                state.making = true;
                // Not under the lock, which the new job asks for first.
                drop(state);
                self.spawn()?;
                if let Some(outcome) = next {
                    return outcome.map(Some);
                }
                state = shared.state.lock();
                continue;
            }
            match next {
                Some(outcome) => return outcome.map(Some),
                None if state.ended => return Ok(None),
                None => {
                    // The job that makes elements may not have a processor yet: whoever is here does its work.
                    if let Some(mut input) = shared.input.try_lock() {
                        drop(state);
                        let next = input.next()?;
                        if next.is_none() {
                            shared.state.lock().ended = true;
                        }
                        return Ok(next);
                    }
                    state.waiting = true;
                    shared.changed.wait(&mut state);
                    state.waiting = false;
                }
            }
        }
    }

    fn begin(&self) -> Result<()> {
        let mut state = self.shared.state.lock();
        if state.making || state.ended || state.made.len() >= self.shared.size {
            return Ok(());
        }
        state.making = true;
        drop(state);
        self.spawn()
    }

    fn is_ready(&self) -> bool {
        let state = self.shared.state.lock();
        let here = || self.shared.input_never_waits && self.shared.input.try_lock().is_some();
        !state.made.is_empty() || state.ended || state.cancelled || here()
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        let mut input = self.shared.input.lock();
        let state = self.shared.state.lock();
        writer.begin("Prefetch");
        writer.bool(state.ended);
        writer.size(state.made.len());
        state.made.iter().for_each(|outcome| writer.outcome(outcome));
        drop(state);
        input.save(writer)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        let mut input = self.shared.input.lock();
        let mut state = self.shared.state.lock();
        reader.begin("Prefetch")?;
        state.ended = reader.bool()?;
        state.made = (0..reader.size()?).map(|_| reader.outcome()).collect::<Result<_>>()?;
        drop(state);
        input.restore(reader)
    }
}
