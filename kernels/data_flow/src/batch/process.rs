//! What is done with a batch once it is full or due.

use super::options::Options;
use super::queue::{Batch, Batcher};
use super::rows;
use super::task::Task;
use graphmill_runtime::Function;
use graphmill_tensor::{Result, Shape, Tensor, failed_precondition, internal, invalid_argument};
use std::sync::Arc;

/// Processes a batch and ends its tasks; may return before that.
pub(super) fn run(batcher: Arc<Batcher>, batch: Batch) {
    let mut tasks = batch.tasks;
    // The rows of steps that have ended meanwhile are nobody's.
    tasks.retain(|task| !task.run.pending.is_over());
    let Some(last) = tasks.last() else {
        batcher.ended();
        return;
    };
    let Some(function) = last.run.function.clone() else {
        let outcome = gathered(&tasks, batcher.options());
        batcher.ended();
        finish(&tasks, outcome);
        return;
    };
    let rows = tasks.iter().map(|task| task.rows).sum();
    let padded = batcher.options().padded(rows);
    let (step, captured) = (last.run.pending.step().clone(), last.run.captured.clone());
    let args = concatenated(&tasks, padded - rows).map(|mut args| {
        args.extend(captured);
        args
    });
    match args {
        Ok(args) => {
            let next = function.clone();
            function.call(&step, args, move |results| {
                batcher.ended();
                finish(&tasks, results.and_then(|results| divided(&tasks, results, padded, &next)));
                // On another thread: batches that end at once would pile up on this one's stack.
                next.spawn(move || batcher.start());
            });
        }
        Err(error) => {
            batcher.ended();
            finish(&tasks, Err(error));
        }
    }
}

fn finish(tasks: &[Task], outcome: Result<Vec<Vec<Tensor>>>) {
    match outcome {
        Ok(outputs) => tasks.iter().zip(outputs).for_each(|(task, outputs)| task.finish(Ok(outputs))),
        Err(error) => tasks.iter().for_each(|task| task.finish(Err(error.clone()))),
    }
}

/// The inputs of all tasks put together, followed by `padding` copies of the first row.
fn concatenated(tasks: &[Task], padding: usize) -> Result<Vec<Tensor>> {
    let inputs = tasks.first().map_or(0, |task| task.inputs.len());
    if tasks.iter().any(|task| task.inputs.len() != inputs) {
        return Err(invalid_argument!("Batching inputs must have equal number of edges"));
    }
    let input = |i: usize| {
        let mut parts: Vec<Tensor> = tasks.iter().filter_map(|task| task.inputs.get(i).cloned()).collect();
        if parts.windows(2).any(|pair| pair[0].dtype() != pair[1].dtype()) {
            return Err(invalid_argument!("Batching inputs must have equal types"));
        }
        if padding > 0
            && let Some(first) = parts.first()
        {
            let row = first.rows(0, 1)?;
            parts.extend(std::iter::repeat_n(row, padding));
        }
        rows::concat(&parts)
    };
    (0..inputs).map(input).collect()
}

/// The outputs of `Batch`: the last task gets the whole batch and its index, the others get nothing but their keys.
fn gathered(tasks: &[Task], options: &Options) -> Result<Vec<Vec<Tensor>>> {
    let rows: usize = tasks.iter().map(|task| task.rows).sum();
    let batch = concatenated(tasks, options.padded(rows) - rows)?;
    let mut index = Vec::with_capacity(tasks.len() * 3);
    let mut start = 0;
    for task in tasks {
        let end = start + i64::try_from(task.rows).map_err(|_| internal!("a task has too many rows"))?;
        index.extend([task.run.key, start, end]);
        start = end;
    }
    let others = tasks.len().saturating_sub(1);
    let outputs = |(at, task): (usize, &Task)| {
        let key = Tensor::scalar(task.run.key)?;
        if at == others {
            let index = Tensor::from_slice(Shape::from_dims(&[tasks.len(), 3])?, &index)?;
            return Ok(batch.iter().cloned().chain([index, key]).collect());
        }
        let empty = |input: &Tensor| input.rows(0, 0);
        let mut outputs = task.inputs.iter().map(empty).collect::<Result<Vec<Tensor>>>()?;
        outputs.extend([Tensor::from_slice(Shape::from_dims(&[0, 3])?, &[0_i64; 0])?, key]);
        Ok(outputs)
    };
    tasks.iter().enumerate().map(outputs).collect()
}

/// For each task its rows of the function's results.
fn divided(tasks: &[Task], results: Vec<Tensor>, padded: usize, function: &Function) -> Result<Vec<Vec<Tensor>>> {
    if results.len() != function.output_types().len() {
        return Err(internal!("Wrong number of batched output tensors"));
    }
    let sizes: Vec<usize> = tasks.iter().map(|task| task.rows).collect();
    let rows: usize = sizes.iter().sum();
    let mut outputs = vec![Vec::with_capacity(results.len()); tasks.len()];
    for result in results {
        if result.shape().is_scalar() {
            return Err(failed_precondition!("Batched output tensor has 0 dimensions"));
        }
        let got = result.shape().dim(0);
        if got != padded {
            let padding = padded - rows;
            return Err(failed_precondition!(
                "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the input \
                 tensors. 0th dimension size: {got}; batch size: {rows}; unbatched tasks size: 0; padding size: {padding}"
            ));
        }
        let parts = rows::split(&result, &sizes)?;
        outputs.iter_mut().zip(parts).for_each(|(outputs, part)| outputs.push(part));
    }
    Ok(outputs)
}
