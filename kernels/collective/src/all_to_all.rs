//! Exchanges: each device gives each other one row of its input, and gets one.

use crate::progress::Progress;
use graphmill_tensor::{Result, Tensor, internal, invalid_argument};
use std::sync::Arc;

/// Sends row `i` to the device of rank `i`, whose row for this device becomes row `i` of the result.
pub(crate) fn start(progress: Arc<Progress>, input: &Tensor) {
    if let Err(error) = exchange(&progress, input) {
        progress.fail(error);
    }
}

fn exchange(progress: &Arc<Progress>, input: &Tensor) -> Result<()> {
    let (size, own) = (progress.size(), progress.instance.rank);
    let rows = if input.shape().is_scalar() { 0 } else { input.shape().dim(0) };
    if rows != size {
        return Err(invalid_argument!(
            "input to all-to-all first dimension size ({rows}) must be the same as the group size ({size})"
        ));
    }
    let length = input.num_elements() / size;
    progress.expect(size);
    for other in 0..size {
        // As TensorFlow has it, the ranks stand next to each other.
        let key = |from: usize, to: usize| format!("{}{from}{to}", progress.key);
        progress.post(other, key(own, other), input.rows(other, 1)?);
        let then = {
            let progress = progress.clone();
            move |row: Tensor| {
                if row.num_elements() != length {
                    return Err(internal!("A row has {} elements, not {length}", row.num_elements()));
                }
                progress.place(other * length, &row)?;
                progress.done();
                Ok(())
            }
        };
        progress.fetch(other, key(other, own), length, then);
    }
    progress.done();
    Ok(())
}
