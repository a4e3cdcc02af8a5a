//! Calls on elements, several at a time, whose results keep the order of the elements or come as they are made.

use crate::context::{IteratorContext, stopped};
use crate::dataset::{DatasetIterator, Tuple};
use crate::pool;
use crate::state::{Reader, Writer};
use graphmill_runtime::CallbackId;
use graphmill_tensor::{Result, internal};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;

/// What is done to each element; `None` ends the sequence.
pub(crate) type Work = Box<dyn Fn(&IteratorContext, Tuple) -> Result<Option<Tuple>> + Send + Sync>;

/// An iterator that works on several elements at a time.
pub(crate) struct Parallel {
    ctx: IteratorContext,
    callback: Option<CallbackId>,
    shared: Arc<Shared>,
}

struct Shared {
    name: &'static str,
    ctx: IteratorContext,
    workers: usize,
    /// Results kept, together with what is under way.
    limit: usize,
    work: Work,
    ordered: bool,
    input: Mutex<Box<dyn DatasetIterator>>,
    state: Mutex<State>,
    /// The consumer's, and that of who saves.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// In the order of the elements, `None` is under way; without an order, only what is done.
    slots: VecDeque<Option<Result<Option<Tuple>>>>,
    /// Calls under way that have no place yet, as there is no order.
    under_way: usize,
    /// The number of the element in front.
    first: u64,
    workers: usize,
    ended: bool,
    cancelled: bool,
    /// Whether the consumer waits for the element in front.
    waiting: bool,
    /// Whether somebody waits for all results.
    saving: bool,
}

/// Results kept for each worker: enough that a worker seldom finds no place.
const SLOTS_PER_WORKER: usize = 8;

impl Parallel {
    /// With `workers` calls at a time on the elements of an input that lives in a context of its own.
    pub fn new(
        name: &'static str,
        ctx: IteratorContext,
        input: Box<dyn DatasetIterator>,
        workers: usize,
        ordered: bool,
        work: Work,
    ) -> Parallel {
        let workers = workers.max(1);
        let shared = Arc::new(Shared {
            name,
            ctx: ctx.clone(),
            workers,
            limit: workers.saturating_mul(SLOTS_PER_WORKER),
            work,
            ordered,
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
        Parallel { ctx, callback, shared }
    }

    /// Starts the workers that are missing. The lock is released for it.
    fn add_workers(&self, missing: usize) -> Result<()> {
        for left in (1..=missing).rev() {
            let shared = self.shared.clone();
            if let Err(error) = pool::spawn(move || shared.run()) {
                self.shared.state.lock().workers -= left;
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Drop for Parallel {
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
    }

    /// Works on elements until there is no place for results.
    fn run(&self) {
        loop {
            let mut input = self.input.lock();
            {
                let mut state = self.state.lock();
                if state.cancelled || state.ended || state.slots.len() + state.under_way >= self.limit {
                    state.workers -= 1;
                    return;
                }
            }
            // The input stays locked until the element has its place, which keeps the order.
            let mut leave = Leave { shared: self, number: None };
            let next = input.next();
            let mut state = self.state.lock();
            let number = state.first + state.slots.len() as u64;
            let element = match next {
                Ok(Some(element)) => {
                    if self.ordered {
                        state.slots.push_back(None);
                    } else {
                        state.under_way += 1;
                    }
                    element
                }
                Ok(None) => {
                    state.ended = true;
                    self.tell(&state);
                    leave.number = Some(number);
                    continue;
                }
                Err(error) => {
                    state.slots.push_back(Some(Err(error)));
                    self.tell(&state);
                    leave.number = Some(number);
                    continue;
                }
            };
            drop(state);
            drop(input);
            let mut held = Held { shared: self, number, outcome: None };
            held.outcome = Some((self.work)(&self.ctx, element));
            drop(held);
            leave.number = Some(number);
        }
    }

    fn tell(&self, state: &State) {
        if state.waiting {
            self.changed.notify_all();
        }
    }
}

/// Counts a worker out if reading the input panics.
struct Leave<'a> {
    shared: &'a Shared,
    number: Option<u64>,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        if self.number.is_none() {
            let mut state = self.shared.state.lock();
            state.workers -= 1;
            state.ended = true;
            state.slots.push_back(Some(Err(internal!("reading an element of a dataset failed"))));
            self.shared.changed.notify_all();
        }
    }
}

/// Puts a result into its place, also if the work panics.
struct Held<'a> {
    shared: &'a Shared,
    number: u64,
    outcome: Option<Result<Option<Tuple>>>,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let outcome = self.outcome.take();
        let outcome = outcome.unwrap_or_else(|| Err(internal!("working on an element of a dataset failed")));
        let mut state = self.shared.state.lock();
        let mut place = 0;
        if self.shared.ordered {
            place = usize::try_from(self.number.wrapping_sub(state.first)).unwrap_or(usize::MAX);
            if let Some(slot) = state.slots.get_mut(place) {
                *slot = Some(outcome);
            }
        } else {
            state.under_way -= 1;
            state.slots.push_back(Some(outcome));
        }
        if (place == 0 && state.waiting) || state.saving {
            self.shared.changed.notify_all();
        }
    }
}

impl DatasetIterator for Parallel {
    fn next(&mut self) -> Result<Option<Tuple>> {
        let shared = &self.shared;
        let mut state = shared.state.lock();
        loop {
            if state.cancelled {
                return Err(stopped());
            }
            // Few wake-ups: workers come back when half of the places are free.
            if state.workers < shared.workers && !state.ended && state.slots.len() + state.under_way <= shared.limit / 2
            {
                let missing = shared.workers - state.workers;
                state.workers = shared.workers;
                drop(state);
                self.add_workers(missing)?;
                state = shared.state.lock();
                continue;
            }
            match state.slots.front() {
                Some(Some(_)) => {
                    state.first += 1;
                    match state.slots.pop_front().flatten() {
                        // A call may have ended the sequence, which goes on if it is asked again.
                        Some(outcome) => return outcome,
                        None => continue,
                    }
                }
                None if state.ended && state.under_way == 0 => return Ok(None),
                _ => {
                    state.waiting = true;
                    shared.changed.wait(&mut state);
                    state.waiting = false;
                }
            }
        }
    }

    fn is_ready(&self) -> bool {
        let state = self.shared.state.lock();
        state.cancelled || matches!(state.slots.front(), Some(Some(_)))
    }

    fn save(&mut self, writer: &mut Writer) -> Result<()> {
        let mut input = self.shared.input.lock();
        let mut state = self.shared.state.lock();
        // Nobody takes another element while the input is locked, so what is under way comes to an end.
        while (state.under_way > 0 || state.slots.iter().any(Option::is_none)) && !state.cancelled {
            state.saving = true;
            self.shared.changed.wait(&mut state);
            state.saving = false;
        }
        writer.begin(self.shared.name);
        writer.bool(state.ended);
        writer.size(state.slots.len());
        for slot in state.slots.iter().flatten() {
            let ends = matches!(slot, Ok(None));
            writer.bool(ends);
            if !ends {
                writer.outcome(&slot.clone().map(Option::unwrap_or_default));
            }
        }
        drop(state);
        input.save(writer)
    }

    fn restore(&mut self, reader: &mut Reader) -> Result<()> {
        let mut input = self.shared.input.lock();
        let mut state = self.shared.state.lock();
        reader.begin(self.shared.name)?;
        state.ended = reader.bool()?;
        for _ in 0..reader.size()? {
            let outcome = if reader.bool()? { Ok(None) } else { reader.outcome()?.map(Some) };
            state.slots.push_back(Some(outcome));
        }
        drop(state);
        input.restore(reader)
    }
}
