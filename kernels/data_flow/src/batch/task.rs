//! What one run of a batching node adds to batches.

use super::rows;
use crate::pending::Pending;
use graphmill_runtime::Function;
use graphmill_tensor::{Result, Status, Tensor, internal};
use parking_lot::Mutex;
use std::sync::Arc;

/// A run, whose rows may be in several batches.
pub(super) struct Run {
    pub pending: Arc<Pending>,
    /// What the run is known as in the index of a batch.
    pub key: i64,
    /// What is called with a whole batch, if anything.
    pub function: Option<Function>,
    /// The arguments of the function that are not batched.
    pub captured: Vec<Tensor>,
    /// The results of the run's parts, as they come.
    parts: Mutex<Parts>,
}

struct Parts {
    results: Vec<Option<Vec<Tensor>>>,
    failure: Option<Status>,
    missing: usize,
}

impl Run {
    pub fn new(pending: Arc<Pending>, key: i64, function: Option<Function>, captured: Vec<Tensor>) -> Run {
        let parts = Mutex::new(Parts { results: vec![None], failure: None, missing: 1 });
        Run { pending, key, function, captured, parts }
    }

    fn finish(&self, part: usize, outcome: Result<Vec<Tensor>>) {
        let outcome = {
            let mut parts = self.parts.lock();
            match outcome {
                Ok(result) => match parts.results.get_mut(part) {
                    Some(slot) => *slot = Some(result),
                    None => parts.failure = Some(internal!("a batch has a part that its input has not")),
                },
                Err(error) => {
                    parts.failure.get_or_insert(error);
                }
            }
            parts.missing = parts.missing.saturating_sub(1);
            if parts.missing > 0 {
                return;
            }
            match parts.failure.take() {
                Some(error) => Err(error),
                None => joined(std::mem::take(&mut parts.results)),
            }
        };
        self.pending.complete(outcome);
    }
}

/// The outputs of the parts, one after the other.
fn joined(results: Vec<Option<Vec<Tensor>>>) -> Result<Vec<Tensor>> {
    let results: Option<Vec<Vec<Tensor>>> = results.into_iter().collect();
    let mut results = results.ok_or_else(|| internal!("a part of a batch has no result"))?;
    if results.len() == 1 {
        return Ok(results.swap_remove(0));
    }
    let outputs = results.first().map_or(0, Vec::len);
    let output = |i: usize| {
        let pieces: Vec<Tensor> = results.iter().filter_map(|result| result.get(i).cloned()).collect();
        rows::concat(&pieces)
    };
    (0..outputs).map(output).collect()
}

/// Rows of a run that go into one batch.
pub(super) struct Task {
    pub run: Arc<Run>,
    pub inputs: Vec<Tensor>,
    pub rows: usize,
    part: usize,
}

impl Task {
    /// All rows of a run.
    pub fn new(run: Arc<Run>, inputs: Vec<Tensor>, rows: usize) -> Task {
        Task { run, inputs, rows, part: 0 }
    }

    /// Tasks of at most `most` rows, the first of at most `first`; `first` may be 0.
    ///
    /// # Errors
    /// As [`rows::split`].
    pub fn divided(self, first: usize, most: usize) -> Result<Vec<Task>> {
        let mut sizes = Vec::new();
        let mut left = self.rows;
        let mut room = if first > 0 { first } else { most };
        while left > 0 {
            let size = left.min(room).max(1);
            sizes.push(size);
            left -= size;
            room = most;
        }
        if sizes.len() <= 1 {
            return Ok(vec![self]);
        }
        let mut tasks: Vec<Task> = sizes
            .iter()
            .enumerate()
            .map(|(part, &rows)| Task { run: self.run.clone(), inputs: Vec::new(), rows, part })
            .collect();
        for input in &self.inputs {
            let pieces = rows::split(input, &sizes)?;
            tasks.iter_mut().zip(pieces).for_each(|(task, piece)| task.inputs.push(piece));
        }
        *self.run.parts.lock() = Parts { results: vec![None; sizes.len()], failure: None, missing: sizes.len() };
        Ok(tasks)
    }

    /// Ends this part of the run, and the run with its last part.
    pub fn finish(&self, outcome: Result<Vec<Tensor>>) {
        self.run.finish(self.part, outcome);
    }
}
