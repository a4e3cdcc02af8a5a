//! Buffers that the members of a group offer each other, by step and key.

use graphmill_runtime::{Fetched, Taken};
use graphmill_tensor::{Status, Tensor, internal};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

/// Failed steps of which the reason is kept, for members that ask late.
const REMEMBERED_FAILURES: usize = 256;

/// The buffers of all steps.
#[derive(Default)]
pub(crate) struct StepBuffers(Mutex<Steps>);

#[derive(Default)]
struct Steps {
    live: HashMap<i64, Arc<Buffers>>,
    failed: VecDeque<i64>,
}

impl StepBuffers {
    /// Those of a step that begins. If a step of the same number has failed before, this one has nothing to do with it.
    pub fn begin(&self, step: i64) -> Arc<Buffers> {
        let mut steps = self.0.lock();
        if steps.live.get(&step).is_some_and(|buffers| buffers.has_ended()) {
            steps.live.remove(&step);
            steps.failed.retain(|&failed| failed != step);
        }
        steps.live.entry(step).or_default().clone()
    }

    /// Those of a step for a member that asks, which may be before the step begins here and after it has failed.
    pub fn of(&self, step: i64) -> Arc<Buffers> {
        self.0.lock().live.entry(step).or_default().clone()
    }

    /// Ends a step with a reason, which members that ask later are told too.
    pub fn fail(&self, step: i64, buffers: &Arc<Buffers>, reason: Status) {
        {
            let mut steps = self.0.lock();
            if steps.live.get(&step).is_some_and(|live| Arc::ptr_eq(live, buffers)) && !steps.failed.contains(&step) {
                steps.failed.push_back(step);
                if steps.failed.len() > REMEMBERED_FAILURES
                    && let Some(oldest) = steps.failed.pop_front()
                {
                    steps.live.remove(&oldest);
                }
            }
        }
        buffers.end(reason);
    }

    /// Ends a step of which something is left, and forgets one of which nothing is.
    pub fn clean_up(&self, step: i64, reason: Status) {
        let left = self.0.lock().live.get(&step).cloned();
        if let Some(buffers) = left {
            if !buffers.is_idle() {
                self.fail(step, &buffers, reason);
            }
            self.forget_if_idle(step, &buffers, 2);
        }
    }

    /// Forgets a step in which nothing is left and that nobody but `holders` holds, those of the caller and the table among them.
    pub fn forget_if_idle(&self, step: i64, buffers: &Arc<Buffers>, holders: usize) {
        let mut steps = self.0.lock();
        let held = Arc::strong_count(buffers) > holders;
        if !held && buffers.is_idle() && steps.live.get(&step).is_some_and(|live| Arc::ptr_eq(live, buffers)) {
            steps.live.remove(&step);
        }
    }

    /// What a step waits for, in words.
    pub fn waits(&self, step: i64) -> Vec<Wait> {
        let buffers = self.0.lock().live.get(&step).cloned();
        buffers.map(|buffers| buffers.state.lock().waits.values().cloned().collect()).unwrap_or_default()
    }
}

/// What a part of a step waits for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wait {
    /// The members of a group: its key and size.
    Group(i32, usize),
    /// What the members of a group say of an operation.
    Instance(i32, i32),
    /// A buffer of a member, or that it takes one, in an operation of a group.
    Member(i32, i32, String),
}

/// The buffers of one step on this task.
#[derive(Default)]
pub(crate) struct Buffers {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    entries: HashMap<String, Entry>,
    next: u64,
    waits: BTreeMap<u64, Wait>,
    ended: Option<Status>,
}

enum Entry {
    Offered(Tensor, Taken),
    Awaited(u64, Fetched),
}

impl Buffers {
    /// Offers a buffer, of which `taken` is told when it has been taken.
    pub fn post(&self, key: &str, buffer: Tensor, taken: Taken) {
        let mut state = self.state.lock();
        if let Some(reason) = state.ended.clone() {
            drop(state);
            return taken(Err(reason));
        }
        match state.entries.remove(key) {
            None => {
                state.entries.insert(key.to_owned(), Entry::Offered(buffer, taken));
            }
            Some(Entry::Awaited(_, fetched)) => {
                drop(state);
                fetched(Ok(buffer));
                taken(Ok(()));
            }
            Some(offered) => {
                state.entries.insert(key.to_owned(), offered);
                drop(state);
                taken(Err(internal!("BufRendezvous::ProvideBuf already called for key {key}")));
            }
        }
    }

    /// Takes a buffer, now or when it is offered. Yields what withdraws the wish as long as it is not fulfilled.
    pub fn fetch(&self, key: &str, fetched: Fetched) -> Option<u64> {
        let mut state = self.state.lock();
        if let Some(reason) = state.ended.clone() {
            drop(state);
            fetched(Err(reason));
            return None;
        }
        match state.entries.remove(key) {
            None => {
                let number = state.next;
                state.next += 1;
                state.entries.insert(key.to_owned(), Entry::Awaited(number, fetched));
                Some(number)
            }
            Some(Entry::Offered(buffer, taken)) => {
                drop(state);
                fetched(Ok(buffer));
                taken(Ok(()));
                None
            }
            Some(awaited) => {
                state.entries.insert(key.to_owned(), awaited);
                drop(state);
                fetched(Err(internal!("Second consumer arrived for key {key}")));
                None
            }
        }
    }

    /// Withdraws a wish; one that has been fulfilled is let be.
    pub fn withdraw(&self, key: &str, number: u64) {
        let mut state = self.state.lock();
        if matches!(state.entries.get(key), Some(Entry::Awaited(waiting, _)) if *waiting == number) {
            state.entries.remove(key);
        }
    }

    /// Notes what is waited for until the returned guard is dropped.
    pub fn waiting(self: &Arc<Self>, wait: Wait) -> Waiting {
        let mut state = self.state.lock();
        let number = state.next;
        state.next += 1;
        state.waits.insert(number, wait);
        Waiting { buffers: self.clone(), number }
    }

    fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.entries.is_empty() && state.ended.is_none()
    }

    fn has_ended(&self) -> bool {
        self.state.lock().ended.is_some()
    }

    fn end(&self, reason: Status) {
        let entries = {
            let mut state = self.state.lock();
            if state.ended.is_some() {
                return;
            }
            state.ended = Some(reason.clone());
            std::mem::take(&mut state.entries)
        };
        for entry in entries.into_values() {
            match entry {
                Entry::Offered(_, taken) => taken(Err(reason.clone())),
                Entry::Awaited(_, fetched) => fetched(Err(reason.clone())),
            }
        }
    }
}

/// Keeps a note of what is waited for.
pub(crate) struct Waiting {
    buffers: Arc<Buffers>,
    number: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.buffers.state.lock().waits.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_tensor::{Result, cancelled};
    use std::sync::mpsc::{Receiver, channel};

    fn tensor() -> Tensor {
        Tensor::vector(&[1.0f32]).unwrap()
    }

    type Tell<T> = Box<dyn FnOnce(Result<T>) + Send>;

    fn outcome<T: Send + 'static>() -> (Tell<T>, Receiver<Result<T>>) {
        let (sender, receiver) = channel();
        (Box::new(move |value| drop(sender.send(value))), receiver)
    }

    #[test]
    fn either_side_may_be_first_and_buffers_are_taken_once() {
        let steps = StepBuffers::default();
        let buffers = steps.begin(1);
        let ((taken, was_taken), (fetched, got)) = (outcome(), outcome());
        buffers.post("a", tensor(), taken);
        assert!(was_taken.try_recv().is_err());
        assert_eq!(buffers.fetch("a", fetched), None);
        assert!(was_taken.recv().unwrap().is_ok() && got.recv().unwrap().is_ok());
        let ((taken, was_taken), (fetched, got)) = (outcome(), outcome());
        let number = buffers.fetch("a", fetched).unwrap();
        buffers.withdraw("a", number + 1);
        buffers.post("a", tensor(), taken);
        assert!(was_taken.recv().unwrap().is_ok() && got.recv().unwrap().is_ok());
        assert!(buffers.is_idle());
        steps.forget_if_idle(1, &buffers, 2);
        assert!(steps.0.lock().live.is_empty());
    }

    #[test]
    fn failures_are_told_late_and_do_not_outlive_a_new_beginning() {
        let steps = StepBuffers::default();
        let buffers = steps.begin(1);
        let ((taken, was_taken), (fetched, got)) = (outcome(), outcome());
        buffers.post("a", tensor(), taken);
        steps.fail(1, &buffers, cancelled!("first"));
        steps.fail(1, &buffers, cancelled!("second"));
        assert_eq!(was_taken.recv().unwrap().unwrap_err().message(), "first");
        steps.of(1).fetch("a", fetched);
        assert_eq!(got.recv().unwrap().err().unwrap().message(), "first");
        assert!(!steps.begin(1).has_ended());
        for step in 2..1000 {
            let buffers = steps.begin(step);
            steps.fail(step, &buffers, cancelled!("over"));
        }
        assert_eq!(steps.0.lock().live.len(), REMEMBERED_FAILURES + 1);
    }
}
