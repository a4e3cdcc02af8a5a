//! Queues of tuples of tensors, on which steps of any session may wait.
//!
//! Those who wait stand in line: enqueuers in one, dequeuers in another, and only the first of a line makes progress. An attempt
//! holds no thread; it completes through its callback, from whichever thread made it possible.

use crate::queue_order::{QueueOrder, Tuple};
use crate::queue_spec::{QueueSpec, dtype_list, row, shape_list};
use crate::{CallbackId, Resource, Step};
use graphmill_tensor::{Result, Status, cancelled, invalid_argument, out_of_range};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;

/// What is called when an attempt ends.
pub type QueueDone = Box<dyn FnOnce(Result<Tuple>) + Send>;

enum Action {
    Enqueue(Tuple),
    EnqueueMany { batch: Tuple, next: usize, rows: usize },
    Close,
    Dequeue,
    DequeueMany { wanted: usize, allow_small: bool, taken: Vec<Tuple> },
}

struct Attempt {
    id: u64,
    action: Action,
    done: QueueDone,
    registered: Option<(Arc<Step>, CallbackId)>,
}

enum Outcome {
    Waiting,
    Moved,
    Complete(Result<Tuple>),
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Enqueue,
    Dequeue,
}

struct State {
    elements: Box<dyn QueueOrder>,
    closed: bool,
    next_id: u64,
    enqueues: VecDeque<Attempt>,
    dequeues: VecDeque<Attempt>,
}

/// A queue.
pub struct Queue {
    spec: QueueSpec,
    state: Mutex<State>,
}

impl Resource for Queue {
    const TYPE_NAME: &'static str = "N10tensorflow14QueueInterfaceE";
}

impl Queue {
    /// An empty queue.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if there are no components, or not as many shapes as components.
    pub fn new(spec: QueueSpec, elements: Box<dyn QueueOrder>) -> Result<Queue> {
        if spec.types.is_empty() {
            return Err(invalid_argument!("Empty component types for queue {}", spec.name));
        }
        if !spec.shapes.is_empty() && spec.shapes.len() != spec.types.len() {
            return Err(invalid_argument!(
                "Different number of component types.  Types: {}, Shapes: {}",
                dtype_list(&spec.types),
                shape_list(&spec.shapes)
            ));
        }
        let (enqueues, dequeues) = (VecDeque::new(), VecDeque::new());
        Ok(Queue { spec, state: Mutex::new(State { elements, closed: false, next_id: 0, enqueues, dequeues }) })
    }

    /// What is fixed about it.
    pub fn spec(&self) -> &QueueSpec {
        &self.spec
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        self.state.lock().elements.len()
    }

    /// Whether it holds no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it has been closed.
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// How many enqueues and dequeues wait.
    pub fn waiting(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.enqueues.len(), state.dequeues.len())
    }

    /// Puts an element in, when there is room. `done` gets an empty tuple.
    pub fn enqueue(self: &Arc<Self>, step: &Arc<Step>, element: Tuple, done: QueueDone) {
        match self.spec.check(&element, None) {
            Ok(()) => self.attempt(step, Side::Enqueue, Action::Enqueue(element), done),
            Err(error) => done(Err(error)),
        }
    }

    /// Puts the rows of a batch in, one after the other, as there is room. `done` gets an empty tuple.
    pub fn enqueue_many(self: &Arc<Self>, step: &Arc<Step>, batch: Tuple, done: QueueDone) {
        match self.spec.check_batch(&batch) {
            Ok(0) => done(Ok(Vec::new())),
            Ok(rows) => self.attempt(step, Side::Enqueue, Action::EnqueueMany { batch, next: 0, rows }, done),
            Err(error) => done(Err(error)),
        }
    }

    /// Takes an element out, when there is one.
    pub fn dequeue(self: &Arc<Self>, step: &Arc<Step>, done: QueueDone) {
        self.attempt(step, Side::Dequeue, Action::Dequeue, done);
    }

    /// Takes `wanted` elements out as a batch, when there are as many; with `allow_small`, fewer if the queue is closed.
    pub fn dequeue_many(self: &Arc<Self>, step: &Arc<Step>, wanted: usize, allow_small: bool, done: QueueDone) {
        if self.spec.shapes.is_empty() {
            let kind = self.spec.kind;
            done(Err(if self.spec.whole_batches {
                invalid_argument!("{kind}'s DequeueMany requires the components to have specified shapes.")
            } else {
                invalid_argument!(
                    "{kind}'s DequeueMany and DequeueUpTo require the components to have specified shapes."
                )
            }));
            return;
        }
        if wanted == 0 {
            done(self.spec.batch(&[]));
            return;
        }
        self.attempt(step, Side::Dequeue, Action::DequeueMany { wanted, allow_small, taken: Vec::new() }, done);
    }

    /// Closes the queue: behind those who wait to enqueue, or, with `cancel_pending`, at once while their attempts fail.
    pub fn close(self: &Arc<Self>, cancel_pending: bool, done: QueueDone) {
        let mut ended = Vec::new();
        {
            let mut state = self.state.lock();
            if cancel_pending {
                state.closed = true;
                let enqueues = std::mem::take(&mut state.enqueues);
                ended.extend(enqueues.into_iter().map(|a| (a, Err(cancelled!("Enqueue operation was cancelled")))));
            } else {
                let id = state.next_id;
                state.next_id += 1;
                state.enqueues.push_back(Attempt { id, action: Action::Close, done, registered: None });
                drop(state);
                self.flush();
                return;
            }
        }
        finish(ended);
        done(Ok(Vec::new()));
        self.flush();
    }

    fn attempt(self: &Arc<Self>, step: &Arc<Step>, side: Side, action: Action, done: QueueDone) {
        {
            let mut state = self.state.lock();
            let id = state.next_id;
            state.next_id += 1;
            let (queue, waiting) = (self.clone(), self.clone());
            let waits = move || waiting.waits(side, id).into_iter().collect();
            match step.cancellation().register_waiting(move || queue.cancel(side, id), waits) {
                Some(callback) => {
                    let attempt = Attempt { id, action, done, registered: Some((step.clone(), callback)) };
                    state.line(side).push_back(attempt);
                }
                None => {
                    drop(state);
                    done(Err(cancelled_attempt(side)));
                    return;
                }
            }
        }
        self.flush();
    }

    /// What an attempt waits for, in words, if it still does.
    fn waits(&self, side: Side, id: u64) -> Option<String> {
        let mut state = self.state.lock();
        let (size, name) = (state.elements.len(), &self.spec.name);
        let attempt = state.line(side).iter().find(|attempt| attempt.id == id)?;
        Some(match &attempt.action {
            Action::Enqueue(_) | Action::Close => format!("room in queue {name}, which has {size} elements"),
            Action::EnqueueMany { next, rows, .. } => {
                format!("room in queue {name}, which has {size} elements, for {} more", rows - next)
            }
            Action::Dequeue => format!("an element of queue {name}, which has {size} ready"),
            Action::DequeueMany { wanted, taken, .. } => {
                format!("{} of {wanted} elements of queue {name}, which has {size} ready", wanted - taken.len())
            }
        })
    }

    fn cancel(self: &Arc<Self>, side: Side, id: u64) {
        let attempt = {
            let mut state = self.state.lock();
            let line = state.line(side);
            match line.iter().position(|attempt| attempt.id == id) {
                Some(at) => line.remove(at),
                None => None,
            }
        };
        if let Some(attempt) = attempt {
            (attempt.done)(Err(cancelled_attempt(side)));
            self.flush();
        }
    }

    /// Lets the first of each line make progress until neither can.
    fn flush(&self) {
        let mut ended = Vec::new();
        {
            let mut state = self.state.lock();
            loop {
                let enqueued = self.advance(&mut state, Side::Enqueue, &mut ended);
                let dequeued = self.advance(&mut state, Side::Dequeue, &mut ended);
                if !enqueued && !dequeued {
                    break;
                }
            }
        }
        finish(ended);
    }

    fn advance(&self, state: &mut State, side: Side, ended: &mut Vec<(Attempt, Result<Tuple>)>) -> bool {
        let mut progress = false;
        while let Some(mut attempt) = state.line(side).pop_front() {
            match self.run(state, &mut attempt.action) {
                Outcome::Complete(outcome) => {
                    progress = true;
                    ended.push((attempt, outcome));
                }
                waiting => {
                    state.line(side).push_front(attempt);
                    return progress || matches!(waiting, Outcome::Moved);
                }
            }
        }
        progress
    }

    fn run(&self, state: &mut State, action: &mut Action) -> Outcome {
        match action {
            Action::Close if state.closed => {
                Outcome::Complete(Err(cancelled!("Queue '{}' is already closed.", self.spec.name)))
            }
            Action::Close => {
                state.closed = true;
                Outcome::Complete(Ok(Vec::new()))
            }
            Action::Enqueue(_) | Action::EnqueueMany { .. } if state.closed => {
                Outcome::Complete(Err(cancelled!("{} '{}' is closed.", self.spec.kind, self.spec.name)))
            }
            Action::Enqueue(element) => {
                if state.elements.len() >= self.spec.capacity {
                    return Outcome::Waiting;
                }
                Outcome::Complete(state.elements.push(std::mem::take(element)).map(|()| Vec::new()))
            }
            Action::EnqueueMany { batch, next, rows } => {
                let mut outcome = Outcome::Waiting;
                while state.elements.len() < self.spec.capacity {
                    outcome = Outcome::Moved;
                    let row = batch.iter().map(|component| row(component, *next)).collect::<Result<Tuple>>();
                    if let Err(error) = row.and_then(|row| state.elements.push(row)) {
                        return Outcome::Complete(Err(error));
                    }
                    *next += 1;
                    if *next == *rows {
                        return Outcome::Complete(Ok(Vec::new()));
                    }
                }
                outcome
            }
            Action::Dequeue => {
                let size = state.elements.len();
                if state.closed && size == 0 {
                    return Outcome::Complete(Err(self.exhausted(1, 0)));
                }
                if size <= self.left_behind(state) {
                    return Outcome::Waiting;
                }
                match state.elements.pop() {
                    Some(element) => Outcome::Complete(Ok(element)),
                    None => Outcome::Waiting,
                }
            }
            Action::DequeueMany { wanted, allow_small, taken } if self.spec.whole_batches => {
                let size = state.elements.len();
                if state.closed && (size == 0 || (!*allow_small && size < *wanted)) {
                    return Outcome::Complete(Err(self.exhausted(*wanted, size)));
                }
                if size < *wanted && !(state.closed && *allow_small) {
                    return Outcome::Waiting;
                }
                while taken.len() < *wanted
                    && let Some(element) = state.elements.pop()
                {
                    taken.push(element);
                }
                Outcome::Complete(self.spec.batch(taken))
            }
            Action::DequeueMany { wanted, allow_small, taken } => {
                let size = state.elements.len();
                let missing = *wanted - taken.len();
                if state.closed && size < missing {
                    // Not enough for the batch: what was taken goes back.
                    while let Some(element) = taken.pop() {
                        state.elements.restore(element);
                    }
                    if *allow_small && !state.elements.is_empty() {
                        *wanted = state.elements.len();
                    } else if *allow_small && !state.enqueues.is_empty() {
                        return Outcome::Moved;
                    } else {
                        return Outcome::Complete(Err(self.exhausted(missing, size)));
                    }
                }
                let mut outcome = Outcome::Waiting;
                let left_behind = self.left_behind(state);
                while state.elements.len() > left_behind
                    && let Some(element) = state.elements.pop()
                {
                    outcome = Outcome::Moved;
                    taken.push(element);
                    if taken.len() == *wanted {
                        return Outcome::Complete(self.spec.batch(taken));
                    }
                }
                outcome
            }
        }
    }

    fn left_behind(&self, state: &State) -> usize {
        if state.closed { 0 } else { self.spec.min_after_dequeue }
    }

    fn exhausted(&self, wanted: usize, size: usize) -> Status {
        out_of_range!(
            "{} '{}' is closed and has insufficient elements (requested {wanted}, current size {size})",
            self.spec.kind,
            self.spec.name
        )
    }
}

impl State {
    fn line(&mut self, side: Side) -> &mut VecDeque<Attempt> {
        match side {
            Side::Enqueue => &mut self.enqueues,
            Side::Dequeue => &mut self.dequeues,
        }
    }
}

fn cancelled_attempt(side: Side) -> Status {
    match side {
        Side::Enqueue => cancelled!("Enqueue operation was cancelled"),
        Side::Dequeue => cancelled!("Dequeue operation was cancelled"),
    }
}

/// Tells those whose attempts have ended; without the lock, as they may come back at once.
fn finish(ended: Vec<(Attempt, Result<Tuple>)>) {
    for (attempt, outcome) in ended {
        if let Some((step, callback)) = &attempt.registered {
            step.cancellation().deregister(*callback);
        }
        (attempt.done)(outcome);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use graphmill_graph::PartialShape;
    use graphmill_tensor::{DType, Tensor};
    use std::sync::mpsc;

    fn queue(capacity: usize) -> Arc<Queue> {
        let spec = QueueSpec {
            kind: "FIFOQueue",
            name: "q".into(),
            capacity,
            types: vec![DType::Int32],
            shapes: vec![PartialShape::new(&[]).unwrap()],
            min_after_dequeue: 0,
            whole_batches: false,
            seeds: (0, 0),
        };
        Arc::new(Queue::new(spec, Box::new(VecDeque::new())).unwrap())
    }

    fn outcome() -> (QueueDone, mpsc::Receiver<Result<Tuple>>) {
        let (send, receive) = mpsc::channel();
        (Box::new(move |outcome| send.send(outcome).unwrap()), receive)
    }

    fn number(value: i32) -> Tuple {
        vec![Tensor::scalar(value).unwrap()]
    }

    #[test]
    fn those_who_wait_are_served_in_order() {
        let (queue, step) = (queue(2), Arc::new(Step::new(1)));
        let (first, first_outcome) = outcome();
        queue.dequeue_many(&step, 3, false, first);
        let (second, second_outcome) = outcome();
        queue.dequeue(&step, second);
        assert_eq!(queue.waiting(), (0, 2));
        let mut waits = step.cancellation().waits();
        waits.sort();
        let wanted = ["3 of 3 elements of queue q, which has 0 ready", "an element of queue q, which has 0 ready"];
        assert_eq!(waits, wanted);
        for value in 0..4 {
            let (done, enqueued) = outcome();
            queue.enqueue(&step, number(value), done);
            enqueued.try_recv().unwrap().unwrap();
        }
        let batch = first_outcome.try_recv().unwrap().unwrap();
        assert_eq!(batch[0].as_slice::<i32>().unwrap(), &[0, 1, 2]);
        assert_eq!(second_outcome.try_recv().unwrap().unwrap()[0].scalar_value::<i32>().unwrap(), 3);
        assert!(queue.is_empty());
    }

    #[test]
    fn closing_fails_who_cannot_be_served_and_gives_small_batches() {
        let (queue, step) = (queue(5), Arc::new(Step::new(1)));
        let (many, many_outcome) = outcome();
        queue.dequeue_many(&step, 3, false, many);
        let (up_to, up_to_outcome) = outcome();
        queue.dequeue_many(&step, 3, true, up_to);
        queue.enqueue(&step, number(7), Box::new(|_| ()));
        queue.close(false, Box::new(|outcome| assert!(outcome.is_ok())));
        let error = many_outcome.try_recv().unwrap().unwrap_err();
        assert_eq!(
            error.message(),
            "FIFOQueue 'q' is closed and has insufficient elements (requested 2, current size 0)"
        );
        assert_eq!(up_to_outcome.try_recv().unwrap().unwrap()[0].as_slice::<i32>().unwrap(), &[7]);
        let (again, again_outcome) = outcome();
        queue.close(false, again);
        assert_eq!(again_outcome.try_recv().unwrap().unwrap_err().message(), "Queue 'q' is already closed.");
    }

    #[test]
    fn a_cancelled_step_stops_waiting() {
        let (queue, step) = (queue(1), Arc::new(Step::new(1)));
        let (done, waiting) = outcome();
        queue.dequeue(&step, done);
        assert!(waiting.try_recv().is_err());
        step.cancellation().cancel(cancelled!("over"));
        assert_eq!(waiting.try_recv().unwrap().unwrap_err().message(), "Dequeue operation was cancelled");
        let (done, late) = outcome();
        queue.enqueue(&step, number(1), done);
        assert_eq!(late.try_recv().unwrap().unwrap_err().message(), "Enqueue operation was cancelled");
        assert!(queue.is_empty());
    }
}
